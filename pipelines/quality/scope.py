"""Which part of the log a run checks: what came since it was last found sound, whole segments at a time."""

from collections.abc import Iterable, Mapping, Sequence
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


def sound_up_to(at: Snapshot, suite: str, expectations: Sequence[str]) -> int:
    """The append up to which runs have found all these expectations of a suite met, and none has found one broken since.

    One run may go on where another ended. -1: none. Complaints that are only worth knowing (`info`) do not count.
    """
    of_suite = at.read(VALIDATIONS).where(
        (F.col("suite") == suite) & F.col("expectation").isin([*expectations])
    )
    is_broken = (F.col("broken") > 0) & (F.col("severity") != "info")
    has_all = F.count_distinct("expectation") == len(set(expectations))
    runs = of_suite.groupBy("run_id").agg(
        F.max("checked_ms").alias("checked_ms"),
        F.min("from_append_seq").alias("from_append"),
        F.max("to_append_seq").alias("to_append"),
        (F.count_if(is_broken) > 0).alias("has_failed"),
        has_all.alias("has_all"),
    )
    counting = runs.where("has_failed OR has_all")
    # A few numbers a run. Of two runs of one moment the failed one counts as the later.
    in_order = sorted(counting.collect(), key=lambda run: (run.checked_ms, run.has_failed))
    return sound_after((run.has_failed, (run.from_append, run.to_append)) for run in in_order)


def sound_after(runs: Iterable[tuple[bool, tuple[int, int]]]) -> int:
    """How far the log is sound after these runs, in their order: whether each failed, and the appends it checked.

    A run that failed takes back what earlier ones have found after the append that it began with.

    >>> sound_after([(False, (-1, 4)), (False, (4, 9)), (True, (4, 9))])
    4
    """
    spans: list[tuple[int, int]] = []
    for has_failed, (after, to) in runs:
        if has_failed:
            spans = [(begin, min(end, after)) for begin, end in spans if begin < after]
        else:
            spans.append((after, to))
    return joined(spans)


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


def scopes_of(
    at: Snapshot, suites: Mapping[str, Sequence[str]], after_append: int | None
) -> dict[str, Scope]:
    """What each suite checks: what came after an append; None: what came since the suite was last found sound.

    suites  the name of each, and its expectations

    Raises BadInput for an append after the log's last.
    """
    last = at.number(COMMITLOG)
    if after_append is not None and after_append > max(last, -1):
        raise BadInput(f"--since-append-seq is {after_append}; the log's last append is {last}")
    after = {
        name: sound_up_to(at, name, expectations) if after_append is None else after_append
        for name, expectations in suites.items()
    }
    scope_of = {append: scope_after(at, append) for append in set(after.values())}
    return {name: scope_of[append] for name, append in after.items()}
