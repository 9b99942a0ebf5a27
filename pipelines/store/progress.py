"""Progress: how far a follower of the log has come.

A row of `progress` is about other tables: a derived table has its rows of the log up to an append. So the row names that
table and the log, and counts only while both are still the same: the table (its id) at the same or a later commit, the log
with the very commit it had then. A table that was made again, and a copy whose tables are of different times, have rows
that do not count; nor does a row whose table others have changed since, as a RESTORE does: Delta keeps the table's id and
its commit number then. Then the table is rebuilt from the log, and readers use the log meanwhile. While the log itself has
lost rows so, no row counts, and no job goes on: see `expect_no_rows_lost` in planned.py.

Rows of a derived table after the append that its progress proves do not count either. An interrupted run has left them, or
the log has lost the appends they are of; the next dispatch replaces them.

A job that acts by a clock (deliver, check_transactions) has its clock in the same row as its append. Neither means anything
without the other, so they share one proof and one commit. The proof names the log as it is once the job's copies are in it:
a log that lacks them is another log.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from pipelines.errors import StoreError
from pipelines.store.plan import Plan, Write
from pipelines.store.planned import has_lost_rows
from pipelines.store.small_tables import whole_table_write
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG, DERIVED, PROGRESS, Table

# Up to version 0.1 a job's clock was a row of its own, `JOB:clock_ms`, with the clock in `append_seq`.
CLOCK_ROW_SUFFIX = ":clock_ms"
PROOF = ("log_id", "log_version", "log_commit")


@dataclass(frozen=True)
class Seen:
    """What a job that acts by a clock has done: all that was due at `clock_ms`, of the appends up to `append_seq`."""

    append_seq: int
    clock_ms: int


NOTHING_SEEN = Seen(-1, -(2**62))


@dataclass(frozen=True)
class Followed:
    """How far a derived table has followed the log.

    append_seq  the last append whose rows are all there; -1 before the first
    is_exact    the table is known to have no rows of later appends
    is_void     the table does not have the rows that its row of `progress` says it has
    """

    append_seq: int
    is_exact: bool
    is_void: bool = False


def covered(at: Snapshot, table: Table) -> int:
    """The last append of the log that a derived table has followed; -1 before the first."""
    return followed_by(at, table).append_seq


def followed_rows(at: Snapshot, table: Table) -> DataFrame:
    """The rows of a derived table that count: those of appends it has followed."""
    followed, rows = followed_by(at, table), at.read(table)
    if followed.append_seq < 0:
        return rows.limit(0)
    return rows if followed.is_exact else rows.where(F.col("append_seq") <= followed.append_seq)


def followed_by(at: Snapshot, table: Table) -> Followed:
    """How far a derived table has followed the log."""
    # Progress is pinned before the table: it may be older than the table, never newer.
    return at.cached("followed", (PROGRESS, table, COMMITLOG), lambda: _followed(at, table))


def expect_intact(at: Snapshot, table: Table) -> None:
    """Raises StoreError where a derived table has lost rows: readers that keep an offset in it must wait."""
    if followed_by(at, table).is_void:
        raise StoreError(
            f"{table.name} does not have the rows that were dispatched to it: it was made again, put back as it was "
            "earlier, changed by hand, or copied at another time than the log; run `commitlake dispatch --store "
            f"{at.store.uri}`, then this again"
        )


def greatest_append(at: Snapshot, table: Table) -> int:
    """The last append that rows of a derived table are of; -1 without rows."""
    return at.cached("greatest", (table,), lambda: _greatest_append(at, table))


def _followed(at: Snapshot, table: Table) -> Followed:
    row = next((row for row in progress_rows(at) if row.follower == table.name), None)
    last_append = at.number(COMMITLOG)
    if row is None or row.log_id is None:
        # There is no row about the table, or an earlier version wrote one without proof: the table's rows decide.
        greatest = greatest_append(at, table)
        is_ahead = greatest > last_append or (row is not None and row.append_seq > last_append)
        return Followed(-1, at.is_empty(table), is_void=True) if is_ahead else Followed(greatest, True)
    is_proven = (
        row.follower in _proven(at)
        and row.table_id == at.table_id(table)
        and row.table_number <= at.number(table)
        and not at.has_other_changes(table, _version_of(row, at.version(table)))
    )
    if not is_proven:
        return Followed(-1, at.is_empty(table), is_void=True)
    # The log may have been pinned before the row was written.
    is_exact = row.append_seq <= last_append and row.table_number == at.number(table)
    return Followed(min(row.append_seq, last_append), is_exact)


def _version_of(row: Row, newest: int) -> int:
    """The table's version from which on a row vouches for it; of a row of an earlier version, the one before the newest."""
    return newest - 1 if row.table_version is None else int(row.table_version)


def _greatest_append(at: Snapshot, table: Table) -> int:
    greatest = at.greatest_by_statistics(table, "append_seq")
    if greatest is None:
        found = at.read(table).agg(F.max("append_seq")).first()
        greatest = found[0] if found is not None else None
    return -1 if greatest is None else int(greatest)


