"""How fast the log becomes consume queues and a key index, and how few files a reader opens afterwards.

    .venv/bin/python benchmarks/dispatch.py [--messages 2000000] [--rounds 7] [--dispatches 100]

Messages of 300 bytes with UNIQ_KEY, TAGS and KEYS in 20 topics of 8 queues, evenly, and again with 90 % in one queue. Each
figure is compared with a naive dispatch (two scans with regular expressions, rows unsorted), and with a plain Delta copy of
the finished rows, neither parsed nor sorted. They run in turns, since a machine's speed drifts; medians are compared.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from benchmarks.figures import keep  # noqa: E402
from benchmarks.import_store import timed  # noqa: E402

TOPICS, QUEUES, BODY_BYTES = 20, 8, 300
# Records lie this far apart: 300 bytes of body, about 110 of properties, 100 of the rest.
RECORD_BYTES = 512
APPENDS = 8


def log_rows(spark: Any, first: int, end: int, append_seq: int, is_hot: bool, segment_bytes: int) -> Any:
    """Messages [first, end) of the log, as rows of `commitlog`."""
    from pyspark.sql import functions as F

    from schemas import COMMITLOG

    number, queues = F.col("id"), TOPICS * QUEUES
    # The hot queue takes nine of ten messages; the tenth goes to all queues in turn.
    queue = F.when(number % 10 < 9, 0).otherwise(F.floor(number / 10) % queues) if is_hot else number % queues
    tenth = F.floor(number / 10)
    in_hot_queue = tenth * 9 + number % 10 + F.floor((tenth + queues - 1) / queues)
    in_queue = (
        F.when(queue == 0, in_hot_queue).otherwise(F.floor(tenth / queues))
        if is_hot
        else F.floor(number / queues)
    )
    offset = number * RECORD_BYTES
    unique_key = F.concat(F.md5(number.cast("string")))
    texts = {
        "topic": F.format_string("topic-%02d", F.floor(queue / QUEUES)),
        "properties": F.concat(
            F.lit("UNIQ_KEY\x01"), F.upper(unique_key),
            F.lit("\x02TAGS\x01tag-"), (number % 100).cast("string"),
            F.lit("\x02KEYS\x01order-"), number.cast("string"), F.lit("\x02WAIT\x01true\x02"),
        ),
        "body": F.rpad(unique_key, BODY_BYTES, "body").cast("binary"),
        "born_host": F.lit("10.0.0.1:50000"), "store_host": F.lit("127.0.0.1:10911"), "append_id": F.lit("bench"),
    }  # fmt: skip
    numbers = {
        "segment": offset - offset % segment_bytes,
        "physical_offset": offset,
        "size_bytes": F.lit(RECORD_BYTES),
        "queue_id": queue % QUEUES,
        "queue_offset": in_queue,
        "born_timestamp": 1_700_000_000_000 + number,
        "store_timestamp": 1_700_000_000_000 + F.floor(number / 100),
        "append_seq": F.lit(append_seq),
        **{
            name: F.lit(0)
            for name in ("flag", "sys_flag", "body_crc", "reconsume_times", "prepared_transaction_offset")
        },
    }
    made = {**texts, **numbers}
    rows = spark.range(first, end, 1, 4)
    return rows.select(
        *[
            made.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
            for field in COMMITLOG.columns
        ]
    )


def append(store: Any, messages: int, appends: int, is_hot: bool, before: int = 0) -> None:
    """Put `messages` into the log in N `appends`, and update the queues' bounds as a put does."""
    from pipelines.store.commit import commit
    from pipelines.store.head import bounds_write, read_head
    from pipelines.store.plan import Plan
    from schemas import COMMITLOG

    size = messages // appends
    for first in range(before, before + size * appends, size):

        def plan(at: Any, first: int = first) -> Plan:
            number = at.number(COMMITLOG) + 1
            rows = log_rows(store.spark, first, first + size, number, is_hot, store.settings.segment_bytes)
            return Plan((at.append(COMMITLOG, rows.coalesce(1) if size < 10_000 else rows),))

        commit(store, plan)
    commit(store, lambda at: Plan((bounds_write(at, read_head(at)),)))


