"""Repeat a job's step in one session, until a time is over or somebody ends it."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from jobs.launch.run import Run
from pipelines.errors import BadInput


def expect_sense(every: float | None, lasting: float | None) -> None:
    """Raises BadInput for --for without --every."""
    if every is None and lasting is not None:
        raise BadInput("--for says how long to repeat the round, and needs --every SECONDS")


T = TypeVar("T")


def repeat(run: Run, every: float, lasting: float | None, step: Callable[[], T]) -> list[T]:
    """Call `step` now and then every `every` seconds; returns what it returned each time.

    No call begins once `lasting` seconds are over. SIGTERM and Ctrl-C end the repetition: SIGTERM after the call at hand,
    Ctrl-C as it ends any job, but while it waits for the next call.
    """
    began, results = time.monotonic(), list[T]()
    with _terminated() as ended:
        while True:
            results.append(step())
            # The time of a call that took longer is left out, not made up for.
            since = time.monotonic() - began
            waited = every - since % every
            if lasting is not None and since + waited >= lasting:
                return results
            try:
                if ended.wait(waited):
                    run.say(f"ended after {len(results):,} ticks")
                    return results
            except BaseException as failure:
                if not run.is_interruption(failure):
                    raise
                run.interruptions = 0  # nothing was interrupted
                run.say(f"stopped after {len(results):,} ticks")
                return results


@contextmanager
def _terminated() -> Iterator[threading.Event]:
    """An event that SIGTERM sets, in place of ending the process."""
    ended = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield ended
        return
    before = signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        yield ended
    finally:
        signal.signal(signal.SIGTERM, before)
