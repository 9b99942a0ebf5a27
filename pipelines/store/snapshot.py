"""What a plan is made from: tables as of one version each, and their commit numbers in that version."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, reduce
from typing import Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from pipelines.errors import TableMissing
from pipelines.rocketmq.settings import Settings
from pipelines.spark_internals.arrow import frame_of
from pipelines.spark_internals.delta_log import DeltaSnapshot, DeltaTable, ListedFile
from pipelines.spark_internals.files import read_bytes
from pipelines.spark_internals.lost_rows import LostRows
from pipelines.store.cache import StoreCache
from pipelines.store.plan import Planned, Write
from pipelines.store.sql_text import quoted_name, text_literal
from pipelines.uris import literal_path
from schemas import DERIVED, PROGRESS, Table

T = TypeVar("T")

# More partitions are not read file by file: each partition is a read of its own.
PARTITIONS_READ = 8
# More files, or bytes, are read by Spark's tasks.
FILES_READ, BYTES_READ = 32, 4 * 1024**2


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

    def has_other_changes(self, table: Table, since: int) -> bool:
        """Whether commits that are not numbered as the table's own have changed its rows after a version."""
        return self._pin(table).has_other_changes(app_id(table), since)

    def lost_rows(self, table: Table, column: str) -> LostRows | None:
        """The rows that a commit has taken out that is not numbered as the table's own; None where they are back."""
        return self.cached(
            f"lost rows {column}", (table,), lambda: self._pin(table).lost_rows(app_id(table), column)
        )

    def preload(self, *tables: Table) -> None:
        """Pin tables ahead of their commits, and have Delta know their commit numbers, which the commits need.

        A thread does this while the job run goes on to its commit.
        """
        for table in tables:
            self.store.cache.preload(self._pin(table).load_state)

    def read(self, table: Table, **where: str) -> DataFrame:
        """The rows of the table in the pinned version; `where` restricts its partition columns.

        A small table is read directly: Delta's own search for the files of a query takes longer than reading them. Where the
        session has one task after each exchange it is one task too, so that its queries need no exchange.
        """
        rows = self._small_rows(table, where)
        if rows is not None:
            return rows.coalesce(1) if self._is_small_session else rows
        return self._all_rows(table, where)

    def read_in_tasks(self, table: Table) -> DataFrame:
        """As `read`, in as many tasks as its files are worth: for rows that are handed to users' code, which may be slow."""
        rows = self._small_rows(table, {})
        return self._all_rows(table, {}) if rows is None else rows

    @cached_property
    def _is_small_session(self) -> bool:
        return self.store.spark.conf.get("spark.sql.shuffle.partitions") == "1"

    def _small_rows(self, table: Table, where: Mapping[str, str]) -> DataFrame | None:
        files = self._small(table, where)
        return None if files is None else self._read_files(table, files)

    def _all_rows(self, table: Table, where: Mapping[str, str]) -> DataFrame:
        rows = _with_all_columns(table, self._pin(table).read(self.store.spark))
        for name, value in where.items():
            rows = rows.where(F.col(name) == value)
        return rows

    def rows(self, table: Table, **where: str) -> Sequence[Row]:
        """The rows of a table of settings, topics or the like, which fit the driver.

        where  values of its partition columns; without them the rows are kept for the store's other snapshots
        """
        if where:
            return self._rows(table, where)
        return self.cached("rows", (table,), lambda: self._rows(table, where))

    def _rows(self, table: Table, where: Mapping[str, str]) -> Sequence[Row]:
        files = self._small(table, where)
        if files is not None:
            try:
                return tuple(row for file in files for row in self._rows_of(table, file))
            except (pa.ArrowException, OSError):
                pass  # Spark reports what is wrong with a file, as for every table.
        return tuple(self.read(table, **where).collect())

    def _rows_of(self, table: Table, file: ListedFile) -> Iterator[Row]:
        """The rows of one file, without Spark: for a few rows its tasks and plans take a hundred times as long."""
        assert all(table.columns[name].dataType == StringType() for name in table.partition_by), table.name
        row_of = Row(*table.names)
        data = read_bytes(self.store.spark, f"{self.store.path(table)}/{file.name}")
        for stored in pq.read_table(pa.BufferReader(data)).to_pylist(maps_as_pydicts="strict"):
            values = {**stored, **file.partition}
            yield row_of(*(values.get(name) for name in table.names))

    def _small(self, table: Table, where: Mapping[str, str]) -> Sequence[ListedFile] | None:
        """The files of the partitions with these values, where they are known and few; else None."""
        listed = self.listed_files(table)
        if listed is None:
            return None
        files = [file for file in listed if all(file.partition[name] == where[name] for name in where)]
        is_small = len(files) <= FILES_READ and sum(file.size for file in files) <= BYTES_READ
        return files if is_small else None

    def read_after(self, table: Table, append_seq: int) -> DataFrame:
        """The rows of later appends, in a table with the column `append_seq`.

        The statistics show which files have such rows. A few of them are read directly, however large they are.
        """
        listed = self.listed_files(table)
        files = None if listed is None else [file for file in listed if _may_have_later(file, append_seq)]
        rows = None if files is None or len(files) > FILES_READ else self._read_files(table, files)
        return (self.read(table) if rows is None else rows).where(F.col("append_seq") > append_seq)

    def _read_files(self, table: Table, files: Sequence[ListedFile]) -> DataFrame | None:
        """The rows of some files, read directly, which saves Delta's listing of them; None where they are many.

        None also where one is lost: Spark refuses that at once, where a table of Delta's fails when it is read.
        """
        by_partition: dict[tuple[str | None, ...], list[str]] = {}
        for file in files:
            values = tuple(file.partition[name] for name in table.partition_by)
            by_partition.setdefault(values, []).append(f"{self.store.path(table)}/{file.name}")
        if len(by_partition) > PARTITIONS_READ:
            return None
        if not by_partition:
            return frame_of(self.store.spark, [], table.columns)
        stored = StructType([field for field in table.columns if field.name not in table.partition_by])
        parts = []
        for values, paths in by_partition.items():
            try:
                rows = self.store.spark.read.schema(stored).parquet(*map(literal_path, paths))
            except AnalysisException:
                return None
            partition = {
                name: F.lit(value).cast(table.columns[name].dataType)
                for name, value in zip(table.partition_by, values, strict=True)
            }
            parts.append(rows.withColumns(partition))
        return reduce(DataFrame.unionAll, parts).select(*table.names)

    def files(self, table: Table) -> DataFrame:
        """The table's files in the pinned version: `path`, `partitionValues`, `size`, `stats` (JSON)."""
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
        whole: Mapping[str, Sequence[str]] | None = {} if where == "true" else None
        return Write(table, rows, number, version, where, key, may_lose, planned, whole)

    def replace_partitions(
        self, table: Table, rows: DataFrame, partitions: Mapping[str, Sequence[str]], key: str = ""
    ) -> Write:
        """A write that replaces some partitions: those with one of the values in each column named, which are text.

        Rows outside of these partitions fail it.
        """
        assert partitions, "all rows are replaced by replace()"
        assert all(values and not isinstance(values, str) for values in partitions.values()), partitions
        where = " AND ".join(
            f"{quoted_name(column)} IN ({', '.join(map(text_literal, values))})"
            for column, values in partitions.items()
        )
        number, version = self.number(table, key), self.version(table)
        return Write(table, rows, number, version, where, key, partitions=partitions)

    def _pin(self, table: Table) -> DeltaSnapshot:
        if table.name not in self._pinned:
            if table in DERIVED:
                self._pin(PROGRESS)  # it is about the table, so it may be older, never newer
            found = self.store.delta(table).newest()
            if not found.exists:
                remedy = remedy_for_missing(self.store.uri, (table,))
                raise TableMissing(f"the store at {self.store.uri} has no table {table.name}: {remedy}")
            self._pinned[table.name] = found
        return self._pinned[table.name]


def remedy_for_missing(uri: str, tables: Sequence[Table]) -> str:
    """Which command makes missing tables of a store, in words."""
    if all(table in (*DERIVED, PROGRESS) for table in tables):
        return f"`commitlake dispatch --store {uri}` makes what is missing again from the log"
    return (
        f"`commitlake validate --store {uri}` makes what a newer version has added, and says what to do where a table was "
        "lost"
    )


def _may_have_later(file: ListedFile, append_seq: int) -> bool:
    """Whether a file may have rows of later appends, by its statistics."""
    greatest = json.loads(file.stats or "{}").get("maxValues", {}).get("append_seq")
    return greatest is None or greatest > append_seq


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
