"""Copy a master's log: whole appends after the slave's end, in order, as columns (docs/rocketmq/consume-filter-ha.md 6, R1).

Rows keep all they have but `append_seq`, which is the number of this log's own commit. An append is never taken in part, so
that a name such as BATCH_ID:from-to means on the slave what it means on its master; many small ones go into one commit.

The slave's own log head says where to go on, so a run that was killed is simply run again. What is copied is checked as it
passes: the rows lie one after the other, queues have no gap, each record has the length and the CRC of its parts. Rows
that an import brought may break these rules, because a broker's damage is imported as it is: they are copied as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.errors import BadInput, StoreError
from pipelines.log.append import append_columns, head_after
from pipelines.log.copies import record_bytes
from pipelines.log.one_row import last_row
from pipelines.replicate.master import Master
from pipelines.rocketmq.flags import INNER_BATCH
from pipelines.rocketmq.queue_slots import has_queue_slot
from pipelines.rocketmq.record import body_crc
from pipelines.rocketmq.times import LAST_MS
from pipelines.store.floors import IMPORT_PREFIX
from pipelines.store.head import LogHead, Queue, bounds_of, bounds_write, has_begun, read_head
from pipelines.store.holes import holes_of_log
from pipelines.store.plan import Plan, Planned
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG
from schemas.queue_bounds import LOG_TOPIC

# Bytes of one commit, unless one append of the master has more: at most this much is repeated after a run was killed.
PART_BYTES = 1024 * 1024 * 1024

# What the pass that copies says of a row that is not whole; it is found again in the failure of the pass.
NOT_WHOLE = "the master's record at byte"


@dataclass(frozen=True)
class Stretch:
    """Rows of one segment: where the first starts and the last ends, and the bytes of all."""

    segment: int
    first_offset: int
    end_offset: int
    size_bytes: int
    is_chain: bool


@dataclass(frozen=True)
class QueueRows:
    """Rows of one queue: [first_offset, next_offset), if `is_run` and as many rows as that say so."""

    first_offset: int
    next_offset: int
    rows: int
    is_run: bool = True

    @property
    def has_no_gap(self) -> bool:
        return self.is_run and self.rows == self.next_offset - self.first_offset


@dataclass(frozen=True)
class Survey:
    """What a part of the master's log holds, by its slim columns.

    clock   the greatest store timestamp, epoch milliseconds
    """

    rows: int
    first_offset: int
    last_offset: int
    end_offset: int
    clock: int
    has_imports: bool
    stretches: Sequence[Stretch]
    queues: Mapping[Queue, QueueRows]


@dataclass(frozen=True)
class Part:
    """Whole appends of the master that go into one commit of the slave.

    start    where the slave's log ends before it
    is_last  whether the master has no more
    """

    start: int
    rows: DataFrame
    is_last: bool
    survey: Survey


def start_of(at: Snapshot, master: Master, from_last_file: bool) -> int:
    """Where a slave's next row is to lie: at the end of its log; for an empty one where that is to begin."""
    if has_begun(at):
        return read_head(at).next_offset
    if from_last_file:
        return master.end - master.end % master.store.settings.segment_bytes
    return master.head.min_offset


def plan_start(at: Snapshot, master: Master, from_last_file: bool) -> Plan:
    """The plan that says where an empty slave's log begins: at the master's first byte, or with its last segment.

    It is empty once the slave has rows.
    """
    if has_begun(at):
        return Plan()
    start = start_of(at, master, from_last_file)
    # A log from byte 0 has all messages of all queues: each begins at 0.
    begins = master.queues_from(start) if start else {}
    found = read_head(at)  # a fence has a number too
    head = LogHead(found.append_seq, start, start, 0, begins, begins, found.bounds_append_seq)
    if found == head:
        return Plan()
    return Plan((bounds_write(at, head),), follows_master=master.uri)


