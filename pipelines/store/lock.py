"""One writer at a time on a local store.

Delta's log store for local files is safe between the threads of one JVM only. Stores on HDFS and object stores rely on
put-if-absent instead and take no lock here.

The lock is a lock on a file, taken by the JVM that commits, because that JVM outlives a killed Python and may still
commit for a second or two. A lock within the process is taken first, since a file lock belongs to the whole JVM.
"""

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession
from pyspark.util import InheritableThread

from pipelines.spark_internals.files import locked_by_jvm
from pipelines.spark_internals.sessions import make_active
from pipelines.uris import local_path, one_spelling

log = logging.getLogger(__name__)

LOCK_FILE = ".commit.lock"

# A commit of a small append has ended by then; a longer wait is reported with its reason.
SILENT_SECONDS = 3

T = TypeVar("T")
Directory = tuple[int, int]  # device and inode: the same for all paths of a directory

_in_this_process: defaultdict[Directory, threading.RLock] = defaultdict(threading.RLock)
_depth: defaultdict[Directory, int] = defaultdict(int)


def is_same_directory(one: str, other: str) -> bool:
    """Whether two URIs name one directory; on this machine's file system also by links and other names."""
    paths = local_path(one), local_path(other)
    if one == other:
        return True
    if paths[0] is None or paths[1] is None:
        return paths == (None, None) and one_spelling(one) == one_spelling(other)
    try:
        return os.path.samefile(paths[0], paths[1])
    except OSError:  # one of them does not exist
        return os.path.realpath(paths[0]) == os.path.realpath(paths[1])


def is_inside(uri: str, directory: str) -> bool:
    """Whether a URI lies below a directory; on this machine's file system also by links and other names."""
    paths = local_path(uri), local_path(directory)
    if paths[0] is None or paths[1] is None:
        return uri.startswith(directory.rstrip("/") + "/")
    return Path(os.path.realpath(paths[1])) in Path(os.path.realpath(paths[0])).parents


def under_lock(spark: SparkSession, uri: str, write: Callable[[], T]) -> T:
    """The result of `write`, which runs while this thread holds the store's lock; no lock where the store is not local.

    Ctrl-C interrupts Python's main thread, but not what the JVM does for it, which may be a commit. So the main thread
    has another thread hold the lock and write, to the end of the write. When interrupted, it waits for that end; when
    interrupted again it does not wait, and the lock is held until the write or the JVM has ended.

    Raises what `write` raises, or what interrupted the main thread: before the lock was taken nothing has been written.
    """
    if threading.current_thread() is not threading.main_thread():
        make_active(spark)
        with _lock(spark, uri):
            return write()
    outcome: Future[T] = Future()

    def hold_and_write() -> None:
        try:
            make_active(spark)
            with _lock(spark, uri):
                if not outcome.set_running_or_notify_cancel():
                    return
                result = write()
        except BaseException as failure:
            if not outcome.cancelled():
                outcome.set_exception(failure)
        else:
            outcome.set_result(result)

    try:
        # A daemon: the second Ctrl-C ends the process, and so the JVM and its lock.
        InheritableThread(target=hold_and_write, name="write", daemon=True).start()
        wait([outcome])
    except BaseException:
        if not outcome.cancel():
            _wait_for_end(outcome)
        raise
    return outcome.result()


def _wait_for_end(outcome: "Future[T]") -> None:
    if wait([outcome], timeout=SILENT_SECONDS).not_done:
        log.warning("a commit is under way and is waited for; press Ctrl-C again to end without waiting")
        wait([outcome])


def _say_why(path: str) -> None:
    log.warning(
        "another job is writing to %s and is waited for (it holds %s); `commitlake doctor` shows whether it still does",
        path,
        LOCK_FILE,
    )


@contextmanager
def _lock(spark: SparkSession, uri: str) -> Iterator[None]:
    """Hold the store's lock; other threads, processes and their JVMs wait."""
    path = local_path(uri)
    if path is None:
        yield
        return
    status = os.stat(path)
    directory = (status.st_dev, status.st_ino)
    with _in_this_process[directory]:
        if _depth[directory]:  # this thread holds the lock already
            yield
            return
        with locked_by_jvm(spark, Path(path) / LOCK_FILE, SILENT_SECONDS, lambda: _say_why(path)):
            _depth[directory] += 1
            try:
                yield
            finally:
                _depth[directory] = 0
