"""The input of a put: its files in a fixed order, read the same way each time.

A put reads its input twice, to count and to write, so the files and their order are frozen first. Offsets follow (file
name, position in the file); Spark's own order is largest file first. A text is never changed on its way: a line or field
whose bytes are not UTF-8, or a JSON string with half of a surrogate pair, gets a complaint, where Spark would replace it.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import reduce
from operator import or_
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from pipelines.errors import BadInput, StoreError
from pipelines.log.json_lines import has_text, is_one_object
from pipelines.produce.input_files import (
    InputFile,
    delta_files,
    delta_version,
    directory_at,
    files_at,
    uri_hashes,
)
from pipelines.spark_internals.files import sizes_and_times
from pipelines.spark_internals.jvm import innermost_text
from pipelines.uris import expect_no_secret

FORMATS = ("jsonl", "parquet", "delta", "csv")

# Up to this size an input of plain text has few rows, and what a count needs of them comes to the driver.
SHORT_BYTES = 1024**2
# Names of files that are text as they are. Spark unpacks others by their name, such as .gz.
PLAIN_TEXT = (".jsonl", ".json", ".ndjson", ".csv", ".txt")

# Every column that an input may have. Any other is refused, so that a misspelt name does not lose its values.
INPUT_COLUMNS = (
    "topic", "body", "body_base64", "tags", "keys", "properties", "properties_raw", "unique_key", "queue_id",
    "sharding_key", "flag", "born_timestamp", "born_host", "sys_flag", "delay_level", "delay_ms", "deliver_at_ms",
    "deliver_at_time", "deliver_through", "cancel_unique_key", "transaction", "producer_group", "batch", "arrival",
)  # fmt: skip

# Types of JSON fields that are not read as text. Text is checked field by field, so that a complaint can name the column;
# keys may be a list, and a sharding key's type decides its hash.
_JSON_TYPES = {"keys": "variant", "sharding_key": "variant", "properties": "map<string,string>"}
_BROKEN = "_broken"
# Off, whatever the session has: both would leave rows out silently.
ALL_FILES = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}

# Escapes in JSON text: half of a surrogate pair is not a character. A backslash that is itself escaped begins no escape.
_ESCAPED_BACKSLASH = r"\\\\"
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# In this encoding every byte is one character, so that a CSV file's bytes can be restored from what Spark's reader returns.
_BYTES = "ISO-8859-1"
_BOM = "\ufeff".encode().decode(_BYTES)

# Spark's error for a CSV file whose header does not have the schema's names, or not as many.
_OTHER_HEADER = re.compile(r"CSV header[^\0]*?CSV file: (\S+)")


@dataclass(frozen=True)
class Input:
    """A frozen input.

    columns  the input columns it has
    files    its files in the order of their names
    hashes   hash of a file's URI -> its number in `files`
    version  of a Delta table; None for others
    unknown  whether some line of a JSON input has a name that is not an input column
    garbled  whether some line of a JSON input has something that is not text
    directory  the input's directory, above those of directory_columns; '' without such columns
    directory_columns  columns whose values are in the names of directories, as `delay_level=3/`
    staged_from  the format of the input that this one was arranged from; None for the user's own input
    schema   of a Parquet or CSV input, so that it is read from the files once; None for others
    """

    path: str
    format: str
    files: tuple[InputFile, ...]
    columns: frozenset[str]
    hashes: dict[int, int]
    version: int | None = None
    unknown: bool = False
    garbled: bool = False
    directory: str = ""
    directory_columns: tuple[str, ...] = ()
    staged_from: str | None = None
    schema: StructType | None = None

    @property
    def given_format(self) -> str:
        """The format of the user's own files."""
        return self.staged_from or self.format

    @property
    def has_problems(self) -> bool:
        """Whether rows have a column `problem`: a line may not be valid JSON or CSV."""
        return self.given_format in ("jsonl", "csv")

    @property
    def is_staged(self) -> bool:
        """Whether it is an arranged copy: typed, in order, its problems already in columns."""
        return self.staged_from is not None

    @property
    def digest(self) -> str:
        """32 hex digits that stay the same as long as the files' URIs, sizes and modification times do.

        Files in another directory are another input, even with the same bytes: daily exports often have them.
        """
        facts = [(file.uri, file.size_bytes, file.modified_ms) for file in self.files]
        return hashlib.sha256(repr((self.format, self.version, facts)).encode()).hexdigest()[:32]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def is_short(self) -> bool:
        """Whether it has few rows by its size: text that is not compressed, in which each row takes its bytes.

        A megabyte of Parquet or of a .gz may unpack to any number of rows, and the sizes of a Delta table are not frozen.
        """
        is_text = self.format in ("jsonl", "csv") and all(
            file.name.endswith(PLAIN_TEXT) for file in self.files
        )
        return is_text and self.size_bytes <= SHORT_BYTES

    def stored_bytes(self, spark: SparkSession) -> int:
        """Bytes of its files, read from the file system for a Delta table, whose sizes are not frozen."""
        if self.version is None:
            return self.size_bytes
        found = sizes_and_times(spark, [file.uri for file in self.files])
        return sum(size_and_time[0] for size_and_time in found if size_and_time is not None)

    def expect_unchanged(self, spark: SparkSession, files: Sequence[int]) -> None:
        """Raises StoreError where one of some files, by their numbers, has changed or is gone since it was frozen.

        Files of a Delta table's version never change, and Spark fails where one is gone.
        """
        if self.version is not None:
            return
        chosen = [self.files[number] for number in files]
        for file, found in zip(chosen, sizes_and_times(spark, [file.uri for file in chosen]), strict=True):
            if found != (file.size_bytes, file.modified_ms):
                there = "is gone" if found is None else f"has {found[0]} bytes, written at {found[1]}"
                raise StoreError(
                    f"the input changed while it was put: {file.name} had {file.size_bytes} bytes, written at "
                    f"{file.modified_ms}, when it was counted, and now {there}. This append was not written; "
                    "put again once nobody writes to the input any more"
                )

    def read(self, spark: SparkSession, files: Sequence[int] | None = None) -> DataFrame:
        """The input's rows: its columns, `file_hash` and `block_start` of their split, `raw` (the row as it came, text).

        files  numbers of the files to read; None: all
        """
        chosen = [self.files[number] for number in (range(len(self.files)) if files is None else files)]
        rows = _read_rows(spark, self, chosen).select("*", *_split())
        if self.is_staged:
            return rows
        problem = ["problem"] if self.has_problems else []
        return rows.select("file_hash", "block_start", "raw", *problem, *sorted(self.columns))

    def lines(self, spark: SparkSession, files: Sequence[int]) -> DataFrame:
        """The lines of some files of a JSON lines input: `file_hash`, `block_start`, `is_row` (not of white space alone)."""
        lines = _source(spark, self, [self.files[number] for number in files])
        return lines.select(*_split(), has_text(F.col("value")).alias("is_row"))


