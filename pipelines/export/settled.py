"""How far a broker that opens an export must believe to have come: what this store has settled must not happen again.

A broker keeps one position a delay level, one of the half queue and one of the op queue: everything before it is settled,
everything after it is still to be done (docs/rocketmq/delay-retry-transaction.md 1.7, 5.7). This store settles messages one
by one, so some after the first open one may be settled too. A broker does these once more; they are counted.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.log.park import LEVEL_LIST, level_delay_ms
from pipelines.rocketmq.names import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC
from pipelines.rocketmq.times import within_reach
from pipelines.store.head import LogHead
from pipelines.store.snapshot import Snapshot
from pipelines.views.read import Reading
from schemas import COMMITLOG


@dataclass(frozen=True)
class Settled:
    """Positions for a broker, queue offsets.

    levels  next offset by delay level, from 1
    half    of the half queue; op of the op queue: None where the store has no messages in it
    again   messages after these positions that this store has settled and a broker would do once more
    sooner  waiting messages that a broker would deliver at another time: on their way through a list of levels, or retries
            that wait by another ladder
    """

    levels: Mapping[int, int]
    half: int | None
    op: int | None
    again: int
    sooner: int


def read_settled(at: Snapshot, head: LogHead) -> Settled:
    """What is settled as of a snapshot."""
    levels, delayed_again, sooner = _delayed(at, head)
    half, op, ended_again = _halves(at, head)
    return Settled(levels, half, op, delayed_again + ended_again, sooner)


def _delayed(at: Snapshot, head: LogHead) -> tuple[dict[int, int], int, int]:
    """`levels`, and the parts of `again` and `sooner` of messages delayed by level."""
    if not _has_messages(head, SCHEDULE_TOPIC):
        return {}, 0, 0
    scheduled = Reading(at).frame("scheduled_messages").where(F.col("kind") == "schedule")
    open_rows = scheduled.select("queue_id", "queue_offset", _is_of_another_time(at).alias("is_sooner"))
    with _kept(open_rows) as waiting:
        positions = _positions(head, SCHEDULE_TOPIC, waiting)
        again = _settled_after(at, SCHEDULE_TOPIC, positions, waiting)
        sooner = waiting.where("is_sooner").count()
    return {queue_id + 1: position for queue_id, position in positions.items()}, again, sooner


def _halves(at: Snapshot, head: LogHead) -> tuple[int | None, int | None, int]:
    """`half`, `op`, and the part of `again` of half messages."""
    if not _has_messages(head, HALF_TOPIC):
        return None, None, 0
    with _kept(Reading(at).frame("half_messages").select("queue_id", "queue_offset")) as halves:
        half = _positions(head, HALF_TOPIC, halves).get(0)
        if half is None:
            return None, None, 0
        op, marks = None, _op_marks(at)
        if (OP_TOPIC, 0) in head.next_queue_offsets:
            first = marks.where(F.col("marked") >= half).agg(F.min("op_offset")).collect()[0][0]
            op = head.next_queue_offsets[OP_TOPIC, 0] if first is None else first
        is_marked = marks.select(F.col("marked").alias("queue_offset"))
        return half, op, _settled_after(at, HALF_TOPIC, {0: half}, halves, is_marked)


def _has_messages(head: LogHead, topic: str) -> bool:
    """Whether a topic has ever had a message: else nothing of the log is read for it."""
    return any(name == topic for name, _ in head.next_queue_offsets)


@contextmanager
def _kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Rows that are worked out once, though they are read several times inside."""
    kept = rows.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


def _is_of_another_time(at: Snapshot) -> Column:
    """Whether a message delayed by level is due at another time than its level says; a broker knows only the level."""
    delay = level_delay_ms(F.col("queue_id") + 1, at.store.settings.delay_levels_ms)
    is_other = F.col("due_ms") != within_reach(F.col("store_timestamp")) + delay
    return is_other | F.map_contains_key("properties", F.lit(LEVEL_LIST))


def _positions(head: LogHead, topic: str, open_rows: DataFrame) -> dict[int, int]:
    """The first open message of each queue of a topic, or the queue's end; a row a queue."""
    first = open_rows.groupBy("queue_id").agg(F.min("queue_offset").alias("queue_offset")).collect()
    ends = {
        queue_id: end for (name, queue_id), end in head.next_queue_offsets.items() if name == topic and end
    }
    return ends | {row.queue_id: row.queue_offset for row in first}


def _op_marks(at: Snapshot) -> DataFrame:
    """`op_offset` of each op mark and a half's queue offset that it lists, `marked` (5.5)."""
    listed = F.explode(F.split(F.col("body").cast("string"), ",")).alias("mark")
    marks = (
        at.read(COMMITLOG)
        .where(F.col("topic") == OP_TOPIC)
        .select(F.col("queue_offset").alias("op_offset"), listed)
    )
    return marks.select("op_offset", F.col("mark").try_cast("long").alias("marked")).where(
        "marked IS NOT NULL"
    )


def _settled_after(
    at: Snapshot,
    topic: str,
    positions: Mapping[int, int],
    open_rows: DataFrame,
    marked: DataFrame | None = None,
) -> int:
    """How many messages of a topic lie after its positions and are not open, but for those that marks name."""
    if not positions:
        return 0
    after = (
        at.read(COMMITLOG)
        .where((F.col("topic") == topic) & _is_after(positions))
        .select("queue_id", "queue_offset")
    )
    settled = after.join(
        open_rows.select("queue_id", "queue_offset"), ["queue_id", "queue_offset"], "left_anti"
    )
    if marked is not None:
        settled = settled.join(marked, "queue_offset", "left_anti")
    return settled.count()


def _is_after(positions: Mapping[int, int]) -> Column:
    after = F.lit(False)
    for queue_id, position in positions.items():
        after = after | ((F.col("queue_id") == queue_id) & (F.col("queue_offset") >= position))
    return after
