"""Claims: what a copy takes of its source. (source_offset, claim) identifies a copy and is unique in the log.

Every feature checks in one way whether a claim is still free: `unclaimed`.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.spark_internals.catalyst import search
from pipelines.store.progress import covered, followed_rows
from pipelines.store.snapshot import Snapshot
from schemas import CLAIMS, COMMITLOG

# The copy that claims `settle` settles its source: delivers, ends or replaces it. An op mark of a commit claims `mark`.
SETTLE = "settle"
MARK = "mark"

# The most spans of the log that a condition names; more are joined to their neighbours. Spark plans a condition of
# 200 spans in 2 s, one of 30 in 0.2 s.
SPANS_NAMED = 32
# Rows at most this far apart are in one span: they lie in the same row group.
NEAR_BYTES = 1024 * 1024

Span = tuple[int, int]  # (first offset, last offset), both included


def unclaimed(at: Snapshot, rows: DataFrame, spans: Sequence[Span] | None = None) -> DataFrame:
    """Those of `rows` whose claim no copy has, in the claims table or in appends it has not followed.

    rows   `source_offset` (long), `claim` (string) and any others
    spans  where the sources lie in the log, so that only claims on these spans are read; None: anywhere
    """
    taken = claims_taken(at)
    if spans is not None:
        taken = taken.where(lies_in("source_offset", spans))
    return rows.join(taken.select("source_offset", "claim"), ["source_offset", "claim"], "left_anti")


def unclaimed_of_many(at: Snapshot, rows: pa.Table, claim: str) -> pa.Table:
    """Those of `rows` whose `claim` no copy has, as `unclaimed`, for rows on the driver.

    Spark looks each claim up in the rows' sorted offsets; of those found eight bytes each come to the driver.

    rows  `source_offset` (int64), each once and none null, and any others
    """
    sources = np.sort(rows.column("source_offset").to_numpy())
    taken = claims_taken(at).where(lies_in("source_offset", spans_of_offsets(sources)))
    is_of_a_row = (F.col("claim") == claim) & (search(sources, F.col("source_offset")) >= 0)
    found = taken.where(is_of_a_row).select("source_offset").toArrow().column("source_offset")
    if not len(found):
        return rows
    return rows.filter(pc.invert(pc.is_in(rows.column("source_offset"), found.combine_chunks())))


def claims_taken(at: Snapshot) -> DataFrame:
    """Every claim as of the snapshot, with the columns of `claims`."""
    followed = covered(at, CLAIMS)
    derived = followed_rows(at, CLAIMS)
    if at.is_empty(CLAIMS):
        # Spark leaves out an empty relation, and what is joined to it; Delta would list files.
        derived = derived.limit(0)
    if followed >= at.number(COMMITLOG):
        return derived
    return derived.unionByName(claims_of(at.read_after(COMMITLOG, followed)))


def claims_of(log: DataFrame) -> DataFrame:
    """One row per log row that has a claim on its source, with the columns of `claims`."""
    return log.where(F.col("claim").isNotNull()).select(*CLAIMS.names)


def spans_of(places: DataFrame, column: str = "source_offset") -> list[Span]:
    """The spans of the log in which rows lie, at most SPANS_NAMED; empty when there are no rows.

    places  `segment` (long) and the column with physical offsets
    """
    by_segment = places.groupBy("segment").agg(F.min(column).alias("first"), F.max(column).alias("last"))
    # One row per segment comes to the driver.
    return joined_spans([(row["first"], row["last"]) for row in by_segment.collect()])


def joined_spans(spans: Sequence[Span], named: int = SPANS_NAMED) -> list[Span]:
    """The same spans in order, the nearest joined until at most `named` are left.

    >>> joined_spans([(90, 99), (0, 4), (6, 9)], named=2)
    [(0, 9), (90, 99)]
    """
    ordered = sorted(spans)
    if len(ordered) <= named:
        return ordered
    gaps = np.array([after[0] - before[1] for before, after in pairwise(ordered)])
    kept = sorted((np.argpartition(-gaps, named - 2)[: named - 1] + 1).tolist()) if named > 1 else []
    edges = [0, *kept, len(ordered)]
    return [
        (ordered[first][0], max(span[1] for span in ordered[first:end])) for first, end in pairwise(edges)
    ]


def spans_of_offsets(offsets: np.ndarray) -> list[Span]:
    """The spans of the log in which some offsets lie, at most SPANS_NAMED.

    >>> spans_of_offsets(np.array([5_000_000, 0, 400]))
    [(0, 400), (5000000, 5000000)]
    """
    ordered = np.sort(offsets)
    if not len(ordered):
        return []
    gaps = np.diff(ordered)
    far = np.flatnonzero(gaps > NEAR_BYTES)
    cuts = np.sort(far[np.argsort(-gaps[far], kind="stable")[: SPANS_NAMED - 1]]) + 1
    firsts, lasts = ordered[np.r_[0, cuts]], ordered[np.r_[cuts - 1, len(ordered) - 1]]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def lies_in(column: str, spans: Sequence[Span]) -> Column:
    """Whether an offset lies in one of the spans; Delta and Parquet skip files and row groups outside all."""
    inside = F.lit(False)
    for first, last in spans:
        inside = inside | F.col(column).between(first, last)
    return inside
