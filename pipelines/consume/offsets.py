"""Consumer offsets: how far a group has read each queue (docs/rocketmq/consume-filter-ha.md 2.2, 3).

All of a group's offsets are one key: one commit moves them together, and a writer that comes late plans again. A reset
raises the generation of a queue; a run that read the queue before it leaves its offset, and what it claimed, behind.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Row

from pipelines.store.plan import Plan, Write
from pipelines.store.snapshot import Snapshot
from pipelines.store.sql_text import text_literal
from schemas import CONSUMER_OFFSETS, IN_FLIGHT, Table

Queue = tuple[str, int]  # (topic, queue_id)
Waits = tuple[int, int, int]  # the offset of a message, how often it has been tried, when it is due again


@dataclass(frozen=True)
class Offset:
    """Where a group goes on in a queue."""

    next_offset: int
    generation: int = 0


@dataclass(frozen=True)
class Reached:
    """How far a run has come in a queue it read in a generation.

    was        the offset that was recorded when the run read the queue; where it began a queue that had none
    is_alone   nobody else reads the queue: another offset than `was` is another run's, which has taken the queue over
    goes_back  the offset may become less where it still is what it was; else it only ever moves on
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
        """Whether another run has come between."""
        return self.is_alone and found is not None and found.next_offset not in (self.was, self.next_offset)

    def moves(self, found: Offset | None) -> bool:
        """Whether the offset changes: on, or back from what was read."""
        if found is None or self.next_offset > found.next_offset:
            return True
        return self.goes_back and found.next_offset == self.was and self.next_offset < self.was


def read_offsets(at: Snapshot, group: str, client_id: str = "") -> dict[Queue, Offset]:
    """A group's offsets, or those of one of its broadcasting members; a few bytes a queue."""
    return _offsets_of(client_id, _read_rows(at, group))


def _read_rows(at: Snapshot, group: str) -> Sequence[Row]:
    """All rows of a group: one a queue and client."""

    def find() -> Sequence[Row]:
        return at.read_small(CONSUMER_OFFSETS, group=group).collect()  # a row a queue and client

    return at.cached(f"offsets of {group}", (CONSUMER_OFFSETS,), find)


def _offsets_of(client_id: str, rows: Sequence[Row]) -> dict[Queue, Offset]:
    return {
        (row.topic, row.queue_id): Offset(row.next_offset, row.generation or 0)
        for row in rows
        if row.client_id == client_id
    }


def plan_commit(at: Snapshot, group: str, client_id: str, reached: Iterable[Reached], now_ms: int) -> Plan:
    """Record how far a run has come, where its queues are still as it read them; no write when nothing changes.

    The result: `reset` and `taken`, the queues that have been reset or that another run has read on; `recorded`, the
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
    """Set a group's offsets, back or forth, and raise the generation of their queues; messages in flight are let go.

    The result: `queues`, how many were set.
    """
    rows = _read_rows(at, group)
    known = _offsets_of("", rows)
    changed = {
        queue: Offset(target, known[queue].generation + 1 if queue in known else 1)
        for queue, target in targets.items()
    }
    writes = [*_offset_writes(at, group, "", changed, rows, now_ms)]
    waiting = read_in_flight(at, group)
    let_go = {queue: None for queue in waiting if queue in targets}
    if let_go:
        writes += _in_flight_writes(at, group, let_go)
    return Plan(tuple(writes), {"queues": len(changed)})


def plan_import_offsets(at: Snapshot, group: str, offsets: Mapping[Queue, int], now_ms: int) -> Plan:
    """Record a broker's offsets of a group where they are further on; queues that were reset here are this store's own."""
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
    """The changed offsets beside those of the same topics that stay; `known` are all rows of the group."""
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
    """Of the queues that wait at a message: its offset, how often it has been tried, when it is due again."""
    rows = at.read_small(IN_FLIGHT, group=group).collect()  # at most a row a queue
    return {(row.topic, row.queue_id): (row.queue_offset, row.tries, row.due_ms) for row in rows}


def plan_in_flight(
    at: Snapshot, group: str, changes: Mapping[Queue, Waits | None], reached: Iterable[Reached]
) -> Plan:
    """Record where queues wait, or that they do so no more, where they are still as the run read them."""
    known = read_offsets(at, group)
    lost = {
        each.queue
        for each in reached
        if each.is_reset(known.get(each.queue)) or each.is_taken(known.get(each.queue))
    }
    kept = {queue: waits for queue, waits in changes.items() if queue not in lost}
    return Plan(_in_flight_writes(at, group, kept))


def _in_flight_writes(at: Snapshot, group: str, changes: Mapping[Queue, Waits | None]) -> tuple[Write, ...]:
    known = read_in_flight(at, group)
    changed = {queue: waits for queue, waits in changes.items() if known.get(queue) != waits}
    if not changed:
        return ()
    topics = sorted({topic for topic, _ in changed})
    waiting = {queue: waits for queue, waits in (known | changed).items() if waits is not None}
    rows = [
        (group, topic, queue_id, *waits)
        for (topic, queue_id), waits in sorted(waiting.items())
        if topic in topics
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
    """Rows of a group in the place of all it had, or of all it had for some topics.

    is_first  there were none: an append does, which takes a third of the time
    """
    written = at.store.spark.createDataFrame(rows, table.columns).coalesce(1)
    if is_first:
        return at.append(table, written, key=group)
    where = f"`group` = {text_literal(group)}"
    if topics is not None:
        where += f" AND topic IN ({', '.join(map(text_literal, topics))})"
    return at.replace(table, written, where, key=group)
