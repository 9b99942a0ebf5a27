"""Build the consume queues, the key index and the other derived tables from the log's new appends."""

from functools import partial
from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.dispatch.follow import plan_dispatch
from pipelines.dispatch.runs import FAN_IN, plan_merge
from pipelines.errors import TableMissing
from pipelines.store.create import make_tables
from schemas import CONSUME_QUEUE, DERIVED, MESSAGE_INDEX


@job
def dispatch(
    run: Run,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Rebuild the derived tables from the log.")
    ] = False,
) -> dict[str, Any]:
    """Build the consume queues and the key index from the log."""
    return dispatch_store(run, rebuild)


def dispatch_store(run: Run, rebuild: bool = False) -> dict[str, Any]:
    """The counts of dispatch, from following the log of the run's store to its end."""
    try:
        committed = run.commit(lambda at: plan_dispatch(at, rebuild))
    except TableMissing:
        make_tables(run.store)  # derived tables may have been deleted
        committed = run.commit(lambda at: plan_dispatch(at, rebuild))
    for table in DERIVED:
        if committed.counts.get(table.name) and run.store.snapshot().number(table) % FAN_IN == 0:
            run.commit(partial(plan_merge, table=table))
    return {
        "queue_entries": committed.counts.get(CONSUME_QUEUE.name, 0),
        "index_entries": committed.counts.get(MESSAGE_INDEX.name, 0),
        "dispatched_to": committed.result["dispatched_to"],
    }


if __name__ == "__main__":
    main(dispatch)
