"""Files by way of Hadoop, as Spark itself reads and writes them: local, HDFS, object stores.

Spark's Python API has no functions for files. Hadoop's FileSystem, Path and FileUtil (3.4.2) are public in Java and long
stable; what is Spark's own here is that a session's settings reach them through `sessionState().newHadoopConf()`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from pipelines.errors import BadInput
from pipelines.spark_internals.jvm import innermost_text, java_session, jvm

# A commit, whose end is waited for, takes tens of milliseconds; a try takes a fraction of one.
SECONDS_BETWEEN_TRIES = 0.01


def hadoop_path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Hadoop's Path and the file system it is on. Raises BadInput for what is neither a path nor a URI that Hadoop knows."""
    try:
        target = jvm(spark).org.apache.hadoop.fs.Path(path)
    except IllegalArgumentException as failure:  # an empty text, or a relative path with a colon
        raise _unknown(path, innermost_text(failure)) from failure
    try:
        return target, target.getFileSystem(java_session(spark).sessionState().newHadoopConf())
    except Py4JJavaError as failure:
        if "UnsupportedFileSystemException" not in str(failure):
            raise
        raise _unknown(path, innermost_text(failure)) from failure


def _unknown(path: str, why: str) -> BadInput:
    return BadInput(
        f"{path!r} cannot be read: {why}; expected a local path or a URI such as hdfs:, s3a:, abfss: or gs:"
    )


def existing_path(spark: SparkSession, path: str, expected: str) -> tuple[Any, Any]:
    """Hadoop's Path of a file or directory that is there, and its file system.

    expected  what should be there, for the sentence of BadInput, raised where nothing is
    """
    target, files = hadoop_path(spark, path)
    if not files.exists(target):
        raise BadInput(f"there is nothing at {path}; expected {expected}")
    return target, files


def default_scheme(spark: SparkSession) -> str:
    """The scheme of the file system that Hadoop takes for a path without a scheme."""
    hadoop = java_session(spark).sparkContext().hadoopConfiguration()
    return str(jvm(spark).org.apache.hadoop.fs.FileSystem.getDefaultUri(hadoop).getScheme())


def read_text(spark: SparkSession, path: str) -> str | None:
    """The text of a small file, UTF-8; None where it cannot be read to its end: its writer was interrupted."""
    target, files = hadoop_path(spark, path)
    stream = files.open(target)
    try:
        return str(jvm(spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    except Py4JJavaError:
        return None
    finally:
        stream.close()


def read_bytes(spark: SparkSession, path: str) -> bytes:
    """The content of a small file, which fits the driver. Raises OSError where it cannot be read to its end."""
    target, files = hadoop_path(spark, path)
    try:
        stream = files.open(target)
        try:
            return bytes(jvm(spark).org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()
    except Py4JJavaError as failure:
        raise OSError(f"{path} cannot be read") from failure


def copy_file(spark: SparkSession, source: str, target: str) -> None:
    """Copy a file to a URI; a file that is there is replaced."""
    (from_path, from_files), (to_path, to_files) = hadoop_path(spark, source), hadoop_path(spark, target)
    util = jvm(spark).org.apache.hadoop.fs.FileUtil
    util.copy(from_files, from_path, to_files, to_path, False, True, from_files.getConf())


def length_of(spark: SparkSession, uri: str) -> int | None:
    """How many bytes a file has; None where there is none."""
    path, files = hadoop_path(spark, uri)
    return int(files.getFileStatus(path).getLen()) if files.exists(path) else None


def sizes_and_times(spark: SparkSession, uris: Sequence[str]) -> Iterator[tuple[int, int] | None]:
    """Of each file its length, bytes, and when it was written, epoch milliseconds; None where there is none."""
    java, systems = jvm(spark), dict[str, Any]()
    for uri in uris:
        path = java.org.apache.hadoop.fs.Path(java.java.net.URI(uri))
        mount = uri.removesuffix(urlparse(uri).path)
        if mount not in systems:
            systems[mount] = path.getFileSystem(java_session(spark).sessionState().newHadoopConf())
        if systems[mount].exists(path):
            status = systems[mount].getFileStatus(path)
            yield int(status.getLen()), int(status.getModificationTime())
        else:
            yield None


def _is_locked_within(channel: Any, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while channel.tryLock() is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(SECONDS_BETWEEN_TRIES)
    return True


@contextmanager
def locked_by_jvm(
    spark: SparkSession, file: Path, silent_seconds: float, say_why: Callable[[], None]
) -> Iterator[None]:
    """While inside, the JVM holds the lock of a local file; other processes and their JVMs wait.

    say_why  called once where the wait takes longer than `silent_seconds`

    The JVM and not Python: a killed Python leaves its JVM alive for a moment, and that JVM may still commit.
    """
    opened = jvm(spark).java.io.RandomAccessFile(str(file), "rw")
    try:
        if not _is_locked_within(opened.getChannel(), silent_seconds):
            say_why()
            opened.getChannel().lock()
        yield
    finally:
        opened.close()  # releases the lock
