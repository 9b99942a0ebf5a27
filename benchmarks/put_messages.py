"""put_messages against a plain Delta append of the same finished columns.

    python benchmarks/put_messages.py [--messages 2000000] [--rounds 5] [--warm-ups 12] | --small

Messages of 300 bytes from Parquet, over 20 topics × 8 queues, then with 90 % of them in one queue. Plain is what a user
would do without a message store: read the finished columns from Parquet and append them to a Delta table partitioned alike,
with Parquet's own zstd level (3) and with the one spark-conf sets (1). All are timed warm, in turn, in one process.
Then (--small): ten messages to a log of 50 appends and to one of 1,000, in turn.
"""

import argparse
import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.launch.run import Run
from jobs.launch.session import session
from pipelines.produce.put_input import PutOptions, put_input
from pipelines.store.commit import commit
from pipelines.store.create import PLAIN_DELTA, make_store
from pipelines.store.store import Store
from pipelines.store.topics import TopicConfig, plan_first_topics, plan_make_topics
from schemas import COMMITLOG

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.figures import keep

# The first put of a session takes nearly twice as long as the fifth, which takes a tenth more than the eleventh: the JVM
# compiles what it runs, Spark's planner last.
WARM_UPS = 12
SHORT_LOG, LONG_LOG = 50, 1_000


def messages(spark: SparkSession, count: int, hot: bool) -> DataFrame:
    """`count` messages: a body of 300 bytes that does not compress well, a tag, a key, a unique key."""
    number = F.col("id")
    topic = F.format_string("topic-%02d", number % 20)
    queue_id = (F.floor(number / 20) % 8).cast("int")
    if hot:
        is_hot = number % 10 != 0
        topic, queue_id = F.when(is_hot, "topic-00").otherwise(topic), F.when(is_hot, 0).otherwise(queue_id)
    noise = F.concat(*[F.md5(F.concat(number.cast("string"), F.lit(part))) for part in "abcdefghi"])
    return spark.range(0, count, 1, 8).select(
        topic.alias("topic"),
        F.encode(F.concat(noise, F.lit("123456789012")), "UTF-8").alias("body"),
        F.format_string("tag-%d", number % 5).alias("tags"),
        F.format_string("order-%d", number % 100_000).alias("keys"),
        F.upper(F.md5(number.cast("string"))).alias("unique_key"),
        queue_id.alias("queue_id"),
    )


def new_store(spark: SparkSession, directory: Path) -> Store:
    shutil.rmtree(directory, ignore_errors=True)
    store = make_store(Store(spark, str(directory)))
    commit(store, lambda at: plan_first_topics(at, store.settings))
    commit(store, lambda at: plan_make_topics(at, [TopicConfig(f"topic-{n:02d}", 8, 8) for n in range(20)]))
    return store


def put(spark: SparkSession, store: Store, path: Path, batch_id: str, format: str = "parquet") -> float:
    run = Run("put_messages", store.uri, 1_700_000_000_000, quiet=True)
    started = time.monotonic()
    put_input(run, PutOptions(str(path), format, batch_id))
    return time.monotonic() - started


def plain_append(spark: SparkSession, finished: Path, table: Path, zstd_level: str) -> float:
    spark = spark.newSession()
    spark.conf.set("parquet.compression.codec.zstd.level", zstd_level)
    started = time.monotonic()
    rows = spark.read.parquet(str(finished))
    rows.write.format("delta").partitionBy("segment").mode("append").save(str(table))
    return time.monotonic() - started


