"""What every job has in common: its arguments, its clock, its result line, its exit status, its place in job_runs.

A job is a function from its arguments to its counts:

    @job
    def dispatch(run: Run, rebuild: Annotated[bool, typer.Option(help="…")] = False) -> dict[str, Any]:
        committed = run.commit(lambda at: plan_dispatch(at, …))
        return {"queue_entries": …}

    if __name__ == "__main__":
        main(dispatch)
"""

import inspect
import json
import logging
import re
import signal
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, wraps
from pathlib import Path
from types import FrameType
from typing import Annotated, Any
from urllib.parse import urlparse

import typer
from pyspark import StatusTracker
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from jobs.command_line import EXIT_BAD_INPUT, EXIT_DONE, EXIT_FAILED, print_result, result_line, run_app
from jobs.examples import epilog
from jobs.session import PROJECT, session
from pipelines.errors import BadInput, StoreError
from pipelines.rocketmq.times import FIRST_MS, LAST_MS
from pipelines.spark_internals.files import hadoop_path
from pipelines.spark_internals.jvm import is_java_failure
from pipelines.store.commit import Committed, commit
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from schemas import JOB_RUNS

log = logging.getLogger("commitlake")

StoreUri = Annotated[
    str, typer.Option("--store", metavar="URI", help="A local path, file:, hdfs:, s3a:, abfss: or gs:")
]
Now = Annotated[
    int | None, typer.Option("--now", metavar="MS", help="Fix the job's clock, epoch milliseconds.")
]
ResultPath = Annotated[
    str | None, typer.Option(metavar="FILE", help="Write the result line to a file or URI too.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing but the result and errors.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error.")]


@dataclass
class Run:
    """One run of a job.

    job              name of the job
    store_uri        where the store is, as the user typed it; '' where a job that can do without was given none
    fixed_now_ms     the job's clock where --now fixes it; None: the machine's
    quiet            whether to say nothing but the result
    run_id           another for each run
    wrote            whether it has committed anything
    interruptions    how often Ctrl-C was pressed: what is raised after it need not be a KeyboardInterrupt
    exit_status      how the job ends when it raises nothing; see end_with
    at_end           what is to be undone when the run ends
    """

    job: str
    store_uri: str
    fixed_now_ms: int | None = None
    quiet: bool = False
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    wrote: bool = False
    interruptions: int = 0
    exit_status: int = EXIT_DONE
    session_settings: dict[str, str] = field(default_factory=dict)
    at_end: ExitStack = field(default_factory=ExitStack)

    @property
    def now_ms(self) -> int:
        """The job's clock, epoch milliseconds; nothing else in a job reads one.

        Read it for each plan: other jobs append between a run's start and its plan, and between two of its plans.
        """
        return time.time_ns() // 1_000_000 if self.fixed_now_ms is None else self.fixed_now_ms

    @cached_property
    def spark(self) -> SparkSession:
        spark = session(f"commitlake {self.job}", **self.session_settings)
        if threading.current_thread() is threading.main_thread():
            self._notice_control_c()
        return spark

    def _notice_control_c(self) -> None:
        """Remember a Ctrl-C before Spark's handler raises: py4j, interrupted, raises an error of its own instead."""
        to_spark = signal.getsignal(signal.SIGINT)

        def interrupted(number: int, frame: FrameType | None) -> None:
            self.interruptions += 1
            if callable(to_spark):
                to_spark(number, frame)

        def is_worth_a_line(record: logging.LogRecord) -> bool:
            return not self.interruptions  # what py4j logs of being interrupted helps nobody

        self.at_end.callback(signal.signal, signal.SIGINT, to_spark)
        signal.signal(signal.SIGINT, interrupted)
        root = logging.getLogger()
        self.at_end.callback(root.removeFilter, is_worth_a_line)
        root.addFilter(is_worth_a_line)

    def is_interruption(self, failure: BaseException) -> bool:
        """Whether a failure is what became of a Ctrl-C."""
        return self.interruptions > 0 or isinstance(failure, KeyboardInterrupt)

    @cached_property
    def store(self) -> Store:
        """The store the job works on. Raises BadInput where there is none."""
        return Store.open(self.spark, self.store_uri)

    def commit(self, planner: Callable[[Snapshot], Plan]) -> Committed:
        """Write what `planner` plans, and remember that this run wrote.

        Raises KeyboardInterrupt for a Ctrl-C pressed before, which may have been swallowed on its way from the JVM.
        """
        if self.interruptions:
            raise KeyboardInterrupt
        committed = commit(self.store, planner)
        self.wrote = self.wrote or committed.wrote
        return committed

    def end_with(self, exit_status: int, sentence: str) -> None:
        """End the job, which has done its work, with this status; the sentence says what it found, also when quiet."""
        self.exit_status = exit_status
        _explain(sentence, debug=False)

    def say(self, text: str) -> None:
        """A line for the person who watches; never on stdout, which belongs to the result."""
        if not self.quiet:
            Console(stderr=True, highlight=False).print(text, markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """As `say`, of something that may have been lost: also when the run is quiet."""
        print(f"warning: {text}", file=sys.stderr)

    @contextmanager
    def progress(self, what: str, total: int | None, unit: str = "rows") -> Iterator[Callable[[int], None]]:
        """A bar on a terminal for work of `total` units; yields a function that takes the units done since."""
        bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            Speed(unit),
            Tasks(lambda: self.spark.sparkContext.statusTracker()),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=self.quiet or not sys.stderr.isatty(),
            transient=True,
        )
        with bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.advance(task, done)


