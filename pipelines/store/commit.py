"""Committing: compare and swap. The one place that writes rows.

Delta refuses a commit whose number another writer has taken, with an exception or by silently writing nothing.
So a normal return proves nothing: a commit is ours when a version after the plan's snapshot carries our token.
"""

import logging
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from pipelines.errors import HeadMoved, StoreError
from pipelines.spark_internals.conflicts import is_conflict
from pipelines.spark_internals.delta_log import CommitInfo, DeltaSnapshot, commit_file
from pipelines.store.beside import beside
from pipelines.store.lock import under_lock
from pipelines.store.plan import Plan, Write
from pipelines.store.planned import expect_as_planned, expect_no_rows_lost_by, with_plan
from pipelines.store.role import expect_role
from pipelines.store.snapshot import Snapshot, app_id
from pipelines.store.store import Store
from schemas import COMMITLOG

log = logging.getLogger(__name__)

# A minute-long put while others write every few seconds loses some races; forty attempts with pauses of up to five
# seconds are minutes of bad luck in a row, after which a person should check what writes.
ATTEMPTS = 40
LONGEST_PAUSE_SECONDS = 5


@dataclass
class Committed:
    """What was written: the last plan, and the rows each table got over all attempts."""

    plan: Plan = field(default_factory=Plan)
    counts: dict[str, int] = field(default_factory=dict)
    lost_races: int = 0

    @property
    def result(self) -> dict[str, Any]:
        return dict(self.plan.result)

    @property
    def wrote(self) -> bool:
        return bool(self.counts)


def commit(store: Store, planner: Callable[[Snapshot], Plan], attempts: int = ATTEMPTS) -> Committed:
    """Plan from a snapshot and write the plan; when another writer came first, plan again from the new head.

    The planner may be called several times and must not have side effects. A write that is refused leaves nothing; the
    writes before it and side by side with it stay, and the next plan sees them.

    Raises HeadMoved when every attempt lost the race, and BadInput for a plan that is not for a store of this role.
    """
    store.expect_now()
    committed = Committed()

    def note_lost_race(state: RetryCallState) -> None:
        committed.lost_races += 1
        log.info("another writer came first (attempt %d); planning again", state.attempt_number)

    for attempt in Retrying(
        retry=retry_if_exception_type(HeadMoved),
        stop=stop_after_attempt(attempts),
        wait=wait_random_exponential(multiplier=0.1, max=LONGEST_PAUSE_SECONDS),
        before_sleep=note_lost_race,
        retry_error_callback=_advise,
    ):
        with attempt:
            at = store.snapshot()
            committed.plan = planner(at)
            # After the plan has pinned the log: whoever takes the role away appends to the log after that.
            expect_role(store.snapshot(), committed.plan)
            at.preload(*(write.table for write in committed.plan.writes if write.number is not None))
            for writes in committed.plan.in_turn:
                _write(store, writes, committed)
            if committed.plan.afterwards is not None:
                _write(store, (committed.plan.afterwards(store.snapshot()),), committed)
    return committed


def _advise(lost: RetryCallState) -> NoReturn:
    """Raise HeadMoved with what the user can do when every attempt lost the race."""
    assert lost.outcome is not None, "an attempt has ended"
    last = lost.outcome.exception()
    raise HeadMoved(
        f"another writer kept winning for {lost.attempt_number} attempts (the last one: {last}). Nothing is lost: run it "
        "again, and if that happens again, while fewer jobs write to this store"
    ) from last


def _write(store: Store, writes: Sequence[Write], committed: Committed) -> None:
    """Make writes side by side; the failure of one is raised when all have ended."""
    outcomes = under_lock(store.spark, store.uri, lambda: _outcomes(store, writes))
    failures = []
    for write, outcome in zip(writes, outcomes, strict=True):
        name = write.table.name
        if isinstance(outcome, CommitInfo):
            expect_as_planned(store, write, outcome)
            committed.counts[name] = committed.counts.get(name, 0) + outcome.rows
        elif isinstance(outcome, HeadMoved) and write.may_lose:
            log.debug("another writer has advanced %s", name)
        else:
            failures.append(outcome)
    # Other failures are raised first: a lost race is planned again, which would hide them.
    for failure in sorted(failures, key=lambda failure: isinstance(failure, HeadMoved)):
        raise failure


