"""What grows with rows, topics, appends, segments and groups: each of these at three sizes, all else as it is.

    .venv/bin/python benchmarks/growth.py [--only rows,topics] [--rounds 5] [--share 1]

Figures are seconds of a session that has done the work before, medians of several rounds. The exponent is that of the size
in the seconds from the smallest store to the largest: 0 is flat, 1 grows as the size does.
"""

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from benchmarks.import_store import timed  # noqa: E402

QUEUES, BODY_BYTES, WARM_UPS = 8, 300, 3
# A record, about: the body, its properties and the rest.
RECORD_BYTES = 480
NOW_MS = 1_800_000_000_000
# Figures that are no seconds.
COUNTED = ("files with rows", "MB with rows", "MB of Delta logs")


@dataclass(frozen=True)
class Size:
    """A store: how many messages, in how many topics, appends and segments, and how many groups read it.

    first_offset  of the page that is read
    """

    rows: int = 100_000
    topics: int = 20
    appends: int = 8
    segments: int = 1
    groups: int = 1
    first_offset: int = 0


AXES: Mapping[str, tuple[int, int, int]] = {
    "rows": (125_000, 500_000, 2_000_000),
    "topics": (20, 200, 2_000),
    "appends": (8, 80, 800),
    "segments": (1, 8, 64),
    "groups": (1, 15, 225),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", default="", help=f"some of {', '.join(AXES)}, separated by commas")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--share", type=float, default=1, help="of each size, for a quick try")
    asked = options.parse_args()

    from jobs.launch.session import session

    spark = session("growth benchmark")
    with tempfile.TemporaryDirectory() as work:
        small = Size(10_000)
        measure(build(spark, Path(work, "warm-up"), small), small, 5)
        for axis in asked.only.split(",") if asked.only else AXES:
            sizes = [max(1, int(number * asked.share)) for number in AXES[axis]]
            found = []
            for number in sizes:
                size = replace(Size(), **{axis: number})
                store = build(spark, Path(work, f"{axis}-{number}"), size)
                found.append(measure(store, size, asked.rounds))
            show(axis, sizes, found)


def build(spark: Any, path: Path, size: Size) -> Any:
    """A store of a size, put and dispatched by the jobs' own code."""
    from pipelines.consume.offsets import Reached, plan_commit
    from pipelines.store.commit import commit

    store = new_store(spark, path, size)
    fill(store, size)
    read = [Reached((topic_name(topic), queue), 1) for topic in range(20) for queue in range(QUEUES)]
    for number in range(size.groups):
        commit(store, lambda at, number=number: plan_commit(at, f"group-{number}", "", read, NOW_MS))
    return store


def new_store(spark: Any, path: Path, size: Size) -> Any:
    """A store with topics, and without a message."""
    from pipelines.store.commit import commit
    from pipelines.store.create import make_store
    from pipelines.store.store import Store
    from pipelines.store.topics import TopicConfig, plan_make_topics

    segment_bytes = 1024**3 if size.segments == 1 else size.rows * RECORD_BYTES // size.segments
    store = make_store(Store(spark, str(path)), {"mappedFileSizeCommitLog": str(segment_bytes)})
    topics = [TopicConfig(topic_name(number), QUEUES, QUEUES) for number in range(size.topics)]
    commit(store, lambda at: plan_make_topics(at, topics))
    return store


def fill(store: Any, size: Size) -> None:
    """Put the messages of a size into a store, and dispatch them."""
    from jobs.dispatch import dispatch_store
    from jobs.launch.run import Run
    from pipelines.produce.put_input import PutOptions, put_input

    path = Path(store.uri)
    run, each = Run("put_messages", store.uri, NOW_MS, quiet=True), size.rows // size.appends
    for number in range(size.appends):
        write_input(store.spark, path, number * each, each, size.topics)
        put_input(run, PutOptions(f"{path}-input", "parquet", f"part-{number}"))
        if number % 50 == 49:
            dispatch_store(run)
    dispatch_store(run)


