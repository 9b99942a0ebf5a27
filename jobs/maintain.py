"""Keep a store's files few and its directory clean."""

from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.dispatch.runs import mergeable, plan_merge, runs_of
from pipelines.spark_internals.delta_log import is_delta_table
from pipelines.store.upkeep import pack, vacuum
from schemas import DERIVED, TABLES, Table


@job
def maintain(
    run: Run,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report what would be done, and do nothing.")
    ] = False,
) -> dict[str, Any]:
    """Compact small files and vacuum."""
    store = run.store
    compacted = freed = 0
    tables = [table for table in TABLES if is_delta_table(run.spark, store.path(table))]
    with run.progress("maintaining", len(tables), "tables") as advance:
        for table in tables:
            compacted += (
                _compact_derived(run, table, dry_run) if table in DERIVED else pack(store, table, dry_run)
            )
            freed += vacuum(store, table, dry_run, run.now_ms)
            advance(1)
    run.wrote = run.wrote or (compacted + freed > 0 and not dry_run)
    return {"segments_expired": 0, "rolled": 0, "files_compacted": compacted, "bytes_freed": freed}


def _compact_derived(run: Run, table: Table, dry_run: bool) -> int:
    """Merge the newest sorted runs of a derived table; returns how many files were, or would be, merged."""
    if dry_run:
        return sum(each.files for each in mergeable(runs_of(run.store.snapshot(), table), fan_in=2))
    committed = run.commit(lambda at: plan_merge(at, table, fan_in=2))
    return int(committed.result.get("files_compacted", 0))


if __name__ == "__main__":
    main(maintain)
