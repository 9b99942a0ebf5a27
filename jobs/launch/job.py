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
import sys
import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlparse

import typer

from jobs.launch.command_line import (
    EXIT_BAD_INPUT,
    EXIT_BROKEN_PROMISE,
    EXIT_DONE,
    EXIT_FAILED,
    SAFE_AGAIN,
    has_begun,
    open_what_is_closed,
    print_result,
    result_line,
    run_app,
)
from jobs.launch.examples import epilog
from jobs.launch.failures import explain, first_line
from jobs.launch.head_start import work_begun
from jobs.launch.run import Run
from jobs.launch.size_of_work import Work
from pipelines.errors import BadInput, StoreError
from pipelines.rocketmq.times import FIRST_MS, LAST_MS
from pipelines.spark_internals.arrow import frame_of
from pipelines.spark_internals.files import hadoop_path
from pipelines.store.commit import commit
from pipelines.store.damaged import damage_in_words, damaged_tables
from pipelines.store.plan import Plan
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
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only the result and errors.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error.")]


def job(function: Callable[..., dict[str, Any]]) -> Callable[..., None]:
    """A command made of `function(run, its own options) -> counts`, with the options that all jobs share."""
    return _command(function, inspect.Parameter("store", inspect.Parameter.KEYWORD_ONLY, annotation=StoreUri))


def job_for_any_store(function: Callable[..., dict[str, Any]]) -> Callable[..., None]:
    """As `job`, for a function that can run without a store too."""
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
            work=work_begun() or Work.of(function.__name__, common["store"], options),
        )
        has_begun.set()
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
    open_what_is_closed()
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
        # The check itself was successful, also where it found a broken promise.
        status = "ok" if exit_status in (EXIT_DONE, EXIT_BROKEN_PROMISE) else "failed"
    except (Exception, KeyboardInterrupt) as failure:
        # A Ctrl-C may arrive as another exception: the code it interrupts may report an input that cannot be read.
        is_interrupted = run.is_interruption(failure)
        is_bad_input = isinstance(failure, BadInput) and not is_interrupted
        status, exit_status = "failed", EXIT_BAD_INPUT if is_bad_input else EXIT_FAILED
        has_failed = not is_interrupted and not is_bad_input
        said = str(failure)
        damage = None
        if has_failed and run.store_uri and not isinstance(failure, StoreError):
            damage = _damage(run)
        if damage is not None:
            said = f"{run.job} failed: {damage}"
        elif is_interrupted or not isinstance(failure, StoreError):
            what = "was interrupted" if is_interrupted else f"failed: {first_line(failure)}"
            said = f"{run.job} {what}; {SAFE_AGAIN}"
        explain(said, debug)
    finally:
        run.at_end.close()
    line = result_line(run.job, status, run.store_uri or None, time.monotonic() - started, counts)
    if result_path is not None:
        try:
            _write_result(run, result_path, line)
        except Exception as failure:
            exit_status = exit_status or EXIT_FAILED
            line["status"] = "failed"
            explain(f"the result could not be written to {result_path}: {first_line(failure)}", debug)
    # After a second Ctrl-C the run ends at once and does not wait for the lock again.
    if run.interruptions < 2 and (run.wrote or (has_failed and run.store_uri)):
        record_run(run, started_ms, line)
    print_result(line)
    return exit_status


def _damage(run: Run) -> str | None:
    """Which file of the store is missing or damaged, in words, where that is why a run failed."""
    try:
        damaged = damaged_tables(Store(run.spark, run.store_uri))
    except (Exception, KeyboardInterrupt):
        return None  # the failure itself says more
    return damage_in_words(damaged, run.store_uri) if damaged else None


def _expect_clock(run: Run) -> None:
    """Raises BadInput for a --now outside 1970 to 9999: seconds or nanoseconds would be read as milliseconds."""
    now_ms = run.fixed_now_ms
    if now_ms is not None and not FIRST_MS <= now_ms <= LAST_MS:
        raise BadInput(
            f"--now is {now_ms}; expected epoch milliseconds of the years 1970 to 9999; this moment is "
            f"{time.time_ns() // 1_000_000}"
        )


def record_run(run: Run, started_ms: int, line: dict[str, Any]) -> None:
    """Keep a run's result as a row of job_runs."""
    row = (
        run.job,
        run.run_id,
        started_ms,
        line["seconds"],
        line["status"],
        json.dumps(line, ensure_ascii=False)
        .encode(errors="replace")
        .decode(),  # a file's name may be any bytes
    )
    try:
        rows = frame_of(run.spark, [row], JOB_RUNS.columns).coalesce(1)
        commit(run.store, lambda at: Plan((at.append_unnumbered(JOB_RUNS, rows),)))
    except (Exception, KeyboardInterrupt) as failure:
        # Only a warning: the run's own work is committed.
        why = "it was interrupted" if run.is_interruption(failure) else first_line(failure)
        log.warning("this run could not be recorded in job_runs: %s", why)


def _write_result(run: Run, path: str, line: dict[str, Any]) -> None:
    text = json.dumps(line, ensure_ascii=False) + "\n"
    if len(urlparse(path).scheme) <= 1:
        Path(path).write_text(text, encoding="utf-8")
        return
    target, files = hadoop_path(run.spark, path)
    stream = files.create(target, True)
    stream.write(bytearray(text.encode()))
    stream.close()
