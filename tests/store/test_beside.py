"""Threads that use Spark beside the one that waits for them."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Timer

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipelines.store.beside import beside


def slow(spark: SparkSession, seconds: int) -> DataFrame:
    """Rows that take half a second each, of one task."""
    return spark.range(0, seconds * 2, 1, 1).selectExpr(
        "reflect('java.lang.Thread', 'sleep', 500L + 0 * id) AS slept"
    )


def failing(
    spark: SparkSession, failure: type[BaseException], begin: Callable[[ThreadPoolExecutor], None]
) -> None:
    """A block that fails once its threads have begun."""
    with beside(spark) as threads:
        begin(threads)
        raise failure("in the block")


def test_threads_have_ended_when_the_block_does(spark: SparkSession) -> None:
    with beside(spark) as threads:
        counted = [threads.submit(spark.range(number).count) for number in range(3)]
    assert all(count.done() for count in counted)
    assert [count.result() for count in counted] == [0, 1, 2]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError])
def test_a_job_that_begins_after_the_failure_is_cancelled(
    spark: SparkSession, failure: type[BaseException]
) -> None:
    is_in_thread, has_failed = Event(), Event()
    begun = []

    def late() -> None:
        is_in_thread.set()
        has_failed.wait()
        time.sleep(0.5)
        slow(spark, 60).collect()

    def begin(threads: ThreadPoolExecutor) -> None:
        begun.extend((threads.submit(late), threads.submit(spark.range(7).count)))
        is_in_thread.wait()
        has_failed.set()

    with pytest.raises(failure, match="in the block"):
        failing(spark, failure, begin)
    first, queued = begun
    assert "cancelled" in str(first.exception())
    assert queued.cancelled()
    assert spark.range(7).count() == 7


def test_a_control_c_while_threads_are_waited_for_cancels_what_they_begin(spark: SparkSession) -> None:
    begun = []

    def late() -> None:
        time.sleep(1.5)
        slow(spark, 20).collect()

    def wait_for_it() -> None:
        with beside(spark) as threads:
            begun.append(threads.submit(late))

    Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        wait_for_it()
    assert begun[0].done()
    assert "cancelled" in str(begun[0].exception())


def test_jobs_of_others_go_on(spark: SparkSession) -> None:
    with beside(spark) as others:
        counted = others.submit(slow(spark, 3).collect)
        with pytest.raises(ValueError, match="in the block"):
            failing(
                spark, ValueError, lambda threads: threads.submit(slow(spark, 60).collect) and time.sleep(1)
            )
    assert len(counted.result()) == 6
