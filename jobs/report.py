"""Write one HTML page about a store, or serve it and update it."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer

from jobs.launch.failures import first_line
from jobs.launch.job import job, main
from jobs.launch.live_page import LivePage
from jobs.launch.options import ReplicaOption
from jobs.launch.run import Run
from pipelines.errors import BadInput
from pipelines.reports.copies import copy_to_query
from pipelines.store.store import Store


@job
def report(
    run: Run,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page, one file that needs no network.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Serve the page on this machine and update it, until Ctrl-C.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="--watch: port; 0 takes a free one.")] = 0,
    every: Annotated[float, typer.Option(min=1, help="--watch: seconds from one update to the next.")] = 30,
    replica: ReplicaOption = None,
) -> dict[str, Any]:
    """Write one HTML page about a store: messages, lag, delays, failures, job runs."""
    if out is not None:
        _expect_place(out)
    elif not watch:
        raise BadInput("report needs --out FILE for the page, or --watch to serve it")
    with ThreadPoolExecutor(1) as beside:
        # Two seconds, in which Spark starts.
        beside.submit(_prepare_page)
        store = copy_to_query(run.store, replica, run.say)
    if watch:
        return _watch(run, store, out, port, every)
    assert out is not None
    page = _page(store, run.now_ms)
    return {"out": str(out), "bytes": write_whole(out, page)}


def _prepare_page() -> None:
    """Import the libraries of charts and tables, and pack those that the page has in it."""
    from pipelines.reports.page.render import prepare

    prepare()


def _page(store: Store, now_ms: int, version: str | None = None) -> str:
    # Imported here: help and refusals do not need them.
    from pipelines.reports.page.overview import overview
    from pipelines.reports.page.render import render

    return render(overview(store.snapshot(), now_ms), version)


def _expect_place(out: Path) -> None:
    if out.is_dir():
        raise BadInput(f"--out is {out}, a directory; expected a file in it, as {out / 'report.html'}")
    if not out.absolute().parent.is_dir():
        raise BadInput(f"--out is {out}, but there is no directory {out.absolute().parent}; make it first")


def write_whole(out: Path, page: str) -> int:
    """Write the page atomically, so that readers see the old one or the new one; returns its size in bytes."""
    content = page.encode()
    unfinished = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(out)
    except OSError as failure:
        unfinished.unlink(missing_ok=True)
        raise BadInput(f"--out {out} cannot be written: {failure.strerror}") from failure
    return len(content)


def _watch(run: Run, store: Store, out: Path | None, port: int, every: float) -> dict[str, Any]:
    """Serve the page until Ctrl-C; a failed update is reported, and the page before it stays."""
    counts = {"out": None if out is None else str(out), "bytes": 0, "pages": 0}
    try:
        with LivePage(port) as live:
            started = time.monotonic()
            while True:
                # The job's clock, which --now may fix, plus the time since it was read.
                now_ms = run.now_ms + int((time.monotonic() - started) * 1000)
                try:
                    page = _page(store, now_ms, live.next_version)
                except Exception as failure:
                    if live.shown == 0 or run.is_interruption(failure):
                        raise
                    run.say(f"the page could not be updated: {first_line(failure)}")
                else:
                    live.show(page)
                    counts |= {"bytes": len(page.encode()), "pages": live.shown}
                    if live.shown == 1:
                        run.say(f"serving {live.address} and updating it every {every:g} s; Ctrl-C ends it")
                    if out is not None:
                        write_whole(out, page)
                time.sleep(every)
    except (Exception, KeyboardInterrupt) as failure:
        if not run.is_interruption(failure):
            raise
        run.say("stopped")
    return counts


if __name__ == "__main__":
    main(report)
