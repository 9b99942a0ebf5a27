"""Run one read-only SQL query over the store's tables and views."""

from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.output import SqlOutput, show
from jobs.launch.run import Run
from pipelines.reports.read_only_sql import FAULTS_OF_A_QUERY, expect_query, fault, query_rows
from pipelines.store.past import PastTables, epoch_ms
from pipelines.views.read import Readable


@job
def sql(
    run: Run,
    statement: Annotated[str, typer.Argument(metavar="QUERY", help='"SELECT …"', show_default=False)],
    as_of: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Tables as they were then: a timestamp (UTC unless said), or epoch ms."
        ),
    ] = None,
    output: Annotated[SqlOutput, typer.Option(help="A table to read; lines for programs.")] = SqlOutput.table,
) -> dict[str, Any]:
    """Run one read-only SQL query over the store's tables and views."""
    store = run.store
    expect_query(run.spark, statement)
    tables: Readable = (
        store.snapshot() if as_of is None else PastTables(store, epoch_ms(run.spark, "--as-of", as_of))
    )
    rows = query_rows(run.spark, tables, statement)
    try:
        return {"rows": show(rows, output).rows}
    except FAULTS_OF_A_QUERY as wrong:
        raise fault(wrong) from wrong


if __name__ == "__main__":
    main(sql)
