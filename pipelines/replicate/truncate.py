"""Truncate a slave's log to where it is its master's; what is cut off is kept in cut_rows, and nothing of it is lost.

In this order, so that a run that is killed anywhere is simply run again: the rows are copied to cut_rows and the cut is
recorded; the bounds go back, as of the cut's number, so that nothing can be dispatched or appended before the cut is made;
what is derived counts no more; then the rows leave the log, in a commit with that number.

A commit that was planned before, such as another run's fence, may take the number. So the log's rows show whether a cut was
made: where it still has some that were copied for the cut, that is recorded again with the next number.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.consume.offsets import keyed_write
from pipelines.log.one_row import last_row, record_apart
from pipelines.log.unfinished_cut import unfinished
from pipelines.replicate.master import Master
from pipelines.rocketmq.queue_slots import has_queue_slot
from pipelines.store.commit import commit
from pipelines.store.cut import plan_record_cut, take_out
from pipelines.store.epochs import epochs_before, read_epochs
from pipelines.store.groups import read_groups
from pipelines.store.head import LogHead, Queue, bounds_write, head_as_found
from pipelines.store.holes import ends_in_holes, holes_before
from pipelines.store.plan import Plan, Write
from pipelines.store.progress import plan_void
from pipelines.store.replicas import MASTERS_ID, acks_up_to, read_replicas
from pipelines.store.role import expect_role
from pipelines.store.small_tables import whole_table_write, write_if_changed
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from schemas import COMMITLOG, CONSUMER_OFFSETS, CUTS, DERIVED, EPOCHS, HOLES, IN_FLIGHT, REPLICAS

# Marks a cut that no run has reported yet. It stands in place of the time of the slave's last success, which the next one
# writes.
NOT_REPORTED = -1


def truncate(
    store: Store, point: Callable[[Snapshot], int], master_uri: str, master: Master | None = None
) -> int | None:
    """Cut the log off from a point on; its offset, or None where another run has done so meanwhile.

    A cut that another run has recorded is made first: no cut gets another offset than it was recorded with.

    point       where the log is cut off, of a snapshot: what another run has copied meanwhile stays
    master_uri  the master that the store follows
    master      as for finish_truncation

    Raises BadInput where the store follows another master by now.
    """

    def record(at: Snapshot) -> Plan:
        if unfinished(at) is not None:
            return Plan(result={"is_other": True})
        plan = _plan_record(at, point(at))
        marks = _not_reported(at) if plan.writes else ()
        return replace(plan, writes=(*plan.writes, *marks), follows_master=master_uri)

    while (recorded := commit(store, record).result).get("is_other"):
        finish_truncation(store, master)
    # Once more, now that the cut is recorded: a promotion takes the role first and looks up recorded cuts after that.
    expect_role(store.snapshot(), Plan(follows_master=master_uri))
    finish_truncation(store, master)
    return recorded.get("offset")


def finish_truncation(store: Store, master: Master | None = None) -> int | None:
    """Make the cut that is recorded and not made yet; its offset, None where there is none.

    master  the one that the store follows, which knows where queues end there; None: it cannot be read
    """
    made = None
    while (offset := unfinished(store.snapshot())) is not None:
        _make_cut(store, offset, master)
        made = offset if made is None else min(made, offset)
    return made


def _not_reported(at: Snapshot) -> tuple[Write, ...]:
    """The write by which it is known, until a run has ended well, that a cut was made since the last one that did."""
    known = read_replicas(at)
    if MASTERS_ID not in known:
        return ()
    marked = replace(known[MASTERS_ID], updated_timestamp=NOT_REPORTED)
    writes = write_if_changed(at, REPLICAS, known, {**known, MASTERS_ID: marked})
    return tuple(replace(write, may_lose=True) for write in writes)


def cut_not_reported(at: Snapshot) -> int | None:
    """The offset of the last cut, where the run that made it was killed before it had reported it."""
    itself = read_replicas(at).get(MASTERS_ID)
    if itself is None or itself.updated_timestamp != NOT_REPORTED:
        return None
    last = at.number(COMMITLOG)
    cuts = [(row.append_seq, row.physical_offset) for row in at.rows(CUTS) if row.append_seq <= last]
    return max(cuts)[1] if cuts else None


def _make_cut(store: Store, offset: int, master: Master | None) -> None:
    """Try to make a recorded cut; it is not made where another commit has taken its number."""
    commit(store, lambda at: _plan_record_again(at, offset))
    commit(store, lambda at: _plan_bounds(at, offset, master))
    # A dispatch before that may have followed the rows. One that is still under way finds that its progress comes too late.
    commit(store, partial(plan_void, tables=DERIVED))
    for group in _groups(store.snapshot()):
        commit(store, lambda at, group=group: _plan_offsets(at, group))  # type: ignore[misc]
    commit(store, lambda at: Plan(acks_up_to(at, offset) if unfinished(at) == offset else ()))
    commit(store, lambda at: _plan_epochs(at, offset))
    commit(store, lambda at: _plan_holes(at, offset))
    take_out(store, lambda at: _plan_cut(at, offset))
    # Where another commit had taken the number, the bounds have let a dispatch through in between.
    commit(store, partial(plan_void, tables=DERIVED))


def _plan_record(at: Snapshot, offset: int) -> Plan:
    """The plan that records a cut; empty where the log ends there. What it has lost after that has no rows."""
    log_end, rows = head_as_found(at).next_offset, _rows_from(at, offset)
    if log_end <= offset and rows.isEmpty():
        return Plan()
    return _recorded(at, offset)


def _recorded(at: Snapshot, offset: int) -> Plan:
    return replace(plan_record_cut(at, _rows_from(at, offset), offset), result={"offset": offset})


def _plan_record_again(at: Snapshot, offset: int) -> Plan:
    """The plan that records a cut with the next number where another commit has taken its own."""
    return Plan() if _is_next(at) or unfinished(at) != offset else _recorded(at, offset)


def _is_next(at: Snapshot) -> bool:
    """Whether the log's next commit is to be a cut that is recorded."""
    return any(row.append_seq == at.number(COMMITLOG) + 1 for row in at.rows(CUTS))


