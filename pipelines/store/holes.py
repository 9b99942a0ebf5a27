"""Holes: parts of the log whose rows are lost, taken out so that the rest is read.

Offsets stay as they are: a hole is room that no row takes, as a blank is, and a queue goes on after it where it would have
gone on. Readers find no rows there and say why.
"""

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from pipelines.errors import TableMissing
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG, HOLES, QUEUE_BOUNDS


def holes_of_log(at: Snapshot) -> Sequence[Row]:
    """The parts of the log that are lost, (from_offset, to_offset, reason, cut_ms): a few, one a lost file or less."""
    try:
        return at.cached("holes", (HOLES,), lambda: _of_log(at))
    except TableMissing:  # made by an earlier version
        return ()


def _of_log(at: Snapshot) -> Sequence[Row]:
    if at.is_empty(HOLES):
        return ()
    return tuple(at.read(HOLES).where(F.col("topic") == "").orderBy("from_offset").collect())


def is_in_a_hole(at: Snapshot, first: Column, following: Column) -> Column:
    """Whether the log has lost all of [first, following): a hole, or several that touch, cover it."""
    return _any_hole(at, lambda begin, end: (begin <= first) & (following <= end))


def touches_a_hole(at: Snapshot, first: Column, following: Column) -> Column:
    """Whether the log has lost something of [first, following)."""
    return _any_hole(at, lambda begin, end: (begin < following) & (first < end))


def _any_hole(at: Snapshot, condition: Callable[[Column, Column], Column]) -> Column:
    ranges = joined([(row.from_offset, row.to_offset) for row in holes_of_log(at)])
    return in_ranges(ranges, condition)


def in_ranges(ranges: Sequence[tuple[int, int]], condition: Callable[[Column, Column], Column]) -> Column:
    """Whether a condition on (begin, end) holds of one of some ranges of offsets; unknown is false."""
    if not ranges:
        return F.lit(False)
    each = [
        F.struct(F.lit(begin).cast("long").alias("begin"), F.lit(end).cast("long").alias("end"))
        for begin, end in ranges
    ]
    found = F.exists(F.array(*each), lambda hole: condition(hole["begin"], hole["end"]))
    return F.coalesce(found, F.lit(False))


def lost_ends(at: Snapshot) -> DataFrame:
    """How far the log and each queue that has lost messages went at least: `topic`, `queue_id`, `lost_end`."""
    end = F.max(F.coalesce("to_queue_offset", "to_offset")).alias("lost_end")
    return at.read(HOLES).groupBy("topic", "queue_id").agg(end)


def ends_in_holes(at: Snapshot, offset: int) -> Mapping[tuple[str, int], int]:
    """Where queues end, for a log that ends at an offset, whose next message there is lost.

    Not of those that may have lost some of the same row of `holes` before: nothing says how many of them lay where.
    """
    if not holes_of_log(at):
        return {}
    lost = _split(at, offset).where((F.col("topic") != "") & F.col("is_after"))
    ends = lost.groupBy("topic", "queue_id").agg(
        F.min("from_queue_offset").alias("end"), F.bool_or("is_before").alias("is_split")
    )
    # A row a queue that has lost some.
    return {(row.topic, row.queue_id): row.end for row in ends.where(~F.col("is_split")).collect()}


def holes_before(at: Snapshot, offset: int) -> DataFrame | None:
    """The rows of `holes` for a log that ends at an offset, as `queue_bounds` has it; None where they stay as they are."""
    if not any(offset < row.to_offset for row in holes_of_log(at)):
        return None
    is_of_a_queue = F.col("topic") != ""
    ends = at.read(QUEUE_BOUNDS).select("topic", "queue_id", F.col("next_offset").alias("end"))
    shortened = {
        "to_offset": F.least("to_offset", F.lit(offset).cast("long")),
        "to_queue_offset": F.when(is_of_a_queue, F.least("to_queue_offset", "end")),
    }
    before = _split(at, offset).where("is_before").join(ends, ["topic", "queue_id"], "left")
    is_left = ~is_of_a_queue | (F.col("from_queue_offset") < F.col("to_queue_offset"))
    return before.withColumns(shortened).where(is_left).select(*HOLES.names)


def holes_without_rows(at: Snapshot) -> DataFrame | None:
    """The rows of `holes` but for those of parts in which the log has rows; None where it has none in any.

    A cut that was killed before it took the damaged files out has recorded them, and the files were put back since.
    """
    holes = [(row.from_offset, row.to_offset) for row in holes_of_log(at)]
    if not holes:
        return None
    log = at.read(COMMITLOG)
    left = [  # a short query of a hole's segment each
        (begin, end)
        for begin, end in holes
        if log.where(F.col("physical_offset").between(begin, end - 1)).isEmpty()
    ]
    if left == holes:
        return None
    is_lost = in_ranges(left, lambda begin, end: (begin < F.col("to_offset")) & (F.col("from_offset") < end))
    return at.read(HOLES).where(is_lost)


def _split(at: Snapshot, offset: int) -> DataFrame:
    """The rows of `holes`, and whether what they say is lost lies before an offset, or after it, or both."""
    first, following = F.col("from_offset"), F.col("to_offset")
    lost = [(row.from_offset, row.to_offset) for row in holes_of_log(at)]
    is_before = in_ranges(
        lost, lambda begin, end: (begin < F.least(following, F.lit(offset))) & (first < end)
    )
    is_after = in_ranges(
        lost, lambda begin, end: (F.greatest(first, F.lit(offset)) < end) & (begin < following)
    )
    return at.read(HOLES).withColumns(
        {"is_before": is_before & (first < offset), "is_after": is_after & (following > offset)}
    )


def joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Half-open ranges as few that cover the same.

    >>> joined([(0, 5), (5, 7), (9, 10), (1, 2)])
    [(0, 7), (9, 10)]
    """
    found: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def lost_in_queue(at: Snapshot, topic: str, queue_id: int, first: int, following: int) -> str | None:
    """Why offsets [first, following) of a queue have no messages, in words; None where none of them is known to be lost."""
    if not holes_of_log(at):
        return None
    of_queue = at.read(HOLES).where((F.col("topic") == topic) & (F.col("queue_id") == queue_id))
    lost = of_queue.where(
        (F.col("from_queue_offset") < following) & (F.col("to_queue_offset") > first)
    ).orderBy("from_queue_offset")
    found = lost.limit(3).collect()
    if not found:
        return None
    return "; ".join(
        f"offsets {row.from_queue_offset} to {row.to_queue_offset - 1} of {topic}:{queue_id} are lost: {row.reason}"
        for row in found
    )


def hole_at(at: Snapshot, offset: int) -> Row | None:
    """The part of the log that is lost in which a byte lies; None where none is known to be."""
    return next((row for row in holes_of_log(at) if row.from_offset <= offset < row.to_offset), None)


def lost_at(at: Snapshot, offset: int) -> str | None:
    """Why there is no record at a byte of the log, in words; None where none is known to be lost there."""
    row = hole_at(at, offset)
    if row is None:
        return None
    return f"bytes {row.from_offset} to {row.to_offset} of the log are lost: {row.reason}"
