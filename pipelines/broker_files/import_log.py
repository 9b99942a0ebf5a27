"""Plans of an import: a broker's state first, then its log, append by append, each from where the store's log ends."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from pipelines.broker_files.broker_config import BrokerConfig, QueueOfGroup, floor_queue
from pipelines.broker_files.broker_log import BrokerLog
from pipelines.broker_files.columns import SCHEMA_WITH_DUE_TIMES, LogColumns
from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.due import DueTimes, Waits
from pipelines.broker_files.rows import Piece, piece_rows
from pipelines.broker_files.survey import are_short
from pipelines.errors import BadInput
from pipelines.log.append import append_columns, head_after
from pipelines.log.one_row import last_row
from pipelines.log.whole_import import can_import
from pipelines.rocketmq.settings import Settings
from pipelines.store.commit import Committed
from pipelines.store.floors import IMPORT_PREFIX, LOG_OF_FLOORS
from pipelines.store.head import LogHead, Queue, bounds_write, read_head
from pipelines.store.plan import Plan, Write
from pipelines.store.small_tables import write_if_changed
from pipelines.store.snapshot import Snapshot
from pipelines.store.topics import first_topics
from schemas import (
    COMMITLOG,
    CONSUMER_OFFSETS,
    FLOORS,
    QUEUE_BOUNDS,
    SUBSCRIPTION_GROUPS,
    SUBSCRIPTIONS,
    TOPICS,
    Table,
)

# Bytes of one append: at most this much is repeated after a job run was killed, some fifteen seconds on two cores.
APPEND_BYTES = 1024 * 1024 * 1024


@dataclass(frozen=True)
class BrokerStore:
    """All that is imported of a broker: its recovered log and its config, which is read first.

    A broker may go on meanwhile. Offsets of groups and floors in its config must not be ahead of the log's rows: a row
    that comes below them would never be delivered or consumed. Where recovery cuts the log they are set back to the cut.

    heads  the store's log head after each append that this job run has checked or made, by the number of that append and
           the version of queue_bounds. No number is used twice, but an expiry moves where the log and its queues begin by
           a commit of queue_bounds alone
    """

    log: BrokerLog
    config: BrokerConfig
    heads: dict[tuple[int, int], LogHead] = field(default_factory=dict)

    @cached_property
    def _queue_ends(self) -> dict[Queue, int]:
        return self.log.queue_ends()

    @property
    def floors(self) -> dict[str, int]:
        """Position by follower, none after its queue's end."""
        return {
            follower: self._within(floor_queue(follower), position)
            for follower, position in self.config.floors.items()
        }

    @property
    def consumer_offsets(self) -> dict[QueueOfGroup, int]:
        """Next offset by (group, topic, queue), none after its queue's end."""
        return {
            (group, topic, queue_id): self._within((topic, queue_id), offset)
            for (group, topic, queue_id), offset in self.config.consumer_offsets.items()
        }

    def _within(self, queue: Queue | None, offset: int) -> int:
        return offset if queue is None else min(offset, self._queue_ends.get(queue, offset))


def waits(settings: Settings) -> Waits:
    return Waits(settings.delay_levels_ms, settings["timerPrecisionMs"], settings["transactionTimeOut"])


def plan_broker_state(at: Snapshot, broker: BrokerStore) -> Plan:
    """A plan for a broker's topics, groups, subscriptions, floors and bounds: all that rows need first, besides offsets.

    What the store has and the broker has not stays. The plan is empty when nothing changes.
    """
    checked_head(at, broker)
    config = broker.config
    topics = config.topics
    if topics is None and at.number(TOPICS) < 0:
        topics = {one.topic: one for one in first_topics(at.store.settings)}
    floors = {**broker.floors, "dispatch": broker.log.queues_end, LOG_OF_FLOORS: broker.log.end.offset}
    writes = (
        *_merged(at, TOPICS, [asdict(one) for one in (topics or {}).values()]),
        *_merged(at, SUBSCRIPTION_GROUPS, [asdict(one) for one in (config.groups or {}).values()]),
        *_merged(
            at,
            SUBSCRIPTIONS,
            [dict(zip(SUBSCRIPTIONS.names, one, strict=True)) for one in config.subscriptions],
        ),
        *_merged(at, FLOORS, [{"follower": name, "position": position} for name, position in floors.items()]),
        *_first_bounds(at, broker.log),
    )
    return Plan(writes, side_by_side=len(writes))