def _rows_from(at: Snapshot, offset: int) -> DataFrame:
    return at.read(COMMITLOG).where(F.col("physical_offset") >= offset)


def _plan_bounds(at: Snapshot, offset: int, master: Master | None = None) -> Plan:
    """The plan of the bounds as of the cut: each queue ends where its first message that is cut off or was lost lies."""
    cut_seq = at.number(COMMITLOG) + 1
    if not _is_next(at) or unfinished(at) != offset:
        return Plan()
    head = head_as_found(at)
    if head.bounds_append_seq >= cut_seq:
        return Plan()
    cut_off = (
        _rows_from(at, offset)
        .where(has_queue_slot())
        .groupBy("topic", "queue_id")
        .agg(F.min("queue_offset").alias("next_offset"))
        .collect()  # a row a queue, as in the head
    )
    of_rows = [((row.topic, row.queue_id), row.next_offset) for row in cut_off]
    # Never up again: an earlier try, whose number another commit has taken, may have forgotten the holes since.
    ends = dict(head.next_queue_offsets)
    for queue, end in [*of_rows, *_ends_without_rows(at, offset, master).items()]:
        ends[queue] = min(end, ends.get(queue, end))
    before = last_row(at, offset)
    after = LogHead(
        append_seq=cut_seq,
        min_offset=min(head.min_offset, offset),
        next_offset=min(head.next_offset, offset),
        last_store_timestamp=0 if before is None else before.store_timestamp,
        next_queue_offsets=ends,
        min_queue_offsets={
            queue: min(least, ends.get(queue, least)) for queue, least in head.min_queue_offsets.items()
        },
    )
    return Plan((_surely(bounds_write(at, after)),))


def _ends_without_rows(at: Snapshot, offset: int, master: Master | None) -> Mapping[Queue, int]:
    """Where queues end at a cut, of which rows that were lost do not say it.

    The master knows of all queues: it has what lies before the cut. Without it, the holes know of some.
    """
    if master is None or offset > master.end or record_apart(at, offset, master.at) is not None:
        return ends_in_holes(at, offset)
    ends = master.queues_from(offset)
    return {queue: ends.get(queue, least) for queue, least in head_as_found(at).min_queue_offsets.items()}


def _surely(write: Write) -> Write:
    """A write that is planned again where another writer comes first: nothing but these bounds is right after the cut."""
    return replace(write, may_lose=False)


def _groups(at: Snapshot) -> Sequence[str]:
    """All groups: one that has recorded no offset may be about to."""
    rows = [*at.rows(CONSUMER_OFFSETS), *at.rows(IN_FLIGHT)]  # a row a group, queue and client
    return sorted({*read_groups(at), *(row.group for row in rows)})


def _plan_offsets(at: Snapshot, group: str) -> Plan:
    """The plan that sets a group's offsets back to the ends of its queues: other messages will come there.

    They have not been tried yet, so what their queues wait at is forgotten. Both tables are written also where nothing
    changes: a consumer that planned its commit before the cut was recorded finds that another writer came first.
    """
    ends = head_as_found(at).next_queue_offsets
    offsets = []
    for row in at.rows(CONSUMER_OFFSETS, group=group):
        values = row.asDict()
        values["next_offset"] = min(row.next_offset, ends.get((row.topic, row.queue_id), row.next_offset))
        offsets.append(tuple(values[name] for name in CONSUMER_OFFSETS.names))
    waiting = [
        tuple(row)
        for row in at.rows(IN_FLIGHT, group=group)
        if row.queue_offset < ends.get((row.topic, row.queue_id), row.queue_offset + 1)
    ]
    return Plan(
        tuple(
            keyed_write(at, table, rows, group, None, is_first=not at.rows(table, group=group))
            for table, rows in ((IN_FLIGHT, waiting), (CONSUMER_OFFSETS, offsets))
        )
    )


def _plan_epochs(at: Snapshot, offset: int) -> Plan:
    """The plan that forgets epochs of which no message is left."""
    epochs = epochs_before(read_epochs(at), offset)
    if unfinished(at) != offset:
        return Plan()
    if list(epochs) == list(read_epochs(at)):
        return Plan()
    return Plan((whole_table_write(at, EPOCHS, [(each.epoch, each.start_offset) for each in epochs]),))


def _is_bounded(at: Snapshot) -> bool:
    """Whether the bounds are as of the cut: another run may have put them back to the rows that are still there."""
    return head_as_found(at).bounds_append_seq > at.number(COMMITLOG)


def _plan_holes(at: Snapshot, offset: int) -> Plan:
    """The plan that forgets what the log had lost from the cut on: other messages will lie there."""
    if not _is_bounded(at) or unfinished(at) != offset:
        return Plan()
    kept = holes_before(at, offset)
    return Plan() if kept is None else Plan((at.replace(HOLES, kept),))


def _plan_cut(at: Snapshot, offset: int) -> Plan:
    if not _is_bounded(at) or not _is_next(at) or unfinished(at) != offset:
        return Plan()
    nothing = at.read(COMMITLOG).limit(0)
    return Plan((at.replace(COMMITLOG, nothing, where=f"physical_offset >= {offset}"),))
