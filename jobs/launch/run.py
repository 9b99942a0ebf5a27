"""One run of a job: its clock, its session, its store, its messages to the user."""

import logging
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType

from pyspark.sql import SparkSession
from rich.console import Console

from jobs.launch.command_line import EXIT_DONE
from jobs.launch.failures import explain
from jobs.launch.printable import printable
from jobs.launch.progress_bar import progress_bar
from jobs.launch.session import session
from jobs.launch.size_of_work import Work
from pipelines.store.commit import Committed, commit
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store


@dataclass
class Run:
    """One run of a job.

    job              name of the job
    store_uri        where the store is, as the user typed it; '' where a job that can do without was given none
    fixed_now_ms     the job's clock where --now fixes it; None: the machine's
    quiet            whether to print only the result and errors
    work             what its session is started for
    run_id           unique for each run
    wrote            whether it has committed anything
    interruptions    how often Ctrl-C was pressed: what is raised after it need not be a KeyboardInterrupt
    exit_status      how the job ends when it raises nothing; see end_with
    at_end           what is closed or undone when the run ends
    """

    job: str
    store_uri: str
    fixed_now_ms: int | None = None
    quiet: bool = False
    work: Work = field(default_factory=Work)
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    wrote: bool = False
    interruptions: int = 0
    exit_status: int = EXIT_DONE
    session_settings: dict[str, str] = field(default_factory=dict)
    at_end: ExitStack = field(default_factory=ExitStack)
    _on_control_c: Callable[[int, FrameType | None], None] | None = field(default=None, init=False)

    @property
    def now_ms(self) -> int:
        """The job's clock, epoch milliseconds; nothing else in a job reads one.

        Read it for each plan: other jobs append between a run's start and its plan, and between two of its plans.
        """
        return time.time_ns() // 1_000_000 if self.fixed_now_ms is None else self.fixed_now_ms

    @cached_property
    def spark(self) -> SparkSession:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main:
            self._notice_control_c()
        spark = session(
            f"commitlake {self.job}",
            is_small=self.work.is_small,
            is_short=self.work.is_short,
            runs_users_code=self.work.runs_users_code,
            **self.session_settings,
        )
        if is_main:
            self._notice_control_c()  # the session has a handler of its own
        return spark

    def _notice_control_c(self) -> None:
        """Remember a Ctrl-C before the handler there is raises: py4j, interrupted, raises an error of its own instead."""
        before = signal.getsignal(signal.SIGINT)
        if before is self._on_control_c:  # a session that was there already has brought none
            return

        def interrupted(number: int, frame: FrameType | None) -> None:
            self.interruptions += 1
            if callable(before):
                before(number, frame)

        def is_worth_a_line(record: logging.LogRecord) -> bool:
            return not self.interruptions  # py4j's log lines about the interruption are useless

        self._on_control_c = interrupted
        self.at_end.callback(signal.signal, signal.SIGINT, before)
        signal.signal(signal.SIGINT, interrupted)
        root = logging.getLogger()
        self.at_end.callback(root.removeFilter, is_worth_a_line)
        root.addFilter(is_worth_a_line)

    def is_interruption(self, failure: BaseException) -> bool:
        """Whether a failure was caused by a Ctrl-C."""
        return self.interruptions > 0 or isinstance(failure, KeyboardInterrupt)

    @cached_property
    def store(self) -> Store:
        """The store the job works on. Raises BadInput where there is none."""
        return Store.open(self.spark, self.store_uri)

    def commit(self, planner: Callable[[Snapshot], Plan]) -> Committed:
        """Commit what `planner` plans, and remember that this run wrote.

        Raises KeyboardInterrupt for a Ctrl-C pressed before, which may have been swallowed on its way from the JVM.
        """
        if self.interruptions:
            raise KeyboardInterrupt
        committed = commit(self.store, planner)
        self.wrote = self.wrote or committed.wrote
        return committed

    def end_with(self, exit_status: int, sentence: str) -> None:
        """End a job that has done its work with this exit status; the sentence is printed also when quiet."""
        self.exit_status = exit_status
        explain(sentence, debug=False)

    def say(self, text: str) -> None:
        """Print a line for the user on stderr, unless quiet; stdout is only for the result."""
        if not self.quiet:
            Console(stderr=True, highlight=False).print(printable(text), markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """As `say`, about something that may have been lost: printed also when the run is quiet."""
        print(f"warning: {printable(text)}", file=sys.stderr)

    def progress(
        self, what: str, total: int | None, unit: str = "rows"
    ) -> AbstractContextManager[Callable[[int], None]]:
        """A bar on a terminal for work of `total` units; yields a function that takes the units done since."""
        return progress_bar(
            what, total, unit, lambda: self.spark.sparkContext.statusTracker(), is_shown=not self.quiet
        )
