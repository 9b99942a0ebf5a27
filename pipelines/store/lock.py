"""One writer at a time on a local store.

Delta's log store for local files is safe between the threads of one JVM only. Stores on HDFS and object stores rely on
put-if-absent instead and take no lock here.

The lock is a lock on a file, taken by the JVM that commits, because that JVM outlives a killed Python and may still
commit for a second or two. A lock per process stands in front, since a file lock belongs to the whole JVM.
"""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote, urlparse

from pyspark.sql import SparkSession

from pipelines.store.jvm import jvm

LOCK_FILE = ".commit.lock"

_in_this_process: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
_depth: defaultdict[str, int] = defaultdict(int)


def local_path(uri: str) -> str | None:
    """The directory of a store on this machine's file system; None for any other store."""
    parsed = urlparse(uri)
    if parsed.scheme == "file":
        return unquote(parsed.path)
    return None if parsed.scheme else uri


@contextmanager
def writing(spark: SparkSession, uri: str) -> Iterator[None]:
    """Hold the store's lock; other threads, processes and their JVMs wait. Does nothing where the store is not local."""
    directory = local_path(uri)
    if directory is None:
        yield
        return
    with _in_this_process[directory]:
        if _depth[directory]:  # this thread holds it already
            yield
            return
        file = jvm(spark).java.io.RandomAccessFile(f"{directory}/{LOCK_FILE}", "rw")
        try:
            file.getChannel().lock()
            _depth[directory] += 1
            yield
        finally:
            _depth[directory] = 0
            file.close()  # gives the lock back
