"""Progress: how far a follower of the log has come."""

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.store.plan import Write
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG, DERIVED, PROGRESS, Table


def remembered(at: Snapshot, table: Table) -> int:
    """An append of the log up to which a derived table has followed; it may be further on.

    For those who read the table's rows up to it and the log's behind it, and want to know without asking the rows. What a
    run wrote that ended before it recorded its progress is read from the log, until the next run.
    """
    known = read_progress(at).get(table.name)
    return covered(at, table) if known is None else known


def covered(at: Snapshot, table: Table) -> int:
    """The last append of the log that a derived table has followed; -1 before the first."""
    return covered_by_each(at)[table.name]


def covered_by_each(at: Snapshot) -> Mapping[str, int]:
    """The last append of the log that each derived table has followed, by its name; -1 before the first.

    The greater of what `progress` remembers and what the table's rows say: an append may give it no rows, and a run may
    end before it records its progress. Rows are asked only where there is something left to follow, all in one query.
    """
    # Progress is pinned before the tables: a cache may be behind them, never ahead.
    return at.once("covered", (PROGRESS, *DERIVED, COMMITLOG), lambda: _covered_by_each(at))


def _covered_by_each(at: Snapshot) -> Mapping[str, int]:
    known = read_progress(at)
    followed = {table.name: known.get(table.name, -1) for table in DERIVED}
    behind = [table for table in DERIVED if followed[table.name] < at.number(COMMITLOG)]
    if behind:
        # The log grows more often than these tables, and what their rows say stays true.
        of_rows = at.once("greatest", DERIVED, lambda: _greatest_of_each(at))
        followed.update({table.name: max(followed[table.name], of_rows[table.name]) for table in behind})
    return followed


def _greatest_of_each(at: Snapshot) -> Mapping[str, int]:
    """The last append that the rows of each derived table are of; -1 without rows."""

    def greatest(table: Table) -> DataFrame:
        return at.read(table).select(F.lit(table.name), F.coalesce(F.max("append_seq"), F.lit(-1)))

    # A row a table.
    return dict(tuple(row) for row in reduce(DataFrame.unionAll, map(greatest, DERIVED)).collect())


def read_progress(at: Snapshot) -> dict[str, int]:
    """What is remembered of every follower; a row each."""
    return {row.follower: row.append_seq for row in at.rows(PROGRESS)}


def progress_write(at: Snapshot, followed: Mapping[str, int]) -> Write:
    """Remember how far followers have come; losing the race is fine, their rows say it too."""
    rows = sorted({**read_progress(at), **followed}.items())
    return at.replace(
        PROGRESS, at.store.spark.createDataFrame(rows, PROGRESS.columns).coalesce(1), may_lose=True
    )
