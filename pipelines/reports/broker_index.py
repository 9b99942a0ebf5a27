"""A broker's answer to a query by key (docs/rocketmq/store.md 5.4).

A broker's index files hold N items each, know the times of their first and last message, and keep an item's time in whole
seconds after the file's first. It searches for a hash, newest file first, stops when it has enough, and leaves it to the
client to compare the keys. Here the files are computed from maxIndexNum and the index entries the table holds; where a
broker's older files have expired, its files begin elsewhere, and then only answers to narrow time windows may differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipelines.dispatch.entries import message_index_entries
from pipelines.reports.answer import Answer
from pipelines.reports.lookup import key_hash, messages_at_offset, messages_of
from pipelines.reports.queues import behind, expect_topic
from pipelines.spark_internals.arrow import frame_of
from pipelines.store.progress import followed_rows
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG, MESSAGE_INDEX

MAX_TIMESTAMP = 2**63 - 1
# maxMsgsNumBatch: a broker returns at most this many, whatever is requested.
MOST_MESSAGES = 64


@dataclass(frozen=True)
class Item:
    """One index entry with the requested hash: its message, and its number among all items from 1 on."""

    number: int
    physical_offset: int
    store_timestamp: int


@dataclass(frozen=True)
class IndexFile:
    """One index file: items [first_number, end_number), the times of its first and last message and, of the
    file before, of its last.
    """

    first_number: int
    end_number: int
    begin_timestamp: int
    end_timestamp: int
    previous_end_timestamp: int

    def overlaps(self, begin: int, end: int) -> bool:
        """Whether a broker reads the file for a time window: one with an end in the file, or one that contains it."""
        holds_begin = self.begin_timestamp <= begin <= self.end_timestamp
        holds_end = self.begin_timestamp <= end <= self.end_timestamp
        return holds_begin or holds_end or (begin < self.begin_timestamp and end > self.end_timestamp)

    def time_read(self, item: Item) -> int:
        """The item's time as the file keeps it.

        The first item is stored relative to the end of the file before, and read relative to its own time.
        """
        since = self.begin_timestamp
        if item.number == self.first_number:
            since = self.previous_end_timestamp or item.store_timestamp
        seconds = max(0, (item.store_timestamp - since) // 1_000)
        return self.begin_timestamp + min(seconds, 2**31 - 1) * 1_000


def broker_messages_by_key(
    at: Snapshot, topic: str, key: str, begin: int = 0, end: int = MAX_TIMESTAMP, limit: int = MOST_MESSAGES
) -> Answer:
    """Rows a broker finds by the key's hash, by ascending offset, the newest of them where `limit` cuts.

    Rows of other keys with the same hash are among them, and a row that has the key twice comes twice.
    """
    expect_topic(at, topic)
    entries = _entries(at)
    items_in_a_file = int(at.store.settings["maxIndexNum"]) - 1  # item 0 of a file is never used
    files, items = _files_and_items(at, entries, key_hash(topic, key), items_in_a_file)
    most = min(limit, MOST_MESSAGES)
    found = query(files, items, begin, end, most)
    offsets = [(item.physical_offset,) for item in found]
    chosen = frame_of(at.store.spark, offsets, "physical_offset long")
    segment = F.col("physical_offset") - F.col("physical_offset") % at.store.settings.segment_bytes
    rows = messages_of(at, chosen.withColumn("segment", segment)).orderBy("physical_offset")
    everything = query(files, items, begin, end, len(items))
    return Answer(rows, complete=len(found) == len(everything))


def query(files: Sequence[IndexFile], items: Sequence[Item], begin: int, end: int, limit: int) -> list[Item]:
    """A broker's walk over its files, newest first, and in each along the chain of the hash, newest first."""
    found: list[Item] = []
    for file in reversed(files):
        if file.overlaps(begin, end):
            chain = [item for item in items if file.first_number <= item.number < file.end_number]
            for item in sorted(chain, key=lambda item: -item.number):
                if len(found) >= limit:
                    break
                if begin <= file.time_read(item) <= end:
                    found.append(item)
                if file.time_read(item) < begin:
                    break
        if file.begin_timestamp < begin or len(found) >= limit:
            break
    return found


@dataclass(frozen=True)
class Indexed:
    """One message of the index: its items are numbers [first_number, end_number)."""

    segment: int
    physical_offset: int
    store_timestamp: int
    first_number: int
    end_number: int
    hits: int

    def numbers(self) -> range:
        return range(self.first_number, self.end_number)


