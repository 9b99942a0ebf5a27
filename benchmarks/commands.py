"""How long a person waits: whole commands, from the key pressed to the prompt, beside a plain Spark session.

    .venv/bin/python benchmarks/commands.py [--rounds 5] [--only sql,deliver] [--optimizing]

Each command is a process of its own, on the store that a broker's directory of half a megabyte became. `--optimizing` leaves
Java's second compiler on, which small commands start without: the difference is what that saves.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from benchmarks.figures import keep  # noqa: E402

COMMITLAKE = [sys.executable, "-c", "from jobs.launch.cli import main; main()"]
# What a command cannot do without: a session, and one Delta table read.
PLAIN = """
from jobs.launch.session import session
print(session("plain", {small}, {small}, False).read.format("delta").load({table!r}).count())
"""
OPTIMIZING = "import jobs.launch.size_of_work as work; work.is_small = work.is_moderate = lambda *_: False; "


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--only", default="", help="names of some commands, separated by commas")
    options.add_argument("--optimizing", action="store_true")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as work:
        measure(Path(work), asked.rounds, {*asked.only.split(",")} - {""}, asked.optimizing)


def measure(work: Path, rounds: int, only: set[str], is_optimizing: bool) -> None:
    with tarfile.open(PROJECT / "tests" / "data" / "store-a.tar.gz") as archive:
        archive.extractall(work / "broker", filter="data")
    store, messages = str(work / "store"), PROJECT / "tests" / "data" / "messages.jsonl"
    run(["import_store", "--store", store, "--from", str(work / "broker" / "store")])
    run(["dispatch", "--store", store])
    run(["deliver", "--store", store])
    run(["dispatch", "--store", store])
    new_store = iter(str(work / f"new-{number}") for number in range(1_000))
    batch = iter(f"batch-{number}" for number in range(1_000))
    commands: dict[str, Callable[[], None]] = {
        "plain": lambda: plain(f"{store}/commitlog", is_optimizing),
        "sql": lambda: run(["sql", "--store", store, "SELECT count(*) FROM messages"], is_optimizing),
        "query": lambda: run(
            ["query", "by-key", "--store", store, "--topic", "OrderTopic", "--key", "order-1"], is_optimizing
        ),
        "deliver": lambda: run(["deliver", "--store", store], is_optimizing),
        "run_cycle": lambda: run(["run_cycle", "--store", store], is_optimizing),
        "ten messages": lambda: run(
            [
                "run_cycle",
                "--store",
                store,
                "--input",
                str(messages),
                "--batch-id",
                next(batch),
                "--until-quiet",
            ],
            is_optimizing,
        ),
        "create_store": lambda: run(["create_store", "--store", next(new_store)], is_optimizing),
        "import_store": lambda: run(
            ["import_store", "--store", next(new_store), "--from", str(work / "broker" / "store")],
            is_optimizing,
        ),
        "report": lambda: run(["report", "--store", store, "--out", str(work / "page.html")], is_optimizing),
        "validate": lambda: run(["validate", "--store", store], is_optimizing),
    }
    for name, command in commands.items():
        if only and name not in only:
            continue
        taken = sorted(timed(command) for _ in range(rounds))
        print(
            f"{name:<14} median {statistics.median(taken):6.2f} s   least {taken[0]:6.2f} s   most {taken[-1]:6.2f} s",
            flush=True,
        )
        keep(f"whole command: {name}", statistics.median(taken), "s", least=taken[0], most=taken[-1])


def timed(command: Callable[[], None]) -> float:
    began = time.monotonic()
    command()
    return time.monotonic() - began


def run(arguments: list[str], is_optimizing: bool = False) -> None:
    program = list(COMMITLAKE)
    if is_optimizing:
        program[2] = OPTIMIZING + program[2]
    expect_done([*program, *arguments, "--quiet"])


def plain(table: str, is_optimizing: bool) -> None:
    expect_done([sys.executable, "-c", PLAIN.format(small=not is_optimizing, table=table)])


def expect_done(command: list[str]) -> None:
    """Run a process to its end. Raises SystemExit with what it said where it fails."""
    done = subprocess.run(
        command, cwd=PROJECT, env={**os.environ, "PYTHONPATH": str(PROJECT)}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")


if __name__ == "__main__":
    main()
