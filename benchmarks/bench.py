"""All benchmarks, one after the other, and a page with charts of their figures: what `make bench` starts.

    .venv/bin/python benchmarks/bench.py [--only put_messages,dispatch] [--page-only]

Each runs in a process of its own. The figures of a run, with the machine and the commit, become a line of
benchmarks/history.jsonl, and the page build/bench.html shows the newest beside those before it on a machine like it.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from benchmarks.figures import KEPT_IN, kept  # noqa: E402

FOLDER = PROJECT / "benchmarks"
HISTORY = FOLDER / "history.jsonl"
PAGE = PROJECT / "build" / "bench.html"

# Sizes for forty minutes on two cores. Run alone, each benchmark has larger ones.
SIZES: Mapping[str, str] = {
    "commands": "--rounds 3",
    "started": "--messages 2000000 --rounds 1",
    "rocketmq": "--messages 2000000 --rounds 3",
    "put_messages": "--messages 1000000 --rounds 3 --warm-ups 8",
    "dispatch": "--messages 1000000 --rounds 3 --dispatches 20",
    "consume": "--messages 1000000 --rounds 3 --warm-ups 3",
    "deliver": "--messages 1000000",
    "bytes_kept": "--messages 1000000",
    "lookups": "--messages 1000000",
    "import_store": "--megabytes 463 --rounds 3 --warm-ups 3",
    "export_store": "--megabytes 463 --rounds 3 --warm-ups 3",
    "replicate": "--messages 2000000 --rounds 3",
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", default="", help="names of some benchmarks, separated by commas")
    options.add_argument("--page-only", action="store_true", help="draw the page again, measure nothing")
    asked = options.parse_args()
    runs_before()  # what is wrong with the history is said before forty minutes, not after
    failed = [] if asked.page_only else measure([*SIZES] if not asked.only else asked.only.split(","))
    if not HISTORY.exists():
        raise SystemExit(f"there is no {HISTORY} yet: run it without --page-only first")
    draw(runs_before())
    print(f"the page: {PAGE}")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}; the others are kept")


def measure(names: list[str]) -> list[str]:
    """Run some benchmarks and add a line to the history; returns the names of those that failed."""
    unknown = {*names} - {*SIZES}
    if unknown:
        raise SystemExit(f"{', '.join(sorted(unknown))}: expected some of {', '.join(SIZES)}")
    failed = []
    with tempfile.TemporaryDirectory() as work:
        figures = Path(work, "figures.jsonl")
        for name in names:
            began = time.monotonic()
            print(f"=== {name} {SIZES[name]}", flush=True)
            command = [sys.executable, str(FOLDER / f"{name}.py"), *SIZES[name].split()]
            paths = {KEPT_IN: str(figures), "PYTHONPATH": str(PROJECT)}
            if subprocess.run(command, cwd=PROJECT, env={**os.environ, **paths}, check=False).returncode:
                failed.append(name)
            print(f"=== {name}: {time.monotonic() - began:.0f} s", flush=True)
        found = [asdict(figure) for figure in kept(figures)]
    run = {"when": datetime.now(UTC).isoformat(timespec="minutes"), "commit": commit(), "machine": machine()}
    with HISTORY.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps({**run, "figures": found}) + "\n")
    return failed


def runs_before() -> list[Mapping[str, Any]]:
    """The runs of the history, the oldest first. Raises SystemExit with the line that is none."""
    lines = HISTORY.read_text("utf-8").splitlines() if HISTORY.exists() else []
    runs = []
    for number, line in enumerate(lines, 1):
        try:
            runs.append(json.loads(line))
        except ValueError as failure:
            found = f"{HISTORY}, line {number}: expected a run as JSON, found {line[-40:]!r} at its end"
            raise SystemExit(f"{found}. Take the line out, then try again") from failure
    return runs


def commit() -> str:
    """The commit that was measured, with a + where files were changed since."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False).stdout.strip()


def machine() -> str:
    """Cores, memory and processor: figures of unlike machines are not compared."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.machine()}"


def draw(history: list[Mapping[str, Any]]) -> None:
    """Write the page: for each figure, bars of the newest run beside what it is compared with, and a line of all runs."""
    import altair as alt

    newest = history[-1]
    alike = [run for run in history if run["machine"] == newest["machine"]]
    rows = []
    for name in dict.fromkeys(figure["name"] for run in reversed(alike) for figure in run["figures"]):
        runs = [(run, figure) for run in alike for figure in run["figures"] if figure["name"] == name]
        figure = runs[-1][1]
        values = {"here": figure["value"], **figure["beside"]}
        bars = [{"what": what, "value": value} for what, value in values.items()]
        bar = alt.Chart(alt.Data(values=bars), title=f"{name}, {figure['unit']}", width=420).encode(
            x=alt.X("value:Q", title=None),
            y=alt.Y("what:N", sort=None, title=None, axis=alt.Axis(labelLimit=260)),
        )
        points = [{"when": each["when"], "commit": each["commit"], "value": of["value"]} for each, of in runs]
        line = alt.Chart(alt.Data(values=points), title="each run", width=260, height=70).encode(
            x=alt.X("when:T", title=None, axis=alt.Axis(format="%-d %b", tickCount=4, labelOverlap=True)),
            y=alt.Y("value:Q", title=None, axis=alt.Axis(tickCount=3)),
            tooltip=["when:N", "commit:N", alt.Tooltip("value:Q", format=",.4~g")],
        )
        color = alt.condition("datum.what == 'here'", alt.value("#2f6fde"), alt.value("#b8c2cc"))
        text = bar.mark_text(align="left", dx=4).encode(text=alt.Text("value:Q", format=",.4~g"))
        rows.append((bar.mark_bar().encode(color=color) + text) | line.mark_line(point=True))
    when, of, on = newest["when"], newest["commit"], newest["machine"]
    title = alt.Title(f"commitlake on {on}", subtitle=f"{when}, commit {of}; of seconds, fewer are better")
    PAGE.parent.mkdir(exist_ok=True)
    alt.vconcat(*rows, title=title).save(PAGE, inline=True)


if __name__ == "__main__":
    main()