def _files_and_items(
    at: Snapshot, entries: DataFrame, hash_of_key: int, items_in_a_file: int
) -> tuple[list[IndexFile], list[Item]]:
    """The index files, oldest first, and the items with the hash."""
    messages = _messages_that_matter(entries, hash_of_key, items_in_a_file)
    return _files(messages, items_in_a_file), [
        item
        for message in messages
        if message.hits
        for item in _items(at, message, hash_of_key, items_in_a_file)
    ]


def _messages_that_matter(entries: DataFrame, hash_of_key: int, items_in_a_file: int) -> list[Indexed]:
    """Messages with the hash, and those with the first or last item of a file, in the log's order.

    Items are counted per segment first, so that only segments with a hit or a border are numbered row by row.
    """
    is_hit = F.col("key_hash") == hash_of_key
    counts = entries.groupBy("segment").agg(F.count("*").alias("items"), F.count_if(is_hit).alias("hits"))
    before, segments, numbered = 0, sorted(counts.collect()), []
    for segment in segments:
        following = before + segment["items"]
        has_border = (following - 1) // items_in_a_file != (before - 1) // items_in_a_file or segment in (
            segments[0],
            segments[-1],
        )
        if segment.hits or has_border:
            numbered.append((segment.segment, before))
        before = following
    if not numbered:
        return []
    starts = frame_of(entries.sparkSession, numbered, "segment long, items_before long")
    in_order = Window.partitionBy("segment").orderBy("physical_offset")
    end_number = F.col("items_before") + 1 + F.sum("items").over(in_order)
    messages = (
        entries.where(F.col("segment").isin([segment for segment, _ in numbered]))
        .groupBy("segment", "physical_offset")
        .agg(
            F.max("store_timestamp").alias("store_timestamp"),
            F.count("*").alias("items"),
            F.count_if(is_hit).alias("hits"),
        )
        .join(F.broadcast(starts), "segment")
        .withColumn("end_number", end_number)
        .withColumn("first_number", F.col("end_number") - F.col("items"))
    )
    size = F.lit(items_in_a_file)
    begins_file = F.floor((F.col("end_number") - 2) / size) * size + 1 >= F.col("first_number")
    ends_file = F.floor((F.col("end_number") - 1) / size) * size >= F.col("first_number")
    is_last = F.col("end_number") == before + 1
    rows = messages.where((F.col("hits") > 0) | begins_file | ends_file | is_last).collect()
    return sorted(
        (Indexed(*(row[name] for name in Indexed.__dataclass_fields__)) for row in rows),
        key=lambda message: message.physical_offset,
    )


def _files(messages: Sequence[Indexed], items_in_a_file: int) -> list[IndexFile]:
    """The files from the messages that hold their first and last items."""
    times = {number: message.store_timestamp for message in messages for number in message.numbers()}
    last_number = max(times, default=0)
    files: list[IndexFile] = []
    for first in range(1, last_number + 1, items_in_a_file):
        last = min(first + items_in_a_file - 1, last_number)
        previous_end = files[-1].end_timestamp if files else 0
        files.append(IndexFile(first, last + 1, times[first], times[last], previous_end))
    return files


def _items(at: Snapshot, message: Indexed, hash_of_key: int, items_in_a_file: int) -> list[Item]:
    """The message's items with the hash.

    Which of its keys they belong to matters only where a file ends or begins inside the message: then its
    keys are read, UNIQ_KEY first, then the words of KEYS, as a broker puts them.
    """
    numbers = list(message.numbers())
    files = {(number - 1) // items_in_a_file for number in (numbers[0] - 1, *numbers)}
    if len(files) > 1:
        row = messages_at_offset(at, message.physical_offset).select("topic", "unique_key", "keys").first()
        assert row is not None
        keys = [key for key in (row.unique_key, *row["keys"]) if key is not None]
        numbers = [
            number
            for number, key in zip(numbers, keys, strict=False)
            if key_hash(row.topic, key) == hash_of_key
        ]
    return [
        Item(number, message.physical_offset, message.store_timestamp) for number in numbers[: message.hits]
    ]


def _entries(at: Snapshot) -> DataFrame:
    """The index entries, also those of appends that dispatch has not followed yet."""
    columns = ("segment", "physical_offset", "key_hash", "store_timestamp")
    entries = followed_rows(at, MESSAGE_INDEX).select(*columns)
    followed = behind(at, MESSAGE_INDEX)
    if followed is None:
        return entries
    waiting = at.read(COMMITLOG).where(F.col("append_seq") > followed)
    return entries.unionByName(message_index_entries(waiting).select(*columns))
