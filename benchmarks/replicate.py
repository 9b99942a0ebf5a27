"""How fast a slave takes over its master's log: `replicate` against a plain Delta copy of the same rows.

    .venv/bin/python benchmarks/replicate.py [--messages 1000000] [--rounds 3]

Messages of 300 bytes in 20 topics, in eight appends. Each round copies all of them to a new slave, and has a plain Delta
append write the same rows; they run in turns, since a machine's speed drifts, and medians are compared. A slave that is up
to date is then given one small append: its cost must not follow the log.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from benchmarks.figures import keep  # noqa: E402

MEGABYTE = 1_000_000


def seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--messages", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as work:
        bench(Path(work), given.messages, given.rounds)


def bench(work: Path, messages: int, rounds: int) -> None:
    from pyspark.sql import functions as F

    from jobs.launch.cli import run as commitlake
    from jobs.launch.session import session
    from pipelines.store.store import Store
    from schemas import COMMITLOG

    def job(*arguments: object) -> None:
        try:
            commitlake([*map(str, arguments), "--quiet"])
        except SystemExit as ended:
            if ended.code:
                raise

    def put(count: int, name: str) -> None:
        number = F.col("id")
        spark.range(count).select(
            F.format_string("topic-%02d", number % 20).alias("topic"),
            F.rpad(F.md5(number.cast("string")), 300, "body").alias("body"),
            F.concat(F.lit("order-"), number.cast("string")).alias("keys"),
        ).write.mode("overwrite").parquet(str(work / "input"))
        job(
            "put_messages",
            "--store",
            master,
            "--input",
            work / "input",
            "--format",
            "parquet",
            "--batch-id",
            name,
        )

    # Before the first command, whose session would be one of a short run.
    spark = session("replicate benchmark")
    master = str(work / "master")
    job("create_store", "--store", master)
    for part in range(8):
        put(messages // 8, f"part-{part}")
    log = Store(spark, master).read(COMMITLOG)
    log_bytes = log.agg(F.sum("size_bytes")).first()[0]
    print(f"{log.count():,} messages, {log_bytes / MEGABYTE:,.0f} MB of log")

    copied, plain = [], []
    for round_number in range(rounds):
        slave = str(work / f"slave-{round_number}")
        # Its tables are made before, as those of the plain copy are made by the copy itself.
        job("create_store", "--store", slave, "--set", "brokerRole=SLAVE")
        copied.append(seconds(lambda slave=slave: job("replicate", "--store", slave, "--master", master)))
        to = str(work / f"plain-{round_number}")
        plain.append(
            seconds(lambda to=to: log.write.format("delta").partitionBy(*COMMITLOG.partition_by).save(to))
        )
        print(f"round {round_number + 1}: replicate {copied[-1]:.1f} s, plain copy {plain[-1]:.1f} s")
    median = statistics.median(copied)
    print(
        f"replicate {log_bytes / MEGABYTE / median:.0f} MB/s, {statistics.median(plain) / median:.2f} of a plain Delta copy"
    )
    plain_speed = log_bytes / statistics.median(plain) / MEGABYTE
    keep("replicate", log_bytes / median / MEGABYTE, "MB/s", plain_Delta_copy=plain_speed)
    put(100, "small")
    small = seconds(lambda: job("replicate", "--store", slave, "--master", master))
    nothing = seconds(lambda: job("replicate", "--store", slave, "--master", master))
    keep("replicate 100 messages more", small, "s")
    print(f"100 messages more: {small:.1f} s; nothing new: {nothing:.1f} s")


if __name__ == "__main__":
    main()