def _split() -> tuple[Column, Column]:
    """The split that Spark read a row in."""
    return (
        F.xxhash64("_metadata.file_path").alias("file_hash"),
        F.col("_metadata.file_block_start").alias("block_start"),
    )


def freeze(spark: SparkSession, path: str, format: str) -> Input:
    """An input with its files, their order and its columns fixed.

    Raises BadInput when there is nothing at `path`, a column is unknown, or topic or body is missing.
    """
    expect_no_secret(path)
    if format not in FORMATS:
        raise BadInput(f"--format is {format!r}; expected one of {', '.join(FORMATS)}")
    version = delta_version(spark, path) if format == "delta" else None
    files = delta_files(spark, path, version) if version is not None else files_at(spark, path)
    if not files:
        raise BadInput(
            f"no files at {path}, or only empty ones; expected a file or a directory with {format} files"
        )
    unchecked = Input(path, format, files, frozenset(INPUT_COLUMNS), uri_hashes(spark, files), version)
    if format != "delta":
        in_directories = _directory_columns(path, files)
        directory = directory_at(spark, path) if in_directories else ""
        unchecked = replace(unchecked, directory=directory, directory_columns=in_directories)
    if format == "jsonl":
        known, unknown, garbled = _json_names(spark, unchecked)
        return replace(unchecked, columns=known, unknown=unknown, garbled=garbled)
    if format == "csv":
        _expect_closed_quotes(spark, unchecked)
    try:
        found = _source(spark, unchecked, files).schema
    except Exception as failure:
        raise BadInput(f"{path} cannot be read as {format}: {innermost_text(failure)}") from failure
    if format == "delta":
        return replace(unchecked, columns=_checked_names(found.names))
    if format == "csv":
        found = StructType([*found, StructField(_BROKEN, StringType())])
    schema = _with_texts(found, unchecked.directory_columns)
    names = [_plain(name) for name in schema.names if name != _BROKEN]
    return replace(unchecked, columns=_checked_names(names), schema=schema)