class Speed(ProgressColumn):
    """How many units a second are done."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {self.unit}/s")


class Tasks(ProgressColumn):
    """How far Spark is with the step at hand: an append of a million messages moves the bar once."""

    max_refresh = 0.5  # seconds

    def __init__(self, tracker: Callable[[], StatusTracker]) -> None:
        super().__init__()
        self.tracker = tracker

    def render(self, task: Task) -> Text:
        try:
            tracker = self.tracker()
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except Exception:  # the session is just being made or ended; a bar must not be what fails
            return Text("")
        running = [stage for stage in stages if stage is not None]
        done, tasks = (
            sum(stage.numCompletedTasks for stage in running),
            sum(stage.numTasks for stage in running),
        )
        return Text(f"tasks {done}/{tasks}" if tasks else "")


def job(function: Callable[..., dict[str, Any]]) -> Callable[..., None]:
    """Make a command of `function(run, its own options) -> counts`: adds what all jobs share."""
    return _command(function, inspect.Parameter("store", inspect.Parameter.KEYWORD_ONLY, annotation=StoreUri))


def job_for_any_store(function: Callable[..., dict[str, Any]]) -> Callable[..., None]:
    """As `job`, for one that has something to say without a store too."""
    store = inspect.Parameter("store", inspect.Parameter.KEYWORD_ONLY, annotation=StoreUri, default="")
    return _command(function, store)


def _command(
    function: Callable[..., dict[str, Any]], store_parameter: inspect.Parameter
) -> Callable[..., None]:
    @wraps(function)
    def command(**options: Any) -> None:
        common = {name: options.pop(name) for name in ("store", "now", "result_path", "quiet", "debug")}
        run = Run(
            job=function.__name__,
            store_uri=common["store"],
            fixed_now_ms=common["now"],
            quiet=common["quiet"],
        )
        raise SystemExit(_run(run, lambda: function(run, **options), common["result_path"], common["debug"]))

    own = [p for p in inspect.signature(function, eval_str=True).parameters.values() if p.name != "run"]
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    shared = [
        store_parameter,
        inspect.Parameter("now", keyword_only, annotation=Now, default=None),
        inspect.Parameter("result_path", keyword_only, annotation=ResultPath, default=None),
        inspect.Parameter("quiet", keyword_only, annotation=Quiet, default=False),
        inspect.Parameter("debug", keyword_only, annotation=Debug, default=False),
    ]
    parameters = [p.replace(kind=keyword_only) for p in own] + shared
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def main(command: Callable[..., None], arguments: Sequence[str] | None = None) -> None:
    """Run one job's file as a script."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(name=command.__name__, epilog=epilog(command.__name__))(command)
    run_app(app, [command.__name__], list(sys.argv[1:] if arguments is None else arguments))


