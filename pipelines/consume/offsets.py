"""Consumer offsets: how far a group has read each queue (docs/rocketmq/consume-filter-ha.md 2.2, 3).

All offsets of a group are one key: one commit moves them together, and of two writers at once the second plans again. A
reset raises the generation of a queue: a run that read the queue before it does not change its offset, and claims of an
earlier generation do not count.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pyspark.sql import Row
from pyspark.sql import functions as F

from pipelines.log.claims import claims_taken
from pipelines.retry.send_back import claim_prefix
from pipelines.spark_internals.arrow import frame_of
from pipelines.store.plan import Plan, Write
from pipelines.store.snapshot import Snapshot
from schemas import CONSUMER_OFFSETS, IN_FLIGHT, Table

Queue = tuple[str, int]  # (topic, queue_id)
Waiting = tuple[int, int, int]  # queue offset of a message, how often it has been tried, due time (epoch ms)
# What a queue waits at: the messages of the group of messages that failed together, ascending. Each counts its own tries.
Waits = tuple[Waiting, ...]


@dataclass(frozen=True)
class Offset:
    """The offset at which a group reads a queue on, and how often the queue has been reset."""

    next_offset: int
    generation: int = 0


@dataclass(frozen=True)
class Reached:
    """How far a run has read a queue, in the generation it found.

    was        the offset that was recorded when the run read the queue; for a queue without one, where the run began it
    is_alone   no other run may read the queue: an offset other than `was` is from a run that has taken the queue over
    goes_back  the offset may decrease as long as it still is `was`; else it only increases
    """

    queue: Queue
    next_offset: int
    generation: int = 0
    was: int = -1
    is_alone: bool = False
    goes_back: bool = False

    def is_reset(self, found: Offset | None) -> bool:
        """Whether the queue has been reset since it was read."""
        return found is not None and found.generation != self.generation

    def is_taken(self, found: Offset | None) -> bool:
        """Whether another run has moved the offset of a queue that this run reads alone."""
        return self.is_alone and found is not None and found.next_offset not in (self.was, self.next_offset)

    def moves(self, found: Offset | None) -> bool:
        """Whether the recorded offset is to change: forward, or back where `goes_back` allows it."""
        if found is None or self.next_offset > found.next_offset:
            return True
        return self.goes_back and found.next_offset == self.was and self.next_offset < self.was


def read_offsets(at: Snapshot, group: str, client_id: str = "") -> dict[Queue, Offset]:
    """The offsets of a group, or of one of its broadcasting clients."""
    return _offsets_of(client_id, _read_rows(at, group))


def _read_rows(at: Snapshot, group: str) -> Sequence[Row]:
    """All offset rows of a group: one a queue and client."""

    def find() -> Sequence[Row]:
        return at.rows(CONSUMER_OFFSETS, group=group)  # a row a queue and client

    return at.cached(f"offsets of {group}", (CONSUMER_OFFSETS,), find)


def _offsets_of(client_id: str, rows: Sequence[Row]) -> dict[Queue, Offset]:
    return {
        (row.topic, row.queue_id): Offset(row.next_offset, row.generation or 0)
        for row in rows
        if row.client_id == client_id
    }


def plan_commit(at: Snapshot, group: str, client_id: str, reached: Iterable[Reached], now_ms: int) -> Plan:
    """A plan that records how far a run has read its queues, except those changed by others; empty without a change.

    Its result: `reset` and `taken`, the queues that have been reset or that another run has read on; `recorded`, the
    offset of each other queue.
    """
    rows = _read_rows(at, group)
    known = _offsets_of(client_id, rows)
    changed: dict[Queue, Offset] = {}
    recorded: dict[Queue, int] = {}
    reset, taken = [], []
    for each in reached:
        found = known.get(each.queue)
        if each.is_reset(found):
            reset.append(each.queue)
        elif each.is_taken(found):
            taken.append(each.queue)
        else:
            if each.moves(found):
                changed[each.queue] = Offset(each.next_offset, each.generation)
            now = changed.get(each.queue) or found
            assert now is not None, "a queue without an offset gets one"
            recorded[each.queue] = now.next_offset
    writes = _offset_writes(at, group, client_id, changed, rows, now_ms)
    return Plan(writes, {"reset": reset, "taken": taken, "recorded": recorded})


def plan_reset(at: Snapshot, group: str, targets: Mapping[Queue, int], now_ms: int) -> Plan:
    """A plan that sets offsets of a group, forward or back, and raises the generation of their queues.

    The queues no longer wait at messages. Its result: `queues`, how many are set.

    No generation is given twice, also where the table has lost the last ones, as one that was restored has: with an old
    one, messages that the group failed on in it would not be handed over again.
    """
    rows = _read_rows(at, group)
    known = _offsets_of("", rows)
    claimed = claimed_generation(at, group) or 0
    changed = {
        queue: Offset(target, max(known[queue].generation if queue in known else 0, claimed) + 1)
        for queue, target in targets.items()
    }
    writes = [*_offset_writes(at, group, "", changed, rows, now_ms)]
    waiting = read_in_flight(at, group)
    let_go: dict[Queue, Waits] = {queue: () for queue in waiting if queue in targets}
    if let_go:
        writes += _in_flight_writes(at, group, let_go)
    return Plan(tuple(writes), {"queues": len(changed)})


def claimed_generation(at: Snapshot, group: str) -> int | None:
    """The greatest generation in which a failure of a group was sent back; None where none was."""
    prefix, claim = claim_prefix(group), F.col("claim")
    generation = F.substr(claim, F.lit(len(prefix) + 1)).try_cast("long")
    found = claims_taken(at).where(claim.startswith(prefix)).agg(F.max(generation).alias("last")).first()
    assert found is not None, "an aggregate has one row"
    last: int | None = found["last"]
    return last


def plan_import_offsets(at: Snapshot, group: str, offsets: Mapping[Queue, int], now_ms: int) -> Plan:
    """A plan that records a broker's offsets of a group where they are further on; queues reset here keep theirs."""
    rows = _read_rows(at, group)
    known = _offsets_of("", rows)
    changed = {
        queue: Offset(offset)
        for queue, offset in offsets.items()
        if queue not in known or (known[queue].generation == 0 and known[queue].next_offset < offset)
    }
    return Plan(_offset_writes(at, group, "", changed, rows, now_ms))


