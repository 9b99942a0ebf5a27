"""A store in the session's catalog: its tables where they lie, and its views over them."""

from pyspark.sql import SparkSession

from pipelines.store.errors import BadInput
from pipelines.store.store import Store
from pipelines.store.views import VIEWS
from schemas import TABLES, Table


def register_store(store: Store, database: str) -> dict[str, int]:
    """Register every table and view under the database; again: views are made anew, tables stay.

    Raises BadInput where the database holds tables of another store.
    """
    spark = store.spark
    spark.sql(f"CREATE DATABASE IF NOT EXISTS `{database}`")
    for table in TABLES:
        _register_table(store, database, table)
    names = {name: f"`{database}`.`{name}`" for name in (*(table.name for table in TABLES), *VIEWS)}
    for view in VIEWS.values():
        comment = view.comment.replace("'", r"\'")
        spark.sql(f"CREATE OR REPLACE VIEW {names[view.name]} COMMENT '{comment}' AS {view.over(names)}")
    return {"tables": len(TABLES), "views": len(VIEWS)}


def _register_table(store: Store, database: str, table: Table) -> None:
    spark, path = store.spark, store.path(table)
    name = f"`{database}`.`{table.name}`"
    if spark.catalog.tableExists(f"{database}.{table.name}"):
        registered, asked = _location(spark, name), _location(spark, f"delta.`{path}`")
        if registered != asked:
            raise BadInput(
                f"{database}.{table.name} is registered for {registered}, not for {asked}: "
                "name another --database"
            )
        return
    location = path.replace("'", r"\'")
    spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION '{location}'")


def _location(spark: SparkSession, table: str) -> str:
    """Where a table lies, with its file system."""
    detail = spark.sql(f"DESCRIBE DETAIL {table}").select("location").first()
    assert detail is not None
    return str(detail[0])