def seen_by(at: Snapshot, job: str) -> Seen:
    """What a job has done of this very log; NOTHING_SEEN where that is unknown: claims show it too."""
    row = _proven(at).get(job)
    return NOTHING_SEEN if row is None or row.clock_ms is None else Seen(row.append_seq, row.clock_ms)


def seen_write(at: Snapshot, job: str, seen: Seen) -> Write:
    """The write that records what a job has done; it may lose the race, because the claims in the log show it too.

    at  a snapshot whose log has what the job has appended
    """
    return progress_write(at, {job: seen.append_seq}, clock_ms=seen.clock_ms)


def progress_write(
    at: Snapshot, followed: Mapping[str, int], writes: Iterable[Write] = (), clock_ms: int | None = None
) -> Write:
    """The write that records how far followers have come; it may lose the race, because their rows show it too.

    followed  the last append that each of them has followed
    writes    of the same plan, made before this one
    clock_ms  the clock they have followed it by, epoch milliseconds; None where they do not act by a clock
    """
    log = _log_of(at)
    numbers = {write.table.name: write.number for write in writes}
    kept, proven = {row.follower: row for row in progress_rows(at)}, _proven(at)
    rows = []
    for follower in sorted({*kept, *followed}):
        if follower in followed:
            table = next((table for table in DERIVED if table.name == follower), None)
            of_table: tuple[str | None, int | None, int | None] = (None, None, None)
            if table is not None:
                # The version before the writes: what another commits meanwhile is noticed too.
                number = numbers.get(follower, at.number(table))
                of_table = (at.table_id(table), number, at.version(table))
            rows.append((follower, followed[follower], *of_table, *log, clock_ms))
            continue
        row = kept[follower]
        # The proof is renewed for the log as it is now, so that it outlives the commits that Delta cleans up. A row that
        # does not count stays as it is: it shows that its table must be rebuilt.
        is_older = follower in proven and row.log_version < log[1]
        of_log = log if is_older else tuple(row[name] for name in PROOF)
        of_its_table = (row.table_id, row.table_number, row.table_version)
        rows.append((follower, row.append_seq, *of_its_table, *of_log, row.clock_ms))
    return whole_table_write(at, PROGRESS, rows, may_lose=True)


def plan_void(at: Snapshot, tables: Collection[Table]) -> Plan:
    """The plan that makes derived tables cover nothing, whatever they hold, until a dispatch has rebuilt them.

    It is for a log that loses rows. Some may be copies that deliver or check_transactions have made, so what these jobs have
    done by the clock counts no more either: they look at every message that waits again, and claims tell which are done.
    """
    names = {table.name for table in tables}
    kept = [tuple(row) for row in progress_rows(at) if row.follower not in names and row.clock_ms is None]
    log = _log_of(at)
    of_no_table = ("", -1, -1)
    void = [(name, -1, *of_no_table, *log, None) for name in sorted(names)]
    return Plan((whole_table_write(at, PROGRESS, [*kept, *void]),))


def _log_of(at: Snapshot) -> tuple[str, int, str | None]:
    """The log in the snapshot, as the values of PROOF."""
    version = at.version(COMMITLOG)
    return at.table_id(COMMITLOG), version, at.commit_id(COMMITLOG, version)


def progress_rows(at: Snapshot) -> Sequence[Row]:
    """All rows of progress, one a follower; a clock that version 0.1 wrote as a row is put into its job's row."""
    return at.cached("progress", (PROGRESS,), lambda: _with_clocks(at.rows(PROGRESS)))


def _with_clocks(stored: Sequence[Row]) -> Sequence[Row]:
    row_of = Row(*PROGRESS.names)
    clocks = {row.follower: row for row in stored if (row.follower or "").endswith(CLOCK_ROW_SUFFIX)}
    rows = []
    for row in stored:
        if row.follower in clocks:
            continue
        values = row.asDict()
        clock = clocks.get(f"{row.follower}{CLOCK_ROW_SUFFIX}")
        # A clock without the proof of its append is of another log, or was written before that append.
        if clock is not None and all(row[name] == clock[name] for name in PROOF):
            values["clock_ms"] = clock.append_seq
        rows.append(row_of(*(values[name] for name in PROGRESS.names)))
    return tuple(rows)


def _proven(at: Snapshot) -> Mapping[str, Row]:
    """The rows of progress, by follower, that are about this very log, as it is or as it was earlier."""
    return at.cached("proven", (PROGRESS, COMMITLOG), lambda: _of_this_log(at))


def _of_this_log(at: Snapshot) -> Mapping[str, Row]:
    # A RESTORE of the log keeps the commits that prove progress, and takes out rows that it is about.
    if has_lost_rows(at):
        return {}
    log_id, found = at.table_id(COMMITLOG), dict[int, str | None]()
    proven = {}
    for row in progress_rows(at):
        if row.log_id != log_id:
            continue
        if row.log_version not in found:
            found[row.log_version] = at.commit_id(COMMITLOG, row.log_version)
        if found[row.log_version] == row.log_commit:
            proven[row.follower] = row
    return proven
