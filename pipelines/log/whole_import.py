"""An import that was cut short has to end before anything else is appended: its offsets of groups speak of rows to come."""

from pyspark.sql import functions as F

from pipelines.errors import BadInput, StoreError
from pipelines.log.one_row import last_row
from pipelines.store.floors import IMPORT_PREFIX, LOG_OF_FLOORS, read_floors
from pipelines.store.holes import lost_at
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG


def can_import(at: Snapshot, end: int) -> bool:
    """Whether an import may append to the log, which ends at `end`: its last row is an import's, or it has none."""
    if lost_at(at, end - 1) is not None:
        return False
    # Not that of the last append: segments that expire, cuts and fences take numbers too.
    last = last_row(at, end)
    return last is None or bool(last.append_id.startswith(IMPORT_PREFIX))


def expect_whole_import(at: Snapshot, end: int) -> None:
    """Raises BadInput where the log ends, at `end`, before the broker's log of which an import has brought the last row.

    Not where others have appended since, as earlier versions let them: it is too late then.
    """
    needed = read_floors(at).get(LOG_OF_FLOORS, 0)
    if needed > end and can_import(at, end):
        raise BadInput(
            f"{_has_not_ended(end, needed)}, and groups pass over messages that are appended now. Run `commitlake "
            f"import_store` again, then this. Where the broker's files are gone, put into a new store {_rows_of(at)}"
        )


def expect_exportable(at: Snapshot, end: int) -> None:
    """Raises StoreError where the log ends, at `end`, before what the broker of an import has settled."""
    needed = read_floors(at).get(LOG_OF_FLOORS, 0)
    if needed <= end:
        return
    if can_import(at, end):
        raise StoreError(
            f"{_has_not_ended(end, needed)}. Nothing was written; run `commitlake import_store` again, then this"
        )
    own = at.read(COMMITLOG).where(~F.col("append_id").startswith(IMPORT_PREFIX))
    (since,) = own.agg(F.min("physical_offset")).collect()[0]
    raise StoreError(
        f"{_has_not_ended(end, needed)}, and it cannot go on: the log does not end with its rows. Nothing was written; "
        f"import the broker's files into a new store, then put there {_rows_of(at, since)}"
    )


def _has_not_ended(end: int, needed: int) -> str:
    return f"an import into the store has not ended: the log has {end} of {needed} bytes of the broker's"


def _rows_of(at: Snapshot, since: int | None = None) -> str:
    rows = "" if since is None else f" --from-offset {since}"
    return f"what `commitlake export_store --store {at.store.uri} --to DIR --format jsonl{rows}` writes"
