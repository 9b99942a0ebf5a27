"""Which segments may leave the log, and when (docs/rocketmq/store.md 7.6)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import reduce
from zoneinfo import ZoneInfo

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from pipelines.log.claims import claims_taken
from pipelines.rocketmq.settings import Settings
from pipelines.rocketmq.times import LAST_MS
from pipelines.store.progress import covered, followed_rows
from pipelines.store.replicas import read_slaves
from pipelines.store.role import is_slave
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG, CONSUME_QUEUE, DERIVED

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Segment:
    """One segment of the log, by its rows.

    start        where it starts, bytes
    stored_ms    store timestamp of its last row, epoch milliseconds: what a file's modification time is to a broker
    last_append  the last append that has rows in it
    """

    start: int
    stored_ms: int
    last_append: int


@dataclass(frozen=True)
class Expiring:
    """The segments that may leave the log, oldest first, and where the log begins once they have left.

    kept_by  why the first segment that is old enough stays all the same; None where no such segment stays
    """

    segments: tuple[Segment, ...]
    log_start: int
    kept_by: str | None = None


def is_delete_hour(settings: Settings, now_ms: int) -> bool:
    """Whether segments expire at this time: its hour, in the store's time zone, is one of deleteWhen.

    >>> is_delete_hour(Settings.of({"deleteWhen": "04;16", "timeZone": "+02:00"}), 2 * 3_600_000 + 59)
    True
    >>> is_delete_hour(Settings.of({}), 2 * 3_600_000)
    False
    """
    hour = datetime.fromtimestamp(now_ms / 1_000, _zone(settings["timeZone"])).hour
    return hour in {int(each) for each in settings["deleteWhen"].split(";")}


def _zone(name: str) -> tzinfo:
    offset = re.fullmatch(r"([+-])(\d\d):(\d\d)", name)
    if offset is None:
        return UTC if name == "UTC" else ZoneInfo(name)
    east = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
    return timezone(east if offset[1] == "+" else -east)


def expiring(at: Snapshot, now_ms: int, retention_hours: int) -> Expiring:
    """The segments whose last row was stored `retention_hours` ago or earlier, up to the first that must stay.

    The last segment stays whatever its age: the next message may go there. So does one that a derived table, or a replica,
    has not read to its end, and one with a message that its topic keeps for longer (topicReservedTime).
    """
    *older, last = segments_of(at) or [Segment(0, 0, 0)]
    followed = min(covered(at, table) for table in DERIVED)
    acked = _acked(at)
    old = [each for each in older if each.stored_ms <= now_ms - retention_hours * HOUR_MS]
    needed = _first_kept_for_a_topic(at, now_ms, old) if old else None
    unknown = _first_unknown_to_a_copy(at, acked, old) if old and acked is not None else None
    chosen: list[Segment] = []
    for segment, following in zip(older, [*older, last][1:], strict=True):
        if segment.stored_ms > now_ms - retention_hours * HOUR_MS:
            break
        kept_by = None
        if segment.last_append > followed:
            kept_by = "dispatch has not followed it to its end: run `commitlake dispatch`"
        elif acked is not None and following.start > acked and not is_slave(at):
            kept_by = (
                f"a slave has the log only up to byte {acked} (table replicas); if it is gone for good, --forget-replica ID "
                "says so"
            )
        elif unknown is not None and unknown.source_offset < following.start:
            kept_by = (
                f"a slave does not have the record at byte {unknown.physical_offset} yet, which says what has become of the "
                f"message at byte {unknown.source_offset} (table replicas): run `commitlake replicate` for it; if it is "
                "gone for good, `maintain --forget-replica ID` of the master says so"
            )
        elif needed is not None and segment.start == needed[0]:
            hours = at.store.settings.topic_hours[needed[1]]
            kept_by = f"topic {needed[1]} keeps its messages for {hours} hours (topicReservedTime)"
        if kept_by is not None:
            return Expiring(tuple(chosen), segment.start, f"segment {segment.start} stays: {kept_by}")
        chosen.append(segment)
    stays = [*older, last][len(chosen)]
    return Expiring(tuple(chosen), stays.start)


def _first_kept_for_a_topic(at: Snapshot, now_ms: int, segments: Sequence[Segment]) -> tuple[int, str] | None:
    """The first of some segments with a message that its topic keeps for longer, and that topic; None where there is none.

    It is looked up in the consume queue, which is sorted by topic; a segment that this has not followed stays anyway.
    """
    topics = at.store.settings.topic_hours
    if not topics:
        return None
    is_kept = [
        (F.col("topic") == topic) & (F.col("store_timestamp") > now_ms - hours * HOUR_MS)
        for topic, hours in topics.items()
    ]
    entries = followed_rows(at, CONSUME_QUEUE).where(
        F.col("topic").isin(*topics)
        & F.col("segment").between(segments[0].start, segments[-1].start)
        & reduce(Column.__or__, is_kept)
    )
    found = entries.agg(F.min(F.struct("segment", "topic")).alias("first")).collect()[0]["first"]
    return None if found is None else (found["segment"], found["topic"])


def _first_unknown_to_a_copy(at: Snapshot, acked: int, segments: Sequence[Segment]) -> Row | None:
    """The first message of some segments that a row has settled or sent again which a copy of the log does not have.

    That copy may be promoted: then that row is cut off here, and the message is owed again, from this log too. Returns
    `source_offset` and the row's `physical_offset`; None where all copies have all such rows.

    acked  up to where all copies have the log, bytes
    """
    end = segments[-1].start + at.store.settings.segment_bytes
    source, claiming = F.col("source_offset"), F.col("physical_offset")
    unknown = claims_taken(at).where((source >= segments[0].start) & (source < end) & (claiming >= acked))
    first = unknown.agg(F.min(F.struct(source, claiming)).alias("first")).first()
    return None if first is None else first["first"]


def _acked(at: Snapshot) -> int | None:
    """Up to where all copies have the log that have ever reported, bytes; None without any.

    A slave that has joined and never reported keeps no segment: its first run may have failed for good.
    """
    reported = (each.acked_offset for each in read_slaves(at).values() if each.acked_offset or each.in_sync)
    return min(reported, default=None)


def segments_of(at: Snapshot) -> list[Segment]:
    """The log's segments that have rows, oldest first, by the statistics of their files; a few bytes each."""
    found = _by_statistics(at).collect()
    if any(row.is_unknown for row in found):
        found = _by_rows(at).collect()
    return sorted(_segments(found), key=lambda segment: segment.start)


