"""What a commit was planned to hold, compared with what it holds by its own statistics, before anything follows from it.

A plan gives every row its offsets before it is written. Whether the rows are those of the plan is checked here: right after
a commit, and again when the log's head is read, since a writer may be killed in between. The plan's numbers are therefore
stored with the commit, after its token. A later append would lie on offsets that are taken, so nothing is appended after
a commit that is not as planned.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import functions as F

from pipelines.errors import StoreError
from pipelines.spark_internals.delta_log import AddedRows, CommitInfo, DeltaSnapshot
from pipelines.spark_internals.lost_rows import LostRows
from pipelines.store.plan import Planned, Write
from pipelines.store.snapshot import Snapshot, app_id
from pipelines.store.sql_text import delta_table
from pipelines.store.store import Store
from schemas import COMMITLOG, DERIVED


@dataclass(frozen=True)
class Damage:
    """An append that is not as it was planned."""

    append_seq: int
    planned: Planned
    found: AddedRows

    def __str__(self) -> str:
        found = f"{self.found.rows} rows"
        if self.found.rows:
            found += f", the first at byte {self.found.least} and the last at byte {self.found.greatest}"
        return f"append {self.append_seq} of the log holds {found}; planned were {_in_words(self.planned)}"


def with_plan(token: str, planned: Planned | None) -> str:
    """A commit's user metadata: the token, and what was planned where that is known."""
    return token if planned is None else f"{token} {json.dumps(asdict(planned))}"


def plan_of(metadata: str) -> Planned | None:
    """What was planned, from a commit's user metadata; None where the metadata has no plan.

    >>> plan_of(with_plan("token", Planned(3, 0, 200, 300))), plan_of("token")
    (Planned(rows=3, first_offset=0, last_offset=200, next_offset=300), None)
    """
    _, _, planned = metadata.partition(" ")
    return Planned(**json.loads(planned)) if planned.startswith("{") else None


def is_as_planned(planned: Planned, found: AddedRows) -> bool:
    """Whether rows, first and last offset are the plan's, and none lies beyond the planned end.

    >>> planned = Planned(3, 0, 200, 300)
    >>> is_as_planned(planned, AddedRows(3, 0, 200)), is_as_planned(planned, AddedRows(4, 0, 200))
    (True, False)
    >>> is_as_planned(Planned(3, 0, None, 300), AddedRows(3, 0, 300)), is_as_planned(Planned(3), AddedRows(3, None, None))
    (False, True)
    """
    end = planned.next_offset
    return (
        planned.rows in (None, found.rows)
        and planned.first_offset in (None, found.least)
        and planned.last_offset in (None, found.greatest)
        and (end is None or (found.greatest is not None and found.greatest < end))
    )


def expect_as_planned(store: Store, write: Write, ours: CommitInfo) -> None:
    """Compare a commit that was just made with its plan. Raises StoreError where they differ."""
    if write.planned is None or write.number is None:
        return
    name = write.table.name
    is_log = write.table is COMMITLOG
    found = store.delta(write.table).added_rows(ours.version, "physical_offset" if is_log else None)
    if found is None and is_log:
        found = _counted(store.snapshot(), write.number)
    if found is None or is_as_planned(write.planned, found):
        return
    if is_log:
        raise _refusal(Damage(write.number, write.planned, found))
    cure = "run `commitlake dispatch --rebuild`" if write.table in DERIVED else "run this again"
    raise StoreError(
        f"commit {write.number} of {name} holds {found.rows} rows; expected were {write.planned.rows}. The log is as it "
        f"was: {cure}"
    )


def has_lost_rows(at: Snapshot) -> bool:
    """Whether something other than a job, such as a RESTORE, has taken rows out of the log after a job's last commit."""
    return lost_in_words(at) is not None


def lost_in_words(at: Snapshot) -> str | None:
    """What has taken rows out of the log, and how they come back; None where none are lost.

    The log's number stays then, and its last append was as planned. But the log ends earlier, and the offsets of the lost
    rows, which groups may have read, would be given again.
    """
    return _loss(at.store.path(COMMITLOG), at.lost_rows(COMMITLOG, "physical_offset"))


def expect_no_rows_lost(at: Snapshot) -> None:
    """Raises StoreError where the log has lost rows to something other than a job."""
    _refuse(lost_in_words(at))


def expect_no_rows_lost_by(path: str, newest: DeltaSnapshot) -> None:
    """As `expect_no_rows_lost`, of the log's newest version, right before a commit that was planned from another one."""
    _refuse(_loss(path, newest.lost_rows(app_id(COMMITLOG), "physical_offset")))


def _refuse(lost: str | None) -> None:
    if lost is not None:
        raise StoreError(f"{lost}. Nothing was written")


def _loss(path: str, lost: LostRows | None) -> str | None:
    if lost is None:
        return None
    return (
        f"the log has lost rows: version {lost.version} of commitlog, a {lost.operation}, has taken them out, and their "
        "offsets would be given again; put them back, in a Spark session with Delta: `RESTORE TABLE "
        f"{delta_table(path)} TO VERSION AS OF {lost.version - 1}`. Where their files no longer exist, put the whole store "
        "back from a backup"
    )


def expect_whole(at: Snapshot) -> None:
    """Raises StoreError where the log's last append is not as it was planned.

    The appends before it are: the writer of the next one has checked.
    """
    damage = damage_of(at)
    if damage is not None:
        raise _refusal(damage)


def damage_of(at: Snapshot) -> Damage | None:
    """What is wrong with the log's last append; None where it is as planned, or its plan is not known."""
    return at.cached("last append", (COMMITLOG,), lambda: _damage_of(at))


def _damage_of(at: Snapshot) -> Damage | None:
    append_seq = at.number(COMMITLOG)
    if append_seq < 0:
        return None
    table = at.store.delta(COMMITLOG)
    commit = table.commit_numbered(app_id(COMMITLOG), append_seq, at.version(COMMITLOG))
    planned = None if commit is None else plan_of(commit.token)
    if commit is None or planned is None:
        return None
    found = table.added_rows(commit.version, "physical_offset") or _counted(at, append_seq)
    return None if is_as_planned(planned, found) else Damage(append_seq, planned, found)


def _counted(at: Snapshot, append_seq: int) -> AddedRows:
    """The counts and bounds of an append, from its rows: a session may have written files without statistics."""
    offset = F.col("physical_offset")
    mine = at.read(COMMITLOG).where(F.col("append_seq") == append_seq)
    found = mine.agg(F.count("*"), F.min(offset), F.max(offset)).first()
    assert found is not None
    return AddedRows(*found)


def _refusal(damage: Damage) -> StoreError:
    return StoreError(
        f"{damage}. Nothing follows from it and nothing is appended after it: run `commitlake validate --repair`, which "
        "sets its rows aside, and then the job that wrote them again"
    )


def _in_words(planned: Planned) -> str:
    offsets: Mapping[str, Any] = {
        "the first at byte": planned.first_offset,
        "the last at byte": planned.last_offset,
        "the log's end at byte": planned.next_offset,
    }
    rows = [] if planned.rows is None else [f"{planned.rows} rows"]
    return ", ".join([*rows, *(f"{name} {n}" for name, n in offsets.items() if n is not None)])