def _offset_writes(
    at: Snapshot,
    group: str,
    client_id: str,
    changed: Mapping[Queue, Offset],
    known: Sequence[Row],
    now_ms: int,
) -> tuple[Write, ...]:
    """A write of the changed offsets and of the unchanged ones of the same topics; none without a change.

    known  all rows of the group
    """
    if not changed:
        return ()
    topics = sorted({topic for topic, _ in changed})
    kept = [row for row in known if row.topic in topics]
    left = [
        tuple(row)
        for row in kept
        if not (row.client_id == client_id and (row.topic, row.queue_id) in changed)
    ]
    new = [
        (group, topic, queue_id, client_id, offset.next_offset, offset.generation, now_ms)
        for (topic, queue_id), offset in changed.items()
    ]
    return (keyed_write(at, CONSUMER_OFFSETS, left + new, group, topics, is_first=not kept),)


def read_in_flight(at: Snapshot, group: str) -> dict[Queue, Waits]:
    """The messages that queues of a group wait at."""
    # At most --batch-size rows a queue.
    rows = sorted(
        (row.topic, row.queue_id, row.queue_offset, row.tries, row.due_ms)
        for row in at.rows(IN_FLIGHT, group=group)
    )
    return {
        queue: tuple(row[2:] for row in of_queue)
        for queue, of_queue in groupby(rows, key=lambda row: row[:2])
    }


def plan_in_flight(
    at: Snapshot, group: str, changes: Mapping[Queue, Waits], reached: Iterable[Reached]
) -> Plan:
    """A plan that records which messages queues wait at, which may be none; queues changed by others keep theirs."""
    known = read_offsets(at, group)
    lost = {
        each.queue
        for each in reached
        if each.is_reset(known.get(each.queue)) or each.is_taken(known.get(each.queue))
    }
    kept = {queue: waits for queue, waits in changes.items() if queue not in lost}
    return Plan(_in_flight_writes(at, group, kept))


def _in_flight_writes(at: Snapshot, group: str, changes: Mapping[Queue, Waits]) -> tuple[Write, ...]:
    known = read_in_flight(at, group)
    changed = {queue: waits for queue, waits in changes.items() if known.get(queue, ()) != waits}
    if not changed:
        return ()
    topics = sorted({topic for topic, _ in changed})
    rows = [
        (group, topic, queue_id, *message)
        for (topic, queue_id), waits in sorted((known | changed).items())
        if topic in topics
        for message in waits
    ]
    return (keyed_write(at, IN_FLIGHT, rows, group, topics, is_first=not known),)


def keyed_write(
    at: Snapshot,
    table: Table,
    rows: Sequence[tuple[Any, ...]],
    group: str,
    topics: Sequence[str] | None,
    is_first: bool,
) -> Write:
    """A write that replaces all rows of a group, or its rows of some topics, by rows of the same.

    is_first  there are none to replace: so the write is an append, which takes less time
    """
    written = frame_of(at.store.spark, rows, table.columns).coalesce(1)
    if is_first:
        return at.append(table, written, key=group)
    partitions = {"group": [group]} if topics is None else {"group": [group], "topic": topics}
    return at.replace_partitions(table, written, partitions, key=group)
