"""Messages by id, by key and by offset.

Ids and keys are looked up in the index and in the appends that the index has not followed, so that a message is found as
soon as it is in the log. Offsets of a queue are found once dispatch has followed them.
"""

from collections.abc import Collection
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pipelines.dispatch.entries import is_indexed
from pipelines.errors import BadInput
from pipelines.reports.answer import Answer
from pipelines.reports.queues import behind, expect_topic, read_queue
from pipelines.rocketmq.hashing import java_hash_of
from pipelines.rocketmq.message_ids import is_message_id, offset_of_id
from pipelines.spark_internals.files import existing_path
from pipelines.store.progress import followed_rows
from pipelines.store.snapshot import Snapshot
from pipelines.uris import expect_no_secret, literal_path
from pipelines.views.read import read_view
from schemas import MESSAGE_INDEX

# Up to this many offsets are listed in the condition, so that Delta and Parquet open only the pages that hold them; more
# are joined.
PLACES_NAMED = 500
# Parquet takes an IN of more values than this for a range.
VALUES_OF_AN_IN = 10


def message_by_id(at: Snapshot, message_id: str) -> Answer:
    """The row of an id: the store's own id, which holds the offset, else the producer's unique key.

    The two look alike, and a consumer gets the unique key where there is one (docs/rocketmq/store.md 2).
    """
    text = message_id.strip().upper()
    if not is_message_id(message_id):
        raise BadInput(
            f"{message_id!r} is not a valid message id: expected 32 hex digits (56 of an IPv6 store); "
            "other unique keys are found with by-unique-key"
        )
    found = messages_at_offset(at, offset_of_id(text)).where(F.col("message_id") == text)
    if found.isEmpty():
        return messages_by_unique_key(at, message_id.strip())
    return Answer(found)


def messages_by_unique_key(at: Snapshot, unique_key: str, topic: str | None = None) -> Answer:
    """Rows whose UNIQ_KEY is exactly the key, newest first; without a topic, of all topics."""
    if topic is not None:
        expect_topic(at, topic)
    found = rows_with_key(at, unique_key, topic).where(F.col("unique_key") == unique_key)
    return Answer(found.orderBy(F.desc("physical_offset")))


def messages_by_key(
    at: Snapshot, topic: str, key: str, begin: int | None = None, end: int | None = None
) -> Answer:
    """Rows of the topic whose UNIQ_KEY or one word of KEYS is exactly the key, newest first.

    begin, end  store timestamps, both included
    """
    expect_topic(at, topic)
    found = _between(rows_with_key(at, key, topic), begin, end)
    return Answer(found.orderBy(F.desc("physical_offset")))


def read_keys(spark: SparkSession, path: str) -> DataFrame:
    """`key`: the lines of a text file or of a directory of them, each once; lines without a character are left out.

    Raises BadInput for a path where nothing is.
    """
    existing_path(spark, expect_no_secret(path), "a file of keys, one a line")
    lines = spark.read.text(literal_path(path)).select(F.col("value").alias("key"))
    return lines.where(F.col("key") != "").distinct()


def messages_by_keys(
    at: Snapshot, topic: str, keys: DataFrame, begin: int | None = None, end: int | None = None
) -> Answer:
    """`key`, and the columns of the rows that `messages_by_key` has for it; by key, newest first."""
    expect_topic(at, topic)
    words = F.array_distinct(F.concat(F.array("unique_key"), "keys"))
    found = _between(rows_with_keys(at, keys, topic, words), begin, end)
    return Answer(found.orderBy("key", F.desc("physical_offset")))


def messages_by_unique_keys(at: Snapshot, keys: DataFrame, topic: str | None = None) -> Answer:
    """`key`, and the columns of the rows that `messages_by_unique_key` has for it; by key, newest first."""
    if topic is not None:
        expect_topic(at, topic)
    found = rows_with_keys(at, keys, topic, F.array("unique_key"))
    return Answer(found.orderBy("key", F.desc("physical_offset")))


def _between(found: DataFrame, begin: int | None, end: int | None) -> DataFrame:
    if begin is not None:
        found = found.where(F.col("store_timestamp") >= begin)
    if end is not None:
        found = found.where(F.col("store_timestamp") <= end)
    return found


def message_at(at: Snapshot, topic: str, queue_id: int, queue_offset: int) -> Answer:
    """The row at an offset of a queue."""
    queue = read_queue(at, topic, queue_id)
    entry = queue.entries(at, queue_offset, queue_offset + 1)
    return Answer(messages_of(at, entry), complete=queue.is_up_to_date)


