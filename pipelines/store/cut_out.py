"""Cutting damaged data files out of the log: what they held is lost, and the rest is read as before.

Nothing goes back: the log's end and its queues' ends are first recorded as they are, with what is known of the lost rows
from `queue_bounds`, `consume_queue`, the plans stored with the appends and the files' statistics. Then the holes are
recorded with their reason, and only then the files are taken out, in a commit with the next number. An interrupted cut is
made again and finds the ends recorded.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipelines.errors import HeadMoved
from pipelines.rocketmq.queue_slots import has_queue_slot, next_in_queue
from pipelines.spark_internals.arrow import frame_of
from pipelines.spark_internals.delta_files import DataFile, rows_of_files, take_out
from pipelines.store.commit import commit
from pipelines.store.cut import plan_set_aside, while_open
from pipelines.store.damaged import DamagedTable
from pipelines.store.head import LogHead, Queue, bounds_of, bounds_write
from pipelines.store.holes import in_ranges, joined
from pipelines.store.plan import Plan
from pipelines.store.planned import Damage, damage_of, expect_no_rows_lost, plan_of
from pipelines.store.progress import covered, followed_by, followed_rows, plan_void
from pipelines.store.snapshot import Snapshot, app_id
from pipelines.store.store import Store
from schemas import COMMITLOG, CONSUME_QUEUE, DERIVED, HOLES, QUEUE_BOUNDS, TOPICS
from schemas.queue_bounds import LOG_BOUNDS_QUEUE, LOG_CLOCK_QUEUE, LOG_TOPIC

# The log is written to by others meanwhile: after 10 lost races a person should check what writes.
ATTEMPTS = 10

# Delta's statistics of a string have its first 32 characters. What is longer may be no topic.
STATISTICS_CHARS = 32
# Queues between the least and the greatest that a file has: at most this many are tried, besides known ones.
QUEUES_TRIED = 1_024


@dataclass(frozen=True)
class LostFiles:
    """Damaged data files of the log as of a snapshot, and what is left without them.

    queues_are_whole  whether the table consume_queue can be read: it knows what the lost rows were
    bounds_are_whole  whether the table queue_bounds can be read
    """

    at: Snapshot
    files: Sequence[DataFile]
    queues_are_whole: bool
    bounds_are_whole: bool = True

    @property
    def reason(self) -> str:
        """Why their rows are lost, in words."""
        first = self.files[0]
        found = "was missing" if first.found is None else f"had {first.found} bytes of {first.size}"
        more = f", and {len(self.files) - 1} more files" if len(self.files) > 1 else ""
        return f"the file {first.name} of commitlog {found}{more}"

    @property
    def rows(self) -> int | None:
        """How many rows they held; None where a file has no statistics."""
        counts = [file.rows for file in self.files]
        return None if None in counts else sum(count or 0 for count in counts)

    @cached_property
    def left(self) -> DataFrame:
        """The rows of the log's other files."""
        lost = {file.name for file in self.files}
        path = self.at.store.path(COMMITLOG)
        kept = [file.name for file in self.at.all_files(COMMITLOG) if file.name not in lost]
        return rows_of_files(self.at.store.spark, path, kept, self.at.read(COMMITLOG))

    @cached_property
    def head(self) -> LogHead:
        """Where log and queues go on: never before what is known of any row, also of a lost one."""
        rows = self.at.rows(QUEUE_BOUNDS) if self.bounds_are_whole else ()  # a row a queue
        known = {(row.topic, row.queue_id): (row.min_offset, row.next_offset) for row in rows}
        as_of = max((row.append_seq for row in rows), default=-1)
        told = _bounds(bounds_of(self.left))
        entries = self._entries(as_of)
        log, clock = (LOG_TOPIC, LOG_BOUNDS_QUEUE), (LOG_TOPIC, LOG_CLOCK_QUEUE)
        bounds: dict[Queue, tuple[int, int]] = {}
        for each in (known, told, entries):
            for queue, (least, following) in each.items():
                before = bounds.get(queue, (least, following))
                bounds[queue] = min(before[0], least), max(before[1], following)
        followed = followed_by(self.at, CONSUME_QUEUE).append_seq if self.queues_are_whole else -1
        for file in self.files:
            if (file.greatest("append_seq") or 0) > max(as_of, followed):
                self._add_unknown(bounds, file)
        if as_of < 0:  # nothing but the rows says where the log begins
            least = min(self._extent(file)[0] for file in self.files)
            first, end = bounds.get(log, (least, 0))
            bounds[log] = min(first, least), end
        first, end = bounds.pop(log, (0, 0))
        times = [file.greatest("store_timestamp") or 0 for file in self.files]
        bounds.setdefault(clock, (0, 0))
        _, last_ms = bounds.pop(clock)
        return LogHead(
            append_seq=self.at.number(COMMITLOG),
            min_offset=first,
            next_offset=max(end, self._log_end(as_of)),
            last_store_timestamp=max(last_ms, *times),
            next_queue_offsets={queue: following for queue, (_, following) in bounds.items()},
            min_queue_offsets={queue: least for queue, (least, _) in bounds.items()},
            bounds_append_seq=self.at.number(COMMITLOG),
        )

    def _entries(self, as_of: int) -> Mapping[Queue, tuple[int, int]]:
        """What consume_queue knows of appends that queue_bounds does not."""
        if not self.queues_are_whole:
            return {}
        entries = followed_rows(self.at, CONSUME_QUEUE).where(F.col("append_seq") > as_of)
        return _bounds(
            entries.groupBy("topic", "queue_id").agg(
                F.min("queue_offset").alias("min_offset"),
                (F.max("queue_offset") + 1).alias("next_offset"),
            )
        )

    def _add_unknown(self, bounds: dict[Queue, tuple[int, int]], file: DataFile) -> None:
        """Raise the end of each queue that rows of a file may lie in, where nothing else knows of these rows.

        No queue can have more of them than the file has rows, nor go further than the greatest offset among them.
        """
        least, greatest = file.least("topic"), file.greatest("topic")
        first_queue, last_queue = file.least("queue_id"), file.greatest("queue_id")
        following = (file.greatest("queue_offset") or 0) + 1
        if greatest is None or last_queue is None:
            return
        topics = {row.topic for row in self.at.rows(TOPICS)} | {topic for topic, _ in bounds}
        if least == greatest or len(least) < STATISTICS_CHARS:
            topics.add(least)
        few = {*range(first_queue, min(last_queue, first_queue + QUEUES_TRIED)), last_queue}
        for topic in topics - {LOG_TOPIC}:
            if least <= topic <= greatest:
                known = {queue_id for name, queue_id in bounds if name == topic}
                for queue_id in few | {each for each in known if first_queue <= each <= last_queue}:
                    begins, ends = bounds.get((topic, queue_id), (0, 0))
                    is_sure = least == greatest and first_queue == last_queue
                    if is_sure:
                        begins = min(begins, file.least("queue_offset") or 0)
                    end = following if is_sure else min(ends + (file.rows or following), following)
                    if max(ends, end) > 0:
                        bounds[topic, queue_id] = begins, max(ends, end)

    def _log_end(self, as_of: int) -> int:
        """Where the log ends after the lost rows: as their append's plan says, else at the end of their segment."""
        table, end = self.at.store.delta(COMMITLOG), 0
        for file in self.files:
            number = file.greatest("append_seq")
            if number is not None and number <= as_of:
                continue
            found = None
            if number is not None:
                found = table.commit_numbered(app_id(COMMITLOG), number, self.at.version(COMMITLOG))
            planned = None if found is None else plan_of(found.token)
            if planned is not None and planned.next_offset is not None:
                end = max(end, planned.next_offset)
            else:
                end = max(end, int(file.partition["segment"] or 0) + self._segment_bytes)
        return end

    @cached_property
    def ranges(self) -> list[tuple[int, int]]:
        """The parts of the log that have no rows without the files."""
        segments = sorted({int(file.partition["segment"] or 0) for file in self.files})
        end = F.col("physical_offset") + F.col("size_bytes")
        in_order = Window.partitionBy("segment").orderBy("physical_offset")
        rows = self.left.where(F.col("segment").isin(segments)).select(
            "segment", "physical_offset", end.alias("end")
        )
        gaps = rows.withColumn("from", F.coalesce(F.lag("end").over(in_order), "segment")).where(
            F.col("from") < F.col("physical_offset")
        )
        lost = [self._extent(file) for file in self.files]
        is_lost = in_ranges(
            lost, lambda least, last: (F.col("from") <= last) & (least < F.col("physical_offset"))
        )
        found = [(row["from"], row.physical_offset) for row in gaps.where(is_lost).collect()]  # a few a file
        ends = {
            row.segment: row.end for row in rows.groupBy("segment").agg(F.max("end").alias("end")).collect()
        }
        for segment in segments:
            last_end = ends.get(segment, segment)
            if any(
                segment <= last and last_end <= last
                for _, last in lost
                if last < segment + self._segment_bytes
            ):
                after = self.left.where(F.col("physical_offset") >= last_end)
                following = after.agg(F.min("physical_offset").alias("first")).first()
                begin = None if following is None else following["first"]
                found.append((last_end, self.head.next_offset if begin is None else begin))
        return joined([(begin, end) for begin, end in found if begin < end])

    @property
    def _segment_bytes(self) -> int:
        return self.at.store.settings.segment_bytes

    def _extent(self, file: DataFile) -> tuple[int, int]:
        """Where the first and the last record of a file lie; without statistics its whole segment."""
        segment = int(file.partition["segment"] or 0)
        least, last = file.least("physical_offset"), file.greatest("physical_offset")
        if least is None or last is None:
            return segment, segment + self._segment_bytes - 1
        return int(least), int(last)

    def holes(self, now_ms: int) -> DataFrame:
        """The rows of `holes`: one a part of the log, and one for each queue that goes on after a gap there."""
        spark, head = self.at.store.spark, self.head
        of_log = [(begin, end, "", -1, None, None, self.reason, now_ms) for begin, end in self.ranges]
        ends = [
            (topic, queue_id, following, following, head.next_offset, head.next_offset)
            for (topic, queue_id), following in head.next_queue_offsets.items()
        ]
        starts = [(*queue, least) for queue, least in head.min_queue_offsets.items()]
        names = "topic string, queue_id int, queue_offset long, next_in_queue long, physical_offset long, end long"
        rows = self.left.where(has_queue_slot()).select(
            "topic",
            "queue_id",
            "queue_offset",
            next_in_queue().alias("next_in_queue"),
            "physical_offset",
            (F.col("physical_offset") + F.col("size_bytes")).alias("end"),
        )
        in_order = Window.partitionBy("topic", "queue_id").orderBy("queue_offset", "physical_offset")
        least = frame_of(spark, starts, "topic string, queue_id int, least long")
        gaps = (
            rows.unionByName(frame_of(spark, ends, names))
            .withColumn("goes_on_at", F.lag("next_in_queue").over(in_order))
            .withColumn("from_offset", F.lag("end").over(in_order))
            .join(F.broadcast(least), ["topic", "queue_id"], "left")
            .withColumn("goes_on_at", F.coalesce("goes_on_at", "least"))
            .withColumn("from_offset", F.coalesce("from_offset", F.lit(head.min_offset).cast("long")))
            .where(F.col("goes_on_at") < F.col("queue_offset"))
        )
        of_queues = gaps.where(
            in_ranges(
                self.ranges,
                lambda begin, end: (begin < F.col("physical_offset")) & (F.col("from_offset") < end),
            )
        ).select(
            "from_offset",
            F.col("physical_offset").alias("to_offset"),
            "topic",
            "queue_id",
            F.col("goes_on_at").alias("from_queue_offset"),
            F.col("queue_offset").alias("to_queue_offset"),
            F.lit(self.reason).alias("reason"),
            F.lit(now_ms).cast("long").alias("cut_ms"),
        )
        return frame_of(spark, of_log, HOLES.columns).unionByName(of_queues)