def _outcomes(store: Store, writes: Sequence[Write]) -> list[CommitInfo | Exception]:
    if len(writes) == 1:
        return [_outcome(store, writes[0])]
    with beside(store.spark, len(writes)) as threads:
        return list(threads.map(partial(_outcome, store), writes))


def _outcome(store: Store, write: Write) -> CommitInfo | Exception:
    try:
        return _write_once(store, write)
    except Exception as failure:
        return failure


def _write_once(store: Store, write: Write) -> CommitInfo:
    newest = expect_head(store, write)
    token = with_plan(str(uuid.uuid4()), write.planned)
    try:
        save(store, write, newest, token)
    except Exception as failure:
        # The JVM may have committed before the failure reached us: the table decides, not the exception.
        ours = find_commit(store, write, token)
        if ours is not None:
            return ours
        if is_conflict(failure):
            raise _moved(write) from failure
        raise
    ours = find_commit(store, write, token)
    if ours is None:
        raise _moved(write)
    return ours


def save(store: Store, write: Write, newest: DeltaSnapshot | None, token: str) -> None:
    """Commit the rows of a write, if its number is free still; find_commit() finds out.

    newest  the version that is written to, with what Delta knows of it; None for rows that may come after any
    """
    rows, is_whole = write.rows.select(*write.table.names), write.replace_where == "true"
    number = None if write.number is None else (app_id(write.table, write.key), write.number)
    if (
        newest
        and number
        and write.partitions is not None
        and write.replace_where is not None
        and newest.replace_rows(rows, token, number, write.partitions, write.replace_where)
    ):
        return
    mode = "append" if write.replace_where is None else "overwrite"
    writer = rows.write.format("delta").mode(mode).option("userMetadata", token)
    if number is not None:
        writer = writer.option("txnAppId", number[0]).option("txnVersion", number[1])
    if is_whole:
        # A table of an older version gets the columns that were added since.
        writer = writer.option("mergeSchema", "true")
    elif write.replace_where is not None:
        writer = writer.option("replaceWhere", write.replace_where)
    with _files_known(store, write, newest):
        writer.save(store.path(write.table))


def expect_head(store: Store, write: Write) -> DeltaSnapshot | None:
    """Checked right before rows are written; the table's newest version, None for rows that may come after any.

    Delta then knows of the version what it needs for the commit. Raises HeadMoved where another writer has come since the
    plan.
    """
    if write.after is None and write.replace_where is None:
        return None
    newest = store.delta(write.table).newest()
    if write.after is not None:
        _expect_last(store, write, newest)
    newest.load_state()
    return newest


def _files_known(store: Store, write: Write, newest: DeltaSnapshot | None) -> AbstractContextManager[object]:
    """A context in which Delta knows which files a write that replaces rows may remove."""
    return nullcontext() if newest is None or write.replace_where is None else newest.with_files(store.spark)


def _expect_last(store: Store, write: Write, newest: DeltaSnapshot) -> None:
    table = store.delta(write.table)
    if table.has_lost_commit(newest.version):
        name, lost = write.table.name, commit_file(newest.version + 1)
        what = "the log's last append" if write.table is COMMITLOG else "the table's last commit"
        raise StoreError(
            f"{name}: _delta_log/{lost} is missing, so {what} cannot be read. "
            f"Nothing was written, since it would be done twice: run `commitlake validate --store {store.uri} "
            "--repair`, then this again"
        )
    if write.table is COMMITLOG:
        expect_no_rows_lost_by(store.path(COMMITLOG), newest)
    found = newest.number(app_id(write.table, write.key))
    if found != write.after:
        raise HeadMoved(
            f"planned commit {write.number} of {write.table.name}, but its last commit is {found}"
        )


def find_commit(store: Store, write: Write, token: str) -> CommitInfo | None:
    """Our commit among all versions after the plan's snapshot, however many others have come since."""
    commits = store.delta(write.table).commits_since(write.base_version)
    return next((info for info in commits if info.token == token), None)


def _moved(write: Write) -> HeadMoved:
    return HeadMoved(f"another writer took commit {write.number} of {write.table.name}")
