"""An import that was cut short has to end before anything else is appended: its offsets of groups speak of rows to come."""

from pipelines.errors import BadInput
from pipelines.log.one_row import last_row
from pipelines.store.floors import IMPORT_PREFIX, LOG_OF_FLOORS, read_floors
from pipelines.store.holes import lost_at
from pipelines.store.snapshot import Snapshot


def expect_whole_import(at: Snapshot, end: int) -> None:
    """Raises BadInput where the log ends, at `end`, before the broker's log of which an import has brought the last row."""
    needed = read_floors(at).get(LOG_OF_FLOORS, 0)
    if needed <= end or lost_at(at, end - 1) is not None:
        return
    last = last_row(at, end)
    if last is not None and not last.append_id.startswith(IMPORT_PREFIX):
        return  # written by an earlier version: too late
    raise BadInput(
        f"an import into the store has not ended: the log has {end} of {needed} bytes of the broker's, and groups pass "
        "over messages that are appended now. Run `commitlake import_store` again, then this"
    )