def write_naively(log: Any, directory: str) -> None:
    """Write both tables by the simplest code: regular expressions, Spark's hash, rows unsorted."""
    from pyspark.sql import functions as F

    def value(name: str) -> Any:
        return F.regexp_extract("properties", f"(?:^|\x02){name}\x01([^\x02]*)", 1)

    places = ("segment", "topic", "physical_offset", "store_timestamp", "append_seq")
    queue = log.select(
        *places, "queue_id", "queue_offset", "size_bytes", F.hash(value("TAGS")).alias("tags_code")
    )
    keys = F.split(F.concat_ws(" ", value("UNIQ_KEY"), value("KEYS")), " ")
    index = log.select(*places, F.explode(keys).alias("key")).withColumn("key_hash", F.hash("topic", "key"))
    for name, rows in (("queue", queue), ("index", index)):
        rows.write.format("delta").mode("overwrite").save(f"{directory}/{name}")


def bench_speed(spark: Any, work: Path, messages: int, is_hot: bool, rounds: int) -> None:
    from pyspark.sql import DataFrame

    from pipelines.dispatch.entries import consume_queue_entries, message_index_entries
    from pipelines.dispatch.follow import derived_rows, plan_dispatch, survey
    from pipelines.store.commit import commit
    from pipelines.store.create import make_store
    from pipelines.store.store import Store
    from schemas import CONSUME_QUEUE, MESSAGE_INDEX

    print(f"\n{messages:,} messages, {'90 % in one queue' if is_hot else '160 even queues'}")

    log_only = make_store(Store(spark, f"{work}/log_{is_hot}"))
    append(log_only, messages, APPENDS, is_hot)

    def dispatched(name: str) -> tuple[Store, Callable[[], object]]:
        """A copy of the store, and a function that dispatches it."""
        shutil.rmtree(work / name, ignore_errors=True)
        shutil.copytree(f"{work}/log_{is_hot}", work / name)
        copied = Store.open(spark, f"{work}/{name}")

        def dispatch() -> None:
            counts = commit(copied, plan_dispatch).counts
            if (counts[CONSUME_QUEUE.name], counts[MESSAGE_INDEX.name]) != (messages, 2 * messages):
                raise AssertionError(f"{messages} messages were to be dispatched: {counts}")

        return copied, dispatch

    def line(what: str, work: Callable[[], object], times: int = 1) -> float:
        for _ in range(times):
            seconds, processor = timed(work)
        print(
            f"  {what:<58}{seconds:7.2f} s {messages / seconds:12,.0f} messages/s  processor {processor:6.2f} s",
            flush=True,
        )
        return seconds

    def unwritten(rows: DataFrame) -> Callable[[], object]:
        return lambda: rows.write.format("noop").mode("overwrite").save()

    def copy() -> None:
        for table in (CONSUME_QUEUE, MESSAGE_INDEX):
            store.read(table).write.format("delta").mode("overwrite").save(
                f"{work}/copy_{table.name}_{is_hot}"
            )

    store, dispatch = dispatched(f"first_{is_hot}")
    line("dispatch, the first here", dispatch)
    turns: dict[str, list[float]] = {}
    for _ in range(rounds):
        for what, start in (
            ("dispatch", dispatched("again")[1]),
            ("naive dispatch", lambda: write_naively(store.commitlog, f"{work}/naive")),
            ("plain Delta copy of both tables", copy),
        ):
            turns.setdefault(what, []).append(line(what, start))
    warm, naive, plain = (statistics.median(seconds) for seconds in turns.values())
    print(
        f"  medians of {rounds} rounds: dispatch {messages / warm:,.0f} messages/s, the naive one "
        f"{messages / naive:,.0f}, the copy {messages / plain:,.0f}: {naive / warm:.2f} of the naive one's speed and "
        f"{plain / warm:.2f} of the copy's; where its time goes, stage by stage, warm:"
    )
    kind = "90 % in one queue" if is_hot else "evenly"
    keep(
        f"dispatch, {kind}",
        messages / warm,
        "messages/s",
        a_plain_Delta_copy=messages / plain,
        naive=messages / naive,
    )
    last = dispatched("last")[1]
    began_ms = time.time_ns() // 1_000_000
    seconds, _ = timed(last)
    serial = 1 - seconds_of_jobs(spark, began_ms) / seconds
    print(f"  {serial:.0%} of a dispatch runs on the driver alone, without a Spark job; of {seconds:.2f} s")
    keep(f"dispatch, {kind}: share of the driver alone", 100 * serial, "%")
    log, levels = store.commitlog, store.settings.delay_levels_ms
    slim = log.select(
        "segment", "topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp", "properties"
    )
    line("  read the log's slim columns once", unwritten(slim), times=2)
    line("  count queues (no properties)", lambda: survey(log), times=2)
    line("  queue entries, unsorted", unwritten(consume_queue_entries(log, levels)), times=2)
    line("  index entries, unsorted", unwritten(message_index_entries(log)), times=2)
    for table, rows, _ in derived_rows(store.snapshot(), (CONSUME_QUEUE, MESSAGE_INDEX), log):
        line(f"  {table.name}, sorted into files' order", unwritten(rows), times=2)