def plan_copy(at: Snapshot, master: Master, part_bytes: int = PART_BYTES, ahead: Part | None = None) -> Plan:
    """The plan that appends the next whole appends of the master, followed by the bounds as of them.

    ahead  a part that was read before, which is taken where the slave's log still ends where it starts

    The plan's result: `copied` rows, `reached`, the end of the slave's log after it, and `more`, whether rows are left.
    """
    head = read_head(at)
    master = master.reaching(head.next_offset)
    part = ahead
    if part is None or part.start != head.next_offset:
        part = next_part(master, head.next_offset, part_bytes)
    if part is None:
        return _plan_end(at, head, master)
    found = part.survey
    _expect_going_on(head, found, master)
    after = _head_after(head, found)
    if part.is_last:
        _expect_no_lost_end(found.end_offset, master)
        after = _as_the_master(after, master)
    rows = copied_rows(part.rows, after.append_seq)
    planned = Planned(found.rows, found.first_offset, found.last_offset, after.next_offset)
    append = at.append(COMMITLOG, rows, planned=planned)
    result = {"copied": found.rows, "reached": after.next_offset, "more": not part.is_last}
    return Plan((append, bounds_write(at, after)), result, follows_master=master.uri)


def next_part(master: Master, start: int, part_bytes: int) -> Part | None:
    """The next whole appends from an offset on; None where the master has no more."""
    if master.end <= start:
        return None
    rows, is_last = master.rows_from(start), True
    if master.end - start > part_bytes:
        is_near = F.col("physical_offset") < start + part_bytes
        last = rows.agg(F.max(F.when(is_near, F.col("append_seq"))), F.min("append_seq")).first()
        assert last is not None
        to_append = last[1] if last[0] is None else last[0]
        if to_append is None:
            return None
        rows, is_last = rows.where(F.col("append_seq") <= to_append), to_append == master.head.append_seq
    found = survey(rows)
    return None if found is None else Part(start, rows, is_last, found)


def survey(part: DataFrame) -> Survey | None:
    """What a part of the log holds; None without a row. Reads neither bodies nor, but for inner batches, properties."""
    start, size = F.col("physical_offset"), F.col("size_bytes")
    end = start + size
    slot = F.when(has_queue_slot(), F.col("queue_offset"))
    groups = (
        part.groupBy("segment", "topic", "queue_id")
        .agg(
            F.count("*").alias("rows"),
            F.min(start).alias("first_offset"),
            F.max(start).alias("last_offset"),
            F.max(end).alias("end_offset"),
            F.sum(size).alias("size_bytes"),
            # Of rows that lie one after the other each end is the next start: what is left are the first start and the
            # last end. A sum alone would take a gap and an overlap of the same length for nothing.
            F.bit_xor(F.xxhash64(start).bitwiseXOR(F.xxhash64(end))).alias("chain"),
            F.min_by(F.xxhash64(start), start).alias("first_hash"),
            F.max_by(F.xxhash64(end), end).alias("end_hash"),
            F.min(slot).alias("first_in_queue"),
            F.max(slot).alias("last_in_queue"),
            F.count(slot).alias("slots"),
            F.bit_xor(F.xxhash64(slot).bitwiseXOR(F.xxhash64(slot + 1))).alias("queue_chain"),
            (F.xxhash64(F.min(slot)).bitwiseXOR(F.xxhash64(F.max(slot) + 1))).alias("queue_ends"),
            F.max(F.when(F.col("store_timestamp").between(0, LAST_MS), F.col("store_timestamp"))).alias(
                "clock"
            ),
            F.bool_or(F.col("sys_flag").bitwiseAND(INNER_BATCH) != 0).alias("has_batches"),
            F.bool_or(F.col("append_id").startswith(IMPORT_PREFIX)).alias("has_imports"),
        )
        .collect()
    )
    if not groups:
        return None
    queues = _queues(groups)
    if any(group.has_batches for group in groups):
        queues |= {
            (row.topic, row.queue_id): QueueRows(
                row.min_offset, row.next_offset, row.next_offset - row.min_offset
            )
            for row in bounds_of(part).collect()
            if row.topic != LOG_TOPIC
        }
    return Survey(
        rows=sum(group.rows for group in groups),
        first_offset=min(group.first_offset for group in groups),
        last_offset=max(group.last_offset for group in groups),
        end_offset=max(group.end_offset for group in groups),
        clock=max(group.clock or 0 for group in groups),
        has_imports=any(group.has_imports for group in groups),
        stretches=_stretches(groups),
        queues=queues,
    )


