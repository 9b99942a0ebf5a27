"""Cutting the log: its last append is taken off where it is not as it was planned, and nothing of it is lost.

Its rows are first copied to `cut_rows`, then a commit with the next number takes them out of the log, so that no number
comes twice. The log is append-only except for that one commit, and for that of segments that expire. An interrupted cut is
simply made again.
"""

from collections.abc import Callable
from typing import TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.spark_internals.arrow import frame_of
from pipelines.store.commit import Committed, commit
from pipelines.store.lock import under_lock
from pipelines.store.plan import Plan, Planned
from pipelines.store.planned import Damage, damage_of
from pipelines.store.snapshot import Snapshot
from pipelines.store.sql_text import delta_table
from pipelines.store.store import Store
from schemas import COMMITLOG, CUT_ROWS, CUTS

APPEND_ONLY = "delta.appendOnly"

T = TypeVar("T")


def cut_damaged_append(store: Store) -> Damage | None:
    """The damage of the log's last append, which is cut off; None where the append is as planned."""
    damage = damage_of(store.snapshot())
    if damage is None:
        return None
    commit(store, plan_set_aside)
    take_out(store, plan_cut)
    return damage


def take_out(store: Store, planner: Callable[[Snapshot], Plan]) -> Committed:
    """Commit a plan that takes rows out of the log, which is append-only at any other time."""
    return while_open(store, lambda: commit(store, planner))


def while_open(store: Store, take: Callable[[], T]) -> T:
    """Call a function that takes rows out of the log, which is append-only again afterwards; returns its result."""

    def opened() -> T:
        set_append_only(store, False)
        try:
            return take()
        finally:
            set_append_only(store, True)

    return under_lock(store.spark, store.uri, opened)


def plan_set_aside(at: Snapshot) -> Plan:
    """The plan that copies the rows to be cut off and records where the cut is; it replaces what an earlier try copied."""
    damage = damage_of(at)
    if damage is None:
        return Plan()
    rows = at.read(COMMITLOG).where(F.col("append_seq") == damage.append_seq)
    offset = damage.planned.first_offset if damage.found.least is None else damage.found.least
    return plan_record_cut(at, rows, offset, Planned(damage.found.rows))


def plan_record_cut(
    at: Snapshot, rows: DataFrame, offset: int | None, planned: Planned | None = None
) -> Plan:
    """The plan that copies rows of the log to `cut_rows` and then records that the log's next commit cuts it at an offset.

    planned  what is known of the rows; the copies are compared with it
    """
    cut_seq = at.number(COMMITLOG) + 1
    numbers = ", ".join(str(number) for number in sorted({cut_seq, *_earlier_tries(at, rows)}))
    copied = rows.withColumn("cut_seq", F.lit(cut_seq).cast("long"))
    cut = frame_of(at.store.spark, [(cut_seq, offset)], CUTS.columns)
    return Plan(
        (
            at.replace(CUT_ROWS, copied, where=f"cut_seq IN ({numbers})", planned=planned),
            at.replace(CUTS, cut, where=f"append_seq IN ({numbers})"),
        )
    )


def _earlier_tries(at: Snapshot, rows: DataFrame) -> list[int]:
    """The numbers under which an earlier try has copied some of these rows, which are still in the log.

    The next try may have another number: a fence or another commit has taken it.
    """
    if at.is_empty(CUT_ROWS):
        return []
    copies = at.read(CUT_ROWS)
    same = copies.join(rows, ["physical_offset", "append_seq"], "left_semi")
    return [row.cut_seq for row in same.select("cut_seq").distinct().collect()]  # a number a try


def plan_cut(at: Snapshot) -> Plan:
    """The plan that takes the rows of a damaged last append out of the log, in a commit with the next number."""
    damage = damage_of(at)
    if damage is None:
        return Plan()
    nothing = at.read(COMMITLOG).limit(0)
    return Plan((at.replace(COMMITLOG, nothing, where=f"append_seq = {damage.append_seq}"),))


def is_append_only(at: Snapshot) -> bool:
    """Whether Delta refuses to take rows out of the log."""
    return at.table_property(COMMITLOG, APPEND_ONLY) == "true"


def set_append_only(store: Store, on: bool) -> None:
    """Have Delta refuse to take rows out of the log, or allow it; nothing is written where that is so already."""
    if is_append_only(store.snapshot()) != on:
        value = "true" if on else "false"
        table = delta_table(store.path(COMMITLOG))
        change = f"ALTER TABLE {table} SET TBLPROPERTIES ('{APPEND_ONLY}' = '{value}')"
        under_lock(store.spark, store.uri, lambda: store.spark.sql(change))
