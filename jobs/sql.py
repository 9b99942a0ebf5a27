"""Run one read-only SQL query over the store's tables and views."""

from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.options import ReplicaOption
from jobs.launch.output import SqlOutput, show
from jobs.launch.run import Run
from jobs.launch.time_limit import time_limit
from pipelines.reports.copies import copy_to_query
from pipelines.store.past import epoch_ms
from pipelines.store.store import Store
from pipelines.views.read_only_sql import QuerySession, expect_query, spark_faults

# Rows shown without --limit: some pages of a terminal, and a bound on what a program gets by accident.
ROWS_SHOWN = {SqlOutput.table: 1_000, SqlOutput.json: 1_000_000, SqlOutput.csv: 1_000_000}


@job
def sql(
    run: Run,
    statement: Annotated[str, typer.Argument(metavar="QUERY", help='"SELECT …"', show_default=False)],
    as_of: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Tables as they were then: a timestamp (default UTC), or epoch ms."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="At most N rows [1000 of a table, else a million]."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="Stop a query that takes longer.")
    ] = None,
    replica: ReplicaOption = None,
    output: Annotated[SqlOutput, typer.Option(help="A table to read; lines for programs.")] = SqlOutput.table,
) -> dict[str, Any]:
    """Run one read-only SQL query over the store's tables and views."""
    expect_query(run.spark, statement)
    store = copy_to_query(run.store, replica, run.say)
    if as_of is not None:
        store = Store(run.spark, store.uri, epoch_ms(run.spark, "--as-of", as_of))
    tables = store.snapshot()
    at_most = limit or ROWS_SHOWN[output]
    with time_limit(run.spark, timeout), spark_faults():
        shown = show(QuerySession(run.spark, tables).rows(statement), output, at_most)
    if shown.was_cut and shown.rows == at_most:  # not where the reader of the rows has left
        run.say(
            f"the first {shown.rows:,} rows; the query has more: --limit N shows more, ORDER BY decides which"
        )
    return {"rows": shown.rows, "complete": not shown.was_cut}


if __name__ == "__main__":
    main(sql)
