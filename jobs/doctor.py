"""Check this machine, its session and a store, and report how to fix what is wrong."""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from jobs.launch.command_line import EXIT_FAILED
from jobs.launch.job import job_for_any_store, main
from jobs.launch.output import Output, terminal
from jobs.launch.printable import printable
from jobs.launch.run import Run
from jobs.launch.spark_settings import CLASSES, PROJECT, SETTINGS_FILE, read_settings
from pipelines.errors import StoreError
from pipelines.health.check import Check, Verdict, bad, looked_at, ok
from pipelines.health.machine import SET_UP, machine_looks
from pipelines.health.session import session_looks
from pipelines.health.store import store_looks, tables
from pipelines.store.store import Store
from pipelines.uris import local_path

STYLES = {Verdict.ok: "green", Verdict.warn: "yellow", Verdict.bad: "bold red"}
NAME_WIDTH = 16


@job_for_any_store
def doctor(
    run: Run,
    output: Annotated[Output, typer.Option(help="Lines to read, or a JSON object a check.")] = Output.table,
) -> dict[str, Any]:
    """Check this machine, its session and a store, and report how to fix what is wrong."""
    verdicts: Counter[Verdict] = Counter()
    for check in _checks(run):
        verdicts[check.verdict] += 1
        _print(run, check, output)
    if verdicts[Verdict.bad]:
        run.end_with(
            EXIT_FAILED,
            f"{verdicts[Verdict.bad]} of {verdicts.total()} checks are bad; see above how to fix them",
        )
    return {
        "checked": verdicts.total(),
        "bad": verdicts[Verdict.bad],
        "warnings": verdicts[Verdict.warn],
    }


def _checks(run: Run) -> Iterator[Check]:
    """The checks, from the machine up: each part needs those before it, so a bad one may end the list."""
    settings: Mapping[str, str] = {}
    try:
        settings = _session_settings()
    except (StoreError, OSError) as failure:
        yield bad("settings file", str(failure), SET_UP)
    store_directory = local_path(run.store_uri) if run.store_uri else None
    places = [Path(store_directory)] if store_directory else []
    java_is_there = True
    for check in looked_at(machine_looks(PROJECT, settings, places)):
        java_is_there = java_is_there and not (check.name == "java" and check.verdict == Verdict.bad)
        yield check
    if not java_is_there:
        yield bad("session", "not tried: it needs Java, see above", "fix Java, then run doctor again")
        return
    session = next(looked_at([("session", lambda: _session(run))]))
    yield session
    if session.verdict == Verdict.bad:
        return
    yield from looked_at(session_looks(run.spark, CLASSES))
    if run.store_uri:
        store = Store(run.spark, run.store_uri)
        whole = next(looked_at([("tables", lambda: tables(store))]))
        yield whole
        if store.exists():
            yield from looked_at(store_looks(store, run.now_ms))


def _session_settings() -> Mapping[str, str]:
    """The settings of the file that an embedded session is made from; empty under spark-submit, which has its own."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return {}
    return read_settings(Path(os.environ.get("COMMITLAKE_SPARK_CONF", SETTINGS_FILE)))


def _session(run: Run) -> Check:
    started = time.monotonic()
    context = run.spark.sparkContext
    seconds = time.monotonic() - started
    tasks = context.defaultParallelism
    return ok(
        "session", f"Spark {context.version} on {context.master}, {tasks} tasks at once, in {seconds:.1f} s"
    )


def _print(run: Run, check: Check, output: Output) -> None:
    if output == Output.json:
        print(json.dumps(asdict(check), ensure_ascii=False), flush=True)
    elif check.verdict == Verdict.bad or not run.quiet:
        console = terminal()
        console.print(f"{check.verdict:<4}", style=STYLES[check.verdict], end=" ")
        console.print(
            f"{check.name:<{NAME_WIDTH}} {printable(check.found)}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        if check.remedy:
            console.print(
                f"{'':<5}{'':<{NAME_WIDTH}} → {printable(check.remedy)}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )


if __name__ == "__main__":
    main(doctor)
