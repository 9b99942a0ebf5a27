"""Which part of the log a run checks: what came since it was last found sound, whole segments at a time."""

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.errors import BadInput
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG, VALIDATIONS


@dataclass(frozen=True)
class Scope:
    """The segments with appends after one, up to the snapshot's last.

    after_append   -1: everything
    first_segment  where they begin; None when nothing came since
    """

    after_append: int
    to_append: int
    first_segment: int | None

    @property
    def is_everything(self) -> bool:
        return self.after_append < 0

    def of(self, rows: DataFrame) -> DataFrame:
        """Those of some rows with a `segment` that are checked."""
        return rows if self.is_everything else rows.where(self._is_inside())

    def before(self, rows: DataFrame) -> DataFrame:
        """Those of some rows with a `segment` that are not checked."""
        return rows.where(F.lit(False) if self.is_everything else ~self._is_inside())

    def _is_inside(self) -> Column:
        return F.lit(False) if self.first_segment is None else F.col("segment") >= self.first_segment


def scope_after(at: Snapshot, after_append: int) -> Scope:
    """The scope of what came after an append; appends go to the log's end, so it reaches from one segment to the last."""
    to_append = at.number(COMMITLOG)
    if after_append < 0 or after_append >= to_append:
        return Scope(max(after_append, -1), to_append, None)
    new = at.read_after(COMMITLOG, after_append)
    found = new.agg(F.min("segment")).first()
    return Scope(after_append, to_append, None if found is None else found[0])


def sound_up_to(at: Snapshot, suite: str) -> int:
    """The append up to which runs have found a suite's promises kept, one run going on where another ended; -1: none.

    Complaints that are only worth knowing (`info`) do not count.
    """
    of_suite = at.read(VALIDATIONS).where(F.col("suite") == suite)
    is_broken = (F.col("broken") > 0) & (F.col("severity") != "info")
    runs = of_suite.groupBy("run_id").agg(
        F.min("from_append_seq").alias("from_append"),
        F.max("to_append_seq").alias("to_append"),
        F.count_if(is_broken).alias("broken"),
    )
    # Two numbers a run.
    passed = runs.where("broken = 0").select("from_append", "to_append").collect()
    return joined((row.from_append, row.to_append) for row in passed)


def joined(spans: Iterable[tuple[int, int]]) -> int:
    """How far ranges of appends (after the first number, up to the second) reach from the log's start without a gap.

    >>> joined([(-1, 4), (9, 12), (4, 7)]), joined([(3, 4)])
    (7, -1)
    """
    reached = -1
    for after, to in sorted(spans):
        if after > reached:
            break
        reached = max(reached, to)
    return reached


def scopes_of(at: Snapshot, suites: Iterable[str], after_append: int | None) -> dict[str, Scope]:
    """What each suite checks: what came after an append; None: what came since the suite was last found sound.

    Raises BadInput for an append after the log's last.
    """
    last = at.number(COMMITLOG)
    if after_append is not None and after_append > max(last, -1):
        raise BadInput(f"--since-append-seq is {after_append}; the log's last append is {last}")
    after = {name: sound_up_to(at, name) if after_append is None else after_append for name in suites}
    scope_of = {append: scope_after(at, append) for append in set(after.values())}
    return {name: scope_of[append] for name, append in after.items()}
