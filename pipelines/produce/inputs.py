"""The input of a put: which files, in which order, read the same way each time.

A put reads its input twice, to count and to write, so the files and their order are fixed first. Places follow (file name,
position in the file); Spark's own order is largest file first.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipelines.store.delta import DeltaTable, is_delta_table
from pipelines.store.errors import BadInput
from pipelines.store.jvm import hadoop_path

FORMATS = ("jsonl", "parquet", "delta", "csv")

# Every column an input may have; another one is refused, lest a misspelt name lose its values.
INPUT_COLUMNS = (
    "topic", "body", "body_base64", "tags", "keys", "properties", "properties_raw", "unique_key", "queue_id",
    "sharding_key", "flag", "born_timestamp", "born_host", "sys_flag", "delay_level", "delay_ms", "deliver_at_ms",
    "deliver_at_time", "deliver_through", "cancel_unique_key", "transaction", "producer_group", "batch", "arrival",
)  # fmt: skip

# A line's fields are read as text and checked one by one, so that a complaint can name the column; keys may be a list,
# and a sharding key's type decides its hash.
_JSON_TYPES = {"keys": "variant", "sharding_key": "variant", "properties": "map<string,string>"}
_BROKEN = "_broken"


@dataclass(frozen=True)
class InputFile:
    """One file: its name as the user would write it, its URI as Spark reports it, the path to read it by."""

    name: str
    uri: str
    path: str
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True)
class Input:
    """A frozen input.

    columns  the input columns it has
    files    its files in the order of their names
    hashes   hash of a file's URI -> its number in `files`
    version  of a Delta table
    unknown  whether some line of a JSON input has a name that no column has
    staged_from  the format of the input this one was arranged from; None for an input as the user gave it
    schema   of a Parquet input, so that its files' footers are asked for it once; None for others
    """

    path: str
    format: str
    files: tuple[InputFile, ...]
    columns: frozenset[str]
    hashes: dict[int, int]
    version: int | None = None
    unknown: bool = False
    staged_from: str | None = None
    schema: StructType | None = None

    @property
    def has_problems(self) -> bool:
        """Whether a row may come with a `problem`: a line that is not what JSON lines are."""
        return "jsonl" in (self.format, self.staged_from)

    @property
    def is_staged(self) -> bool:
        """Whether it was arranged: typed and in order, with what it took to find that out."""
        return self.staged_from is not None

    @property
    def digest(self) -> str:
        """32 hex digits that stay the same as long as the files' places, names, sizes and times do.

        Files of another directory are another input, however alike: daily exports often are, to the byte.
        """
        facts = [(file.uri, file.size_bytes, file.modified_ms) for file in self.files]
        return hashlib.sha256(repr((self.format, self.version, facts)).encode()).hexdigest()[:32]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def read(self, spark: SparkSession, files: Sequence[int] | None = None) -> DataFrame:
        """The input's rows: its columns, `file_hash` and `block_start` of the piece they are in, `raw` (as it came).

        files  numbers of the files to read; all when None
        """
        chosen = [self.files[number] for number in (range(len(self.files)) if files is None else files)]
        rows = _read_rows(spark, self, chosen).withColumns(
            {
                "file_hash": F.xxhash64("_metadata.file_path"),
                "block_start": F.col("_metadata.file_block_start"),
            }
        )
        if self.is_staged:
            return rows
        problem = ["problem"] if self.has_problems else []
        return rows.select("file_hash", "block_start", "raw", *problem, *sorted(self.columns))


def freeze(spark: SparkSession, path: str, format: str) -> Input:
    """Fix an input: its files, their order, its columns.

    Raises BadInput when there is nothing at `path`, or a column is not known, or topic or body is missing.
    """
    if format not in FORMATS:
        raise BadInput(f"--format is {format!r}; expected one of {', '.join(FORMATS)}")
    version = _delta_version(spark, path) if format == "delta" else None
    files = _delta_files(spark, path, version) if version is not None else _files(spark, path)
    if not files:
        raise BadInput(f"no files at {path}; expected a file or a directory with {format} files")
    unchecked = Input(path, format, files, frozenset(INPUT_COLUMNS), _hashes(spark, files), version)
    schema = None
    if format == "jsonl":
        names = _json_names(spark, unchecked)
    else:
        found = _source(spark, unchecked, files).schema
        names = _checked_names(found.names)
        schema = found if format == "parquet" else None
    known = names.intersection(INPUT_COLUMNS)
    return replace(unchecked, columns=known, unknown=names != known, schema=schema)


def staged_input(spark: SparkSession, directory: str, source: Input) -> Input:
    """The arranged copy of an input, as an input."""
    files = _files(spark, directory)
    hashes = _hashes(spark, files)
    return Input(directory, "parquet", files, source.columns, hashes, None, source.unknown, source.format)


def _json_names(spark: SparkSession, frozen: Input) -> frozenset[str]:
    """Every name that some line has: an input uses a few of the columns, and only those are worked out row by row."""
    names = _source(spark, frozen, frozen.files).select(F.explode(F.json_object_keys("value")).alias("name"))
    found = names.groupBy("name").count().orderBy("name").limit(10 * len(INPUT_COLUMNS)).collect()
    return frozenset(row.name for row in found) | {"topic", "body"}


def _checked_names(found: Sequence[str]) -> frozenset[str]:
    for name in found:
        if name not in INPUT_COLUMNS and name != _BROKEN:
            near = get_close_matches(name, INPUT_COLUMNS, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(INPUT_COLUMNS)}"
            raise BadInput(f"the input has a column {name!r} that a message does not have; {hint}")
    for needed in (("topic",), ("body", "body_base64")):
        if not set(needed) & set(found):
            raise BadInput(f"the input has no column {' or '.join(needed)}; it has {', '.join(found)}")
    return frozenset(found) - {_BROKEN}


def _source(spark: SparkSession, frozen: Input, files: Sequence[InputFile]) -> DataFrame:
    paths = [file.path for file in files]
    if frozen.format == "jsonl":
        return spark.read.option("lineSep", "\n").text(paths)
    if frozen.format == "parquet":
        reader = spark.read if frozen.schema is None else spark.read.schema(frozen.schema)
        return reader.option("mergeSchema", not frozen.is_staged).parquet(*paths)
    if frozen.format == "csv":
        # A quoted body may hold line ends, so a file is read as a whole.
        reader = spark.read.options(
            header=True, multiLine=True, escape='"', enforceSchema=False, nullValue="\0"
        )
        return reader.csv(paths)
    table = spark.read.format("delta").option("versionAsOf", str(frozen.version)).load(frozen.path)
    if len(files) == len(frozen.files):
        return table
    chosen = [file_hash for file_hash, number in frozen.hashes.items() if frozen.files[number] in files]
    return table.where(F.xxhash64("_metadata.file_path").isin(chosen))


def _read_rows(spark: SparkSession, frozen: Input, files: Sequence[InputFile]) -> DataFrame:
    source = _source(spark, frozen, files)
    if frozen.is_staged:
        return source
    if frozen.format == "jsonl":
        return _json_rows(source, frozen)
    columns = {name: F.col(name) for name in source.columns}
    return source.withColumn("raw", F.to_json(F.struct(*[_readable(source, name) for name in columns])))


def _readable(source: DataFrame, name: str) -> Column:
    return F.base64(name).alias(name) if dict(source.dtypes)[name] == "binary" else F.col(name)


def _json_rows(lines: DataFrame, frozen: Input) -> DataFrame:
    line = F.col("value")
    wanted = sorted(frozen.columns)
    schema = ", ".join(f"{name} {_JSON_TYPES.get(name, 'string')}" for name in wanted)
    parsed = F.from_json(line, f"{schema}, {_BROKEN} string", {"columnNameOfCorruptRecord": _BROKEN})
    is_broken = F.col(f"message.{_BROKEN}").isNotNull() | F.col("message").isNull()
    names = F.json_object_keys(line)
    broken = F.when(names.isNull(), F.lit("not a JSON object")).otherwise(
        F.lit("properties: expected an object of strings")
    )
    problem = F.when(is_broken, broken)
    if frozen.unknown:
        others = F.array_except(names, F.array(*[F.lit(name) for name in INPUT_COLUMNS]))
        known = ", ".join(INPUT_COLUMNS)
        sentence = F.format_string(f"unknown column %s; known are {known}", F.array_join(others, ", "))
        problem = problem.when(F.size(others) > 0, sentence)
    return (
        lines.where(F.trim(line) != "")
        .withColumn("message", parsed)
        .select(
            F.col("_metadata"),
            line.alias("raw"),
            problem.alias("problem"),
            *[F.col(f"message.{name}").alias(name) for name in wanted],
        )
    )


def _files(spark: SparkSession, path: str) -> tuple[InputFile, ...]:
    """Files at or below a path, ordered by name; names that start with _ or . are not data, as everywhere in Spark."""
    root, system = hadoop_path(spark, path)
    if not system.exists(root):
        raise BadInput(f"there is nothing at {path}; expected the input's file or directory")
    root = system.resolvePath(root)
    listing = system.listFiles(root, True)
    files = []
    while listing.hasNext():
        status = listing.next()
        uri = status.getPath().toUri()
        name = root.toUri().relativize(uri).getPath() or status.getPath().getName()
        if status.getLen() and not any(part.startswith(("_", ".")) for part in name.split("/")):
            path = re.sub(r"([\[\]{}*?\\])", r"\\\1", status.getPath().toString())  # a name, not a pattern
            files.append(InputFile(name, uri.toString(), path, status.getLen(), status.getModificationTime()))
    return tuple(sorted(files, key=lambda file: file.name))


def _delta_version(spark: SparkSession, path: str) -> int:
    if not is_delta_table(spark, path):
        raise BadInput(f"there is no Delta table at {path}; expected the directory that holds _delta_log")
    return DeltaTable(spark, path).update().version


def _delta_files(spark: SparkSession, path: str, version: int) -> tuple[InputFile, ...]:
    table = spark.read.format("delta").option("versionAsOf", str(version)).load(path)
    # A Delta table's files never change, so their names stand for their sizes and times.
    return tuple(InputFile(uri.rsplit("/", 1)[1], uri, uri, 0, 0) for uri in sorted(table.inputFiles()))


def _hashes(spark: SparkSession, files: Sequence[InputFile]) -> dict[int, int]:
    # Hadoop writes a local file's URI with one slash or with three.
    names = [
        (number, uri)
        for number, file in enumerate(files)
        for uri in (file.uri, file.uri.replace(":///", ":/", 1))
    ]
    uris: Any = pa.table({"number": [number for number, _ in names], "uri": [uri for _, uri in names]})
    hashed = spark.createDataFrame(uris).select("number", F.xxhash64("uri")).collect()  # two rows a file
    return {file_hash: number for number, file_hash in hashed}
