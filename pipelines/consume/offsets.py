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
from schemas import CONSUMER_OFFSETS, IN_FLIGHT, Table

Queue = tuple[str, int]  # (topic, queue_id)


@dataclass(frozen=True)
class Offset:
    """Where a group goes on in a queue."""

    next_offset: int
    generation: int = 0


@dataclass(frozen=True)
class Reached:
    """How far a run has come in a queue it read in a generation.

    overwrites  an orderly run says where the queue is; a concurrent one only ever moves it on
    """

    queue: Queue
    next_offset: int
    generation: int = 0
    overwrites: bool = False


def read_offsets(at: Snapshot, group: str, client_id: str = "") -> dict[Queue, Offset]:
    """A group's offsets, or those of one of its broadcasting members; a few bytes a queue."""
    return _offsets_of(client_id, _read_rows(at, group))


def _read_rows(at: Snapshot, group: str) -> Sequence[Row]:
    """All rows of a group: one a queue and client."""

    def find() -> Sequence[Row]:
        return at.read_small(CONSUMER_OFFSETS, group=group).collect()  # a row a queue and client

    return at.once(f"offsets of {group}", (CONSUMER_OFFSETS,), find)


def _offsets_of(client_id: str, rows: Sequence[Row]) -> dict[Queue, Offset]:
    return {
        (row.topic, row.queue_id): Offset(row.next_offset, row.generation or 0)
        for row in rows
        if row.client_id == client_id
    }


def plan_commit(at: Snapshot, group: str, client_id: str, reached: Iterable[Reached], now_ms: int) -> Plan:
    """Record how far a run has come, where its queues have not been reset since; no write when nothing changes.

    The result: `stale`, the queues that have been reset.
    """
    rows = _read_rows(at, group)
    known = _offsets_of(client_id, rows)
    changed: dict[Queue, Offset] = {}
    stale = []
    for each in reached:
        before = known.get(each.queue)
        if before is not None and before.generation != each.generation:
            stale.append(each.queue)
            continue
        is_ahead = before is None or each.next_offset > before.next_offset
        if is_ahead or (before is not None and each.overwrites and each.next_offset != before.next_offset):
            changed[each.queue] = Offset(each.next_offset, each.generation)
    return Plan(_offset_writes(at, group, client_id, changed, rows, now_ms), {"stale": stale})


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
        writes += plan_in_flight(at, group, let_go).writes
    return Plan(tuple(writes), {"queues": len(changed)})


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
    return (_keyed_write(at, CONSUMER_OFFSETS, left + new, group, topics, is_first=not kept),)


def read_in_flight(at: Snapshot, group: str) -> dict[Queue, tuple[int, int, int]]:
    """Of the queues that wait at a message: its offset, how often it has been tried, when it is due again."""
    rows = at.read_small(IN_FLIGHT, group=group).collect()  # at most a row a queue
    return {(row.topic, row.queue_id): (row.queue_offset, row.tries, row.due_ms) for row in rows}


def plan_in_flight(at: Snapshot, group: str, changes: Mapping[Queue, tuple[int, int, int] | None]) -> Plan:
    """Record where queues wait, or that they do so no more; no write when nothing changes."""
    known = read_in_flight(at, group)
    changed = {queue: waits for queue, waits in changes.items() if known.get(queue) != waits}
    if not changed:
        return Plan()
    topics = sorted({topic for topic, _ in changed})
    waiting = {queue: waits for queue, waits in (known | changed).items() if waits is not None}
    rows = [
        (group, topic, queue_id, *waits)
        for (topic, queue_id), waits in sorted(waiting.items())
        if topic in topics
    ]
    return Plan((_keyed_write(at, IN_FLIGHT, rows, group, topics, is_first=not known),))


def _keyed_write(
    at: Snapshot,
    table: Table,
    rows: list[tuple[Any, ...]],
    group: str,
    topics: Sequence[str],
    is_first: bool,
) -> Write:
    """Rows of a group in the place of all it had for some topics; names have no quotes to mind.

    is_first  there were none: an append does, which takes a third of the time
    """
    written = at.store.spark.createDataFrame(rows, table.columns).coalesce(1)
    if is_first:
        return at.append(table, written, key=group)
    named = ", ".join(f"'{topic}'" for topic in topics)
    return at.replace(table, written, f"`group` = '{group}' AND topic IN ({named})", key=group)