def _bounds(bounds: DataFrame) -> dict[Queue, tuple[int, int]]:
    """Bounds by queue, a few bytes each."""
    return {(row.topic, row.queue_id): (row.min_offset, row.next_offset) for row in bounds.collect()}


def cut_out(store: Store, damaged: DamagedTable, queues_are_whole: bool, now_ms: int) -> None:
    """Take the damaged files of the log out of it. What is derived from the log is to be rebuilt afterwards."""

    def plan_ends(at: Snapshot) -> Plan:
        # The numbered commit of the cut would hide rows that a RESTORE has taken out.
        expect_no_rows_lost(at)
        ends = bounds_write(at, LostFiles(at, damaged.data, queues_are_whole).head)
        return Plan((replace(ends, may_lose=False),))

    def plan_holes(at: Snapshot) -> Plan:
        new = LostFiles(at, damaged.data, queues_are_whole).holes(now_ms)
        kept = at.read(HOLES).join(F.broadcast(new.select(*HOLES.key)), list(HOLES.key), "left_anti")
        return Plan((at.replace(HOLES, kept.select(*HOLES.names).unionByName(new)),))

    commit(store, plan_ends)
    commit(store, plan_holes)
    # Before the cut: a kill between the two must not leave entries of rows that are gone.
    commit(store, lambda at: plan_void(at, DERIVED))
    while_open(store, lambda: _take_out(store, damaged.data))
    # A deliver that was ending may have recorded its clock in between, and copies that it made may be among the lost rows.
    commit(store, lambda at: plan_void(at, DERIVED))