def write_input(spark: Any, path: Path, first: int, count: int, topics: int) -> None:
    """Write messages for put_messages, topic after topic in turn."""
    from pyspark.sql import functions as F

    number = F.col("id")
    rows = spark.range(first, first + count, 1, 1 if count < 10_000 else 4).select(
        F.format_string("topic-%04d", number % topics).alias("topic"),
        F.rpad(F.md5(number.cast("string")), BODY_BYTES, "body").alias("body"),
        F.concat(F.lit("order-"), number.cast("string")).alias("keys"),
    )
    rows.write.mode("overwrite").parquet(f"{path}-input")


def topic_name(number: int) -> str:
    return f"topic-{number:04d}"


def measure(store: Any, size: Size, rounds: int) -> dict[str, float]:
    """Figure -> its value in a store: seconds, files, bytes."""
    from jobs.deliver import deliver_due
    from jobs.dispatch import dispatch_store
    from jobs.launch.run import Run
    from pipelines.consume.offsets import Reached, plan_commit
    from pipelines.produce.put_input import PutOptions, put_input
    from pipelines.reports.lookup import messages_by_key
    from pipelines.reports.pull import pull
    from pipelines.store.commit import commit

    run, path = Run("run_cycle", store.uri, NOW_MS, quiet=True), Path(store.uri)

    def put(number: int) -> None:
        put_input(run, PutOptions(f"{path}-input", "parquet", f"ten-{number}"))

    def a_key(number: int) -> None:
        wanted = 7_919 * (number + 1) % (size.rows // size.appends * size.appends)
        found = messages_by_key(store.snapshot(), topic_name(wanted % size.topics), f"order-{wanted}")
        assert len(found.rows.collect()) == 1

    def a_page(_: int) -> None:
        assert pull(store.snapshot(), topic_name(7), 3, size.first_offset, 32).rows.collect()

    def offsets(number: int) -> None:
        reached = [Reached((topic_name(7), 3), 2 + number)]
        commit(store, lambda at: plan_commit(at, "group-0", "", reached, NOW_MS))

    write_input(store.spark, path, size.rows, 10, 10)
    figures = files_of(path)
    steps: dict[str, Callable[[int], object]] = {
        "ten messages put": put,
        "their dispatch": lambda _: dispatch_store(run),
        "idle deliver": lambda _: deliver_due(run),
        "a key": a_key,
        "a page of 32": a_page,
        "a group's offsets": offsets,
    }
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(WARM_UPS + rounds):
        for name, work in steps.items():
            taken[name].append(timed(lambda work=work, number=number: work(number))[0])  # type: ignore[misc]
    return {name: statistics.median(seconds[WARM_UPS:]) for name, seconds in taken.items()} | figures


def files_of(store: Path) -> dict[str, float]:
    """The store's files, and the bytes of those with rows and of Delta's logs."""
    files = [file for file in store.rglob("*") if file.is_file() and not file.name.startswith(".")]
    log = [file for file in files if file.parent.name == "_delta_log"]
    size = sum(file.stat().st_size for file in files) / 1_000_000
    of_log = sum(file.stat().st_size for file in log) / 1_000_000
    return dict(zip(COUNTED, (len(files) - len(log), size - of_log, of_log), strict=True))


def show(axis: str, sizes: Sequence[int], found: Sequence[Mapping[str, float]]) -> None:
    """Print a line a figure: its value at each size, and the exponent where there are several."""
    print(f"\n{axis:<24}" + "".join(f"{size:>12,}" for size in sizes) + "    exponent")
    grows = math.log(sizes[-1] / sizes[0]) or math.nan
    for name in found[0]:
        values = [each[name] for each in found]
        exponent = math.log(values[-1] / values[0]) / grows
        unit = "  " if name in COUNTED else " s"
        texts = "".join(f"{value:>10,.2f}{unit}" for value in values)
        print(f"  {name:<22}{texts}{exponent:>12.2f}", flush=True)


if __name__ == "__main__":
    main()