def seconds_of_jobs(spark: Any, since_ms: int) -> float:
    """Seconds since then in which a Spark job has run; jobs side by side count once."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    times = sorted(
        (job.submissionTime().get().getTime(), job.completionTime().get().getTime())
        for job in map(jobs.apply, range(jobs.size()))
        if job.completionTime().isDefined() and job.submissionTime().get().getTime() >= since_ms
    )
    milliseconds, until = 0, since_ms
    for begins, ends in times:
        milliseconds += max(0, ends - max(begins, until))
        until = max(until, ends)
    return milliseconds / 1_000


def bench_files(store: Any, dispatches: int) -> None:
    from functools import partial

    from pyspark.sql import functions as F

    from pipelines.dispatch.follow import plan_dispatch
    from pipelines.dispatch.runs import plan_merge, runs_of
    from pipelines.store.commit import commit
    from schemas import CONSUME_QUEUE, DERIVED, MESSAGE_INDEX

    size = 1_600
    seconds = []

    def dispatch() -> None:
        committed = commit(store, plan_dispatch)
        for table in DERIVED:
            if committed.counts.get(table.name):
                commit(store, partial(plan_merge, table=table))

    for number in range(dispatches):
        append(store, size, 1, False, before=number * size)
        seconds.append(timed(dispatch)[0])
    middle = dispatches * size // (2 * TOPICS * QUEUES)
    page = store.consume_queue.where(
        (F.col("topic") == "topic-07")
        & (F.col("queue_id") == 3)
        & F.col("queue_offset").between(middle, middle + 31)
    )
    some = store.message_index.where(F.col("key") == f"order-{dispatches * size // 2}").first()
    key = store.message_index.where((F.col("key_hash") == some.key_hash) & (F.col("key") == some.key))
    runs = {table.name: len(runs_of(store.snapshot(), table)) for table in (CONSUME_QUEUE, MESSAGE_INDEX)}
    print(f"\nafter {dispatches} dispatches of {size:,} messages each, without maintain")
    print(f"  runs {runs}; a page of 32 entries opens {files_opened(page)} files, a key {files_opened(key)}")
    tail = sorted(seconds[len(seconds) // 2 :])
    print(
        f"  a dispatch takes {tail[len(tail) // 2]:.2f} s (middle), {tail[-1]:.2f} s (longest, with merges)"
    )


def files_opened(rows: Any) -> int:
    """How many files the scan of a query has opened, by its own metric."""
    rows.collect()
    leaves = rows._jdf.queryExecution().executedPlan().collectLeaves()
    return sum(int(leaves.apply(i).metrics().apply("numFiles").value()) for i in range(leaves.size()))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--messages", type=int, default=2_000_000)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--dispatches", type=int, default=100)
    asked = options.parse_args()
    from jobs.launch.session import session
    from pipelines.store.create import make_store
    from pipelines.store.store import Store

    spark = session("dispatch benchmark")
    with tempfile.TemporaryDirectory() as work:
        for is_hot in (False, True):
            bench_speed(spark, Path(work), asked.messages, is_hot, asked.rounds)
        if asked.dispatches:
            bench_files(make_store(Store(spark, f"{work}/small")), asked.dispatches)
    print(
        "\nWhat bounds it: processor time. Bodies are not read, rows are not moved, and no queue holds the others up. The "
        "index has two rows a message, each with a key that does not compress; to write them takes most, then to take the "
        "properties apart. A session's first dispatches also pay for what the JVM compiles: compare the rounds with the "
        "first. RocketMQ 5.3.3 on two such cores: 368,000/s."
    )


if __name__ == "__main__":
    main()
