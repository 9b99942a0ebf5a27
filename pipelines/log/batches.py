"""Units of an input with batches: a single message, or a batch, which lies in one queue and one segment.

docs/rocketmq/store.md 1.14, consume-filter-ha.md 1.3.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa

from pipelines.rocketmq.names import RETRY_PREFIX
from pipelines.rocketmq.record import WIRE_FIXED_BYTES


class Unit(NamedTuple):
    """Rows [first_row, first_row + rows) of a split that are put as one.

    queue_id    None: round robin chooses it
    size_bytes  of its records; REAL_QID of a parked message is counted with one digit
    parked      (topic, queue) of the store's own where it is parked; None for one that goes to its topic
    """

    first_row: int
    rows: int
    topic: str
    queue_id: int | None
    size_bytes: int
    parked: tuple[str, int] | None = None


BadRange = tuple[int, int, str]


def units_of(
    rows: pa.Table,
    queues: Callable[[str], int],
    max_message_bytes: int,
    split_batches: bool,
    max_unit_bytes: int,
) -> tuple[list[Unit], list[BadRange]]:
    """Units in order, and the rows of batches that cannot be put: (first row, end row, reason).

    rows  slim columns of a whole file in order: `topic`, `size_bytes`, `batch`, `wire_bytes` (body and properties), and
          where the input has them: `queue_id`, `shard`, `reason`, `parked_topic` and `parked_queue`
    """
    count = rows.num_rows
    batch = rows.column("batch").to_pylist()
    topic = rows.column("topic").to_pylist()
    size = rows.column("size_bytes").to_pylist()
    wire = rows.column("wire_bytes").to_pylist()
    reason = rows.column("reason").to_pylist() if "reason" in rows.column_names else [None] * count
    parked = _parked(rows)
    queue = [_queue(rows, row, topic[row], queues) for row in range(count)]

    units: list[Unit] = []
    bad: list[BadRange] = []
    row = 0
    while row < count:
        end = row + 1
        while batch[row] is not None and end < count and batch[end] == batch[row]:
            end += 1
        if batch[row] is None:
            if reason[row] is None:
                units.append(Unit(row, 1, topic[row], queue[row], size[row], parked[row]))
        else:
            complaint = _complaint(topic[row:end], queue[row:end], reason[row:end], batch[row])
            cuts = [row, end] if complaint else _cuts(wire, size, row, end, max_message_bytes, max_unit_bytes)
            if complaint is None and len(cuts) > 2 and not split_batches:
                total = sum(WIRE_FIXED_BYTES + wire[each] for each in range(row, end))
                most = f"{total} bytes; at most {max_message_bytes} (maxMessageSize)"
                if total <= max_message_bytes:
                    stored = sum(size[row:end])
                    most = f"{stored} bytes in the log; at most {max_unit_bytes} (mappedFileSizeCommitLog less 8)"
                complaint = f"batch {batch[row]!r} is {most}: make it smaller or pass --split-batches"
            if complaint is not None:
                # Rows that are bad themselves are counted with their own reason.
                bad.extend((each, each + 1, complaint) for each in range(row, end) if reason[each] is None)
            else:
                for first, last in pairwise(cuts):
                    units.append(Unit(first, last - first, topic[row], queue[row], sum(size[first:last])))
        row = end
    return units, bad


def _queue(rows: pa.Table, row: int, topic: str | None, queues: Callable[[str], int]) -> int | None:
    if "queue_id" in rows.column_names and (given := rows.column("queue_id")[row].as_py()) is not None:
        return int(given)
    if (
        topic is not None
        and "shard" in rows.column_names
        and (shard := rows.column("shard")[row].as_py()) is not None
    ):
        return abs(shard) % queues(topic)  # |remainder| is the remainder of the absolute value
    return None


def _parked(rows: pa.Table) -> list[tuple[str, int] | None]:
    if "parked_topic" not in rows.column_names:
        return [None] * rows.num_rows
    topics, queues = rows.column("parked_topic").to_pylist(), rows.column("parked_queue").to_pylist()
    return [None if topic is None else (topic, queue) for topic, queue in zip(topics, queues, strict=True)]


def _complaint(topics: list, queues: list, reasons: list, name: str) -> str | None:
    if any(reason is not None for reason in reasons):
        return f"another message of its batch {name!r} is bad"
    if len(set(topics)) > 1:
        return f"batch {name!r} has messages of {len(set(topics))} topics ({', '.join(sorted(set(topics)))}); one is allowed"
    if len(set(queues)) > 1:
        return f"batch {name!r} has messages for different queues; one is allowed"
    if topics[0].startswith(RETRY_PREFIX):
        return f"batch {name!r} is for the retry topic {topics[0]}; a batch cannot be"
    return None


def _cuts(
    wire: list[int], size: list[int], row: int, end: int, max_message_bytes: int, max_unit_bytes: int
) -> list[int]:
    """Where a batch is cut so that each part is at most `max_message_bytes` on the wire and `max_unit_bytes` in the log."""
    cuts, total, stored = [row], 0, 0
    for each in range(row, end):
        bytes_on_wire = WIRE_FIXED_BYTES + wire[each]
        is_too_large = total + bytes_on_wire > max_message_bytes or stored + size[each] > max_unit_bytes
        if each > cuts[-1] and is_too_large:
            cuts.append(each)
            total, stored = 0, 0
        total += bytes_on_wire
        stored += size[each]
    return [*cuts, end]