def _expect_closed_quotes(spark: SparkSession, frozen: Input) -> None:
    """Raises BadInput for a CSV file with an odd number of quotes: Spark takes all after an open one for its field."""
    line = F.col("value")
    quotes = F.sum(F.length(line) - F.length(F.replace(line, F.lit('"'), F.lit(""))))
    text = spark.read.options(**ALL_FILES, lineSep="\n").text([file.path for file in frozen.files])
    by_file = text.groupBy(F.col("_metadata.file_path").alias("file")).agg(quotes.alias("quotes"))
    odd = by_file.where("quotes % 2 = 1").orderBy("file").first()
    if odd is not None:
        raise BadInput(
            f'{odd.file} has an odd number of quotes ("), {odd.quotes:,}: a quoted field is not closed, or a quote inside a '
            "field is not written twice. What follows it would be taken for its field. Nothing was put"
        )


@contextmanager
def refusing_other_headers(source: Input) -> Iterator[None]:
    """A context that reads an input: raises BadInput, not Spark's error, where CSV files have different headers."""
    try:
        yield
    except Exception as failure:
        found = _OTHER_HEADER.search(str(failure)) if source.format == "csv" else None
        if found is None:
            raise
        columns = [name for name in source.schema.names if name != _BROKEN] if source.schema else []
        raise BadInput(
            f"{found[1]} has another header than the input's other files, which have {', '.join(map(_plain, columns))}; "
            "put it on its own, or give all files the same columns in the same order"
        ) from failure


def staged_input(spark: SparkSession, directory: str, source: Input) -> Input:
    """The arranged copy of an input, in `directory`, as an input."""
    files = files_at(spark, directory)
    hashes = uri_hashes(spark, files)
    return Input(
        directory, "parquet", files, source.columns, hashes, staged_from=source.format, unknown=source.unknown
    )


def _json_names(spark: SparkSession, frozen: Input) -> tuple[frozenset[str], bool, bool]:
    """The columns that some line has, whether some line has another name, and whether some line is garbled.

    An input uses a few of all columns, and only those are parsed row by row.
    """
    line, other, garbled = F.col("value"), "other", "\0garbled"
    names = F.coalesce(F.json_object_keys(line), F.array().cast("array<string>"))
    marked = F.when(_is_garbled(line), F.array_append(names, F.lit(garbled))).otherwise(names)
    name = F.col("name")
    found = (
        _source(spark, frozen, frozen.files)
        .select(F.explode(marked).alias("name"))
        .select(F.when(name.isin(*INPUT_COLUMNS, garbled), name).otherwise(other).alias("name"))
        .groupBy("name")
        .count()
        .collect()  # a row a column
    )
    names_found = {row.name for row in found}
    known = names_found - {other, garbled} | {"topic", "body", *frozen.directory_columns}
    return frozenset(known), other in names_found, garbled in names_found


def _checked_names(found: Sequence[str]) -> frozenset[str]:
    for name in found:
        if name not in INPUT_COLUMNS:
            near = get_close_matches(name, INPUT_COLUMNS, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(INPUT_COLUMNS)}"
            raise BadInput(f"the input has a column {name!r} that a message does not have; {hint}")
    for needed in (("topic",), ("body", "body_base64")):
        if not set(needed) & set(found):
            raise BadInput(f"the input has no column {' or '.join(needed)}; it has {', '.join(found)}")
    return frozenset(found)


def _plain(name: str) -> str:
    """A column's name without the byte order mark that some programs put before a CSV file's first column."""
    return name.removeprefix(_BOM)


