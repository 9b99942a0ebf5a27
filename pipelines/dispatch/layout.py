"""How rows of a derived table are sorted into files, so that reading a page of a queue or a key opens few of them.

A **sorted run** is the files of one commit: rows of neighbouring appends, sorted by the columns that readers filter by.
The least and greatest values that Delta keeps for every file show which of them hold a page. Up to a few million new rows
are sorted by the tasks that read them, each into a file of its own; a merge cuts them into files by value.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from pipelines.spark_internals.arrow import frame_of
from pipelines.spark_internals.sessions import cloned, compile_plans, moved
from schemas import CLAIMS, CONSUME_QUEUE, MESSAGE_INDEX, PARKED, Table

# Enough files for every core to write one, few enough that a billion rows stay a thousand files of about 20 MB.
ROWS_PER_FILE = 1_000_000
# One task sorts up to this many rows faster than they are moved to several.
ROWS_OF_ONE_TASK = 100_000
# Up to this many new rows of the log are sorted where they are read, by at most FILES_UNMOVED tasks: this takes a seventh
# less time than moving them first. A file then has rows of every queue and hash: a reader opens all files, not one.
NEW_ROWS_UNMOVED = 4_000_000
FILES_UNMOVED = 4
# More are read and written in a third of the time by plans that are compiled, whatever the session was started for.
MANY_ROWS = 200_000
# And more queue and index entries are written in 7 % less time, to files a quarter smaller, where Parquet keeps differences
# of numbers that follow each other, and tries no dictionary for columns that differ in each row, or are a few milliseconds
# apart. A checkpoint that Delta writes after such a commit has the same version of Parquet.
PARQUET_OF_MANY_ROWS = {
    "parquet.writer.version": "v2",
    **{
        f"parquet.enable.dictionary#{column}": "false"
        for column in ("key", "key_hash", "physical_offset", "queue_offset", "store_timestamp")
    },
}


@dataclass(frozen=True)
class QueueSpan:
    """The part of a queue that a sorted run holds: offsets [from_offset, to_offset)."""

    topic: str
    queue_id: int
    from_offset: int
    to_offset: int

    @property
    def entries(self) -> int:
        return self.to_offset - self.from_offset


def file_count(rows: int) -> int:
    """How many files a sorted run of `rows` rows gets."""
    return max(1, -(-rows // ROWS_PER_FILE))


def in_queue_order(entries: DataFrame, rows: int, are_new: bool = False) -> DataFrame:
    """Consume queue entries sorted by (topic, queue_id, queue_offset) into files of equal size.

    entries  rows of `consume_queue`
    rows     how many they are, about
    are_new  whether they are read from the log, and may stay in the tasks that read them

    A queue has no gaps, so the ranges of all queues give every entry its position among all: files are equal however uneven
    the queues, nothing is sampled, and Spark sorts by one long instead of three columns.
    """
    tasks = _tasks_that_read(entries, rows, are_new)
    if tasks:
        return entries.coalesce(tasks).sortWithinPartitions("topic", "queue_id", "queue_offset")
    starts, total = [], 0
    for queue in sorted(queue_spans(entries), key=lambda queue: (queue.topic.encode(), queue.queue_id)):
        starts.append((queue.topic, queue.queue_id, total - queue.from_offset))
        total += queue.entries
    queue_starts = frame_of(entries.sparkSession, starts, _QUEUE_STARTS)
    files = file_count(rows)
    numbered = entries.join(F.broadcast(queue_starts), ["topic", "queue_id"]).withColumn(
        "position", F.col("start") + F.col("queue_offset")
    )
    return (
        numbered.repartitionById(files, F.floor(F.col("position") / -(-total // files)).cast("int"))
        .sortWithinPartitions("position")
        .select(*entries.columns)
    )


_QUEUE_STARTS = t.StructType(
    [
        t.StructField("topic", t.StringType()),
        t.StructField("queue_id", t.IntegerType()),
        t.StructField("start", t.LongType()),
    ]
)


def in_hash_order(entries: DataFrame, rows: int, are_new: bool = False) -> DataFrame:
    """Index entries sorted by key_hash into files of equal size: hashes spread evenly over [0, 2^31)."""
    tasks = _tasks_that_read(entries, rows, are_new)
    if tasks:
        return entries.coalesce(tasks).sortWithinPartitions("key_hash")
    files = file_count(rows)
    file = F.shiftright(F.col("key_hash").cast("long") * files, 31).cast("int")
    return entries.repartitionById(files, file).sortWithinPartitions("key_hash")


def in_order_of(rows: DataFrame, count: int, *columns: str, are_new: bool = False) -> DataFrame:
    """Rows sorted by `columns` into files of about equal size."""
    tasks = _tasks_that_read(rows, count, are_new)
    if tasks:
        return rows.coalesce(tasks).sortWithinPartitions(*columns)
    return rows.repartitionByRange(file_count(count), *columns).sortWithinPartitions(*columns)


def _tasks_that_read(rows: DataFrame, count: int, are_new: bool) -> int:
    """How many tasks read, sort and write rows without moving them; 0 where rows are moved to tasks by value."""
    if count <= ROWS_OF_ONE_TASK:
        return 1
    if are_new and count <= NEW_ROWS_UNMOVED:
        return min(rows.sparkSession.sparkContext.defaultParallelism, FILES_UNMOVED)
    return 0


def queue_spans(entries: DataFrame) -> list[QueueSpan]:
    """The range of every queue that has entries; a few bytes a queue come to the driver."""
    offset = F.col("queue_offset")
    ranges = entries.groupBy("topic", "queue_id").agg(
        F.min(offset).alias("least"), F.max(offset).alias("greatest")
    )
    return [QueueSpan(row.topic, row.queue_id, row.least, row.greatest + 1) for row in ranges.collect()]


def compile_for(count: int, rows: DataFrame) -> None:
    """Have the session of `count` rows compile plans from now on, where they are many."""
    if count > MANY_ROWS:
        compile_plans(rows.sparkSession)


def in_format_for(count: int, rows: DataFrame) -> DataFrame:
    """Rows as they are written: many in a session with PARQUET_OF_MANY_ROWS, which is set in no other one."""
    if count <= MANY_ROWS:
        return rows
    session = cloned(rows.sparkSession)
    for name, value in PARQUET_OF_MANY_ROWS.items():
        session.conf.set(name, value)
    return moved(rows, session)


def arranged(table: Table, rows: DataFrame, count: int) -> DataFrame:
    """Rows of a derived table, `count` of them, as one sorted run."""
    compile_for(count, rows)
    return in_format_for(count, _ARRANGED[table.name](rows, count))


_ARRANGED: dict[str, Callable[[DataFrame, int], DataFrame]] = {
    CONSUME_QUEUE.name: in_queue_order,
    MESSAGE_INDEX.name: in_hash_order,
    PARKED.name: lambda rows, count: in_order_of(rows, count, "kind", "due_ms"),
    CLAIMS.name: lambda rows, count: in_order_of(rows, count, "source_offset"),
}
