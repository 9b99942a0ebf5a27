"""Importing: a broker's state first, then its log, append by append, each going on where the log ends."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from pyspark.sql import functions as F

from pipelines.broker_files.broker_config import BrokerConfig
from pipelines.broker_files.broker_log import BrokerLog
from pipelines.broker_files.due import Waits
from pipelines.broker_files.rows import read_rows
from pipelines.store.errors import BadInput
from pipelines.store.head import LogHead, bounds_write, read_head
from pipelines.store.plan import Plan, Write
from pipelines.store.settings import Settings
from pipelines.store.snapshot import Snapshot
from pipelines.store.topics import first_topics
from schemas import COMMITLOG, CONSUMER_OFFSETS, FLOORS, SUBSCRIPTION_GROUPS, SUBSCRIPTIONS, TOPICS, Table

APPEND_ID_PREFIX = "import:"
# One append: what a run that is killed does again at most, some fifteen seconds on two cores.
APPEND_BYTES = 1024 * 1024 * 1024


@dataclass(frozen=True)
class BrokerStore:
    """All that is imported of a broker: its recovered log and its config."""

    log: BrokerLog
    config: BrokerConfig


def waits(settings: Settings) -> Waits:
    return Waits(settings.delay_levels_ms, settings["timerPrecisionMs"], settings["transactionTimeOut"])


def plan_broker_state(at: Snapshot, broker: BrokerStore, now_ms: int) -> Plan:
    """Topics, groups, offsets, subscriptions, floors and bounds of a broker: what must be there before rows.

    What is known here and not to the broker stays; a group's offset is never set back. Nothing changed: an empty plan.
    """
    head = read_head(at)
    check_goes_on(at, head, broker.log)
    config = broker.config
    topics = config.topics
    if topics is None and at.number(TOPICS) < 0:
        topics = {one.topic: one for one in first_topics(at.store.settings)}
    floors = {**config.floors, "dispatch": broker.log.queues_end}
    writes = [
        _merged(at, TOPICS, [asdict(one) for one in (topics or {}).values()]),
        _merged(at, SUBSCRIPTION_GROUPS, [asdict(one) for one in (config.groups or {}).values()]),
        _merged(
            at, SUBSCRIPTIONS, [dict(zip(SUBSCRIPTIONS.names, one, strict=True)) for one in config.subscriptions]
        ),
        _consumer_offsets(at, config, now_ms),
        _merged(at, FLOORS, [{"follower": name, "position": position} for name, position in floors.items()]),
        _first_bounds(at, head, broker.log),
    ]
    return Plan(tuple(write for write in writes if write is not None))


def plan_import(at: Snapshot, broker: BrokerStore, append_bytes: int = APPEND_BYTES) -> Plan:
    """The next rows of the broker's log, as one append. result: `to_offset`, how far the log is read, and `segments`."""
    head = read_head(at)
    check_goes_on(at, head, broker.log)
    log = broker.log
    from_offset = head.next_offset if head.append_seq >= 0 else log.start_offset
    following = log.next_rows(from_offset, append_bytes)
    while not following.pieces and following.to_offset < log.end.offset and following.to_offset > from_offset:
        from_offset = following.to_offset
        following = log.next_rows(from_offset, append_bytes)
    if not following.pieces:
        return Plan((), {"to_offset": log.end.offset, "segments": set()})
    rows = read_rows(at.store.spark, log.directory, following.pieces, waits(at.store.settings)).withColumns(
        {
            "append_seq": F.lit(at.number(COMMITLOG) + 1).cast("long"),
            "append_id": F.lit(f"{APPEND_ID_PREFIX}{following.from_offset}-{following.to_offset}"),
        }
    )
    result: dict[str, Any] = {"to_offset": following.to_offset, "segments": following.segments}
    return Plan((at.append(COMMITLOG, rows),), result)


def plan_bounds(at: Snapshot, broker: BrokerStore) -> Plan:
    """Bounds as of the last append: its rows', the broker's queues', and the end of the log where a blank is last."""
    head, log = read_head(at), broker.log
    check_goes_on(at, head, log)
    least, following = dict(head.min_queue_offsets), dict(head.next_queue_offsets)
    for queue in log.queues:
        name = (queue.topic, queue.queue_id)
        least.setdefault(name, queue.min_offset)
        following[name] = max(queue.next_offset, following.get(name, 0))
    at_end = max(head.next_offset, log.end.offset)
    wanted = replace(head, next_offset=at_end, min_queue_offsets=least, next_queue_offsets=following)
    if wanted == head and head.bounds_append_seq == head.append_seq:
        return Plan()
    return Plan((bounds_write(at, wanted),))


