"""A store in the session's catalog: external tables over its directories, and its views over them."""

from pyspark.sql import SparkSession

from pipelines.errors import BadInput
from pipelines.store.create import make_tables
from pipelines.store.sql_text import delta_table, quoted_name
from pipelines.store.store import Store
from pipelines.views.read import VIEWS
from schemas import TABLES, Table


def register_store(store: Store, database: str) -> dict[str, int]:
    """Register every table and view in the database, and return their counts; views are replaced, tables stay.

    Raises BadInput where the database holds tables of another store.
    """
    spark = store.spark
    make_tables(store)  # those that an earlier version did not have
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {quoted_name(database)}")
    for table in TABLES:
        _register_table(store, database, table)
    names = {name: _in(database, name) for name in (*(table.name for table in TABLES), *VIEWS)}
    for view in VIEWS.values():
        comment = view.comment.replace("'", r"\'")
        spark.sql(f"CREATE OR REPLACE VIEW {names[view.name]} COMMENT '{comment}' AS {view.over(names)}")
    return {"tables": len(TABLES), "views": len(VIEWS)}


def _register_table(store: Store, database: str, table: Table) -> None:
    spark, path = store.spark, store.path(table)
    name = _in(database, table.name)
    if not spark.catalog.tableExists(name):
        spark.catalog.createTable(name, path=path, source="delta")
        return
    registered, requested = _location(spark, name), _location(spark, delta_table(path))
    if registered != requested:
        raise BadInput(
            f"{database}.{table.name} is registered for {registered}, not for {requested}: "
            "name another --database"
        )


def _in(database: str, name: str) -> str:
    return f"{quoted_name(database)}.{quoted_name(name)}"


def _location(spark: SparkSession, table: str) -> str:
    """The directory of a table, with its file system."""
    detail = spark.sql(f"DESCRIBE DETAIL {table}").select("location").first()
    assert detail is not None
    return str(detail[0])
