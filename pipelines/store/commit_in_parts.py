"""Work that is too much for one commit: plan a part, commit it, add its counts up, until nothing is left."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pipelines.store.commit import Committed
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot


def commit_in_parts(
    commit: Callable[[Callable[[Snapshot], Plan]], Committed],
    plan_part: Callable[[Snapshot, Any], Plan],
    added_up: Sequence[str],
    left: str = "more",
    after_each: Callable[[Mapping[str, Any]], None] = lambda result: None,
) -> dict[str, Any]:
    """Commit part after part. Returns the result of the last part, with the counts `added_up` summed over all parts.

    commit      writes a plan, as `pipelines.store.commit.commit` does for a store
    plan_part   from a snapshot, and from what the part before it left (None for the first), to the plan of the next part
    added_up    names of counts in a part's result
    left        name of the value in a part's result that says whether, or where, more is left; a false value: nothing
    after_each  is called with the result of each part

    The loop ends because each part leaves less for the next. A planner that reports that more is left must ensure this:
    either its plan writes rows by which the next plan finds, in its own snapshot, that this part is done (a claim of each
    source), or the next plan begins after what it left, which lies further on each time. A plan whose part may turn out
    empty must report that nothing is left or a start further on: the same part would otherwise be planned for ever.
    """
    totals = dict.fromkeys(added_up, 0)
    rest = None
    while True:
        result = commit(partial(_plan_after, plan_part, rest)).result
        totals = {name: total + result[name] for name, total in totals.items()}
        after_each(result)
        rest = result[left]
        if not rest:
            return {**result, **totals}


def _plan_after(plan_part: Callable[[Snapshot, Any], Plan], rest: Any, at: Snapshot) -> Plan:
    return plan_part(at, rest)