def check_goes_on(at: Snapshot, head: LogHead, log: BrokerLog) -> None:
    """A log is gone on with only where this broker's rows end. Raises BadInput where it is another's, or was written to."""
    settings = at.store.settings
    if log.segments and settings.segment_bytes != log.segment_bytes:
        raise BadInput(
            f"the store's segments have {settings.segment_bytes} bytes (mappedFileSizeCommitLog), the broker's files "
            f"{log.segment_bytes}; import into a store of its own"
        )
    if head.append_seq < 0:
        return
    last = (
        at.read(COMMITLOG)
        .where(F.col("append_seq") == head.append_seq)
        .orderBy(F.col("physical_offset").desc())
        .select(
            "physical_offset", "size_bytes", "body_crc", "queue_id", "queue_offset", "store_timestamp", "append_id"
        )
        .first()
    )
    if last is None or not last.append_id.startswith(APPEND_ID_PREFIX):
        raise BadInput(
            f"the store was written to after its last import (append {head.append_seq}); an import goes on only while the last "
            "append is an import's. Import into a new store"
        )
    here = f"the store's log ends at {head.next_offset}"
    if head.next_offset > log.end.offset:
        raise BadInput(
            f"{here}, the broker's at {log.end.offset}: it was recovered to less than was imported, or it is another broker's. "
            "Import into a new store"
        )
    if head.next_offset < log.start_offset:
        raise BadInput(
            f"{here}, the broker's files start at {log.start_offset}: those between have expired. Import into a new store"
        )
    found = log.record_at(last.physical_offset)
    if last.physical_offset >= log.start_offset and found != tuple(last)[1:6]:
        raise BadInput(
            f"the store's last row, at {last.physical_offset}, is not what the broker has there: it is another broker's log. "
            "Import into a new store"
        )


def _merged(at: Snapshot, table: Table, rows: list[dict[str, Any]]) -> Write | None:
    """The table with these rows in the place of those with the same key; None when it holds them already.

    For tables of a few thousand rows at most: config of a broker.
    """
    old = [row.asDict() for row in at.read(table).select(*table.names).collect()]
    by_key = {tuple(row[name] for name in table.key): row for row in old}
    merged = {**by_key, **{tuple(row[name] for name in table.key): row for row in rows}}
    if merged == by_key:
        return None
    ordered = [merged[key] for key in sorted(merged)]
    return at.replace(table, at.store.spark.createDataFrame(ordered, table.columns).coalesce(1))


def _consumer_offsets(at: Snapshot, config: BrokerConfig, now_ms: int) -> Write | None:
    """Offsets of groups that are new or further on in the broker; those that were reset here are this store's own."""
    old = {
        (row.group, row.topic, row.queue_id): row
        for row in at.read(CONSUMER_OFFSETS).where(F.col("client_id") == "").collect()
    }
    changed = {
        queue: offset
        for queue, offset in config.consumer_offsets.items()
        if queue not in old or (old[queue].generation == 0 and old[queue].next_offset < offset)
    }
    if not changed:
        return None
    spark = at.store.spark
    groups = sorted({group for group, _, _ in changed})
    rows = spark.createDataFrame(
        [(*queue, "", offset, 0, now_ms) for queue, offset in sorted(changed.items())], CONSUMER_OFFSETS.columns
    ).coalesce(1)
    if not old:
        return at.append(CONSUMER_OFFSETS, rows)
    kept = (
        at.read(CONSUMER_OFFSETS)
        .where(F.col("group").isin(groups))
        .join(rows.select(*CONSUMER_OFFSETS.key), list(CONSUMER_OFFSETS.key), "left_anti")
        .select(*CONSUMER_OFFSETS.names)
    )
    names = ", ".join("'" + group.replace("\\", "\\\\").replace("'", "\\'") + "'" for group in groups)
    return at.replace(CONSUMER_OFFSETS, kept.unionByName(rows).coalesce(1), where=f"`group` IN ({names})")


def _first_bounds(at: Snapshot, head: LogHead, log: BrokerLog) -> Write | None:
    """Bounds before any row: the log's start, queues without rows, and where the others begin."""
    new = {
        (queue.topic, queue.queue_id): queue
        for queue in log.queues
        if (queue.topic, queue.queue_id) not in head.next_queue_offsets
    }
    is_first = head.append_seq < 0 and head.min_offset == 0 and log.start_offset > 0
    if not new and not is_first:
        return None
    start = log.start_offset if head.append_seq < 0 else head.min_offset
    wanted = replace(
        head,
        min_offset=start,
        next_offset=max(head.next_offset, start),
        min_queue_offsets={**head.min_queue_offsets, **{name: queue.min_offset for name, queue in new.items()}},
        next_queue_offsets={
            **head.next_queue_offsets,
            # A queue with rows to come starts where they do; it grows as they arrive.
            **{name: queue.next_offset if queue.is_empty else queue.min_offset for name, queue in new.items()},
        },
    )
    return bounds_write(at, wanted)
