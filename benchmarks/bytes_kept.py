"""Bytes that a message takes, table by table and column by column, beside RocketMQ's files of the same messages.

    .venv/bin/python benchmarks/bytes_kept.py [--messages 1000000]

Orders as JSON of about 300 bytes, with a unique key, a tag and a key, in 20 topics of 8 queues, put at once and dispatched.
RocketMQ's sizes follow from its formats: the records, 20 bytes of consume queue a message, and 20 bytes of index a key with
its share of a full file's header and hash slots.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from benchmarks.figures import keep  # noqa: E402
from benchmarks.put_messages import new_store, put  # noqa: E402

NOW_MS = 1_700_000_000_000
KEYS_A_MESSAGE = 2
# Columns that take less are added up.
SHOWN_FROM = 0.05


def orders(spark: SparkSession, count: int) -> DataFrame:
    """`count` orders: numbers and names that repeat and those that do not, as a shop's events have them."""
    number = F.col("id")

    def chance(salt: int, below: int) -> Any:
        return F.pmod(F.xxhash64(number, F.lit(salt)), F.lit(below))

    def one_of(salt: int, *words: str) -> Any:
        return F.element_at(F.array(*map(F.lit, words)), (chance(salt, len(words)) + 1).cast("int"))

    item = F.struct(
        F.concat(F.lit("SKU-"), chance(1, 50_000).cast("string")).alias("sku"),
        (chance(2, 5) + 1).alias("quantity"),
        (chance(3, 100_000) / 100).alias("price"),
    )
    body = F.to_json(
        F.struct(
            F.concat(F.lit("order-"), number.cast("string")).alias("orderId"),
            chance(4, 1_000_000).alias("customerId"),
            one_of(5, "CREATED", "PAID", "SHIPPED", "DELIVERED", "RETURNED").alias("status"),
            F.array(item).alias("items"),
            one_of(6, "EUR", "USD", "CNY").alias("currency"),
            F.date_format(F.timestamp_millis(NOW_MS + number * 3), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").alias(
                "createdAt"
            ),
            F.struct(
                one_of(7, "Berlin", "Hangzhou", "Lyon", "Porto", "Quito", "Tokyo").alias("city"),
                (chance(8, 90_000) + 10_000).alias("postcode"),
            ).alias("shipTo"),
            F.md5(F.concat(number.cast("string"), F.lit("trace"))).alias("traceId"),
        )
    )
    return spark.range(0, count, 1, 8).select(
        F.format_string("topic-%02d", number % 20).alias("topic"),
        F.encode(body, "UTF-8").alias("body"),
        one_of(5, "CREATED", "PAID", "SHIPPED", "DELIVERED", "RETURNED").alias("tags"),
        F.concat(F.lit("order-"), number.cast("string")).alias("keys"),
        F.upper(F.md5(number.cast("string"))).alias("unique_key"),
        (F.floor(number / 20) % 8).cast("int").alias("queue_id"),
    )


def by_column(files: list[Path]) -> Counter[str]:
    """Compressed bytes of each column in some Parquet files, and what the files have beside columns."""
    found = Counter[str]()
    for file in files:
        metadata = pq.read_metadata(file)
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                found[column.path_in_schema] += column.total_compressed_size
    found["(footers, page indexes)"] = sum(file.stat().st_size for file in files) - sum(found.values())
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--messages", type=int, default=1_000_000)
    count = options.parse_args().messages

    from jobs.dispatch import dispatch_store
    from jobs.launch.run import Run
    from jobs.launch.session import session
    from pipelines.broker_files.queue_files import UNIT_BYTES
    from pipelines.export.index import HEADER, ITEM, SLOT_BYTES
    from schemas import COMMITLOG, CONSUME_QUEUE, MESSAGE_INDEX

    spark = session("bytes benchmark")
    with tempfile.TemporaryDirectory() as work:
        source = Path(work, "orders")
        orders(spark, count).write.parquet(str(source))
        store = new_store(spark, Path(work, "store"))
        put(spark, store, source, "orders")
        dispatch_store(Run("dispatch", store.uri, NOW_MS, quiet=True))
        lengths = store.commitlog.agg(F.sum("size_bytes"), F.avg(F.octet_length("body"))).first()
        assert lengths is not None
        slots, keys = store.settings["maxHashSlotNum"], store.settings["maxIndexNum"]
        index_file = HEADER.itemsize + SLOT_BYTES * slots + ITEM.itemsize * keys
        rocketmq = (
            (COMMITLOG, lengths[0] / count),
            (CONSUME_QUEUE, UNIT_BYTES),
            (MESSAGE_INDEX, KEYS_A_MESSAGE * index_file / keys),
        )
        print(f"{count:,} orders as JSON, {lengths[1]:.0f} bytes of body; bytes a message:")
        ours = 0.0
        for table, theirs in rocketmq:
            uris = [file.removeprefix("file:") for file in store.read(table).inputFiles()]
            columns = by_column([Path(uri) for uri in uris])
            total = sum(columns.values()) / count
            ours += total
            print(
                f"  {table.name:14} {total:8.2f}   RocketMQ {theirs:8.2f}   {total / theirs:.2f} ×   {len(uris)} files"
            )
            small = sum(each for each in columns.values() if each / count < SHOWN_FROM) / count
            for name, each in columns.most_common():
                if each / count >= SHOWN_FROM:
                    print(f"      {name:26} {each / count:8.2f}")
            print(f"      {'all others':26} {small:8.2f}")
            keep(f"bytes a message: {table.name}", total, "bytes", RocketMQ=theirs)
        theirs = sum(each for _, each in rocketmq)
        print(f"  together       {ours:8.2f}   RocketMQ {theirs:8.2f}   {ours / theirs:.2f} ×", flush=True)
        keep("bytes a message", ours, "bytes", RocketMQ=theirs)


if __name__ == "__main__":
    main()
