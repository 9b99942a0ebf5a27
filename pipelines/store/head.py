"""The log head: where the next message will be written.

The head is `queue_bounds` as of the one append its last commit covers, plus the log's appends since; the log is never
scanned for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.errors import StoreError
from pipelines.rocketmq.queue_slots import has_queue_slot, next_in_queue
from pipelines.rocketmq.times import LAST_MS
from pipelines.store.floors import read_floors
from pipelines.store.holes import holes_of_log
from pipelines.store.plan import Write
from pipelines.store.planned import expect_no_rows_lost, expect_whole
from pipelines.store.small_tables import whole_table_write
from pipelines.store.snapshot import Snapshot, app_id
from pipelines.store.sql_text import delta_table
from schemas import COMMITLOG, CUTS, QUEUE_BOUNDS
from schemas.queue_bounds import LOG_BOUNDS_QUEUE, LOG_CLOCK_QUEUE, LOG_TOPIC

Queue = tuple[str, int]

# An append brings queue_bounds up to the head when this many appends have come since: a small append does not pay for
# it each time, and reading the head stays a read of a few files.
APPENDS_BETWEEN_BOUNDS = 16


@dataclass(frozen=True)
class LogHead:
    """Where the next message goes.

    append_seq            the last append (or fence, or cut) of the log; -1 for an empty log
    min_offset            where the log starts, bytes
    next_offset           where the log ends, bytes: the next record's physical offset unless it does not fit its segment
    last_store_timestamp  store timestamp of the last row, epoch milliseconds; the next row's is never less
    next_queue_offsets    the next offset of every queue that has ever had a message
    min_queue_offsets     the first offset of every such queue
    bounds_append_seq     the append as of which queue_bounds holds
    """

    append_seq: int
    min_offset: int
    next_offset: int
    last_store_timestamp: int
    next_queue_offsets: Mapping[Queue, int] = field(default_factory=dict)
    min_queue_offsets: Mapping[Queue, int] = field(default_factory=dict)
    bounds_append_seq: int = -1

    def next_of(self, topic: str, queue_id: int) -> int:
        return self.next_queue_offsets.get((topic, queue_id), 0)


EMPTY_HEAD = LogHead(-1, 0, 0, 0)


def read_head(at: Snapshot) -> LogHead:
    """The head as of the snapshot: the bounds, and the appends since where there are any.

    Raises StoreError where the last append is not as planned, the log has lost rows to something other than a job, or the
    bounds are of appends that the log does not have or of before an expiry: no plan may be made from that.
    """
    head = head_as_found(at)  # first, as it pins the bounds before the log
    expect_no_rows_lost(at)
    if head.bounds_append_seq < head.append_seq:  # the writer of the bounds has checked
        expect_whole(at)
        expect_nothing_expired_since_bounds(at)
    if head.bounds_append_seq > head.append_seq:
        _expect_in_log(at, head.bounds_append_seq)
    return head


def has_begun(at: Snapshot) -> bool:
    """Whether the log has had a row, or it is known where its first one is to lie; a fence is a commit without a row."""
    if at.number(COMMITLOG) < 0:
        return False
    return not at.is_empty(COMMITLOG) or head_as_found(at).next_offset > 0


def _expect_in_log(at: Snapshot, bounds_append_seq: int) -> None:
    """Raises StoreError for bounds newer than the log itself: in a copy of different times offsets would be given twice.

    Bounds that are only newer than the snapshot's log are valid.
    """
    last = at.store.delta(COMMITLOG).newest().number(app_id(COMMITLOG))
    if bounds_append_seq > last:
        cut = next((row for row in at.rows(CUTS) if row.append_seq == bounds_append_seq == last + 1), None)
        if cut is not None:
            raise StoreError(
                f"{half_cut(cut.physical_offset)}. Nothing was written; run that job again (`commitlake replicate` or "
                "`promote`), or, where it has ended well since, `commitlake validate --repair`"
            )
        raise StoreError(
            f"queue_bounds is as of append {bounds_append_seq}, but the log's last append is {last}: the store is a copy "
            "whose tables are of different times, or its log was put back as it was earlier. Nothing was written; run "
            f"`commitlake validate --store {at.store.uri} --repair`, which puts queue_bounds right, then this again"
        )


def half_cut(offset: int) -> str:
    """What is known of a cut that is recorded and not made, in words."""
    return f"the log is to be cut at byte {offset}, and the job that does it was stopped halfway or is still at work"


def expect_nothing_expired_since_bounds(at: Snapshot) -> None:
    """Raises StoreError where messages have expired that came after the bounds: nothing says how far their queues went.

    An expiry writes bounds that have all that expires. So the bounds are of an earlier time: restored, or from a backup.
    """
    first, (begins, ends) = _found(at)[1], _log_bounds(at)
    # A log that goes on where the bounds end has lost nothing in between.
    if first is None or first <= ends or holes_of_log(at):
        return
    if begins < ends:
        # Segments expire in order: the rows before the end of the bounds go first.
        segments = [int(file.partition["segment"] or 0) for file in at.all_files(COMMITLOG)]
        has_expired = min(segments, default=0) >= ends
    else:
        # A broker's log may have had no record in its first segments.
        segment_bytes = at.store.settings.segment_bytes
        has_expired = first >= ends - ends % segment_bytes + segment_bytes and not read_floors(at)
    if has_expired:
        raise StoreError(
            f"queue_bounds says that the log ends at byte {ends}, and what came after that has expired up to byte {first}: "
            "the table was put back as it was earlier, and offsets would be given twice. Nothing was written; put back the "
            "newest version that it had, in a Spark session with Delta: `DESCRIBE HISTORY` lists them, and `RESTORE TABLE "
            f"{delta_table(at.store.path(QUEUE_BOUNDS))} TO VERSION AS OF N` puts one back. Where all are older, put the "
            "whole store back from a backup that was made after the messages had expired"
        )


def _log_bounds(at: Snapshot) -> tuple[int, int]:
    """Where the log begins and ends, bytes, as of the bounds; (0, 0) without any."""
    log = (LOG_TOPIC, LOG_BOUNDS_QUEUE)
    found = (
        (row.min_offset, row.next_offset) for row in at.rows(QUEUE_BOUNDS) if (row.topic, row.queue_id) == log
    )
    return next(found, (0, 0))


def head_as_found(at: Snapshot) -> LogHead:
    """The head as `read_head` returns it, without its checks: for what gives no offsets by it."""
    return _found(at)[0]


def _found(at: Snapshot) -> tuple[LogHead, int | None]:
    """The head, and where the first row after the bounds lies, bytes; None without such a row."""
    # Bounds are pinned before the log: they may be older than the log, never newer.
    return at.cached("head", (QUEUE_BOUNDS, COMMITLOG), lambda: _read_head(at))


def _read_head(at: Snapshot) -> tuple[LogHead, int | None]:
    # There is a row for each queue, and two for the log, of a few bytes each.
    found = at.rows(QUEUE_BOUNDS)
    bounds_append_seq = max((row.append_seq for row in found), default=-1)
    bounds = [(row.topic, row.queue_id, row.min_offset, row.next_offset) for row in found]
    append_seq, first = at.number(COMMITLOG), None
    if bounds_append_seq < append_seq:
        since = [tuple(row) for row in bounds_of(at.read_after(COMMITLOG, bounds_append_seq)).collect()]
        log = (LOG_TOPIC, LOG_BOUNDS_QUEUE)
        first = next((least for topic, queue_id, least, _ in since if (topic, queue_id) == log), None)
        bounds += since
    return _head(append_seq, bounds_append_seq, bounds), first


def bounds_of(rows: DataFrame) -> DataFrame:
    """Bounds that log rows imply: (topic, queue_id, min_offset, next_offset), and the two rows of the log itself.

    Only store times of a calendar count: an imported record may hold any number, and no row after it is stored earlier
    than the log's last.
    """
    by_queue = rows.where(has_queue_slot()).groupBy("topic", "queue_id")
    queues = by_queue.agg(
        F.min("queue_offset").alias("min_offset"),
        F.max(next_in_queue()).alias("next_offset"),
    )
    store_timestamp = F.col("store_timestamp")
    ends = rows.agg(
        F.min("physical_offset").alias("log_start"),
        F.max(F.col("physical_offset") + F.col("size_bytes")).alias("log_end"),
        F.coalesce(F.max(F.when(store_timestamp.between(0, LAST_MS), store_timestamp)), F.lit(0)).alias(
            "clock"
        ),
    ).where(F.col("log_end").isNotNull())
    log = ends.select(
        F.inline(
            F.array(
                _log_row(LOG_BOUNDS_QUEUE, F.col("log_start"), F.col("log_end")),
                _log_row(LOG_CLOCK_QUEUE, F.lit(0).cast("long"), F.col("clock")),
            )
        )
    )
    return queues.unionAll(log)


def _log_row(queue_id: int, least: Column, following: Column) -> Column:
    return F.struct(
        F.lit(LOG_TOPIC).alias("topic"),
        F.lit(queue_id).alias("queue_id"),
        least.alias("min_offset"),
        following.alias("next_offset"),
    )


def _head(append_seq: int, bounds_append_seq: int, found: list) -> LogHead:
    least: dict[Queue, int] = {}
    following: dict[Queue, int] = {}
    for topic, queue_id, min_offset, next_offset in found:
        queue = (topic, queue_id)
        least[queue] = min(min_offset, least.get(queue, min_offset))
        following[queue] = max(next_offset, following.get(queue, next_offset))
    log, clock = (LOG_TOPIC, LOG_BOUNDS_QUEUE), (LOG_TOPIC, LOG_CLOCK_QUEUE)
    head = LogHead(
        append_seq,
        least.pop(log, 0),
        following.pop(log, 0),
        following.pop(clock, 0),
        following,
        least,
        bounds_append_seq,
    )
    least.pop(clock, None)
    return head


def bounds_write(at: Snapshot, head: LogHead) -> Write:
    """The write that brings queue_bounds to `head`; it may lose to another writer, and then nothing is lost."""
    queues = [
        (topic, queue_id, head.min_queue_offsets.get((topic, queue_id), 0), next_offset, head.append_seq)
        for (topic, queue_id), next_offset in sorted(head.next_queue_offsets.items())
    ]
    log = [
        (LOG_TOPIC, LOG_BOUNDS_QUEUE, head.min_offset, head.next_offset, head.append_seq),
        (LOG_TOPIC, LOG_CLOCK_QUEUE, 0, head.last_store_timestamp, head.append_seq),
    ]
    return whole_table_write(at, QUEUE_BOUNDS, log + queues, may_lose=True)
