"""Expire: the log begins later, and what lies before its start leaves it and the tables that are derived from it.

1. What is owed from the segments that are old enough is rolled to the end of the log.
2. `queue_bounds` says where the log and every queue begin now. From this commit on the segments have expired: readers
   begin there, and no later run decides it again.
3. Their rows leave the log: whole partitions, so that no file is read or written. Like a cut it is a commit with a number,
   so that no append is planned across it.
4. Their rows leave the derived tables, one after the other.

A run that was cut short leaves rows before the log's start, which nobody reads; the next run goes on with what is left.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import functions as F

from pipelines.dispatch.entries import consume_queue_entries
from pipelines.dispatch.layout import arranged
from pipelines.dispatch.runs import joined_runs, parts_of
from pipelines.expiry.owed import count_owed, next_owed, plan_rolls
from pipelines.expiry.retention import Expiring, expiring
from pipelines.log.copies import COPIES_OF_AN_APPEND
from pipelines.store.commit_in_parts import commit_in_parts
from pipelines.store.cut import is_append_only, set_append_only, take_out
from pipelines.store.head import LogHead, Queue, bounds_write, read_head
from pipelines.store.plan import Plan, Planned
from pipelines.store.planned import expect_whole
from pipelines.store.progress import covered, followed_rows
from pipelines.store.role import is_slave
from pipelines.store.snapshot import Snapshot
from pipelines.store.work import Work
from schemas import COMMITLOG, CONSUME_QUEUE, CONSUMER_OFFSETS, DERIVED, PROGRESS, QUEUE_BOUNDS, Table

# A sorted run of more rows, some of which expire, is sorted again only when a quarter of it has expired: else a run of many
# days would be written again every day. Until then its expired rows stay, and no reader goes there.
ROWS_SORTED_AGAIN = 32_000_000
SHARE_EXPIRED = 0.25
# At most 20 groups with unread messages that have expired are named.
GROUPS_NAMED = 20


@dataclass(frozen=True)
class Expired:
    """How many segments left the log, and how many copies of owed rows were appended before."""

    segments: int
    rolled: int


def expire(work: Work, retention_hours: int | None) -> Expired:
    """Have segments expire that are old enough, and finish what an earlier run has left.

    retention_hours  None: no segment expires now; only what is left is finished
    """
    store, rolled = work.store, 0
    if retention_hours is not None:
        parts = commit_in_parts(
            work.commit,
            lambda at, _: plan_expiry(at, work.now_ms, retention_hours, work.run_id),
            ("rolled",),
        )
        rolled = parts["rolled"]
        if parts["kept_by"] is not None:
            work.say(parts["kept_by"])
    at = store.snapshot()
    segments = 0
    if expired_segments(at):
        taken_out = take_out(store, plan_leave_log)
        segments = taken_out.result["segments"]
        work.wrote = True
        overtaken = groups_overtaken(store.snapshot())
        if overtaken:
            named = ", ".join(overtaken[:GROUPS_NAMED]) + ", …" * (len(overtaken) > GROUPS_NAMED)
            work.warn(
                f"messages have expired that {named} had not read: a group goes on at its queue's first offset"
            )
    elif not is_append_only(at):
        set_append_only(store, True)  # a run that had switched it off was killed
    for table in DERIVED:
        work.commit(partial(plan_leave_derived, table=table))
    return Expired(segments, rolled)


def groups_overtaken(at: Snapshot) -> list[str]:
    """The groups that had not read all messages that have expired, by the offsets recorded before the start of a queue."""
    starts = read_head(at).min_queue_offsets
    offsets = at.read(CONSUMER_OFFSETS).collect()  # a row a group, queue and client
    return sorted(
        {row.group for row in offsets if row.next_offset < starts.get((row.topic, row.queue_id), 0)}
    )


def would_expire(at: Snapshot, now_ms: int, retention_hours: int | None) -> Expired:
    """What `expire` would do now; of messages that wait for their time at most COPIES_OF_AN_APPEND are counted."""
    segments = set(expired_segments(at))
    found = None if retention_hours is None else _expiring(at, now_ms, retention_hours)
    if found is None or not found.segments:
        return Expired(len(segments), 0)
    segments |= {segment.start for segment in found.segments}
    return Expired(len(segments), count_owed(at, found.log_start, COPIES_OF_AN_APPEND))


def plan_expiry(at: Snapshot, now_ms: int, retention_hours: int, run_id: str) -> Plan:
    """The plan that rolls what is owed from the segments to expire, or, where nothing is, has the log begin after them.

    The result: `rolled`; `more`: whether something was rolled, and the next plan has the rest; `kept_by`: a sentence about
    a segment that is old enough and stays, else None.
    """
    found = _expiring(at, now_ms, retention_hours)
    result: dict[str, Any] = {"rolled": 0, "more": False, "kept_by": found.kept_by}
    head = read_head(at)
    if not found.segments or found.log_start <= head.min_offset:
        return Plan((), result)
    owed = next_owed(at, found.log_start, COPIES_OF_AN_APPEND)
    if owed.num_rows:
        # All of these are in the log, so that each has a copy: the log never begins later while one is owed.
        rolls = plan_rolls(at, owed, now_ms, run_id)
        return Plan(rolls.writes, {**result, "rolled": sum(rolls.rows_by_purpose.values()), "more": True})
    later = replace(
        head, min_offset=found.log_start, min_queue_offsets=_queue_starts(at, head, found.log_start)
    )
    # Not a cache as after an append: where another writer was first, this is planned again.
    return Plan((replace(bounds_write(at, later), may_lose=False),), result)


def _expiring(at: Snapshot, now_ms: int, retention_hours: int) -> Expiring:
    # Pinned before the log: they may be older than the log, never newer.
    for table in (PROGRESS, *DERIVED, QUEUE_BOUNDS):
        at.version(table)
    found = expiring(at, now_ms, retention_hours)
    if not is_slave(at) or not found.segments:
        return found
    # A replica appends nothing of its own: what is owed there waits for the master's rolls.
    for segment in found.segments:
        following = segment.start + at.store.settings.segment_bytes
        if next_owed(at, following, 1).num_rows:
            kept = tuple(each for each in found.segments if each.start < segment.start)
            reason = f"segment {segment.start} stays: this store is a replica, and its master has not rolled what is owed"
            return Expiring(kept, segment.start, reason)
    return found


def _queue_starts(at: Snapshot, head: LogHead, log_start: int) -> dict[Queue, int]:
    """Where each queue begins once the log begins at `log_start`: at its first entry that is left (4.3).

    A queue without entries begins where its next message goes: its offsets are kept.
    """
    followed = covered(at, CONSUME_QUEUE)
    entries = followed_rows(at, CONSUME_QUEUE)
    if followed < at.number(COMMITLOG):
        later = at.read_after(COMMITLOG, followed)
        entries = entries.unionByName(consume_queue_entries(later, ()))
    left = entries.where(F.col("segment") >= log_start).groupBy("topic", "queue_id")
    # A row a queue.
    first = {
        (row.topic, row.queue_id): row["first"]
        for row in left.agg(F.min("queue_offset").alias("first")).collect()
    }
    return {
        queue: max(head.min_queue_offsets.get(queue, 0), min(first.get(queue, following), following))
        for queue, following in head.next_queue_offsets.items()
    }


def expired_segments(at: Snapshot) -> list[int]:
    """The segments before the log's start that still have rows, as a run that was cut short leaves them."""
    log_start = _log_start(at)
    if not log_start:
        return []
    segment = F.col("partitionValues")["segment"].cast("long")
    before = at.files(COMMITLOG).where(segment < log_start).select(segment.alias("segment")).distinct()
    return sorted(row.segment for row in before.collect())  # a number a segment


