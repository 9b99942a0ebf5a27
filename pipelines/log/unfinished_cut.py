"""The cut of a log that is recorded and not made yet, as a run of `replicate` that was killed leaves it."""

from pyspark.sql import functions as F

from pipelines.log.one_row import SAME
from pipelines.store.head import head_as_found
from pipelines.store.holes import holes_of_log
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG, CUT_ROWS, CUTS, QUEUE_BOUNDS


def unfinished(at: Snapshot) -> int | None:
    """The offset of a cut that is recorded and not made."""
    lost_end = max((row.to_offset for row in holes_of_log(at)), default=0)
    # Recorded first, made last: so `cuts` is pinned before the log.
    tables = CUTS, CUT_ROWS, QUEUE_BOUNDS, COMMITLOG
    return at.cached(f"unfinished cut {lost_end}", tables, lambda: _unfinished(at, lost_end))


def _unfinished(at: Snapshot, lost_end: int) -> int | None:
    # A log that was put back as it was earlier has nothing to do with a cut of later, also once it has grown again.
    last = at.number(COMMITLOG) + 1
    cuts = {row.append_seq: row.physical_offset for row in at.rows(CUTS) if row.append_seq <= last}
    if not cuts:
        return None
    number = max(cuts)
    offset = cuts[number]
    rows = at.read(COMMITLOG).where(F.col("physical_offset") >= offset)
    before = rows.where(F.col("append_seq") < number)
    # Copies under a later number are of a cut that was to be recorded again.
    copies = at.read(CUT_ROWS).where(F.col("cut_seq") >= number)
    if before.isEmpty():
        is_without_rows = copies.isEmpty() and (number == last or rows.isEmpty())
        return offset if is_without_rows and _is_end_to_go_back(at, number, offset, lost_end) else None
    is_same = [copies[name].eqNullSafe(before[name]) for name in (*SAME, "append_seq")]
    if number == last:
        return offset if before.join(copies, is_same, "left_anti").isEmpty() else None
    return None if copies.join(before, is_same, "left_semi").isEmpty() else offset


def _is_end_to_go_back(at: Snapshot, number: int, offset: int, lost_end: int) -> bool:
    """Whether a cut of what the log had lost before is still to be made: no row shows it, but the bounds and holes do.

    lost_end  where the last part of the log that is lost ends, bytes
    """
    head = head_as_found(at)
    is_before_bounds = head.bounds_append_seq < number and offset < head.next_offset
    is_next = head.bounds_append_seq == number > at.number(COMMITLOG)
    return is_before_bounds or is_next or (head.next_offset == offset < lost_end)
