"""Make the tables and views known to the session's catalog, for spark-sql, notebooks and BI tools."""

import re
from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.run import Run
from jobs.launch.spark_settings import WAREHOUSE
from pipelines.errors import BadInput
from pipelines.store.catalog import register_store


@job
def register(
    run: Run,
    database: Annotated[
        str, typer.Option(metavar="NAME", help="Database they are registered under.")
    ] = "commitlake",
) -> dict[str, Any]:
    """Make the tables and views known to the session's catalog, for spark-sql, notebooks and BI tools."""
    if not re.fullmatch(r"[A-Za-z0-9_]+", database):
        raise BadInput(f"--database is {database!r}; expected letters, digits and underscores")
    # A catalog that outlives the session: the cluster's metastore, or, as spark-sql does, one in the current
    # directory.
    run.session_settings |= {"spark.sql.catalogImplementation": "hive", WAREHOUSE: "spark-warehouse"}
    return register_store(run.store, database)


if __name__ == "__main__":
    main(register)