def _with_texts(schema: StructType, names: Sequence[str]) -> StructType:
    """The schema with the named columns as text: else Spark reads a directory's `tags=007` as the number 7."""
    return StructType(
        [StructField(field.name, StringType()) if field.name in names else field for field in schema]
    )


def _source(spark: SparkSession, frozen: Input, files: Sequence[InputFile]) -> DataFrame:
    paths = [file.path for file in files]
    given = spark.read.options(**ALL_FILES)
    reader = given if frozen.schema is None else given.schema(frozen.schema)
    if frozen.directory_columns:
        reader = reader.option("basePath", frozen.directory)
    if frozen.format == "jsonl":
        if frozen.directory_columns:
            texts = [StructField(name, StringType()) for name in ("value", *frozen.directory_columns)]
            reader = reader.schema(StructType(texts))
        return reader.option("lineSep", "\n").text(paths)
    if frozen.format == "parquet":
        return reader.option("mergeSchema", not frozen.is_staged).parquet(*paths)
    if frozen.format == "csv":
        # multiLine, a file in one split: a quoted body may have line ends.
        reader = reader.options(
            header=True,
            multiLine=True,
            escape='"',
            enforceSchema=False,
            nullValue="\0",
            encoding=_BYTES,
            columnNameOfCorruptRecord=_BROKEN,
        )
        return reader.csv(paths)
    table = given.format("delta").option("versionAsOf", str(frozen.version)).load(frozen.path)
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
    if frozen.format == "csv":
        return _csv_rows(source, frozen)
    columns = {name: F.col(name) for name in source.columns}
    return source.withColumn("raw", F.to_json(F.struct(*[_readable(source, name) for name in columns])))


def _readable(source: DataFrame, name: str) -> Column:
    return F.base64(name).alias(name) if dict(source.dtypes)[name] == "binary" else F.col(name)


def _json_rows(lines: DataFrame, frozen: Input) -> DataFrame:
    line = F.col("value")
    wanted = sorted(frozen.columns.difference(frozen.directory_columns))
    schema = ", ".join(f"{name} {_JSON_TYPES.get(name, 'string')}" for name in wanted)
    parsed = F.from_json(line, f"{schema}, {_BROKEN} string", {"columnNameOfCorruptRecord": _BROKEN})
    is_broken = F.col(f"message.{_BROKEN}").isNotNull() | F.col("message").isNull()
    names = F.json_object_keys(line)
    broken = F.when(names.isNull(), F.lit("not a JSON object")).otherwise(
        F.lit("properties: expected an object of strings")
    )
    problem = F.when(is_broken, broken)
    raw = line
    more = F.lit("something follows its JSON object; expected one object a line")
    problem = F.coalesce(problem, F.when(~is_one_object(line), more))
    if frozen.garbled:
        problem = F.coalesce(_garbled_json(line, schema, wanted), problem)
        raw = F.make_valid_utf8(line)
    if frozen.unknown:
        others = F.array_except(names, F.array(*[F.lit(name) for name in INPUT_COLUMNS]))
        known = ", ".join(INPUT_COLUMNS)
        sentence = F.format_string(f"unknown column %s; known are {known}", F.array_join(others, ", "))
        problem = F.coalesce(problem, F.when(F.size(others) > 0, sentence))
    return (
        lines.where(has_text(line))
        .withColumn("message", parsed)
        .select(
            F.col("_metadata"),
            raw.alias("raw"),
            problem.alias("problem"),
            *[F.col(f"message.{name}").alias(name) for name in wanted],
            *[F.col(name) for name in frozen.directory_columns],
        )
    )


def _is_garbled(line: Column) -> Column:
    """Whether a JSON line has something that is not text: bytes that are not UTF-8, or half of a surrogate pair."""
    # Cheap tests first: few lines have such an escape, and only those need the patterns.
    may_have_half = line.contains("\\u") & (line.contains("\\ud") | line.contains("\\uD"))
    return ~F.is_valid_utf8(line) | (may_have_half & _without_pairs(line).rlike(_HALF))


def _without_pairs(line: Column) -> Column:
    return F.regexp_replace(F.regexp_replace(line, _ESCAPED_BACKSLASH, "__"), _PAIR, "__")