def _segments(found: list) -> Iterator[Segment]:
    for row in found:
        yield Segment(row.segment, row.stored_ms, row.last_append)


def _by_statistics(at: Snapshot) -> DataFrame:
    values = "numRecords long, maxValues struct<store_timestamp: long, append_seq: long>"
    stats = F.from_json("stats", values)
    files = at.files(COMMITLOG).select(
        F.col("partitionValues")["segment"].cast("long").alias("segment"),
        stats["numRecords"].alias("records"),
        stats["maxValues"]["store_timestamp"].alias("stored_ms"),
        stats["maxValues"]["append_seq"].alias("last_append"),
    )
    is_known = F.col("stored_ms").between(0, LAST_MS) & F.col("last_append").isNotNull()
    return (
        files.where(F.coalesce(F.col("records") > 0, F.lit(True)))
        .groupBy("segment")
        .agg(
            F.max("stored_ms").alias("stored_ms"),
            F.max("last_append").alias("last_append"),
            F.bool_or(~F.coalesce(is_known, F.lit(False))).alias("is_unknown"),
        )
    )


def _by_rows(at: Snapshot) -> DataFrame:
    """The same from the rows: files may lack statistics, and an imported record may hold any number as its time."""
    stored = F.col("store_timestamp")
    return (
        at.read(COMMITLOG)
        .groupBy("segment")
        .agg(
            F.coalesce(F.max(F.when(stored.between(0, LAST_MS), stored)), F.lit(0)).alias("stored_ms"),
            F.max("append_seq").alias("last_append"),
        )
    )