def cut_out_last_append(store: Store, damaged: DamagedTable) -> Damage | None:
    """Take a last append that is not as planned out of the log, by its files, as others cannot be read; its damage.

    With another commit after it that would never be seen again. None where the append is as planned, and where it has lost a
    file itself, or shares one with other appends: its rows cannot be set aside then.
    """
    at = store.snapshot()
    damage = damage_of(at)
    if damage is None:
        return None
    lost = {file.name for file in damaged.data}
    files = (DataFile.of(each, each.size) for each in at.all_files(COMMITLOG))
    own = [file for file in files if file.greatest("append_seq") in (None, damage.append_seq)]
    if any(file.name in lost or file.least("append_seq") != damage.append_seq for file in own):
        return None
    commit(store, plan_set_aside)
    # The others still say what the lost rows were.
    followed = [table for table in DERIVED if covered(at, table) >= damage.append_seq]
    if followed:
        commit(store, lambda at: plan_void(at, followed))
    while_open(store, lambda: _take_out(store, own))
    return damage


def _take_out(store: Store, files: Sequence[DataFile]) -> None:
    for _ in range(ATTEMPTS):
        number = store.snapshot().number(COMMITLOG) + 1
        names = [file.name for file in files]
        if take_out(
            store.spark, store.path(COMMITLOG), names, (app_id(COMMITLOG), number), str(uuid.uuid4())
        ):
            return
    raise HeadMoved(f"another writer kept winning for {ATTEMPTS} attempts: nothing was cut out, run it again")
