"""Queues as dispatch has followed them: what a consumer can read."""

import difflib
from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.dispatch.entries import has_queue_entry
from pipelines.errors import BadInput
from pipelines.store.head import LogHead, head_as_found
from pipelines.store.progress import covered, expect_intact, followed_rows
from pipelines.store.snapshot import Snapshot
from pipelines.store.topics import read_topics
from pipelines.views.read import Readable
from schemas import COMMITLOG, CONSUME_QUEUE, Table


@dataclass(frozen=True)
class Queue:
    """One queue: messages [min_offset, max_offset).

    log_start        where the log begins, in bytes: entries with a lower offset point at expired rows
    is_up_to_date    whether dispatch has followed the whole log
    """

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    log_start: int
    is_up_to_date: bool

    def entries(self, at: Snapshot, from_offset: int, to_offset: int | None = None) -> DataFrame:
        """Entries of the consume queue in [from_offset, to_offset), in no order."""
        entries = followed_rows(at, CONSUME_QUEUE).where(
            (F.col("topic") == self.topic)
            & (F.col("queue_id") == self.queue_id)
            & (F.col("queue_offset") >= from_offset)
        )
        if to_offset is not None:
            entries = entries.where(F.col("queue_offset") < to_offset)
        return entries.select("segment", "physical_offset", "queue_offset", "store_timestamp")


def read_queue(at: Snapshot, topic: str, queue_id: int) -> Queue:
    """The queue's bounds. Raises BadInput for a topic or a queue the store does not have."""
    _expect_queue(at, head_as_found(at), topic, queue_id)
    return read_queues(at, [(topic, queue_id)])[topic, queue_id]


def read_queues(at: Snapshot, queues: Collection[tuple[str, int]]) -> dict[tuple[str, int], Queue]:
    """The bounds of some queues; those that have never had a message are empty.

    Raises StoreError where the consume queue has lost its entries: without this check all queues would look empty.
    """
    expect_intact(at, CONSUME_QUEUE)
    head = head_as_found(at)
    followed = behind(at, CONSUME_QUEUE)
    ends = {queue: head.next_of(*queue) for queue in queues}
    if followed is not None:
        # A queue ends, for now, at its first message that dispatch has not followed.
        is_of_topics = F.col("topic").isin(*sorted({topic for topic, _ in queues}))
        waiting = at.read(COMMITLOG).where(
            (F.col("append_seq") > followed) & is_of_topics & has_queue_entry()
        )
        # A row a queue.
        for row in waiting.groupBy("topic", "queue_id").agg(F.min("queue_offset").alias("first")).collect():
            ends[row.topic, row.queue_id] = row["first"]
    found = {}
    for topic, queue_id in queues:
        end = ends[topic, queue_id]
        start = max(head.min_queue_offsets.get((topic, queue_id), 0), 0)
        found[topic, queue_id] = Queue(
            topic, queue_id, min(start, end), end, head.min_offset, followed is None
        )
    return found


def behind(at: Snapshot, follower: Table) -> int | None:
    """The last append that a derived table has followed; None when it has followed all appends."""
    followed = covered(at, follower)
    return followed if followed < at.number(COMMITLOG) else None


def is_up_to_date(at: Snapshot) -> bool:
    """Whether dispatch has followed the whole log, so that answers about queues lack nothing."""
    return behind(at, CONSUME_QUEUE) is None


def was_up_to_date(tables: Readable) -> bool:
    """Whether dispatch had followed the whole log in tables of a past version, judged by their rows."""
    last = tables.read(COMMITLOG).where(has_queue_entry()).agg(F.max("append_seq").alias("last"))
    followed = tables.read(CONSUME_QUEUE).agg(F.max("append_seq").alias("followed"))
    lags = last.crossJoin(followed).where(F.col("last") > F.coalesce("followed", F.lit(-1)))
    return lags.isEmpty()


def expect_topic(at: Snapshot, topic: str, head: LogHead | None = None) -> None:
    """Raises BadInput for a topic that is not configured and has never had a message."""
    known = {*read_topics(at)}
    if topic in known:
        return
    known |= {name for name, _ in (head or head_as_found(at)).next_queue_offsets}
    if topic in known:
        return
    nearest = difflib.get_close_matches(topic, sorted(known), n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]}?" if nearest else "; `commitlake topics list` shows what there is"
    raise BadInput(f"no topic {topic!r} in this store{hint}")


def _expect_queue(at: Snapshot, head: LogHead, topic: str, queue_id: int) -> None:
    if (topic, queue_id) in head.next_queue_offsets:
        return
    expect_topic(at, topic, head)
    configured = read_topics(at).get(topic)
    queues = max(configured.read_queue_nums, configured.write_queue_nums) if configured is not None else 0
    if not 0 <= queue_id < queues:
        used = sorted(found for name, found in head.next_queue_offsets if name == topic)
        have = f"queues 0 to {queues - 1}" if queues else f"queues {', '.join(map(str, used)) or 'none'}"
        raise BadInput(f"topic {topic} has {have}, not {queue_id}")
