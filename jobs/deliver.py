"""Bring delayed and timed messages back to their topics when they are due."""

from collections.abc import Mapping
from typing import Any

from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.delay.deliver import next_due_ms, plan_deliver
from pipelines.log.copies import warn_of_no_copy
from pipelines.store.commit_in_parts import commit_in_parts
from pipelines.store.role import expect_master


@job
def deliver(run: Run) -> dict[str, Any]:
    """Bring due delayed and timed messages back to their topics."""
    return deliver_due(run)


def deliver_due(run: Run) -> dict[str, Any]:
    """The counts of deliver, from delivering all that is due in the run's store."""
    expect_master(run.store.snapshot())
    with run.progress("delivering", None) as advance:

        def after_each(part: Mapping[str, Any]) -> None:
            advance(part["delivered"] + part["hops"])
            warn_of_no_copy(
                run, "a message that is due cannot be delivered, and it stays where it waits", part
            )

        result = commit_in_parts(
            run.commit,
            lambda at, stopped: plan_deliver(at, run.now_ms, run.run_id, stopped),
            ("delivered", "skipped", "hops"),
            left="stopped",
            after_each=after_each,
        )
    if result["hops"]:
        run.say(f"{result['hops']:,} messages went on to the next level of their list")
    return {
        "delivered": result["delivered"],
        "skipped": result["skipped"],
        "next_due_ms": next_due_ms(run.store.snapshot(), run.now_ms),
    }


if __name__ == "__main__":
    main(deliver)