def _queues(groups: Sequence[Any]) -> dict[Queue, QueueRows]:
    queues: dict[Queue, QueueRows] = {}
    for group in groups:
        if group.slots:
            queue = group.topic, group.queue_id
            known = queues.get(queue, QueueRows(group.first_in_queue, 0, 0))
            queues[queue] = QueueRows(
                min(known.first_offset, group.first_in_queue),
                max(known.next_offset, group.last_in_queue + 1),
                known.rows + group.slots,
                # A row without a slot adds the hash of null twice, which is nothing.
                known.is_run and group.queue_chain == group.queue_ends,
            )
    return queues


def _stretches(groups: Sequence[Any]) -> list[Stretch]:
    """The rows of each segment, from those of its queues."""
    stretches = []
    for segment in sorted({group.segment for group in groups}):
        mine = [group for group in groups if group.segment == segment]
        first = min(mine, key=lambda group: group.first_offset)
        last = max(mine, key=lambda group: group.end_offset)
        chain = 0
        for group in mine:
            chain ^= group.chain
        size = sum(group.size_bytes for group in mine)
        is_chain = chain == first.first_hash ^ last.end_hash and size == last.end_offset - first.first_offset
        stretches.append(Stretch(segment, first.first_offset, last.end_offset, size, is_chain))
    return stretches


def _expect_going_on(head: LogHead, found: Survey, master: Master) -> None:
    """Raises StoreError where the rows do not go on where the slave's log ends, or not each where the one before ends.

    A broker's damage is imported as it is, and copied, but not what the master has lost since.
    """
    gap = _first_gap(head, found, master.store.settings.segment_bytes)
    if gap is None:
        return
    holes = holes_of_log(master.at)
    if found.has_imports and not any(
        hole.from_offset < found.end_offset and head.next_offset < hole.to_offset for hole in holes
    ):
        return
    if holes:
        raise _lost(master, gap)
    raise StoreError(
        f"the log of the master at {master.uri} {gap}. Nothing of that was copied: `commitlake validate --store "
        f"{master.uri}` shows what is wrong with it"
    )


def _expect_no_lost_end(end: int, master: Master) -> None:
    """Raises StoreError where the master has lost what came after an offset, and has no row after that."""
    if any(hole.from_offset < master.end and end < hole.to_offset for hole in holes_of_log(master.at)):
        raise _lost(master, f"has no record from byte {end} on")


def _expect_ends_at_a_record(end: int, master: Master) -> None:
    """Raises StoreError where the end of a slave's log is inside a record of its master, which it then lacks."""
    last = last_row(master.at, master.end) if end < master.end else None
    if last is not None and last.physical_offset < end < last.physical_offset + last.size_bytes:
        raise StoreError(
            f"the slave's log ends at byte {end}, which is inside the master's record at byte {last.physical_offset}: its "
            "bounds are not those of its rows. Nothing was copied; run `commitlake validate --repair` with this --store, "
            "then this again, or name a new directory for --store, and the slave is made there"
        )


def _lost(master: Master, what: str) -> StoreError:
    return StoreError(
        f"the log of the master at {master.uri} {what}. Its table holes says which rows `validate --cut-damaged` has given "
        "up there, and a slave does not go on past them. Nothing of that was copied: copy the store with "
        f"`commitlake backup --store {master.uri} --to NEW`, and have the copy follow it"
    )


def _first_gap(head: LogHead, found: Survey, segment_bytes: int) -> str | None:
    """What does not lie where the record or the queue's message before it ends, in words; None where all does."""
    ends_at = head.next_offset
    for stretch in found.stretches:
        # A record that does not fit opens the next segment; what is left of the one before is a blank.
        opens_next = stretch.first_offset == stretch.segment and 0 < stretch.segment - ends_at < segment_bytes
        if stretch.first_offset != ends_at and not opens_next:
            return f"has no record from byte {ends_at} to byte {stretch.first_offset}"
        if not stretch.is_chain:
            return (
                f"has records of {stretch.size_bytes} bytes from byte {stretch.first_offset} to byte {stretch.end_offset} "
                "that do not lie one after the other"
            )
        ends_at = stretch.end_offset
    for (topic, queue_id), rows in found.queues.items():
        goes_on_at = head.next_of(topic, queue_id)
        if rows.first_offset != goes_on_at or not rows.has_no_gap:
            return (
                f"has {rows.rows} records of queue {topic}:{queue_id} at its offsets {rows.first_offset} to "
                f"{rows.next_offset - 1}, and the slave's queue goes on at {goes_on_at}"
            )
    return None