def _run(run: Run, work: Callable[[], dict[str, Any]], result_path: str | None, debug: bool) -> int:
    started_ms, started = time.time_ns() // 1_000_000, time.monotonic()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    counts: dict[str, Any] = {}
    status, exit_status, has_failed = "ok", EXIT_DONE, False
    try:
        _expect_clock(run)
        counts = work()
        exit_status = run.exit_status
        # A broken promise is what a check was to find: it ran.
        status = "failed" if exit_status == EXIT_FAILED else "ok"
    except (Exception, KeyboardInterrupt) as failure:
        # Whatever a Ctrl-C has become on its way: what was under way may take it for an input it cannot read.
        is_interrupted = run.is_interruption(failure)
        is_bad_input = isinstance(failure, BadInput) and not is_interrupted
        status, exit_status = "failed", EXIT_BAD_INPUT if is_bad_input else EXIT_FAILED
        has_failed = not is_interrupted and not is_bad_input
        said = str(failure)
        if is_interrupted or not isinstance(failure, StoreError):
            what = "was interrupted" if is_interrupted else f"failed: {first_line(failure)}"
            said = f"{run.job} {what}; nothing is lost, it is safe to run again"
        _explain(said, debug)
    finally:
        run.at_end.close()
    line = result_line(run.job, status, run.store_uri or None, time.monotonic() - started, counts)
    # Pressed twice, Ctrl-C means now: not to wait for the lock once more.
    if run.interruptions < 2 and (run.wrote or (has_failed and run.store_uri)):
        _record(run, started_ms, line)
    if result_path is not None:
        try:
            _write_result(run, result_path, line)
        except Exception as failure:
            exit_status = exit_status or EXIT_FAILED
            _explain(f"the result could not be written to {result_path}: {first_line(failure)}", debug)
    print_result(line)
    return exit_status


def _expect_clock(run: Run) -> None:
    """Raises BadInput for a clock that no calendar has: seconds or nanoseconds would be taken for milliseconds."""
    now_ms = run.fixed_now_ms
    if now_ms is not None and not FIRST_MS <= now_ms <= LAST_MS:
        raise BadInput(
            f"--now is {now_ms}; expected epoch milliseconds of the years 1970 to 9999; this moment is "
            f"{time.time_ns() // 1_000_000}"
        )


def _record(run: Run, started_ms: int, line: dict[str, Any]) -> None:
    row = (
        run.job,
        run.run_id,
        started_ms,
        line["seconds"],
        line["status"],
        json.dumps(line, ensure_ascii=False),
    )
    try:
        rows = run.spark.createDataFrame([row], JOB_RUNS.columns).coalesce(1)
        commit(run.store, lambda at: Plan((at.append_unnumbered(JOB_RUNS, rows),)))
    except (Exception, KeyboardInterrupt) as failure:
        # What the run did is done; that it could not be noted is worth a line, not a failure.
        log.warning("this run could not be recorded in job_runs: %s", first_line(failure))


def _write_result(run: Run, path: str, line: dict[str, Any]) -> None:
    text = json.dumps(line, ensure_ascii=False) + "\n"
    if len(urlparse(path).scheme) <= 1:
        Path(path).write_text(text, encoding="utf-8")
        return
    target, files = hadoop_path(run.spark, path)
    stream = files.create(target, True)
    stream.write(bytearray(text.encode()))
    stream.close()


def _explain(text: str, debug: bool) -> None:
    if debug:
        traceback.print_exc(file=sys.stderr)
    print(f"error: {text}", file=sys.stderr)


def first_line(failure: BaseException) -> str:
    """What a failure says; of one on an executor, what our own code said there."""
    lines = str(failure).strip().splitlines()
    told = [line.partition(": ")[2] for line in lines if line.startswith(f"{StoreError.__module__}.")]
    if told:
        return told[-1]
    if is_java_failure(failure):
        # Its own first line is which of Python's calls it was; the next is Java's, with a class before the words.
        lines = [_JAVA_CLASS.sub("", line.removeprefix(": ")) for line in lines[1:]]
    if isinstance(failure, MISTAKES) or not lines:
        return (
            f"{type(failure).__name__}{_place_of(failure)}{': ' if lines else ''}{''.join(lines[:1])}; this is a mistake in "
            "commitlake itself: please report it with what --debug shows"
        )
    return lines[0]


# What Python raises for a mistake in code: its text is a bare key or name as often as not.
MISTAKES = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, StopIteration, TypeError)
_JAVA_CLASS = re.compile(r"^(?:[\w$]+\.)+[\w$]+: ")


def _place_of(failure: BaseException) -> str:
    """Where in commitlake's own code it was raised."""
    frames = traceback.extract_tb(failure.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(PROJECT / "jobs")]
    own += [frame for frame in frames if Path(frame.filename).is_relative_to(PROJECT / "pipelines")]
    return f" at {Path(own[-1].filename).relative_to(PROJECT)} line {own[-1].lineno}" if own else ""