def _garbled_json(line: Column, schema: str, names: Sequence[str]) -> Column:
    """A sentence about a garbled JSON line, with the columns that are garbled; null for any other line."""
    half = F.regexp_extract(_without_pairs(line), _HALF, 0)
    is_text = F.is_valid_utf8(line)
    # The same line with U+FFFD where there is no character: the columns that have it are garbled.
    escaped = F.regexp_replace(F.regexp_replace(line, _PAIR, "__"), _HALF, r"\\uFFFD")
    marked = F.from_json(F.when(is_text, escaped).otherwise(F.make_valid_utf8(line)), schema)
    shown = [
        F.when(F.to_json(marked[name]).contains(_REPLACEMENT), name) for name in names if name in _JSON_TYPES
    ]
    shown += [F.when(marked[name].contains(_REPLACEMENT), name) for name in names if name not in _JSON_TYPES]
    where = _names_or(shown, "the line")
    not_utf8 = F.format_string("%s: its bytes are not UTF-8; save the file as UTF-8", where)
    halved = F.format_string("%s: %s is half of a surrogate pair, not a character", where, half)
    return F.when(~is_text, not_utf8).when(_is_garbled(line), halved)


def _names_or(names: Sequence[Column], otherwise: str) -> Column:
    """The names that are not null, separated by commas; `otherwise` where all are null."""
    there = F.filter(F.array(*names), lambda name: name.isNotNull())
    return F.when(F.size(there) > 0, F.array_join(there, ", ")).otherwise(otherwise)


def _csv_rows(source: DataFrame, frozen: Input) -> DataFrame:
    """Rows of CSV files as UTF-8 text; `source` has one character for each byte."""
    in_files = [name for name in source.columns if name not in (_BROKEN, *frozen.directory_columns)]
    fields = {_plain(name): _text_of_bytes(F.col(f"`{name}`")) for name in in_files}
    not_utf8 = [F.when(~F.is_valid_utf8(text), name) for name, text in fields.items()]
    is_cut = F.col(_BROKEN).isNotNull()
    problem = F.when(
        is_cut, F.lit(f"it does not have {len(fields)} fields, as the header: {', '.join(fields)}")
    ).when(
        reduce(or_, [F.coalesce(~F.is_valid_utf8(text), F.lit(False)) for text in fields.values()]),
        F.format_string(
            "%s: its bytes are not UTF-8; save the file as UTF-8", _names_or(not_utf8, "the row")
        ),
    )
    given = {name: F.make_valid_utf8(text) for name, text in fields.items()}
    given |= {name: F.col(name) for name in frozen.directory_columns}
    whole = F.to_json(F.struct(*[value.alias(name) for name, value in given.items()]))
    as_it_came = F.make_valid_utf8(_text_of_bytes(F.col(_BROKEN)))
    return source.select(
        F.col("_metadata"),
        F.when(is_cut, as_it_came).otherwise(whole).alias("raw"),
        problem.alias("problem"),
        *[text.alias(name) for name, text in fields.items()],
        *[F.col(name) for name in frozen.directory_columns],
    )


def _text_of_bytes(characters: Column) -> Column:
    return F.encode(characters, _BYTES).cast("string")


def _directory_columns(path: str, files: Sequence[InputFile]) -> tuple[str, ...]:
    """Columns in the names of directories, as Spark and Hive write a partitioned table: `delay_level=3/tags=a/`.

    Raises BadInput where files have different ones, or one is not an input column.
    """
    names: dict[tuple[str, ...], str] = {}
    for file in files:
        *directories, _ = file.name.split("/")
        columns = tuple(unquote(name.partition("=")[0]) for name in directories if "=" in name)
        names.setdefault(columns, file.name)
    if len(names) > 1:
        one, other = list(names.values())[:2]
        raise BadInput(
            f"the files at {path} lie in directories of other columns than each other: {one} and {other}; "
            "expected the same NAME=VALUE directories above each, or put them one by one"
        )
    columns = next(iter(names))
    for name in columns:
        if name not in INPUT_COLUMNS or columns.count(name) > 1:
            raise BadInput(
                f"{files[0].name} at {path} lies in a directory of the column {name!r}, which a message does not have; "
                f"put what is below that directory, or name the column as one of {', '.join(INPUT_COLUMNS)}"
            )
    return columns
