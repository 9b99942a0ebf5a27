"""Store: all the tables under one directory."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property

from delta.tables import DeltaTable as DeltaTableBuilder
from pyspark.sql import DataFrame, SparkSession

from pipelines.errors import BadInput
from pipelines.rocketmq.settings import Settings
from pipelines.spark_internals.delta_log import DeltaTable, is_delta_table
from pipelines.spark_internals.files import default_scheme, hadoop_path
from pipelines.store.lock import local_path, under_lock
from pipelines.store.snapshot import Snapshot
from pipelines.views.read import VIEWS, read_view
from schemas import STORE_SETTINGS, TABLES, Table

# So that any Delta reader opens the tables as they are: delta-rs, DuckDB, Trino.
PLAIN_DELTA = {
    "delta.enableDeletionVectors": "false",
    "delta.columnMapping.mode": "none",
    "delta.enableRowTracking": "false",
}
# Small commits are many, and the one that writes a checkpoint takes two seconds instead of a third of one (Delta's own
# interval is 10). A reader replays at most so many files of the transaction log, which sixty have not slowed measurably.
CHECKPOINTS = {"delta.checkpointInterval": "50"}

# What a backup notes in its directory about itself.
BACKUP_FILE = "_backup.json"

_TABLES_BY_NAME = {table.name: table for table in TABLES}


class Store:
    """The tables of a message store.

    spark  a session with Delta
    uri    where the store is: a local path, file:, hdfs:, s3a:, abfss: or gs:

    Every table and view of docs/tables.md is an attribute: `store.commitlog`, `store.messages`, …, each a DataFrame of
    its newest rows.
    """

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self.spark = spark
        self.uri = absolute(spark, uri)

    @classmethod
    def open(cls, spark: SparkSession, uri: str) -> "Store":
        """A store that exists. Raises BadInput where there is none, or a backup that is not complete."""
        store = cls(spark, uri)
        if not store.exists():
            store._expect_no_backup()
            raise BadInput(f"no store at {store.uri}: create it with `commitlake create_store --store {uri}`")
        return store

    @classmethod
    def create(cls, spark: SparkSession, uri: str, settings: Mapping[str, str] | None = None) -> "Store":
        """Make the tables of a store and record its settings; a creation that was cut short goes on.

        Topics and groups a new store starts with are the caller's (pipelines.store.topics). Raises BadInput for a setting
        RocketMQ does not know or a value it does not take.
        """
        given = Settings.of(settings or {}).given  # without passwords
        store = cls(spark, uri)
        store._expect_no_backup()
        store.make_tables()
        store._record_settings(given)
        return store

    def exists(self) -> bool:
        """Whether the store was made: its settings are recorded last."""
        path = self.path(STORE_SETTINGS)
        return is_delta_table(self.spark, path) and self.snapshot().number(STORE_SETTINGS) >= 0

    def _expect_no_backup(self) -> None:
        """Of a directory that is no store: raises BadInput where it is to become one by a backup."""
        note, files = hadoop_path(self.spark, self.path_of(BACKUP_FILE))
        if files.exists(note):
            raise BadInput(
                f"the backup at {self.uri} is not complete: run `commitlake backup --to {self.uri}` of the store again, "
                "then it can be opened"
            )

    def path(self, table: Table) -> str:
        return f"{self.uri}/{table.name}"

    def path_of(self, name: str) -> str:
        """A directory of the store that is not a table: its name starts with _."""
        return f"{self.uri}/{name}"

    def remove(self, path: str) -> None:
        """Remove a directory that is not a table, and what is in it; nothing where there is none."""
        target, files = hadoop_path(self.spark, path)
        files.delete(target, True)

    def read(self, table: Table) -> DataFrame:
        """The newest rows of a table."""
        return self.spark.read.format("delta").load(self.path(table))

    def delta(self, table: Table) -> DeltaTable:
        """The transaction log of a table."""
        return DeltaTable(self.spark, self.path(table))

    def snapshot(self) -> Snapshot:
        """What a plan is made from: each table pinned to one version from its first use on."""
        return Snapshot(self)

    @cached_property
    def settings(self) -> Settings:
        # A handful of rows.
        return Settings.of({row.name: row.value for row in self.snapshot().rows(STORE_SETTINGS)})

    def __getattr__(self, name: str) -> DataFrame:
        if name in _TABLES_BY_NAME:
            return self.read(_TABLES_BY_NAME[name])
        if name in VIEWS:
            return read_view(self, name)
        raise AttributeError(f"a store has no table or view {name!r}")

    def make_tables(self) -> None:
        """Make those tables that are not there."""
        local = local_path(self.uri)
        if local is not None:
            with suppress(OSError):  # Delta's own error says more
                os.makedirs(local, exist_ok=True)  # the lock file lies in it
        under_lock(self.spark, self.uri, self._make_missing_tables)

    def _make_missing_tables(self, tables: Sequence[Table] = TABLES) -> None:
        with ThreadPoolExecutor(max_workers=4) as pool:
            missing = [table for table in tables if not is_delta_table(self.spark, self.path(table))]
            list(pool.map(self._make_table, missing))

    def make_table(self, table: Table) -> None:
        """Make one table where it is not there: of a store that an earlier version made."""
        if not is_delta_table(self.spark, self.path(table)):
            under_lock(self.spark, self.uri, lambda: self._make_missing_tables((table,)))

    def _clear_unfinished(self, table: Table) -> None:
        """Remove the log without a commit that a run leaves that was killed while it made the table: Delta refuses to."""
        target, files = hadoop_path(self.spark, f"{self.path(table)}/_delta_log")
        if not files.exists(target):
            return
        # Under the lock nobody else makes it; without one, a commit that comes now must survive.
        is_alone = local_path(self.uri) is not None
        if not is_alone:
            for status in files.listStatus(target):
                if status.isDirectory() or status.getPath().getName().endswith(".tmp"):
                    files.delete(status.getPath(), False)
        files.delete(target, is_alone)

    def _make_table(self, table: Table) -> None:
        builder = (
            DeltaTableBuilder.createIfNotExists(self.spark)
            .location(self.path(table))
            .comment(table.comment)
            .addColumns(table.columns)
            .partitionedBy(*table.partition_by)
        )
        properties = {**PLAIN_DELTA, **CHECKPOINTS, **table.properties}
        if table.statistics:
            properties["delta.dataSkippingStatsColumns"] = ",".join(table.statistics)
        for name, value in properties.items():
            builder = builder.property(name, value)
        try:
            self._clear_unfinished(table)
            builder.execute()
        except Exception:
            # Another run made it just now, the same.
            if not is_delta_table(self.spark, self.path(table)):
                raise

    def _record_settings(self, given: Mapping[str, str]) -> None:
        from pipelines.store.commit import commit  # commit knows stores, not the other way round
        from pipelines.store.plan import Plan

        rows = self.spark.createDataFrame(sorted(given.items()), STORE_SETTINGS.columns).coalesce(1)
        commit(
            self,
            lambda at: Plan((at.replace(STORE_SETTINGS, rows),) if at.number(STORE_SETTINGS) < 0 else ()),
        )


def absolute(spark: SparkSession, uri: str) -> str:
    """The store's location, so that a job and its executors mean the same place from any directory."""
    local = local_path(uri)
    if local is None:
        return uri.rstrip("/")
    path = os.path.abspath(local)
    # Where Spark takes a plain path for one of HDFS, a local one has to say that it is local.
    return path if default_scheme(spark) == "file" else f"file:{path}"
