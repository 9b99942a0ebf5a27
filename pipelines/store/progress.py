"""Progress: how far a follower of the log has come."""

from pyspark.sql import functions as F

from pipelines.store.plan import Write
from pipelines.store.snapshot import Snapshot
from schemas import PROGRESS, Table


def covered(at: Snapshot, table: Table) -> int:
    """The last append of the log that a derived table has followed; -1 before the first.

    The greater of what its rows say and what `progress` remembers: an append may give the table no rows, and a run may
    end before it records its progress.
    """
    in_rows = at.read(table).agg(F.max("append_seq")).first()
    remembered = at.read(PROGRESS).where(F.col("follower") == table.name).agg(F.max("append_seq")).first()
    found = [row[0] for row in (in_rows, remembered) if row is not None and row[0] is not None]
    return max(found, default=-1)


def progress_write(at: Snapshot, follower: str, append_seq: int) -> Write:
    """Record that a follower has come to `append_seq`; losing the race is fine, its rows say it too."""
    rows = at.store.spark.createDataFrame([(follower, append_seq)], PROGRESS.columns)
    return at.replace(PROGRESS, rows, where=f"follower = '{follower}'", key=follower, may_lose=True)
