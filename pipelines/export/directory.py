"""Where an export's files go: a directory on this machine, HDFS or an object store. Each is written whole or not at all."""

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from pyarrow import fs
from pyspark.sql import SparkSession

from pipelines.broker_files.directory import BrokerDirectory, resolved
from pipelines.broker_files.export_note import UNDER_WAY
from pipelines.errors import BadInput, StoreError
from pipelines.spark_internals.files import locked_by_jvm
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import absolute

# A broker that runs holds a lock on this file of its directory.
LOCK = "lock"
# An export that was killed leaves its JVM, which holds the lock, for a second or two.
SECONDS_OF_A_KILLED_JVM = 10
_ZEROS = bytes(1024 * 1024)


@dataclass(frozen=True)
class ExportDirectory:
    """A directory in the making; small enough to be sent to executors, which write its files themselves.

    uri  as of BrokerDirectory
    """

    uri: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "uri", self.found.uri)

    @property
    def found(self) -> BrokerDirectory:
        """What is there already."""
        return BrokerDirectory(self.uri)

    @property
    def for_spark(self) -> str:
        """The place as Spark takes it: it does not decode a URI's %20, and a path without a scheme may be HDFS's.

        >>> ExportDirectory("hdfs://name:8020/a%20b").for_spark, ExportDirectory("/a%20b").for_spark
        ('hdfs://name:8020/a b', 'file:///a%20b')
        """
        parsed = urlsplit(self.uri)
        if len(parsed.scheme) <= 1 or parsed.scheme == "file":
            return f"file://{resolved(self.uri)[1]}"
        return f"{parsed.scheme}://{parsed.netloc}{unquote(parsed.path)}"

    def write(self, path: str, parts: Iterable[bytes | memoryview], size_bytes: int | None = None) -> int:
        """Write a file in the place of one that may be there; bytes written.

        path        relative to the directory
        size_bytes  what the file has in the end: zeros follow the parts, and take no room on a local disk
        """
        files, base = resolved(self.uri)
        target, part_file = f"{base}/{path}", f"{base}/{UNDER_WAY}/{uuid.uuid4().hex}"
        files.create_dir(os.path.dirname(part_file), recursive=True)
        files.create_dir(os.path.dirname(target), recursive=True)
        try:
            if isinstance(files, fs.LocalFileSystem):
                written = _write_local(part_file, parts, size_bytes)
                os.replace(part_file, target)
            else:
                written = _write_stream(files, part_file, parts, size_bytes)
                files.move(part_file, target)
        except BaseException:
            with contextlib.suppress(OSError):
                files.delete_file(part_file)
            raise
        return written

    def delete(self, path: str) -> None:
        """Delete a file or a directory and what is in it; nothing where there is none."""
        files, base = resolved(self.uri)
        kind = files.get_file_info(f"{base}/{path}").type
        if kind == fs.FileType.Directory:
            files.delete_dir(f"{base}/{path}")
        elif kind == fs.FileType.File:
            files.delete_file(f"{base}/{path}")


@contextmanager
def held(spark: SparkSession, uri: str, lock: str = LOCK) -> Iterator[None]:
    """While inside, no other export writes to the directory and no broker starts in it; it is made where it is missing.

    Raises StoreError where one does already. Only a directory on this machine is held.
    """
    files, path = resolved(uri)
    if not isinstance(files, fs.LocalFileSystem):
        yield
        return

    def refuse() -> NoReturn:
        raise StoreError(
            f"another export is writing to {uri}, or a broker runs in it (its file {lock} is locked). Nothing was written; "
            "run this again once that has ended"
        )

    Path(path).mkdir(parents=True, exist_ok=True)
    with locked_by_jvm(spark, Path(path, lock), SECONDS_OF_A_KILLED_JVM, refuse):
        yield


def expect_apart(at: Snapshot, uri: str) -> None:
    """Raises BadInput for a directory inside the store: its tables are there."""
    if f"{absolute(at.store.spark, ExportDirectory(uri).for_spark)}/".startswith(f"{at.store.uri}/"):
        raise BadInput(f"{uri} lies in the store itself; name a directory elsewhere")


def _write_local(path: str, parts: Iterable[bytes | memoryview], size_bytes: int | None) -> int:
    with Path(path).open("wb") as file:
        for part in parts:
            file.write(part)
        written = file.tell()
        if size_bytes is not None:
            file.truncate(size_bytes)
        file.flush()
        os.fsync(file.fileno())
    return written


def _write_stream(
    files: fs.FileSystem, path: str, parts: Iterable[bytes | memoryview], size_bytes: int | None
) -> int:
    written = 0
    with files.open_output_stream(path) as stream:
        for part in parts:
            stream.write(part)
            written += len(part)
        for zeros in _zeros(0 if size_bytes is None else size_bytes - written):
            stream.write(zeros)
    return written


def _zeros(count: int) -> Iterator[bytes]:
    while count > 0:
        yield _ZEROS[:count]
        count -= len(_ZEROS)
