"""Follow the log: the rows that its new appends add to each table that is derived from it.

Each derived table follows whole appends, by their number, up to the one that its row in `progress` proves. Rows are written
first and progress last, so a job run cut short is simply repeated: the rows it left are replaced.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.dispatch.entries import (
    consume_queue_entries,
    has_queue_entry,
    is_indexed,
    message_index_entries,
)
from pipelines.dispatch.layout import (
    compile_for,
    in_format_for,
    in_hash_order,
    in_order_of,
    in_queue_order,
)
from pipelines.errors import HeadMoved
from pipelines.log.claims import claims_of
from pipelines.log.park import parked_messages
from pipelines.store.beside import beside
from pipelines.store.head import read_head
from pipelines.store.plan import Plan, Planned, Write
from pipelines.store.progress import Followed, followed_by, greatest_append, progress_write
from pipelines.store.replicas import confirm_offset
from pipelines.store.snapshot import Snapshot
from schemas import (
    COMMITLOG,
    CONSUME_QUEUE,
    DERIVED,
    MESSAGE_INDEX,
    PARKED,
    PROGRESS,
    QUEUE_BOUNDS,
    Table,
)

# A message has a unique key and about one other; only the size of files depends on this estimate.
KEYS_OF_A_MESSAGE = 2


@dataclass(frozen=True)
class NewRows:
    """How many rows of some appends of the log go to each derived table."""

    entries: int
    indexed: int
    parked: int
    claims: int


def plan_dispatch(at: Snapshot, rebuild: bool = False) -> Plan:
    """The plan that brings every derived table up to the log, or, with `rebuild`, rebuilds it from the whole log.

    The result's `dispatched_to` is where the log ends, bytes, as of the last append that is followed.
    """
    # Pinned before the log: a follower may be older than the log, never newer, and a rebuild loses to another writer in
    # between instead of replacing more rows by fewer.
    for table in (PROGRESS, *DERIVED, QUEUE_BOUNDS):
        at.version(table)
    followed = {table.name: followed_by(at, table) for table in DERIVED}
    reached = confirmed(at)
    if read_head(at).bounds_append_seq > at.number(COMMITLOG):
        # Perhaps by a cut of rows that would be followed.
        raise HeadMoved("the log has moved on since it was read")
    last_append = reached.append_seq
    if rebuild:
        writes = [
            at.replace(table, rows if count else rows.limit(0), planned=_planned(table, count))
            for table, rows, count in derived_rows(at, DERIVED, _up_to(at, at.read(COMMITLOG), last_append))
        ]
        lagging: Sequence[Table] = DERIVED
    else:
        lagging = [
            table
            for table in DERIVED
            if followed[table.name].append_seq < last_append or _has_more(at, table, followed[table.name])
        ]
        at.preload(*lagging[:1])  # commit preloads the others
        writes = _new_rows_of(at, lagging, followed, last_append)
    result = {"dispatched_to": reached.log_end}
    if not lagging:
        return Plan((), result)
    # Never back: entries stay where a changed setting has put the confirm offset below what a table has followed.
    reached_by = {
        table.name: last_append if rebuild else max(last_append, followed[table.name].append_seq)
        for table in lagging
    }
    progress = progress_write(at, reached_by, writes)
    return Plan((*writes, progress), result, side_by_side=len(writes))


@dataclass(frozen=True)
class Confirmed:
    """The last append that consumers may see, and where the log ends as of it, bytes."""

    append_seq: int
    log_end: int


def confirmed(at: Snapshot) -> Confirmed:
    """Up to where derived tables follow the log: whole appends below the confirm offset.

    So what consumers cannot see yet is in none of them (docs/rocketmq/consume-filter-ha.md 5.5).
    """
    last_append, log_end = at.number(COMMITLOG), read_head(at).next_offset
    confirm = confirm_offset(at, log_end)
    if confirm >= log_end:
        return Confirmed(last_append, log_end)
    first_segment = confirm - confirm % at.store.settings.segment_bytes
    log = at.read(COMMITLOG)
    beyond = log.where((F.col("segment") >= first_segment) & (F.col("physical_offset") >= confirm))
    first_append = beyond.agg(F.min("append_seq")).collect()[0][0]
    if first_append is None:  # a blank at the end of a segment
        return Confirmed(last_append, log_end)
    rest = log.where(F.col("append_seq") >= first_append).agg(F.min("physical_offset")).collect()[0][0]
    return Confirmed(first_append - 1, rest)


def _up_to(at: Snapshot, log: DataFrame, last_append: int) -> DataFrame:
    """Those of the log's rows that are of appends up to one."""
    return log if last_append >= at.number(COMMITLOG) else log.where(F.col("append_seq") <= last_append)


