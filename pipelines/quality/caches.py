"""Caches: queue_bounds and progress, from which a few rows say where the log ends and how far its followers have come."""

from dataclasses import replace

from pyspark.sql import functions as F

from pipelines.errors import StoreError
from pipelines.log.unfinished_cut import unfinished
from pipelines.quality.promise import Check, Promise, check, complaint
from pipelines.quality.scope import Scope
from pipelines.rocketmq.settings import Settings
from pipelines.spark_internals.arrow import frame_of
from pipelines.store.head import (
    LogHead,
    Queue,
    bounds_of,
    bounds_write,
    expect_nothing_expired_since_bounds,
    half_cut,
    head_as_found,
)
from pipelines.store.holes import holes_of_log, lost_ends
from pipelines.store.plan import Plan
from pipelines.store.planned import expect_no_rows_lost
from pipelines.store.progress import progress_rows, progress_write
from pipelines.store.role import is_slave
from pipelines.store.snapshot import Snapshot
from pipelines.transaction.halves import has_imports
from schemas import COMMITLOG, DERIVED, PROGRESS, QUEUE_BOUNDS
from schemas.queue_bounds import LOG_BOUNDS_QUEUE, LOG_CLOCK_QUEUE, LOG_TOPIC

AS_OF = Promise("as_of", "queue_bounds is as of one append, which the log has", "critical")
ENDS = Promise("ends", "queue_bounds ends each queue where its messages end", "critical")
BEGINS = Promise("begins", "queue_bounds begins no queue after a message it has", "warning")
AHEAD = Promise("ahead", "no follower is ahead of the log", "critical")


def queue_bounds(at: Snapshot, scope: Scope, settings: Settings) -> Check:
    """Each queue's bounds, and the log's own, beside what the records say as of the same append."""
    as_of = head_as_found(at).bounds_append_seq
    rows = scope.of(at.read(COMMITLOG)).where(F.col("append_seq") <= as_of)
    told = bounds_of(rows).withColumnsRenamed({"min_offset": "first", "next_offset": "end"})
    known = at.read(QUEUE_BOUNDS)
    next_offset, end = F.col("next_offset"), F.col("end")
    is_log = (F.col("topic") == LOG_TOPIC) & (F.col("queue_id") == LOG_BOUNDS_QUEUE)
    # The last thing in the log may be a blank, which fills its segment.
    segment_end = end - end % F.lit(settings.segment_bytes) + F.lit(settings.segment_bytes)
    agrees = (next_offset == end) | (is_log & (next_offset == segment_end))
    if holes_of_log(at):
        # The last rows may be lost: the ends stay where they were, and so does the last store time.
        is_clock = (F.col("topic") == LOG_TOPIC) & ~is_log
        told = told.join(lost_ends(at), ["topic", "queue_id"], "left")
        agrees |= (next_offset == F.col("lost_end")) | (is_clock & (next_offset > end))
    queue = (
        F.when(is_log, F.lit("the log"))
        .when(F.col("topic") == LOG_TOPIC, F.lit("the last store time"))
        .otherwise(F.format_string("queue %s:%d", "topic", "queue_id"))
    )
    last = at.number(COMMITLOG)
    is_known = F.col("append_seq").isNotNull()
    return check(
        "caches",
        known.join(told, ["topic", "queue_id"], "full"),
        F.col("queue_id"),
        {
            AS_OF: F.when(
                is_known | next_offset.isNotNull(),
                complaint(
                    (F.col("append_seq") == as_of) & (F.col("append_seq") <= last),
                    F.format_string(
                        "queue_bounds has %s as of append %d, the table is as of %d and the log's last is %d",
                        queue,
                        "append_seq",
                        F.lit(as_of),
                        F.lit(last),
                    ),
                ),
            ),
            ENDS: F.when(
                end.isNotNull(),
                complaint(
                    agrees,
                    F.format_string(
                        "queue_bounds says %s goes on at %d; its records say %d", queue, next_offset, end
                    ),
                ),
            ),
            BEGINS: F.when(
                F.col("first").isNotNull() & is_known,
                complaint(
                    F.col("min_offset") <= F.col("first"),
                    F.format_string(
                        "queue_bounds says %s begins at %d; a record of it is at %d",
                        queue,
                        "min_offset",
                        "first",
                    ),
                ),
            ),
        },
    )