def plan_import(at: Snapshot, broker: BrokerStore, append_bytes: int) -> Plan:
    """A plan for the next rows of the broker's log as one append, followed by the bounds as of it.

    The plan's result: `to_offset`, up to which the log is read; `segments`, the start offsets of those with rows; `head`,
    the log head after the plan is written; `bounds_version`, the version of queue_bounds that the plan was made from.
    """
    log, head = broker.log, checked_head(at, broker)
    following = log.next_rows(head.next_offset, append_bytes)
    if not following.pieces:
        return _plan_end(at, head, log)
    surveys = log.surveyed(following.from_offset, following.to_offset)
    clock = max([head.last_store_timestamp, *(survey.last_store_timestamp for survey in surveys)])
    known = _with_queues(head, (queue[:4] for survey in surveys for queue in survey.queues))
    after = head_after(known, following.to_offset, clock, known.next_queue_offsets)
    after = replace(after, bounds_append_seq=after.append_seq)
    if following.to_offset == log.end.offset:
        after = _with_queues(after, _broker_queues(log))
    append_id = f"{IMPORT_PREFIX}{following.from_offset}-{following.to_offset}"
    rows = read_rows(at.store.spark, log.directory, following.pieces, waits(at.store.settings)).withColumns(
        append_columns(after.append_seq, append_id)
    )
    result: dict[str, Any] = {"to_offset": following.to_offset, "segments": following.segments, "head": after}
    result["bounds_version"] = at.version(QUEUE_BOUNDS)
    return Plan((at.append(COMMITLOG, rows, planned=following.planned), bounds_write(at, after)), result)


def read_rows(
    spark: SparkSession, directory: BrokerDirectory, pieces: Sequence[Piece], waits: Waits
) -> DataFrame:
    """One row per record, with the columns of `commitlog` that the record decides; a task for each split of a long log.

    Columns that are the same for a whole append are null.
    """
    records = _records(spark, directory, pieces, waits)
    absent = {
        field.name: F.lit(None).cast(field.dataType)
        for field in COMMITLOG.columns
        if field.name not in records.columns
    }
    return records.withColumns(absent).select(*COMMITLOG.names)


