"""deliver: what a tick costs, and how fast due messages come back.

    python benchmarks/deliver.py [--messages 1000000]

Messages of 300 bytes, delayed. A tick with a thousand due of many parked, beside one of few; a tick with nothing due; then
all of them due at once, in turn with put_messages of the same rows without delay: due in the order they were put, as rows of
one delay are, and due in any order. All warm, in one session.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs.deliver import deliver_due
from jobs.dispatch import dispatch_store
from jobs.launch.run import Run
from jobs.launch.session import session
from pipelines.store.store import Store

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.figures import keep
from benchmarks.put_messages import messages, new_store, put

NOW = 1_700_000_000_000
DUE = 1_000
WARMING, ROUNDS = 2, 3
DAY_MS, HOUR_MS = 86_400_000, 3_600_000


def run_at(store: Store, now_ms: int) -> Run:
    return Run("deliver", store.uri, now_ms, quiet=True)


def timed(work: Callable[[], dict]) -> tuple[float, dict]:
    started = time.monotonic()
    result = work()
    return time.monotonic() - started, result


def parked_store(spark: SparkSession, work: Path, name: str, count: int, spread_ms: int = 1) -> Store:
    """A store in which `count` timed messages wait, a thousand of them for a minute and the others for a day.

    spread_ms  those of a day wait up to this much longer, each for a different time
    """
    source = work / f"{name}-input"
    day = F.lit(DAY_MS) + F.pmod(F.xxhash64("id"), F.lit(spread_ms))
    wait = F.when(F.col("id") % max(count // DUE, 1) == 0, 60_000).otherwise(day)
    numbered = messages(spark, count, False).withColumn("id", F.monotonically_increasing_id())
    numbered.withColumn("delay_ms", wait.cast("long")).drop("id").write.mode("overwrite").parquet(str(source))
    store = new_store(spark, work / name)
    put(spark, store, source, "parked")
    dispatch_store(run_at(store, NOW))
    return store


def ticks(spark: SparkSession, work: Path, count: int) -> None:
    figures = {}
    for name, parked in (("few", min(10_000, count // 2)), ("many", count)):
        store = parked_store(spark, work, name, parked)
        deliver_due(run_at(store, NOW))  # warm
        idle = [timed(lambda store=store: deliver_due(run_at(store, NOW + 1)))[0] for _ in range(5)]
        due, result = timed(lambda store=store: deliver_due(run_at(store, NOW + 61_000)))
        figures[name] = due
        print(
            f"{parked:>9,} parked: {result['delivered']:,} due {due:5.2f} s; nothing due {statistics.median(idle):5.2f} s",
            flush=True,
        )
        keep(f"deliver with nothing due, {name} parked", statistics.median(idle), "s")
        shutil.rmtree(work / f"{name}-input")
    print(f"  many / few {figures['many'] / figures['few']:.2f} ×")
    everything(spark, work, store, count)


def everything(spark: SparkSession, work: Path, in_order: Store, count: int) -> None:
    in_any_order = parked_store(spark, work, "any-order", count, HOUR_MS)
    deliver_due(run_at(in_any_order, NOW + 61_000))
    source = work / "plain-input"
    messages(spark, count, False).write.parquet(str(source))
    plain = new_store(spark, work / "plain")
    stores = {"in the order of the log": in_order, "in any order": in_any_order}
    speeds: dict[str, list[float]] = {what: [] for what in ("put", *stores)}
    for turn in range(WARMING + ROUNDS):
        for number, (what, store) in enumerate(stores.items()):
            copy = work / f"copy-{turn}-{number}"
            shutil.copytree(store.uri, copy)
            due = run_at(Store(spark, str(copy)), NOW + 2 * DAY_MS)
            seconds, result = timed(lambda due=due: deliver_due(due))
            shutil.rmtree(copy)
            if turn >= WARMING:
                speeds[what].append(result["delivered"] / seconds)
        seconds = put(spark, plain, source, f"turn-{turn}")
        if turn >= WARMING:
            speeds["put"].append(count / seconds)
    theirs = statistics.median(speeds["put"])
    for what in stores:
        ours = statistics.median(speeds[what])
        print(
            f"  {result['delivered']:,} due {what:24} {ours:,.0f} messages/s; put_messages {theirs:,.0f} messages/s; "
            f"deliver / put {ours / theirs:.2f} × (medians of {ROUNDS} rounds in turn, after {WARMING})",
            flush=True,
        )
        keep(f"deliver all due {what}", ours, "messages/s", put_messages=theirs)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--messages", type=int, default=1_000_000)
    options = arguments.parse_args()
    spark = session("benchmark")
    with tempfile.TemporaryDirectory(prefix="commitlake-bench-") as directory:
        ticks(spark, Path(directory), options.messages)
    print(
        "bound by: a tick by Spark's planning of a dozen small queries; a large delivery by encoding bodies, and where"
        " they are not due in the order of the log by moving and sorting them"
    )


if __name__ == "__main__":
    main()
