"""Stores as earlier versions of this project left them."""

import shutil

from pyspark.sql.types import StructType

from pipelines.store.create import GENERATION
from pipelines.store.sql_text import delta_table
from pipelines.store.store import Store
from schemas import PROGRESS, STORE_SETTINGS, TABLES


def forget_tables(store: Store, generation: int) -> None:
    """Have no table of this generation or a later one, nor a record that there were any."""
    for table in TABLES:
        if table.generation >= generation:
            shutil.rmtree(store.path(table))
    settings = delta_table(store.path(STORE_SETTINGS))
    store.spark.sql(f"ALTER TABLE {settings} UNSET TBLPROPERTIES IF EXISTS ('{GENERATION}')")


def keep_clocks_as_rows(store: Store) -> None:
    """Write `progress` as version 0.1 did: the clock of a job is a row of its own, in the place of an append."""
    names = [name for name in PROGRESS.names if name != "clock_ms"]
    rows = []
    for row in store.progress.collect():
        values = row.asDict()
        rows.append(tuple(values[name] for name in names))
        if values.get("clock_ms") is not None:
            clock = values | {"follower": f"{row.follower}:clock_ms", "append_seq": row.clock_ms}
            rows.append(tuple(clock[name] for name in names))
    columns = StructType([PROGRESS.columns[name] for name in names])
    old = store.spark.createDataFrame(rows, columns).coalesce(1)
    shutil.rmtree(store.path(PROGRESS))
    writer = old.write.format("delta").option("txnAppId", PROGRESS.name).option("txnVersion", 0)
    writer.save(store.path(PROGRESS))


def forget_clocks(store: Store) -> None:
    """Write `progress` as a dispatch of version 0.1 does when it finds one of this version."""
    names = [name for name in PROGRESS.names if name != "clock_ms"]
    at = store.snapshot()
    kept = store.progress.select(*names)
    rows = store.spark.createDataFrame(kept.collect(), kept.schema).coalesce(1)
    number = at.number(PROGRESS) + 1
    writer = rows.write.format("delta").mode("overwrite").option("mergeSchema", "true")
    writer.option("txnAppId", PROGRESS.name).option("txnVersion", number).save(store.path(PROGRESS))
