"""Store: all the tables under one directory."""

import os
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession

from pipelines.errors import BadInput, StoreError
from pipelines.rocketmq.settings import Settings
from pipelines.spark_internals.delta_log import DeltaTable, is_delta_table
from pipelines.spark_internals.files import default_scheme, hadoop_path
from pipelines.store.cache import StoreCache
from pipelines.store.past import epoch_ms
from pipelines.store.snapshot import Snapshot
from pipelines.uris import expect_no_secret, local_path
from pipelines.views.read import VIEWS, read_view
from schemas import COMMITLOG, STORE_SETTINGS, TABLES_BY_NAME, Table

# The file in which a backup records its status and versions, in its directory.
BACKUP_FILE = "_backup.json"


class Store:
    """The tables of a message store.

    spark  a session with Delta
    uri    where the store is: a local path, file:, hdfs:, s3a:, abfss: or gs:
    as_of  a past time, as far back as Delta still has it: epoch milliseconds, or a timestamp such as 2026-11-21T07:20:58 in
           UTC. The store of a past time is only read

    Every table and view of docs/tables.md is an attribute: `store.commitlog`, `store.messages`, …, each a DataFrame of
    its newest rows, or of those at the past time. Tables are written one after the other, so derived tables may lack the
    log's last appends, as they did then.

    Raises BadInput for a time before the store was made.
    """

    def __init__(self, spark: SparkSession, uri: str, as_of: int | str | None = None) -> None:
        self.spark = spark
        self.uri = absolute(spark, uri)
        self.cache = StoreCache()
        self.as_of_ms = None if as_of is None else epoch_ms(spark, "as_of", as_of)
        if self.as_of_ms is not None:
            self._expect_made(self.as_of_ms)

    @classmethod
    def open(cls, spark: SparkSession, uri: str) -> "Store":
        """A store that exists. Raises BadInput where there is none, or a backup that is not complete.

        Raises StoreError where only its settings are lost.
        """
        store = cls(spark, uri)
        if not store.exists():
            store.expect_no_backup()
            store.expect_no_messages()
            raise BadInput(f"no store at {store.uri}: create it with `commitlake create_store --store {uri}`")
        return store

    def exists(self) -> bool:
        """Whether the store was made: its settings are recorded last."""
        path = self.path(STORE_SETTINGS)
        return is_delta_table(self.spark, path) and self.snapshot().number(STORE_SETTINGS) >= 0

    def expect_no_messages(self) -> None:
        """Raises StoreError where there are messages without settings: a store made over them would place others wrongly."""
        path = self.path(COMMITLOG)
        if is_delta_table(self.spark, path) and self.snapshot().number(COMMITLOG) >= 0:
            raise StoreError(
                f"the store at {self.uri} has messages and has lost its settings, the table store_settings. Put the "
                "table's directory back from a backup; nothing else has them"
            )

    def _expect_made(self, timestamp_ms: int) -> None:
        path = self.path(STORE_SETTINGS)
        if not is_delta_table(self.spark, path):
            raise BadInput(f"no store at {self.uri}: there is no past to read")
        made_ms = DeltaTable(self.spark, path).first_commit_ms()
        if timestamp_ms < made_ms:
            raise BadInput(
                f"the store at {self.uri} was made at {made_ms}; as of {timestamp_ms} there is nothing to read"
            )

    def expect_now(self) -> None:
        """Raises BadInput for the store of a past time, which nothing is written to."""
        if self.as_of_ms is not None:
            raise BadInput(
                f"the store at {self.uri} is read as of {self.as_of_ms}, and a past time takes no commit: open the store "
                "without as_of to write"
            )

    def expect_no_backup(self) -> None:
        """Raises BadInput where the directory, which is not a store, has a backup that is not complete."""
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

    def move(self, name: str, to: str) -> None:
        """Move a directory of the store to another, which is made; where there is one already, a number is added."""
        source, files = hadoop_path(self.spark, self.path_of(name))
        target, number = hadoop_path(self.spark, self.path_of(to))[0], 1
        while files.exists(target):
            number += 1
            target = hadoop_path(self.spark, self.path_of(f"{to}.{number}"))[0]
        files.mkdirs(target.getParent())
        files.rename(source, target)

    def read(self, table: Table) -> DataFrame:
        """The newest rows of a table, or those at the store's past time."""
        if self.as_of_ms is not None:
            return self.delta(table).newest().read(self.spark)
        return self.spark.read.format("delta").load(self.path(table))

    def delta(self, table: Table) -> DeltaTable:
        """The transaction log of a table."""
        return DeltaTable(self.spark, self.path(table), self.as_of_ms)

    def snapshot(self) -> Snapshot:
        """What a plan is made from: each table pinned to one version from its first use on."""
        return Snapshot(self)

    @cached_property
    def settings(self) -> Settings:
        # The table has a handful of rows.
        return Settings.of({row.name: row.value for row in self.snapshot().rows(STORE_SETTINGS)})

    def read_settings_again(self) -> None:
        """Go by the settings as they are now: for runs that last, during which an operator may change them."""
        self.__dict__.pop("settings", None)

    def __getattr__(self, name: str) -> DataFrame:
        if name in TABLES_BY_NAME:
            return self.read(TABLES_BY_NAME[name])
        if name in VIEWS:
            return read_view(self, name)
        raise AttributeError(f"a store has no table or view {name!r}")


def absolute(spark: SparkSession, uri: str) -> str:
    """The store's URI without a relative path, so that a job and its executors mean the same directory from anywhere.

    Raises BadInput for a URI with a password or a key, and for a path that the JVM cannot take.
    """
    try:
        uri.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{uri!r} has bytes that are not UTF-8; expected the URI or path of a store") from None
    local = local_path(uri)
    if local is None:
        return expect_no_secret(uri).rstrip("/")
    path = os.path.abspath(local)
    # Where Spark takes a plain path for one of HDFS, a local path needs its scheme.
    return path if default_scheme(spark) == "file" else f"file:{path}"
