"""The files of a put's input, in order, with the names that Spark has for them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.errors import BadInput
from pipelines.spark_internals.delta_log import DeltaTable, is_delta_table
from pipelines.spark_internals.files import existing_path, hadoop_path
from pipelines.uris import literal_path


@dataclass(frozen=True)
class InputFile:
    """One file: its name as a user writes it, its URI as Spark reports it, the path by which Spark reads it."""

    name: str
    uri: str
    path: str
    size_bytes: int
    modified_ms: int


def files_at(spark: SparkSession, path: str) -> tuple[InputFile, ...]:
    """Files at or below a path, ordered by name, without empty ones and, as in Spark, names that start with _ or .

    Raises BadInput for a file of this machine with a colon in its name.
    """
    root, system = _root(spark, path)
    listing = system.listFiles(root, True)
    files = []
    while listing.hasNext():
        status = listing.next()
        uri = status.getPath().toUri()
        name = root.toUri().relativize(uri).getPath() or status.getPath().getName()
        if status.getLen() and not any(_is_hidden(part) for part in name.split("/")):
            # Hadoop looks for the checksum file .NAME.crc beside a local file, and takes what comes before a colon for a
            # scheme.
            if uri.getScheme() == "file" and ":" in status.getPath().getName():
                raise BadInput(
                    f"the input's file {name} has a colon in its name, and Hadoop reads no such file on this machine. "
                    "Nothing was put; rename the file, or put a link to it whose name has no colon"
                )
            path = literal_path(status.getPath().toString())
            files.append(InputFile(name, uri.toString(), path, status.getLen(), status.getModificationTime()))
    return tuple(sorted(files, key=lambda file: file.name))


def _root(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Hadoop's Path of an input, and its file system. Raises BadInput where there is nothing."""
    root, system = existing_path(spark, path, "the input's file or directory")
    return system.resolvePath(root), system


def directory_at(spark: SparkSession, path: str) -> str:
    """The directory's path as Spark writes it in the paths of files."""
    return str(_root(spark, path)[0].toString())


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", ".")) or name.endswith("._COPYING_")  # a copy by Hadoop that is not complete


def delta_version(spark: SparkSession, path: str) -> int:
    """The newest version of a Delta table. Raises BadInput where there is none."""
    if not is_delta_table(spark, path):
        raise BadInput(f"there is no Delta table at {path}; expected the directory that holds _delta_log")
    return DeltaTable(spark, path).update().version


def delta_files(spark: SparkSession, path: str, version: int) -> tuple[InputFile, ...]:
    """The files of a version of a Delta table, ordered by URI."""
    table = spark.read.format("delta").option("versionAsOf", str(version)).load(path)
    uris = sorted(_uri(spark, file) for file in table.inputFiles())
    # Sizes and times are 0: a Delta table's files never change, so their names are enough.
    return tuple(InputFile(unquote(uri.rsplit("/", 1)[1]), uri, uri, 0, 0) for uri in uris)


def _uri(spark: SparkSession, path: str) -> str:
    """A file's path as the URI that Spark reports for its rows; a space, for example, is encoded differently there."""
    if re.fullmatch(r"[\w./:=@+,;-]*", path, re.ASCII):
        return path
    return str(hadoop_path(spark, path)[0].toUri().toString())


def uri_hashes(spark: SparkSession, files: Sequence[InputFile]) -> dict[int, int]:
    """Hash of a file's URI -> its number in `files`."""
    # Both spellings: Hadoop writes a local file's URI with one slash or with three.
    names = [
        (number, uri)
        for number, file in enumerate(files)
        for uri in (file.uri, file.uri.replace(":///", ":/", 1))
    ]
    uris: Any = pa.table({"number": [number for number, _ in names], "uri": [uri for _, uri in names]})
    hashed = spark.createDataFrame(uris).select("number", F.xxhash64("uri")).collect()  # two rows a file
    return {file_hash: number for number, file_hash in hashed}
