"""Put a counted input: give every message its offsets after the head and append it, exactly once for a batch id.

An append is found again by its rows' append_id, `BATCH_ID:from-to`: rows [from, to) of the input. A put that was
interrupted goes on after the last append; the same put again finds all of them and appends nothing.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.errors import BadInput
from pipelines.log.append import append_writes, log_rows
from pipelines.log.append_ids import is_put_by
from pipelines.log.count import CountedSplit
from pipelines.log.park import is_parking_topic, real_place
from pipelines.log.place import Placement
from pipelines.log.whole_import import expect_whole_import
from pipelines.produce.accept import final_properties
from pipelines.produce.counted_input import CountedInput
from pipelines.produce.divert import GAINED_BY_PARKING, may_divert
from pipelines.produce.put_topics import PutTopics
from pipelines.rocketmq.properties import without
from pipelines.rocketmq.record import body_crc
from pipelines.spark_internals.catalyst import runtime_literal
from pipelines.store.head import EMPTY_HEAD, LogHead, read_head
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from pipelines.store.topics import read_topics
from schemas import COMMITLOG, QUEUE_BOUNDS

# Half-open range of input_rows.
InputRows = tuple[int, int]


class QueuesChanged(Exception):
    """A topic's number of queues is not that of counting: its messages must be counted again."""


@dataclass(frozen=True)
class Found:
    """What the log holds of a batch, as of one append.

    append_seq      the number of that append
    bounds_version  the version of queue_bounds that `head` was read from: an expiry moves where the log and its queues
                    begin by a commit of that table alone, and the log keeps its number
    head            the log head as of both
    parts           input_rows of each append of the batch id -> number of its rows in the log
    same            those of `parts` whose content is known to be the input's
    """

    append_seq: int
    bounds_version: int
    head: LogHead
    parts: Mapping[InputRows, int]
    same: Collection[InputRows] = ()

    @property
    def rows(self) -> int:
        """The number of rows in the log."""
        return sum(self.parts.values())

    def covers(self, rows: int) -> bool:
        """Whether the appends cover an input with this number of rows."""
        return sum(to - first for first, to in self.parts) == rows

    @property
    def is_compared(self) -> bool:
        return self.parts.keys() <= set(self.same)

    def and_also(self, placement: Placement, has_written_bounds: bool) -> "Found":
        """The same after this put's own append; the log is read again only where others append in between.

        has_written_bounds  whether the append was followed by queue_bounds as of it, in the version that
                            follows the one it was planned from
        """
        parts = {**self.parts, (placement.from_row, placement.to_row): placement.rows}
        head, bounds_version = placement.head, self.bounds_version
        if has_written_bounds:
            head, bounds_version = replace(head, bounds_append_seq=head.append_seq), bounds_version + 1
        return Found(head.append_seq, bounds_version, head, parts, parts.keys())


def find(at: Snapshot, batch_id: str) -> Found:
    """What the log holds of a batch, as of the snapshot."""
    head = read_head(at)
    return Found(at.number(COMMITLOG), at.version(QUEUE_BOUNDS), head, appended(at, batch_id))


