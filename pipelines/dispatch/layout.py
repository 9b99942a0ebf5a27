"""Where rows of a derived table lie in its files, so that a page of a queue or a key opens few of them.

A **run** is the files of one commit: rows of neighbouring appends, sorted into files by what readers look for. Which of
a run's files holds a page is told by the least and greatest values that Delta keeps for every file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from schemas import CLAIMS, CONSUME_QUEUE, MESSAGE_INDEX, PARKED, Table

# Enough files for every core to write one, few enough that a billion rows stay a thousand files of about 20 MB.
ROWS_PER_FILE = 1_000_000
# As many rows are sorted by one task faster than they are moved to several.
ROWS_OF_ONE_TASK = 100_000


@dataclass(frozen=True)
class QueueSpan:
    """The part of a queue that a run holds: offsets [from_offset, to_offset)."""

    topic: str
    queue_id: int
    from_offset: int
    to_offset: int

    @property
    def entries(self) -> int:
        return self.to_offset - self.from_offset


def file_count(rows: int) -> int:
    """How many files a run of so many rows gets."""
    return max(1, -(-rows // ROWS_PER_FILE))


def in_queue_order(entries: DataFrame, queues: Sequence[QueueSpan], rows: int) -> DataFrame:
    """Consume queue entries sorted by (topic, queue_id, queue_offset) into files of equal size.

    entries  rows of `consume_queue`
    queues   the span of every queue they belong to
    rows     how many they are, about

    A queue has no gaps, so the spans tell every entry its place among all: files are equal however uneven the queues,
    nothing is sampled, and one long is sorted by instead of three columns.
    """
    if rows <= ROWS_OF_ONE_TASK:
        return entries.coalesce(1).sortWithinPartitions("topic", "queue_id", "queue_offset")
    starts, places = [], 0
    for queue in sorted(queues, key=lambda queue: (queue.topic.encode(), queue.queue_id)):
        starts.append((queue.topic, queue.queue_id, places - queue.from_offset))
        places += queue.entries
    queue_starts = entries.sparkSession.createDataFrame(starts, _QUEUE_STARTS)
    files = file_count(rows)
    placed = entries.join(F.broadcast(queue_starts), ["topic", "queue_id"]).withColumn(
        "place", F.col("start") + F.col("queue_offset")
    )
    return (
        placed.repartitionById(files, F.floor(F.col("place") / -(-places // files)).cast("int"))
        .sortWithinPartitions("place")
        .select(*entries.columns)
    )


_QUEUE_STARTS = t.StructType(
    [
        t.StructField("topic", t.StringType()),
        t.StructField("queue_id", t.IntegerType()),
        t.StructField("start", t.LongType()),
    ]
)


def in_hash_order(entries: DataFrame, rows: int) -> DataFrame:
    """Index entries sorted by key_hash into files of equal size: hashes spread evenly over [0, 2^31)."""
    if rows <= ROWS_OF_ONE_TASK:
        return entries.coalesce(1).sortWithinPartitions("key_hash")
    files = file_count(rows)
    file = F.shiftright(F.col("key_hash").cast("long") * files, 31).cast("int")
    return entries.repartitionById(files, file).sortWithinPartitions("key_hash")


def in_order_of(rows: DataFrame, count: int, *columns: str) -> DataFrame:
    """Rows sorted by `columns` into files of about equal size."""
    if count <= ROWS_OF_ONE_TASK:
        return rows.coalesce(1).sortWithinPartitions(*columns)
    return rows.repartitionByRange(file_count(count), *columns).sortWithinPartitions(*columns)


def queue_spans(entries: DataFrame) -> list[QueueSpan]:
    """The span of every queue that has entries; a few bytes a queue on the driver."""
    offset = F.col("queue_offset")
    spans = entries.groupBy("topic", "queue_id").agg(
        F.min(offset).alias("least"), F.max(offset).alias("greatest")
    )
    return [QueueSpan(row.topic, row.queue_id, row.least, row.greatest + 1) for row in spans.collect()]


def arranged(table: Table, rows: DataFrame, count: int) -> DataFrame:
    """Rows of a derived table, `count` of them, as one run."""
    if table is CONSUME_QUEUE:
        queues = queue_spans(rows) if count > ROWS_OF_ONE_TASK else []
        return in_queue_order(rows, queues, count)
    return _ARRANGED[table.name](rows, count)


_ARRANGED: dict[str, Callable[[DataFrame, int], DataFrame]] = {
    MESSAGE_INDEX.name: in_hash_order,
    PARKED.name: lambda rows, count: in_order_of(rows, count, "kind", "due_ms"),
    CLAIMS.name: lambda rows, count: in_order_of(rows, count, "source_offset"),
}
