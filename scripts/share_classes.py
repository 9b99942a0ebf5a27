"""Run jobs on a small store and end the JVM, which writes the classes they loaded to a file. Run by scripts/setup.sh."""

import json
import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from jobs.launch.cli import run as commitlake

NOW_MS = 1_700_000_000_000
# The JVM takes about 10 s to write the classes it has loaded.
LONGEST_EXIT_SECONDS = 120


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        store, source = f"{directory}/store", Path(directory, "messages.jsonl")
        messages = [
            {"topic": "T", "body": "now", "keys": "k"},
            {"topic": "T", "body": "later", "delay_level": 1},
        ]
        source.write_text("".join(json.dumps(message) + "\n" for message in messages), encoding="utf-8")
        run("create_store", store)
        run("run_cycle", store, "--input", source, "--now", NOW_MS)
        run("deliver", store, "--now", NOW_MS + 2_000)
        run("dispatch", store, "--now", NOW_MS + 2_000)
        run("query", store, "by-key", "--topic", "T", "--key", "k")
        run("sql", store, "SELECT topic, count(*) FROM messages GROUP BY topic")
    end_jvm()


def run(job: str, store: str, *arguments: object) -> None:
    try:
        commitlake([job, "--store", store, *map(str, arguments)])
    except SystemExit as end:
        if end.code:
            raise


def end_jvm() -> None:
    """Let the JVM exit by itself: it writes the file as it exits."""
    # Otherwise pyspark's thread that waits for the JVM's accumulators reports that the JVM has gone.
    SparkSession.builder.getOrCreate().stop()
    gateway = SparkContext._gateway
    assert gateway is not None, "the jobs have started one"
    gateway.proc.stdin.close()
    gateway.proc.wait(LONGEST_EXIT_SECONDS)


if __name__ == "__main__":
    main()
