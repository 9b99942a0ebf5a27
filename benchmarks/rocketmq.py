"""RocketMQ's own store on this machine: put, dispatch, read and decode, query by key.

    .venv/bin/python benchmarks/rocketmq.py [--messages 2000000] [--rounds 3]

The messages of the other benchmarks. One thread puts, as one producer does, and one dispatches, as in every broker. Needs
Java and the jars that Maven brings.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from benchmarks.figures import keep  # noqa: E402

JARS = PROJECT / ".setup" / "rocketmq"
PROGRAM = Path(__file__).parent / "RocketMQStore.java"
UNITS = {"query by key": "queries/s", "log bytes a message": "bytes"}


def measured(messages: int) -> dict[str, float]:
    """The figures of one run in a new directory. Raises SystemExit where RocketMQ does not run."""
    with tempfile.TemporaryDirectory() as work:
        command = ["java", "-Xmx2g", "-cp", f"{JARS}/*", str(PROGRAM), f"{work}/store", str(messages)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"RocketMQ's store ended with {run.returncode}:\n{run.stderr[-2000:]}")
    lines = [line.removeprefix("FIGURE ") for line in run.stdout.splitlines() if line.startswith("FIGURE ")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--messages", type=int, default=2_000_000)
    options.add_argument("--rounds", type=int, default=3)
    asked = options.parse_args()
    subprocess.run([PROJECT / "scripts" / "test_jars.sh", "rocketmq", "tests/export/pom.xml"], check=True)
    if not JARS.exists():
        print("RocketMQ's store is left out: its jars need Maven")
        return
    rounds = [measured(asked.messages) for _ in range(asked.rounds)]
    print(f"{asked.messages:,} messages, RocketMQ 5.3.3's own store, median of {asked.rounds} rounds")
    for name in rounds[0]:
        found = [figures[name] for figures in rounds]
        unit = UNITS.get(name, "messages/s")
        each = ", ".join(f"{one:,.0f}" for one in found)
        print(f"  {name:<22} {statistics.median(found):>11,.0f} {unit}  ({each})")
        keep(f"RocketMQ: {name}", statistics.median(found), unit)


if __name__ == "__main__":
    main()
