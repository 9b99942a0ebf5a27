"""A limit on how long Spark works for a run."""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from pipelines.errors import StoreError

# A query has several Spark jobs, and one may begin just after another was cancelled.
SECONDS_BETWEEN_TRIES = 0.5


@contextmanager
def time_limit(spark: SparkSession, seconds: float | None) -> Iterator[None]:
    """Cancel the Spark jobs that this thread starts in the block after `seconds`; None: no limit.

    Raises StoreError where something was cancelled.
    """
    if seconds is None:
        yield
        return
    context, group, is_over = spark.sparkContext, uuid.uuid4().hex, threading.Event()
    was_stopped = threading.Event()

    def stop() -> None:
        wait = seconds
        while not is_over.wait(wait):
            was_stopped.set()
            context.cancelJobGroup(group)
            wait = SECONDS_BETWEEN_TRIES

    context.setJobGroup(group, "a query with a time limit", interruptOnCancel=True)
    watch = threading.Thread(target=stop, daemon=True)
    watch.start()
    try:
        yield
    except Exception as failure:
        if was_stopped.is_set():
            raise StoreError(
                f"the query took longer than {seconds:g} s and was stopped; what was printed is not all. Narrow it, or give "
                "it more with --timeout"
            ) from failure
        raise
    finally:
        is_over.set()
        watch.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
