"""Bring delayed and timed messages back to their topics when they are due."""

from functools import partial
from typing import Any

from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.delay.deliver import Stopped, next_due_ms, plan_deliver
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot


@job
def deliver(run: Run) -> dict[str, Any]:
    """Bring due delayed and timed messages back to their topics."""
    return deliver_due(run)


def deliver_due(run: Run) -> dict[str, Any]:
    """Deliver all that is due in the run's store; the counts of deliver."""

    def plan(at: Snapshot, after: Stopped | None) -> Plan:
        return plan_deliver(at, run.now_ms, run.run_id, after)

    delivered = skipped = hops = 0
    after = None
    with run.progress("delivering", None) as advance:
        while True:
            result = run.commit(partial(plan, after=after)).result
            delivered, skipped, hops = (
                delivered + result["delivered"],
                skipped + result["skipped"],
                hops + result["hops"],
            )
            advance(result["delivered"] + result["hops"])
            after = result["stopped"]
            if after is None:
                break
    if hops:
        run.say(f"{hops:,} messages went on to the next level of their list")
    return {
        "delivered": delivered,
        "skipped": skipped,
        "next_due_ms": next_due_ms(run.store.snapshot(), run.now_ms),
    }


if __name__ == "__main__":
    main(deliver)