def followers(at: Snapshot) -> Check:
    """Each follower's place in the log."""
    last = at.number(COMMITLOG)
    return check(
        "caches",
        frame_of(at.store.spark, progress_rows(at), PROGRESS.columns),
        F.col("append_seq"),
        {
            AHEAD: complaint(
                F.col("append_seq") <= last,
                F.format_string(
                    "%s has followed append %d; the log's last is %d", "follower", "append_seq", F.lit(last)
                ),
            )
        },
    )


def plan_followers(at: Snapshot) -> Plan:
    """Jobs that are ahead of the log start again: claims tell them what is done. Derived tables are left to dispatch."""
    remembered, last = progress_rows(at), at.number(COMMITLOG)
    tables = {table.name for table in DERIVED}
    ahead = {row.follower: -1 for row in remembered if row.append_seq > last and row.follower not in tables}
    return Plan((progress_write(at, ahead),) if ahead else ())


def plan_bounds(at: Snapshot, settings: Settings) -> Plan:
    """Put queue_bounds right by what all records of the log say; what they cannot say stays as it is.

    They say nothing of queues without records. A queue that goes on after its last record is left so where a broker was
    imported: it may know of messages whose records were lost, and their offsets must not be given twice.

    Raises StoreError where a slave is to be cut and is not yet: the bounds are those that the cut needs.
    """
    at.version(QUEUE_BOUNDS)  # pinned first: a cut is recorded before it writes them
    offset = unfinished(at) if is_slave(at) else None
    if offset is not None:
        raise StoreError(
            f"{half_cut(offset)}. queue_bounds was not put right by the log's records; run that job again "
            "(`commitlake replicate` or `promote`), then this"
        )
    # Else the bounds would end queues where the rows that are left do, and nothing would show later that more were there.
    expect_no_rows_lost(at)
    expect_nothing_expired_since_bounds(at)
    # A row a queue, as in the head.
    known = {(row.topic, row.queue_id): (row.min_offset, row.next_offset) for row in at.rows(QUEUE_BOUNDS)}
    told = {
        (row.topic, row.queue_id): (row.min_offset, row.next_offset)
        for row in bounds_of(at.read(COMMITLOG)).collect()
    }
    if holes_of_log(at):  # a row a queue that has lost some
        for row in lost_ends(at).collect():
            queue = (row.topic, row.queue_id)
            least, end = told.get(queue, known.get(queue, (row.lost_end, row.lost_end)))
            told[queue] = least, max(end, row.lost_end)
        clock_row = (LOG_TOPIC, LOG_CLOCK_QUEUE)
        told[clock_row] = max(told.get(clock_row, (0, 0)), known.get(clock_row, (0, 0)))
    keeps_ends = has_imports(at)
    log, clock = (LOG_TOPIC, LOG_BOUNDS_QUEUE), (LOG_TOPIC, LOG_CLOCK_QUEUE)
    if log not in told:  # a log without rows
        if known.get(log, (0, 0))[0] > 0:
            return Plan()  # it has had some, and nothing else says where it ended
        told[log] = told[clock] = (0, 0)
    corrected: dict[Queue, tuple[int, int]] = {
        queue: _corrected(known.get(queue), told.get(queue), keeps_ends)
        for queue in known.keys() | told.keys()
    }
    first, end = told[log]
    known_end = known[log][1] if log in known else end
    segment_end = end - end % settings.segment_bytes + settings.segment_bytes
    queues = {queue: bounds for queue, bounds in corrected.items() if queue[0] != LOG_TOPIC}
    head = LogHead(
        append_seq=at.number(COMMITLOG),
        min_offset=min(known[log][0], first) if log in known else first,
        next_offset=known_end if end and known_end == segment_end else end,
        last_store_timestamp=told[clock][1],
        next_queue_offsets={queue: following for queue, (_, following) in queues.items()},
        min_queue_offsets={queue: least for queue, (least, _) in queues.items()},
    )
    return Plan((bounds_write(at, replace(head, bounds_append_seq=head.append_seq)),))


def _corrected(
    known: tuple[int, int] | None, told: tuple[int, int] | None, keeps_ends: bool
) -> tuple[int, int]:
    """Bounds of one queue: as the records say where there are any; else it begins where its next message goes.

    >>> _corrected((0, 9), None, False), _corrected((0, 9), (2, 7), False), _corrected((3, 9), (2, 7), True)
    ((9, 9), (0, 7), (2, 9))
    """
    if told is None:
        assert known is not None, "a queue is known from one of the two"
        return known[1], known[1]
    if known is None:
        return told
    end = max(known[1], told[1]) if keeps_ends else told[1]
    return min(known[0], told[0]), end
