"""Repair what validate found: caches, what is derived from the log, and a last append that is not as planned."""

from collections.abc import Callable, Sequence
from typing import Any

from pipelines.quality.appends import APPEND_ONLY, PLANNED
from pipelines.quality.caches import AHEAD, AS_OF, BEGINS, ENDS, plan_bounds, plan_followers
from pipelines.quality.expectations import Finding
from pipelines.quality.validation import DERIVED_PROMISES
from pipelines.store.cut import cut_damaged_append, set_append_only
from pipelines.store.holes import holes_without_rows
from pipelines.store.plan import Plan
from pipelines.store.planned import damage_of
from pipelines.store.progress import covered, plan_void
from pipelines.store.snapshot import Snapshot
from pipelines.store.work import Work
from schemas import DERIVED, HOLES


def repair_broken(run: Work, findings: Sequence[Finding], dispatch: Callable[..., Any]) -> bool:
    """Fix derived tables and caches that are broken, and the log's end. Returns whether there was anything to fix.

    dispatch  brings what is derived up to the log's end; with rebuild=True it writes all of it again
    """
    broken = {finding.promise for finding in findings if finding.broken}
    has_cut = _cut(run, dispatch)
    if run.commit(_plan_holes).wrote:
        run.say("holes: parts of the log whose files were put back are no longer said to be lost")
    if broken & {AS_OF, ENDS, BEGINS}:
        if run.commit(lambda at: plan_bounds(at, run.store.settings)).wrote:
            run.say("queue_bounds: put right by the records of the log")
        else:
            run.say(
                "queue_bounds: the log has no record left that says what is right; put the table back from a backup"
            )
    if AHEAD in broken:
        run.commit(plan_followers)
        dispatch()
        run.say("progress: followers ahead of the log start again")
    if broken & DERIVED_PROMISES:
        dispatch(rebuild=True)
        run.say("consume_queue, message_index, parked, claims: rebuilt from the log")
    fixable = broken & ({AS_OF, ENDS, BEGINS, AHEAD, PLANNED, APPEND_ONLY} | DERIVED_PROMISES)
    if broken - fixable:
        run.say("the log and what groups and people have set are the truth: nothing else of that is changed")
    return bool(fixable) or has_cut


def _plan_holes(at: Snapshot) -> Plan:
    left = holes_without_rows(at)
    return Plan() if left is None else Plan((at.replace(HOLES, left),))


def _cut(run: Work, dispatch: Callable[..., Any]) -> bool:
    """Take a last append that is not as planned off the log, and close the log again where a cut was interrupted."""
    at = run.store.snapshot()
    damage = damage_of(at)
    dispatched = [
        table for table in DERIVED if damage is not None and covered(at, table) >= damage.append_seq
    ]
    if dispatched:
        # Before the cut: a kill between the two must not leave entries of rows that are gone.
        run.commit(lambda at: plan_void(at, dispatched))
    damage = cut_damaged_append(run.store)
    set_append_only(run.store, True)
    if damage is None:
        return False
    run.wrote = True
    run.say(
        f"{damage}. Its rows are in cut_rows now (cut_seq {damage.append_seq + 1}) and no more in the log: run the job "
        "that wrote them again"
    )
    if dispatched:
        dispatch(rebuild=True)
        run.say(
            "they had been dispatched: groups may have read them. What is derived from the log was rebuilt"
        )
    return True