def _records(
    spark: SparkSession, directory: BrokerDirectory, pieces: Sequence[Piece], waits: Waits
) -> DataFrame:
    schema = from_arrow_schema(SCHEMA_WITH_DUE_TIMES)

    def rows(numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        columns = LogColumns(DueTimes(directory, waits))
        for number in numbers:
            yield from piece_rows(directory, pieces[number], columns)

    if are_short(pieces):
        table: Any = pa.Table.from_batches([*rows(range(len(pieces)))], SCHEMA_WITH_DUE_TIMES)
        return spark.createDataFrame(table, schema)

    def rows_of_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from rows(batch.column(0).to_pylist())

    # A data source written in Python would ask Python processes on the driver for its schema and its splits first: 0.4 s of
    # each append, and seconds of the first.
    return spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(rows_of_task, schema)


def _plan_end(at: Snapshot, head: LogHead, log: BrokerLog) -> Plan:
    """A plan for when no rows are left: the log's end may still be after the last row, by a blank or an interrupted run."""
    at_end = replace(
        _with_queues(head, _broker_queues(log)), next_offset=max(head.next_offset, log.end.offset)
    )
    is_known = at_end == head and head.bounds_append_seq == head.append_seq
    writes = () if is_known or not log.segments else (bounds_write(at, at_end),)
    after = replace(at_end, bounds_append_seq=head.append_seq) if writes else head
    result: dict[str, Any] = {"to_offset": log.end.offset, "segments": set(), "head": after}
    return Plan(writes, {**result, "bounds_version": at.version(QUEUE_BOUNDS)})


def _broker_queues(log: BrokerLog) -> list[tuple[str, int, int, int]]:
    return [(queue.topic, queue.queue_id, queue.min_offset, queue.next_offset) for queue in log.queues]


def _with_queues(head: LogHead, queues: Iterable[tuple[str, int, int, int]]) -> LogHead:
    """A head that also covers these queues: (topic, queue_id, first offset, next offset); a known first offset stays."""
    least, following = dict(head.min_queue_offsets), dict(head.next_queue_offsets)
    for topic, queue_id, first, next_offset in queues:
        name = (topic, queue_id)
        least.setdefault(name, first)
        following[name] = max(next_offset, following.get(name, 0))
    return replace(head, min_queue_offsets=least, next_queue_offsets=following)


def checked_head(at: Snapshot, broker: BrokerStore) -> LogHead:
    """The store's log head, where the broker's log continues the store's. Raises BadInput as check_goes_on does."""
    # Pinned before the log: it may be older than the log, never newer.
    bounds_version = at.version(QUEUE_BOUNDS)
    as_of = at.number(COMMITLOG), bounds_version
    if as_of not in broker.heads:
        head = read_head(at) if at.number(COMMITLOG) >= 0 else first_head(broker.log)
        check_goes_on(at, head, broker.log)
        broker.heads[as_of] = head
    return broker.heads[as_of]


def first_head(log: BrokerLog) -> LogHead:
    """The head before any row: the log's start, where queues with rows begin, and where empty queues end."""
    return LogHead(
        append_seq=-1,
        min_offset=log.start_offset,
        next_offset=log.start_offset,
        last_store_timestamp=0,
        # A queue with rows to come starts at the first of them; its next offset grows as they are appended.
        next_queue_offsets={
            (queue.topic, queue.queue_id): queue.next_offset if queue.is_empty else queue.min_offset
            for queue in log.queues
        },
        min_queue_offsets={(queue.topic, queue.queue_id): queue.min_offset for queue in log.queues},
    )


def import_next(
    commit: Callable[[Callable[[Snapshot], Plan]], Committed],
    broker: BrokerStore,
    append_bytes: int = APPEND_BYTES,
) -> Committed:
    """The next append, committed. Its head is kept in `broker.heads`, so that the next plan need not read it."""
    appended = commit(lambda at: plan_import(at, broker, append_bytes))
    if QUEUE_BOUNDS.name in appended.counts:  # else another writer's came first, and the head is read
        head: LogHead = appended.result["head"]
        broker.heads[head.append_seq, appended.result["bounds_version"] + 1] = head
    return appended


def check_goes_on(at: Snapshot, head: LogHead, log: BrokerLog) -> None:
    """Raises BadInput where the store's log does not end with this broker's rows: it is another's, or was written to."""
    settings = at.store.settings
    if log.segments and settings.segment_bytes != log.segment_bytes:
        raise BadInput(
            f"the store's segments have {settings.segment_bytes} bytes (mappedFileSizeCommitLog), the broker's files "
            f"{log.segment_bytes}; import into a store of its own"
        )
    if at.number(COMMITLOG) < 0:
        return
    if not can_import(at, head.next_offset):
        raise BadInput(
            f"the store was written to after its last import (append {head.append_seq}); an import goes on only while "
            "the last append is an import's. Import into a new store"
        )
    here = f"the store's log ends at {head.next_offset}"
    if head.next_offset > log.end.offset and log.end.left_out is not None:
        raise BadInput(
            f"{here}, the broker's at {log.end.offset}: {log.end.left_out}. Import again when it has"
        )
    if head.next_offset > log.end.offset:
        raise BadInput(
            f"{here}, the broker's at {log.end.offset}: it was recovered to less than was imported, or it is another "
            "broker's. Import into a new store"
        )
    if head.next_offset < log.start_offset:
        raise BadInput(
            f"{here}, the broker's files start at {log.start_offset}: those between have expired. "
            "Import into a new store"
        )
    last = last_row(at, head.next_offset)
    if last is None or last.physical_offset < log.start_offset:
        return
    found = log.record_at(last.physical_offset)
    if found != (last.size_bytes, last.body_crc, last.queue_id, last.queue_offset, last.store_timestamp):
        raise BadInput(
            f"the store's last row, at {last.physical_offset}, is not what the broker has there: it is another broker's "
            "log. Import into a new store"
        )


def _merged(at: Snapshot, table: Table, rows: Iterable[Mapping[str, Any]]) -> tuple[Write, ...]:
    """Writes that make these rows replace those with the same key; none when the table has them already."""

    def by_key(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, ...], Mapping[str, Any]]:
        return {tuple(row[name] for name in table.key): row for row in rows}

    known = by_key(row.asDict() for row in at.rows(table))
    return write_if_changed(at, table, known, {**known, **by_key(rows)})


def groups_further_on(at: Snapshot, offsets: Mapping[QueueOfGroup, int]) -> dict[str, dict[Queue, int]]:
    """Group -> queue offsets from the broker, where they are after the store's or the store has none."""
    known = {}
    if offsets and not at.is_empty(CONSUMER_OFFSETS):
        # Collects one row a group and queue, as many as the broker's own file has.
        rows = at.read(CONSUMER_OFFSETS).where(F.col("client_id") == "").collect()
        known = {(row.group, row.topic, row.queue_id): row for row in rows}
    found: dict[str, dict[Queue, int]] = {}
    for (group, topic, queue_id), offset in sorted(offsets.items()):
        row = known.get((group, topic, queue_id))
        if row is None or (row.generation == 0 and row.next_offset < offset):
            found.setdefault(group, {})[topic, queue_id] = offset
    return found


def _first_bounds(at: Snapshot, log: BrokerLog) -> tuple[Write, ...]:
    """The write of queue_bounds before the first row; appends write later ones."""
    is_first = at.number(COMMITLOG) < 0 and log.segments and at.number(QUEUE_BOUNDS) < 0
    return (bounds_write(at, first_head(log)),) if is_first else ()
