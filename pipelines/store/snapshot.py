"""What a plan is made from: tables as of one version each, and their commit numbers in that version."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Protocol, TypeVar

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipelines.errors import TableMissing
from pipelines.rocketmq.settings import Settings
from pipelines.spark_internals.delta_log import DeltaSnapshot, DeltaTable, ListedFile
from pipelines.store.cache import StoreCache
from pipelines.store.plan import Planned, Write
from schemas import DERIVED, PROGRESS, Table

T = TypeVar("T")

# More partitions are not read file by file: each partition is a read of its own.
PARTITIONS_READ = 8


class OpenStore(Protocol):
    """What a snapshot, and a plan made from it, need from the store."""

    spark: SparkSession
    uri: str
    cache: StoreCache

    @property
    def settings(self) -> Settings: ...

    def path(self, table: Table) -> str: ...

    def delta(self, table: Table) -> DeltaTable: ...


class Snapshot:
    """Tables of a store, each pinned to the version it had at its first use.

    Rows and commit number always come from the same version, so a write planned from them can be refused when that
    version is no longer the newest one.
    """

    def __init__(self, store: OpenStore) -> None:
        self.store = store
        self._pinned: dict[str, DeltaSnapshot] = {}

    def version(self, table: Table) -> int:
        """The version of the table that this snapshot reads."""
        return self._pin(table).version

    def number(self, table: Table, key: str = "") -> int:
        """The last commit number of the table (or of one key of it); -1 before the first commit."""
        return self._pin(table).number(app_id(table, key))

    def table_property(self, table: Table, name: str) -> str | None:
        """A property of the table, such as `delta.appendOnly`; None where it is not set."""
        return self._pin(table).table_property(name)

    def table_id(self, table: Table) -> str:
        """Delta's id of the table; a table that is made again has another id."""
        return self._pin(table).table_id

    def commit_id(self, table: Table, version: int) -> str | None:
        """Delta's id of one commit of the table; None where the log has no file of it (any more)."""
        return self.store.delta(table).commit_id(version)

    def preload(self, *tables: Table) -> None:
        """Pin tables ahead of their commits, and have Delta replay their logs, which the commits need.

        A thread does this while the job run goes on to its commit.
        """
        for table in tables:
            self.store.cache.preload(self._pin(table).replay)

    def read(self, table: Table) -> DataFrame:
        """The rows of the table in the pinned version."""
        return self._pin(table).read(self.store.spark)

    def rows(self, table: Table) -> Sequence[Row]:
        """All rows of a table of settings, topics or the like, which fit the driver."""
        return self.cached("rows", (table,), lambda: tuple(self.read_small(table).collect()))

    def read_small(self, table: Table, **where: str) -> DataFrame:
        """The rows of a table of few files; `where` restricts its partition columns.

        The files are read directly where they are known, which saves Delta's own listing of them.
        """
        listed = self._pin(table).listed_files()
        by_partition: dict[tuple[str | None, ...], list[str]] = {}
        for file in listed or ():
            if all(file.partition[name] == value for name, value in where.items()):
                values = tuple(file.partition[name] for name in table.partition_by)
                by_partition.setdefault(values, []).append(f"{self.store.path(table)}/{file.name}")
        if listed is None or len(by_partition) > PARTITIONS_READ:
            rows = _with_all_columns(table, self.read(table))
            for name, value in where.items():
                rows = rows.where(F.col(name) == value)
            return rows
        if not by_partition:
            return self.store.spark.createDataFrame([], table.columns)
        stored = StructType([field for field in table.columns if field.name not in table.partition_by])
        parts = [
            self.store.spark.read.schema(stored)
            .parquet(*files)
            .withColumns({name: F.lit(value) for name, value in zip(table.partition_by, values, strict=True)})
            for values, files in by_partition.items()
        ]
        return reduce(DataFrame.unionAll, parts).select(*table.names)

    def files(self, table: Table) -> DataFrame:
        """The table's files in the pinned version: `path`, `partitionValues`, `size`, `stats` (JSON), …"""
        return self._pin(table).files(self.store.spark)

    def listed_files(self, table: Table) -> list[ListedFile] | None:
        """The table's files, without a query, where they are few; else None."""
        return self._pin(table).listed_files()

    def all_files(self, table: Table) -> list[ListedFile]:
        """The table's files, with a query where they are many."""
        return self._pin(table).all_files(self.store.spark)

    def log_files(self, table: Table, since: int) -> list[tuple[str, int]]:
        """The log files that the pinned version is read from, and the commits from `since`: names and lengths, bytes."""
        return self.store.delta(table).log_files(self._pin(table), since)

    def file_count(self, table: Table) -> int:
        return self._pin(table).file_count

    def is_empty(self, table: Table) -> bool:
        """Whether the table is known, without a query, to have no rows."""
        return self._pin(table).is_empty

    def greatest_by_statistics(self, table: Table, column: str) -> int | None:
        """The greatest value of a numeric column, by its files' statistics; -1 without rows, None where unknown."""
        return self._pin(table).greatest(column)

    def cached(self, name: str, tables: Sequence[Table], find_out: Callable[[], T]) -> T:
        """What `find_out` derives from these versions of tables and nothing else, cached for the store's other snapshots.

        Tables that are not pinned yet are pinned in the order given.
        """
        versions = tuple(self._pin(table).identity for table in tables)
        return self.store.cache.answer((name, *(table.name for table in tables)), versions, find_out)

    def append(
        self,
        table: Table,
        rows: DataFrame,
        key: str = "",
        may_lose: bool = False,
        planned: Planned | None = None,
    ) -> Write:
        """A write that adds rows, valid only while this snapshot's number of the table is the newest."""
        number, version = self.number(table, key), self.version(table)
        return Write(table, rows, number, version, None, key, may_lose, planned)

    def append_unnumbered(self, table: Table, rows: DataFrame) -> Write:
        """A write that adds rows to a table from which nothing is planned: it cannot conflict with another writer."""
        return Write(table, rows, None, self.version(table))

    def replace(
        self,
        table: Table,
        rows: DataFrame,
        where: str = "true",
        key: str = "",
        may_lose: bool = False,
        planned: Planned | None = None,
    ) -> Write:
        """A write that replaces the rows that match `where` (all by default) with `rows`."""
        number, version = self.number(table, key), self.version(table)
        return Write(table, rows, number, version, where, key, may_lose, planned)

    def _pin(self, table: Table) -> DeltaSnapshot:
        if table.name not in self._pinned:
            if table in DERIVED:
                self._pin(PROGRESS)  # it is about the table, so it may be older, never newer
            found = self.store.delta(table).newest()
            if not found.exists:
                remedy = (
                    "`commitlake dispatch` makes it again from the log"
                    if table in (*DERIVED, PROGRESS)
                    else "if a newer version has added it, `commitlake validate` makes it; else a backup has it"
                )
                raise TableMissing(f"the store at {self.store.uri} has no table {table.name}: {remedy}")
            self._pinned[table.name] = found
        return self._pinned[table.name]


def _with_all_columns(table: Table, rows: DataFrame) -> DataFrame:
    """Rows of a table that was made before some of its columns were added: these are null."""
    missing = {
        field.name: F.lit(None).cast(field.dataType)
        for field in table.columns
        if field.name not in rows.columns
    }
    return rows.withColumns(missing) if missing else rows


def app_id(table: Table, key: str = "") -> str:
    """The id under which a table, or one key of it, numbers its commits."""
    assert table.numbered_by == ("group" if key else "table"), (
        f"{table.name} is numbered by {table.numbered_by}"
    )
    return f"{table.name}:{key}" if key else table.name
