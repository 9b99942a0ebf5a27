"""Single rows of the log, found by where they lie: what two logs, or a log and its copy, are compared by."""

from collections.abc import Callable

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from pipelines.rocketmq.settings import LONG_MAX
from pipelines.store.head import head_as_found
from pipelines.store.holes import hole_at
from pipelines.store.role import settings_now
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG

# What tells a record from another at the same offset.
SAME = (
    "physical_offset",
    "size_bytes",
    "topic",
    "queue_id",
    "queue_offset",
    "body_crc",
    "store_timestamp",
    "append_id",
)


def begin_apart(at: Snapshot, since: int, other: Snapshot) -> bool:
    """Whether the first rows of two logs, from an offset on, are not the same.

    What either log has lost is passed over; where one then has no row, nothing shows that they are apart.
    """
    own, others = _first_row(at, since), _first_row(other, since)
    while own != others:
        lost = [
            hole.to_offset
            for row, log in ((own, other), (others, at))
            if row is not None and (hole := hole_at(log, row.physical_offset)) is not None
        ]
        if not lost:
            return True
        own, others = _first_row(at, max(lost)), _first_row(other, max(lost))
        if own is None or others is None:
            return False
    return False


def _first_row(at: Snapshot, since: int) -> Row | None:
    """The first row of a log that starts at an offset or later, by the columns of SAME; None where there is none."""
    # A record that does not fit a segment opens the next, so it lies not farther off, but for rows that are lost.
    near = _one_row(at, F.min_by, since, since + 2 * settings_now(at).segment_bytes)
    return near or _one_row(at, F.min_by, since)


def last_row(at: Snapshot, before: int, after: int = 0) -> Row | None:
    """The last row of a log that starts in [after, before), by the columns of SAME; None where there is none.

    Few files are read: it lies not farther off than the longest record and the rest of a segment, else it is searched for.
    """
    known: dict[tuple[int, int], Row | None] = at.cached("last rows", (COMMITLOG,), dict)
    if (after, before) not in known:
        known[after, before] = _last_row(at, before, after)
    return known[after, before]


def record_apart(at: Snapshot, point: int, other: Snapshot) -> Row | None:
    """The last row of a log that starts before a point, where another log has not the same; None where it has.

    None too where the other log no longer has it, as it has expired there. What the other log has lost is passed over.
    """
    own = last_row(at, point)
    while own is not None and (hole := hole_at(other, own.physical_offset)) is not None:
        own = last_row(at, hole.from_offset)
    if own is None or own.physical_offset < head_as_found(other).min_offset:
        return None
    is_same = last_row(other, own.physical_offset + 1, own.physical_offset) == own
    return None if is_same else own


def _last_row(at: Snapshot, before: int, after: int) -> Row | None:
    settings = settings_now(at)
    for least in (before - settings.max_record_bytes, before - 2 * settings.segment_bytes, after):
        found = _one_row(at, F.max_by, max(after, least), before)
        if found is not None or least <= after:
            break
    return found


def _one_row(
    at: Snapshot, chosen: Callable[[Column, Column], Column], since: int, before: int = LONG_MAX
) -> Row | None:
    """The row of the log in [since, before) with the least (min_by) or greatest (max_by) offset."""
    offset = F.col("physical_offset")
    rows = at.read(COMMITLOG).where((offset >= since) & (offset < before))
    found = rows.agg(chosen(F.struct(*SAME), offset).alias("row")).first()
    return None if found is None else found.row