def _log_start(at: Snapshot) -> int:
    """The segment in which the log begins."""
    start = read_head(at).min_offset
    return start - start % at.store.settings.segment_bytes


def plan_leave_log(at: Snapshot) -> Plan:
    """The plan that takes the rows of expired segments out of the log, in a commit with the next number."""
    segments = expired_segments(at)
    if not segments:
        return Plan(result={"segments": 0})
    expect_whole(at)  # only the last append is compared with its plan, and this will be the last
    nothing = at.read(COMMITLOG).limit(0)
    write = at.replace(COMMITLOG, nothing, where=f"segment < {_log_start(at)}")
    return Plan((write,), {"segments": len(segments)})


def plan_leave_derived(at: Snapshot, table: Table) -> Plan:
    """The plan that takes the rows of expired segments out of a derived table.

    Later appends lie in later segments, so that sorted runs leave from the oldest on, and at most one holds rows of both
    kinds. What is left of that one is sorted again.
    """
    at.version(table)  # pinned before the log: it may be older than the log, never newer
    followed, log_start = covered(at, table), _log_start(at)
    parts = [part for part in parts_of(at, table) if part.run.last_append <= followed]
    last_append, left = -1, None
    for run in joined_runs([part.run for part in parts]):
        mine = [part for part in parts if run.first_append <= part.run.first_append <= run.last_append]
        if all(part.first_segment >= log_start for part in mine):
            break
        if any(part.last_segment >= log_start for part in mine):
            in_run = F.col("append_seq").between(run.first_append, run.last_append)
            rows = at.read(table).where(in_run & (F.col("segment") >= log_start))
            count = rows.count()
            if run.rows > ROWS_SORTED_AGAIN and run.rows - count < run.rows * SHARE_EXPIRED:
                break
            left = (rows, count)
        last_append = run.last_append
    if last_append < 0:
        return Plan()
    rows, count = left or (at.read(table).limit(0), 0)
    sorted_again = arranged(table, rows, count) if count else rows.limit(0)
    write = at.replace(table, sorted_again, f"append_seq <= {last_append}", planned=Planned(count))
    return Plan((write,))
