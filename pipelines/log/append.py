"""Append to the log: the head after an append, the columns an append sets in its rows, its writes.

Messages that are put, copies and imported rows all come to the log through here.
"""

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.rocketmq.times import FARTHEST_MS
from pipelines.spark_internals.catalyst import runtime_literal
from pipelines.store.head import APPENDS_BETWEEN_BOUNDS, LogHead, Queue, bounds_write
from pipelines.store.plan import Planned, Write
from pipelines.store.replicas import acks_within_log
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG

# Rows of one append from which on it writes queue_bounds too: the next head would have to read too many.
ROWS_BETWEEN_BOUNDS = 100_000


def head_after(
    head: LogHead, next_offset: int, store_timestamp: int, next_queue_offsets: Mapping[Queue, int]
) -> LogHead:
    """The head after one more append; a queue that did not exist before begins at 0."""
    return replace(
        head,
        append_seq=head.append_seq + 1,
        next_offset=next_offset,
        last_store_timestamp=store_timestamp,
        next_queue_offsets=dict(next_queue_offsets),
        min_queue_offsets={**dict.fromkeys(next_queue_offsets, 0), **head.min_queue_offsets},
    )


def append_writes(at: Snapshot, rows: DataFrame, planned: Planned, after: LogHead) -> tuple[Write, ...]:
    """The write that appends `rows`, and one of queue_bounds where the next head would have to read too much without it.

    Before them comes the write that takes back reports of slaves that do not count for these rows, where there are any.

    after  the head once they are written
    """
    append = at.append(COMMITLOG, rows, planned=planned)
    many_appends = after.append_seq - after.bounds_append_seq >= APPENDS_BETWEEN_BOUNDS
    many_rows = planned.rows is not None and planned.rows >= ROWS_BETWEEN_BOUNDS
    bounds = (bounds_write(at, after),) if many_appends or many_rows else ()
    return (*acks_within_log(at), append, *bounds)


def append_columns(append_seq: int, append_id: str) -> dict[str, Column]:
    """The columns that identify an append's rows: `append_seq` (long) and `append_id`."""
    return {"append_seq": runtime_literal(append_seq), "append_id": F.lit(append_id)}


def log_rows(
    placed: DataFrame, columns: Mapping[str, Column], after: LogHead, append_id: str, segment_bytes: int
) -> DataFrame:
    """Rows of the commit log, with its columns and types.

    placed   rows with `physical_offset` and the log's other columns, but for those in `columns` and those set here
    columns  replace columns of `placed`; where `due_ms` is null, `due_after_ms` counts from the append's store timestamp
    after    the head once they are written: its store timestamp is theirs
    """
    given = dict(columns)
    due_after_ms = given.pop("due_after_ms", None)
    if due_after_ms is not None:
        waits_from = runtime_literal(min(after.last_store_timestamp, FARTHEST_MS))
        given["due_ms"] = F.coalesce(given["due_ms"], waits_from + due_after_ms)
    physical_offset = given.get("physical_offset", F.col("physical_offset"))
    given |= {
        "segment": segment_of(physical_offset, segment_bytes),
        "store_timestamp": runtime_literal(after.last_store_timestamp),
        **append_columns(after.append_seq, append_id),
    }
    return placed.select(
        *[
            given.get(column.name, F.col(column.name)).cast(column.dataType).alias(column.name)
            for column in COMMITLOG.columns
        ]
    )


def segment_of(physical_offset: Column, segment_bytes: int) -> Column:
    """The segment a record lies in: the offset at which the segment's file starts."""
    return physical_offset - physical_offset % F.lit(segment_bytes)