@dataclass(frozen=True)
class Put:
    """A counted input and the batch id that names its appends.

    is_own_id  whether the user chose the id, so another input may have been put under it; else it is the input's digest
    """

    counted: CountedInput
    batch_id: str
    is_own_id: bool

    def plan(
        self,
        at: Snapshot,
        found: Found,
        first_row: int,
        splits: Sequence[CountedSplit],
        clock: Callable[[], int],
    ) -> Plan:
        """A plan that appends the first of `splits` that no put of the batch id has appended, and those right after it.

        found      what the log holds of the batch; it is read again where others have appended since
        first_row  input_row of the first row of `splits`
        clock      epoch milliseconds, read when the rows get their offsets: their store timestamp

        The plan's result has `next_offset`; and, unless nothing was left to append, `placement`, and `found`: what the log
        holds before the append.

        Raises QueuesChanged where the splits must be counted again, StoreError where the input has changed, BadInput where
        another put of the same batch id has put other content.
        """
        settings = self.counted.given.rules.settings
        if not self.counted.is_counted_for(PutTopics(read_topics(at), settings)):
            raise QueuesChanged
        found = self.known(at, found)
        head = found.head
        first_row, splits = self._left(first_row, splits, found.parts)
        if not any(split.good_rows for split in splits):
            return Plan((), {"next_offset": head.next_offset})
        expect_whole_import(at, head.next_offset)
        placement = self.counted.place(splits, first_row, head, max(clock(), head.last_store_timestamp))
        self.counted.expect_unchanged(splits)
        writes = append_writes(at, self.log_rows(placement), placement.planned, placement.head)
        result = {"next_offset": placement.head.next_offset, "placement": placement, "found": found}
        return Plan(writes, result)

    def known(self, at: Snapshot, found: Found) -> Found:
        """What the log holds of the batch as of the snapshot, read again where others have written since `found`.

        Raises BadInput where another put has put other content under an id that the user chose.
        """
        # Pinned before the log: it may be older than the log, never newer.
        bounds_version = at.version(QUEUE_BOUNDS)
        if found.append_seq != at.number(COMMITLOG):
            found = replace(find(at, self.batch_id), same=found.same)
        elif found.bounds_version != bounds_version:
            found = replace(found, head=read_head(at), bounds_version=bounds_version)
        if not self.is_own_id or found.is_compared:
            return found
        self._expect_same_content(at, found.parts)
        return replace(found, same=found.parts.keys())

    def _left(
        self, first_row: int, splits: Sequence[CountedSplit], done: Collection[InputRows]
    ) -> tuple[int, list[CountedSplit]]:
        """(input_row of the first, splits): the first neighbouring splits that are not in the log."""
        left: list[CountedSplit] = []
        row = first_row
        for split in splits:
            end = row + split.rows
            overlapping = [part for part in done if part[0] < end and row < part[1]]
            if overlapping and not any(first <= row and end <= to for first, to in overlapping):
                raise _other_parts(self.batch_id, done)
            if overlapping and left:
                break
            if not overlapping and (left or split.good_rows):
                first_row = first_row if left else row
                left.append(split)
            row = end
        return first_row, left

    def log_rows(self, placement: Placement) -> DataFrame:
        """The rows of `commitlog` for a placement."""
        source, rules = self.counted.source, self.counted.given.rules
        has = source.columns.__contains__
        unique_key = F.upper(F.md5(F.concat(F.lit(f"{self.batch_id}:"), F.col("input_row").cast("string"))))
        # now_ms: a message is born, and its delay begins, when it is accepted; its store timestamp is that of the append.
        now = runtime_literal(rules.now_ms)
        columns = {
            "flag": F.coalesce(F.col("flag"), F.lit(0)) if has("flag") else F.lit(0),
            "sys_flag": F.col("stored_sys_flag"),
            "body_crc": body_crc(F.col("stored_body")),
            "born_timestamp": F.coalesce(F.col("born_timestamp"), now) if has("born_timestamp") else now,
            "born_host": F.col("stored_born_host"),
            "store_host": F.lit(rules.settings.store_host),
            "reconsume_times": F.lit(0),
            "prepared_transaction_offset": F.lit(0),
            "body": F.col("stored_body"),
            "properties": final_properties(source, unique_key),
            **{
                name: F.lit(None) for name in ("due_ms", "source_offset", "origin_offset", "purpose", "claim")
            },
        }
        if may_divert(source):
            columns |= {
                "topic": F.coalesce("parked_topic", "topic"),
                "due_ms": F.col("due_at_ms"),
                "due_after_ms": F.col("due_after_ms"),
            }
        placed = self.counted.placed(placement)
        if self.counted.bad_rows:
            placed = placed.where(F.col("physical_offset").isNotNull())
        append_id = f"{self.batch_id}:{placement.from_row}-{placement.to_row}"
        return log_rows(placed, columns, placement.head, append_id, rules.settings.segment_bytes)

    def _expect_same_content(self, at: Snapshot, parts: Collection[InputRows]) -> None:
        """Raises BadInput where the rows that the batch id has put differ from the input's.

        Its first rows may have expired: then those that are left must be the input's last.
        """
        end = max(to for _, to in parts)
        splits, rows = [], 0
        for split in self.counted.splits:
            if rows < end:
                splits.append(split)
                rows += split.rows
        if rows != end:
            raise _other_parts(self.batch_id, parts)
        placement = self.counted.place(self.counted.with_sizes(splits), 0, EMPTY_HEAD, 0)
        is_mine = F.col("append_id").isin([f"{self.batch_id}:{first}-{to}" for first, to in parts])
        planned, there = self.log_rows(placement), at.read(COMMITLOG).where(is_mine)
        expected, found = self._content(planned), self._content(there)
        if found[0] < expected[0] and _begins_the_log(at, there):
            expected = self._content(planned.orderBy(F.desc("physical_offset")).limit(found[0]))
        if found != expected:
            raise BadInput(
                f"batch id {self.batch_id} has put another input: the same id means the same input and options. Nothing "
                "was written; give another input an id of its own, and put the same one with the options it was put with"
            )

    def _content(self, rows: DataFrame) -> tuple:
        """(count, sum of hashes) of log rows, without the columns that the append decides."""
        topic, size = F.col("topic"), F.col("size_bytes")
        own = F.regexp_replace("properties", "UNIQ_KEY\x01[0-9A-F]{32}\x02\\z", "")
        if may_divert(self.counted.source):
            real_topic, _ = real_place(F.col("properties"))
            topic, size = F.when(is_parking_topic(topic), real_topic).otherwise(topic), F.lit(0)
            own = without(F.col("properties"), *GAINED_BY_PARKING)
        row_hash = F.xxhash64(topic, size, "body_crc", "flag", own)
        found = rows.agg(F.count("*"), F.sum(row_hash.cast("decimal(38,0)"))).first()
        assert found is not None
        return tuple(found)


