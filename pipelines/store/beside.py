"""Threads that use Spark beside the one that waits for them."""

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from pyspark.sql import SparkSession

from pipelines.spark_internals.sessions import make_active

# One job of a thread may begin just after another was cancelled.
SECONDS_BETWEEN_TRIES = 0.1


@contextmanager
def beside(spark: SparkSession, threads: int = 1) -> Iterator[ThreadPoolExecutor]:
    """Threads with this session, all of which have ended when the block does.

    Where the block fails, by a Ctrl-C too, their Spark jobs are cancelled. Spark's own handler of Ctrl-C cancels the jobs
    that run then: one that a thread was about to begin would go on to its end, and be waited for.
    """
    group, have_ended = uuid.uuid4().hex, threading.Event()

    def begin() -> None:
        make_active(spark)
        spark.sparkContext.setJobGroup(group, "beside others")

    def end() -> None:
        pool.shutdown()
        have_ended.set()

    def cancel() -> None:
        while not have_ended.wait(SECONDS_BETWEEN_TRIES):
            with suppress(Exception):  # Java has ended, and the jobs with it
                spark.sparkContext.cancelJobGroup(group)

    def wait() -> None:
        # Not for the threads themselves: Python 3.11 takes a thread for ended once a Ctrl-C has interrupted the wait for it.
        threading.Thread(target=end, daemon=True).start()
        have_ended.wait()

    pool = ThreadPoolExecutor(threads, initializer=begin)
    try:
        yield pool
        wait()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        threading.Thread(target=cancel, daemon=True).start()
        wait()
        raise