def survey(log: DataFrame) -> NewRows:
    """The counts of log rows by the derived table they go to, without reading properties."""
    found = log.select(
        F.count_if(has_queue_entry()).alias("entries"),
        F.count_if(is_indexed()).alias("indexed"),
        F.count("due_ms").alias("parked"),
        F.count("claim").alias("claims"),
    ).collect()[0]
    return NewRows(found.entries, found.indexed, found.parked, found.claims)


def _has_more(at: Snapshot, table: Table, followed: Followed) -> bool:
    """Whether a table has rows after the append it has followed."""
    return not followed.is_exact and greatest_append(at, table) > followed.append_seq


def _new_rows_of(
    at: Snapshot, lagging: Sequence[Table], followed: Mapping[str, Followed], last_append: int
) -> list[Write]:
    """Writes of new rows, which replace rows that do not count; a table with neither gets none."""
    writes: list[Write] = []
    # All tables follow one range of appends, unless one was made again.
    for after_append in sorted({followed[table.name].append_seq for table in lagging}):
        tables = [table for table in lagging if followed[table.name].append_seq == after_append]
        log = _up_to(at, at.read_after(COMMITLOG, after_append), last_append)
        for table, rows, count in derived_rows(at, tables, log):
            if _has_more(at, table, followed[table.name]):
                new, planned = rows if count else rows.limit(0), _planned(table, count)
                if after_append < 0:
                    writes.append(at.replace(table, new, planned=planned))
                else:  # files with rows of both kinds are rewritten, so the number of added rows is not known
                    writes.append(at.replace(table, new, f"append_seq > {after_append}"))
            elif count:
                writes.append(at.append(table, rows, planned=_planned(table, count)))
    return writes


def _planned(table: Table, count: int) -> Planned | None:
    """What the write must add: a row for each counted log row; None for the index, whose number of keys is not known."""
    return None if table is MESSAGE_INDEX else Planned(count)


def derived_rows(at: Snapshot, tables: Sequence[Table], log: DataFrame) -> list[tuple[Table, DataFrame, int]]:
    """(table, its rows sorted into files, the number of log rows they are of) for each table."""
    with beside(log.sparkSession) as thread:
        # Spark counts while the driver plans: 0.1 s that no core would have worked in.
        counted = thread.submit(survey, log)
        entries = {table.name: _entries(at, table, log) for table in tables}
        new = counted.result()
    compile_for(new.entries, log)
    return [(table, *_sorted(table, entries[table.name], new)) for table in tables]


def _entries(at: Snapshot, table: Table, log: DataFrame) -> DataFrame:
    """The rows of the log's rows in a derived table."""
    match table.name:
        case CONSUME_QUEUE.name:
            return consume_queue_entries(log, at.store.settings.delay_levels_ms)
        case MESSAGE_INDEX.name:
            return message_index_entries(log)
        case PARKED.name:
            return parked_messages(log)
        case _:
            return claims_of(log)


def _sorted(table: Table, entries: DataFrame, new: NewRows) -> tuple[DataFrame, int]:
    """Rows of a derived table sorted into files, and the number of log rows they are of."""
    match table.name:
        case CONSUME_QUEUE.name:
            count, rows = new.entries, in_queue_order(entries, new.entries, are_new=True)
        case MESSAGE_INDEX.name:
            count = new.indexed
            rows = in_hash_order(entries, count * KEYS_OF_A_MESSAGE, are_new=True)
        case PARKED.name:
            count, rows = new.parked, in_order_of(entries, new.parked, "kind", "due_ms", are_new=True)
        case _:
            count, rows = new.claims, in_order_of(entries, new.claims, "source_offset", are_new=True)
    return in_format_for(count, rows), count