def messages_at_offset(at: Snapshot, physical_offset: int) -> DataFrame:
    """The row that starts at an offset of the log; none where no record starts."""
    return messages_at_offsets(at, [physical_offset])


def rows_with_key(at: Snapshot, key: str, topic: str | None) -> DataFrame:
    """Rows of the view messages with the key, indexed or not yet, in no order."""
    followed = behind(at, MESSAGE_INDEX)
    messages = read_view(at, "messages")
    # The index may still hold rows of a part of the log that was cut off, so the key is compared here too.
    has_key = (F.col("unique_key") == key) | F.array_contains("keys", key)
    if topic is not None:
        has_key &= F.col("topic") == topic
    found = messages_of(at, index_entries(at, key, topic)).where(has_key)
    if followed is None:
        return found
    # `is_indexed` leaves out rolled back halves, as the index does.
    return found.unionByName(messages.where((F.col("append_seq") > followed) & is_indexed() & has_key))


def rows_with_keys(at: Snapshot, keys: DataFrame, topic: str | None, words: Column) -> DataFrame:
    """`key`, and the row of the view messages, for each pair in which the key is one of the row's words; in no order.

    However many keys there are, the log is read once, and the index three times at most.

    keys   (key), each once
    words  array of strings, of columns of the view messages
    """
    followed = behind(at, MESSAGE_INDEX)
    entries = followed_rows(at, MESSAGE_INDEX).join(keys, "key")
    messages = read_view(at, "messages")
    if topic is not None:
        entries = entries.where(F.col("topic") == topic)
        messages = messages.where(F.col("topic") == topic)
    found = messages_of(at, entries.select("segment", "physical_offset").distinct())
    if followed is not None:
        found = found.unionByName(messages.where((F.col("append_seq") > followed) & is_indexed()))
    # As for one key, the rows themselves decide.
    return found.select(F.explode(words).alias("key"), *found.columns).join(keys, "key")


def index_entries(at: Snapshot, key: str, topic: str | None) -> DataFrame:
    """`segment` and `physical_offset` of the rows that the index has for the key, each once."""
    entries = followed_rows(at, MESSAGE_INDEX).where(F.col("key") == key)
    if topic is not None:
        entries = entries.where((F.col("topic") == topic) & (F.col("key_hash") == key_hash(topic, key)))
    return entries.select("segment", "physical_offset").distinct()


def messages_of(at: Snapshot, places: DataFrame) -> DataFrame:
    """Rows of the view messages at `places`, each as often as `places` lists it, in no order.

    places  (segment, physical_offset)
    """
    messages = read_view(at, "messages")
    named = few_rows(places.select("segment", "physical_offset"))
    if named is not None:
        offsets = [row.physical_offset for row in named]
        found = messages_at_offsets(at, offsets)
        if len(set(offsets)) == len(offsets):
            return found
        return found.join(places.select("physical_offset"), "physical_offset").select(*messages.columns)
    # A broker's segments have a gigabyte, so even a long log has few to list.
    segments = [row.segment for row in places.select("segment").distinct().collect()]
    wanted = F.broadcast(places.select("segment", "physical_offset"))
    in_segments = messages.where(F.col("segment").isin(segments))
    return in_segments.join(wanted, ["segment", "physical_offset"]).select(*messages.columns)


def few_rows(places: DataFrame) -> list[Row] | None:
    """The rows, where they are few enough for `messages_at_offsets`; None where they are more."""
    rows = places.limit(PLACES_NAMED + 1).collect()
    return rows if len(rows) <= PLACES_NAMED else None


def messages_at_offsets(at: Snapshot, offsets: Collection[int]) -> DataFrame:
    """Rows of the view messages that start at one of these offsets, each once, in no order."""
    return read_view(at, "messages").where(_is_at(at, offsets))


def _is_at(at: Snapshot, offsets: Collection[int]) -> Column:
    """Whether a row starts at one of these offsets, as a condition by which files and row groups are skipped."""
    segment_bytes = at.store.settings.segment_bytes
    segments = sorted({offset - offset % segment_bytes for offset in offsets})
    in_order = sorted(set(offsets))
    groups = [in_order[i : i + VALUES_OF_AN_IN] for i in range(0, len(in_order), VALUES_OF_AN_IN)]
    is_at = reduce(or_, (F.col("physical_offset").isin(group) for group in groups), F.lit(False))
    return F.col("segment").isin(segments) & is_at


def key_hash(topic: str, key: str) -> int:
    """The index's hash of a key: |String.hashCode("topic#key")|, 0 where that has no positive (store.md 5.2).

    >>> key_hash("T", "k1")
    2539445
    """
    code = java_hash_of(f"{topic}#{key}")
    return 0 if code == -(1 << 31) else abs(code)