def compare(spark: SparkSession, work: Path, count: int, hot: bool, rounds: int, warm_ups: int) -> None:
    source, finished = work / "input", work / "finished"
    for directory in (source, finished):
        shutil.rmtree(directory, ignore_errors=True)
    messages(spark, count, hot).write.parquet(str(source))
    store = new_store(spark, work / "store")
    for number in range(warm_ups):
        put(spark, store, source, f"warm-up-{number}")
    log = store.read(COMMITLOG)
    log = log.where(F.col("append_seq") == 0)
    log_bytes = log.agg(F.sum("size_bytes")).first()[0]
    log.orderBy("physical_offset").write.parquet(str(finished))
    plain = work / "plain"
    shutil.rmtree(plain, ignore_errors=True)
    properties = {**PLAIN_DELTA, "delta.dataSkippingStatsColumns": ",".join(COMMITLOG.statistics)}
    settings = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in COMMITLOG.columns)
    spark.sql(
        f"CREATE TABLE delta.`{plain}` ({columns}) USING delta PARTITIONED BY (segment) TBLPROPERTIES ({settings})"
    )
    for _ in range(warm_ups):
        plain_append(spark, finished, plain, "3")
    puts, plains, tuned = [], [], []
    for number in range(rounds):
        puts.append(put(spark, store, source, f"round-{number}"))
        plains.append(plain_append(spark, finished, plain, "3"))
        tuned.append(plain_append(spark, finished, plain, "1"))
    ours = statistics.median(puts)
    kind = "90 % in one queue" if hot else "20 topics × 8 queues"
    print(f"{count:,} messages, {kind}, {log_bytes / count:.0f} bytes of log each, median of {rounds} rounds")
    for name, times in (
        ("put_messages", puts),
        ("plain, zstd level 3", plains),
        ("plain, zstd level 1", tuned),
    ):
        median = statistics.median(times)
        rounds_text = ", ".join(f"{seconds:.2f}" for seconds in times)
        share = "" if times is puts else f"   put / plain {median / ours:.2f} ×"
        print(
            f"  {name:20} {median:6.2f} s {count / median:>9,.0f} messages/s  ({rounds_text}){share}",
            flush=True,
        )
    plain_level_1 = statistics.median(tuned)
    kind = "90 % in one queue" if hot else "evenly"
    keep(f"put, {kind}", count / ours, "messages/s", plain_Delta_append_zstd_1=count / plain_level_1)


def small_appends(spark: SparkSession, work: Path) -> None:
    source = work / "ten"
    shutil.rmtree(source, ignore_errors=True)
    messages(spark, 10, False).coalesce(1).write.parquet(str(source))
    long = new_store(spark, work / "long")
    short = Store(spark, str(work / "short"))
    for number in range(LONG_LOG):
        if number == SHORT_LOG:
            shutil.rmtree(short.uri, ignore_errors=True)
            shutil.copytree(long.uri, short.uri)
        put(spark, long, source, f"small-{number}")
    times: dict[int, list[float]] = {SHORT_LOG: [], LONG_LOG: []}
    for number in range(WARM_UPS + 7):
        for appends, store in ((SHORT_LOG, short), (LONG_LOG, long)):
            times[appends].append(put(spark, store, source, f"round-{number}"))
    medians = {appends: statistics.median(each[WARM_UPS:]) for appends, each in times.items()}
    for appends, median in medians.items():
        print(f"  ten messages to a log of {appends:>5,} appends  {median:.2f} s", flush=True)
    print(f"  ratio {medians[LONG_LOG] / medians[SHORT_LOG]:.2f} ×")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--messages", type=int, default=2_000_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--warm-ups", type=int, default=WARM_UPS, help="at least 1")
    arguments.add_argument("--small", action="store_true", help="only the small appends: half an hour")
    options = arguments.parse_args()
    spark = session("benchmark")
    with tempfile.TemporaryDirectory(prefix="commitlake-bench-") as directory:
        if options.small:
            small_appends(spark, Path(directory))
        else:
            for hot in (False, True):
                compare(spark, Path(directory), options.messages, hot, options.rounds, options.warm_ups)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"driver's Python at most {peak:,.0f} MiB")
    print(
        "bound by: the write itself (Parquet encoding, zstd) on all cores, as plain is; on top of it the input is read "
        "a first time to be counted, and two tables are committed, one after the other"
    )


if __name__ == "__main__":
    main()