def _begins_the_log(at: Snapshot, rows: DataFrame) -> bool:
    """Whether messages of a batch may have expired: those before its first row have, if it is the log's first."""
    first = rows.agg(F.min("physical_offset")).collect()[0][0]
    return first is not None and 0 < first == read_head(at).min_offset


def appended(at: Snapshot, batch_id: str) -> dict[InputRows, int]:
    """The appends of a batch id: their input_rows -> number of rows in the log.

    Statistics of the files (Delta data skipping) leave out files without such rows.
    """
    # Collects one row an append.
    found = at.read(COMMITLOG).where(is_put_by(batch_id)).groupBy("append_id").count().collect()
    parts = {}
    for name, rows in found:
        first, dash, end = name.removeprefix(f"{batch_id}:").partition("-")
        if dash and first.isdigit() and end.isdigit():
            parts[int(first), int(end)] = rows
    return parts


def end_of(at: Snapshot, batch_id: str) -> int:
    """Where the last message of a batch id ends in the log, bytes; 0 without one."""
    ends = F.max(F.col("physical_offset") + F.col("size_bytes"))
    return at.read(COMMITLOG).where(is_put_by(batch_id)).agg(ends).collect()[0][0] or 0


def _other_parts(batch_id: str, parts: Collection[InputRows]) -> BadInput:
    first, end = min(first for first, _ in parts), max(to for _, to in parts)
    return BadInput(
        f"batch id {batch_id} has put rows {first} to {end} of its input, and no part of this one ends there: it is another "
        "input, or was put by an older version. Nothing was written; give another input an id of its own, and of the same "
        f"one put only the rows from {end} on, under an id of their own: the others would be there twice"
    )