def _head_after(head: LogHead, found: Survey) -> LogHead:
    following = dict(head.next_queue_offsets)
    least = dict(head.min_queue_offsets)
    for queue, rows in found.queues.items():
        following[queue] = max(rows.next_offset, following.get(queue, 0))
        least[queue] = min(rows.first_offset, least.get(queue, rows.first_offset))
    after = head_after(
        replace(head, min_queue_offsets=least),
        found.end_offset,
        max(found.clock, head.last_store_timestamp),
        following,
    )
    return replace(after, bounds_append_seq=after.append_seq)


def _as_the_master(head: LogHead, master: Master) -> LogHead:
    """The head of a slave that has all rows: the log may end with a blank, and queues may have no row here."""
    masters = master.head
    following = {
        queue: max(next_offset, head.next_queue_offsets.get(queue, 0))
        for queue, next_offset in masters.next_queue_offsets.items()
    }
    # A queue without a row here has none from the slave's first byte on: it begins where it ends.
    least = {
        queue: head.min_queue_offsets.get(queue, next_offset) for queue, next_offset in following.items()
    }
    if head.min_offset == masters.min_offset:
        least = {**least, **masters.min_queue_offsets}
    return replace(
        head,
        next_offset=max(head.next_offset, masters.next_offset),
        last_store_timestamp=max(head.last_store_timestamp, masters.last_store_timestamp),
        next_queue_offsets={**head.next_queue_offsets, **following},
        min_queue_offsets={**head.min_queue_offsets, **least},
    )


def _plan_end(at: Snapshot, head: LogHead, master: Master) -> Plan:
    """The plan for a slave that has all rows of its master: what rows do not say may still be missing."""
    result = {"copied": 0, "reached": head.next_offset, "more": False}
    if head.next_offset > master.end:
        raise BadInput(
            f"the slave's log ends at byte {head.next_offset}, the master's at {master.end}: it is another master's, or it "
            "was put back as it was earlier"
        )
    _expect_no_lost_end(head.next_offset, master)
    _expect_ends_at_a_record(head.next_offset, master)
    after = _as_the_master(head, master)
    if replace(after, bounds_append_seq=head.bounds_append_seq) == head:
        return Plan((), result)
    write = bounds_write(at, after)
    return Plan((write,), {**result, "reached": after.next_offset}, follows_master=master.uri)


def copied_rows(part: DataFrame, append_seq: int) -> DataFrame:
    """Rows of the slave's log: the master's, checked one by one as they pass.

    The pass fails with NOT_WHOLE at a row whose length or CRC is not that of its parts, and nothing is committed.
    """
    size, crc = F.col("size_bytes"), F.col("body_crc")
    parts = record_bytes(
        F.col("sys_flag"), F.col("topic"), F.octet_length("body"), F.octet_length("properties")
    )
    is_whole = F.coalesce((size == parts) & (crc == body_crc(F.col("body"))), F.lit(False))
    is_imported = F.coalesce(F.col("append_id").startswith(IMPORT_PREFIX), F.lit(False))
    checked: Column = F.when(is_whole | is_imported, crc).otherwise(
        F.raise_error(F.format_string(f"{NOT_WHOLE} %d.", F.col("physical_offset"))).cast("int")
    )
    own = append_columns(append_seq, "")
    return part.withColumns({"append_seq": own["append_seq"], "body_crc": checked}).select(*COMMITLOG.names)


@contextmanager
def as_the_master_has_it(master: Master) -> Iterator[None]:
    """A context in which rows are copied. Raises StoreError where a row is not whole."""
    try:
        yield
    except Exception as failure:
        _, found, after = str(failure).partition(NOT_WHOLE)
        if not found or isinstance(failure, StoreError):
            raise
        offset = after.partition(".")[0].strip()
        raise StoreError(
            f"{NOT_WHOLE} {offset} does not have the length or the CRC of its parts. Nothing of that append was copied: "
            f"`commitlake validate --store {master.uri}` shows what is wrong with it"
        ) from failure
