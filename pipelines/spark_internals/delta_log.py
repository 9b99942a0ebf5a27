"""What Delta's log holds besides rows: commit numbers, versions, who wrote a commit and how many rows it added.

Delta keeps, for every application id (`txnAppId`), the last number (`txnVersion`) committed under it. The number is part of
a snapshot, and a write that carries the next one is refused when another writer took it first. Delta's Python package
cannot read it, so this module does, through the JVM; nothing outside this folder touches Delta's internals.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pipelines.spark_internals.files import hadoop_path
from pipelines.spark_internals.jvm import java_causes, java_session, jvm
from pipelines.spark_internals.lost_rows import LostRows, loses_rows
from pipelines.spark_internals.replacement import Replaced, replace_rows
from pipelines.spark_internals.snapshot_state import forget_state, put_files, put_state

# The parts of a file's statistics that have a value for each column.
_BOUNDS = ("minValues", "maxValues")
# Matches a file name that is an absolute path or a URI, or that Spark would take for a glob pattern.
NOT_BELOW = re.compile(r"\A/|:|[{}\[\]*?\\]")

# Delta's log stores that commit by putting a file. Others record a commit elsewhere first, and the file may come later: the
# one that uses DynamoDB for S3 (io.delta.storage.S3DynamoDBLogStore), or a user's own.
PUTS_A_FILE = frozenset(
    f"{package}.{name}"
    for package in ("io.delta.storage", "org.apache.spark.sql.delta.storage")
    for name in (
        "AzureLogStore",
        "GCSLogStore",
        "HDFSLogStore",
        "LocalLogStore",
        "S3SingleDriverLogStore",
    )
)

_COLUMN_MAPPING = "delta.columnMapping.mode"

# More files are listed by a query.
FILES_LISTED = 500
_FILE_COLUMNS = pa.schema(
    [
        ("path", pa.string()),
        ("partitionValues", pa.map_(pa.string(), pa.string())),
        ("size", pa.int64()),
        ("stats", pa.string()),
    ]
)

# Scheme of a path → class of its log store. The session chooses it, the same for every store it opens.
_log_stores: dict[str, str] = {}

# Path of a table → the last version whose checksum file was found to be of its commit.
_proven: dict[str, tuple[str, int, int]] = {}


@dataclass(frozen=True)
class CommitInfo:
    """One version of a table: who wrote it (`token`, the write's user metadata) and how many rows it added."""

    version: int
    token: str
    rows: int
    operation: str


@dataclass(frozen=True)
class AddedRows:
    """What a commit added, by its own statistics: how many rows, and the least and greatest value of one column."""

    rows: int
    least: int | None
    greatest: int | None


@dataclass(frozen=True)
class ListedFile:
    """A file of a table.

    name       path relative to the table's directory
    partition  the values of the columns the table is partitioned by
    size       bytes
    stats      Delta's statistics of its rows, JSON; None where there are none
    """

    name: str
    partition: Mapping[str, str | None]
    size: int
    stats: str | None


class DeltaTable:
    """The transaction log of one table; each method reads it as of its call."""

    def __init__(self, spark: SparkSession, path: str, as_of_ms: int | None = None) -> None:
        """
        as_of_ms  the table as its last commit before that time left it; None: as it is now
        """
        self._spark = spark
        self._as_of_ms = as_of_ms
        self.java = jvm(spark)
        self.delta_log = self.java.org.apache.spark.sql.delta.DeltaLog.forTable(java_session(spark), path)
        self.path = path

    def update(self) -> "DeltaSnapshot":
        """The newest snapshot. Delta lists the whole log for it: 85 ms on a local disk for a log of a thousand commits."""
        none = self.java.scala.Option.empty()
        return DeltaSnapshot(self, self.delta_log.update(False, none, none))

    def newest(self) -> "DeltaSnapshot":
        """The newest snapshot, by two checks of files where nothing was committed since this session last listed the log.

        It is for a table whose commits are all files of its log as soon as they are made, as a store's are: not for one
        with a commit coordinator.
        """
        if self._as_of_ms is not None:
            return self._snapshot_at(self._as_of_ms)
        known = DeltaSnapshot(self, self.delta_log.unsafeVolatileSnapshot())
        return known if self._is_newest(known) else self.update()

    def _is_newest(self, known: "DeltaSnapshot") -> bool:
        """Whether the log has the snapshot's last commit, that very file (a table may be made again), and none after it.

        It is False where only the log store knows.
        """
        if not self.commits_are_files:
            return False
        path, (directory, files) = self.java.org.apache.hadoop.fs.Path, self._log_directory
        if files.exists(path(directory, commit_file(known.version + 1))):
            return False
        last = path(directory, commit_file(known.version))
        return (
            bool(files.exists(last))
            and files.getFileStatus(last).getModificationTime() == known.last_commit_written_ms
        )

    @property
    def commits_are_files(self) -> bool:
        """Whether a commit is made by putting its file into the log, and by nothing else."""
        scheme = self.path.partition("/")[0]
        if scheme not in _log_stores:
            _log_stores[scheme] = log_store_class(self.delta_log.store(), self._log_directory[0])
        return _log_stores[scheme] in PUTS_A_FILE

    @cached_property
    def _log_directory(self) -> tuple[Any, Any]:
        """Hadoop's Path of the log and the file system it is on."""
        return hadoop_path(self._spark, f"{self.path}/_delta_log")

    def _snapshot_at(self, timestamp_ms: int) -> "DeltaSnapshot":
        """The version the table had at a time, or the oldest that Delta can still read where that is newer.

        Read from Delta 4.4.0: `versionAsOf` uses the same two functions.
        """
        newest, none = self.update(), self.java.scala.Option.empty()
        if not newest.exists:
            return newest
        version = int(self._commit_at(timestamp_ms).version())
        return DeltaSnapshot(self, self.delta_log.getSnapshotAt(version, none, none, False))

    def at_version(self, version: int) -> "DeltaSnapshot | None":
        """A past version; None where Delta can no longer read it."""
        none = self.java.scala.Option.empty()
        try:
            return DeltaSnapshot(self, self.delta_log.getSnapshotAt(version, none, none, False))
        except Exception as failure:
            if not any(True for _ in java_causes(failure)):
                raise
            return None

    def first_commit_ms(self) -> int:
        """When the oldest version that can still be read was committed, epoch milliseconds."""
        return int(self._commit_at(0).timestamp())

    def _commit_at(self, timestamp_ms: int) -> Any:
        none, time = self.java.scala.Option.empty(), self.java.java.sql.Timestamp(timestamp_ms)
        # The flags allow the newest version for a later time, readable versions only, the oldest for an earlier time.
        return self.delta_log.history().getActiveCommitAtTime(time, none, True, True, True)

    def commits_since(self, version: int) -> Iterator[CommitInfo]:
        """Every version after `version`, oldest first, read from the transaction log's files."""
        if not self.commits_are_files:
            self.complete(version)
        while (actions := self._actions(version := version + 1)) is not None:
            yield _commit_info(version, actions)

    def has_lost_commit(self, version: int) -> bool:
        """Whether the commit after a version was made and its file is gone: its checksum file, made after it, is there."""
        path, (directory, files) = self.java.org.apache.hadoop.fs.Path, self._log_directory
        if not files.exists(path(directory, f"{version + 1:020d}.crc")):
            return False
        return not files.exists(path(directory, commit_file(version + 1)))

    def complete(self, version: int) -> None:
        """Have the log store put missing files: of commits whose writer ended when it had only recorded them elsewhere.

        A log store does so when the log is listed.
        """
        after = self.java.org.apache.hadoop.fs.Path(self._log_directory[0], commit_file(version + 1))
        self.delta_log.store().listFrom(after, self.delta_log.newDeltaHadoopConf())

    def commit_numbered(self, app_id: str, number: int, version: int) -> CommitInfo | None:
        """The commit that has a number, searched from `version` backwards; None where the log no longer has it."""
        for each in range(version, -1, -1):
            actions = self._actions(each)
            if actions is None:
                return None
            numbers = [action["txn"] for action in actions if "txn" in action]
            if any((txn["appId"], txn["version"]) == (app_id, number) for txn in numbers):
                return _commit_info(each, actions)
        return None

    def added_rows(self, version: int, column: str | None = None) -> AddedRows | None:
        """What a commit added, with a column's bounds; None where its file is gone, or a data file has no statistics."""
        actions = self._actions(version)
        if actions is None:
            return None
        added = [json.loads(action["add"].get("stats") or "{}") for action in actions if "add" in action]
        rows = [file.get("numRecords") for file in added]
        if None in rows:
            return None
        with_rows = [file for file in added if file["numRecords"] and column is not None]
        least, greatest = ([file.get(side, {}).get(column) for file in with_rows] for side in _BOUNDS)
        if None in least or None in greatest:
            return None
        return AddedRows(sum(rows), min(least, default=None), max(greatest, default=None))

    def _actions(self, version: int) -> list[dict[str, Any]] | None:
        """The actions of a commit; None where the log does not have its file."""
        directory, files = self._log_directory
        path = self.java.org.apache.hadoop.fs.Path(directory, commit_file(version))
        if not files.exists(path):
            return None
        opened = files.open(path)
        try:
            text = self.java.org.apache.commons.io.IOUtils.toString(opened, "UTF-8")
        finally:
            opened.close()
        return [json.loads(line) for line in text.split("\n") if line]

    def commit_id(self, version: int) -> str | None:
        """Delta's own id (txnId) of one commit, '' where its writer set none; None where the log has no file of it."""
        return _commit_id(None if version < 0 else self._actions(version))

    def log_files(self, snapshot: "DeltaSnapshot", since: int) -> list[tuple[str, int]]:
        """The log files that a snapshot is read from, and its commits from `since` on: names and lengths, bytes.

        They are the snapshot's checkpoint, the commits after it, its checksum file, and older commits that still exist.
        """
        directory, files = self._log_directory
        checkpoint, found = snapshot.checkpoint()
        first = min(since, max(checkpoint, 0))
        names = [commit_file(version) for version in range(first, snapshot.version + 1)]
        needed = names[checkpoint + 1 - first :] if checkpoint >= first else names
        for name in (*names, f"{snapshot.version:020d}.crc"):
            path = self.java.org.apache.hadoop.fs.Path(directory, name)
            if name in needed or files.exists(path):
                found.append((name, int(files.getFileStatus(path).getLen())))
        return found


class DeltaSnapshot:
    """One version of a table."""

    def __init__(self, table: DeltaTable, snapshot: Any) -> None:
        self._table, self._snapshot = table, snapshot

    @property
    def version(self) -> int:
        return int(self._snapshot.version())

    @property
    def exists(self) -> bool:
        """Whether there is a table: a directory without a commit is not one."""
        return self.version >= 0

    @property
    def table_id(self) -> str:
        return str(self._snapshot.metadata().id())

    @property
    def identity(self) -> tuple[str, int, int]:
        """A value that no other table or version has, even where a directory was removed and made again."""
        return self.table_id, self.version, self.last_commit_written_ms

    def checkpoint(self) -> tuple[int, list[tuple[str, int]]]:
        """The version of the checkpoint it is read from, -1 without one, and its files: names and lengths, bytes."""
        provider = self._snapshot.logSegment().checkpointProvider()
        files = provider.topLevelFiles()
        listed = [files.apply(index) for index in range(files.size())]
        return int(provider.version()), [
            (str(each.getPath().getName()), int(each.getLen())) for each in listed
        ]

    @property
    def last_commit_written_ms(self) -> int:
        """When the file of its last commit was written, epoch milliseconds."""
        return int(self._snapshot.logSegment().lastCommitFileModificationTimestamp())

    def read(self, spark: SparkSession) -> DataFrame:
        """Its rows. `versionAsOf` returns the same, but for it Delta lists the whole log to check for the version."""
        java = jvm(spark)
        no_filters, no_catalog = java.PythonUtils.toSeq(java.java.util.List.of()), java.scala.Option.empty()
        this = java.scala.Some(self._snapshot)
        relation = self._snapshot.deltaLog().createRelation(no_filters, this, no_catalog, True)
        return DataFrame(java_session(spark).baseRelationToDataFrame(relation), spark)

    def files(self, spark: SparkSession) -> DataFrame:
        """Its files: `path`, `partitionValues`, `size`, `stats` (JSON: numRecords, minValues, maxValues).

        Where listed_files() knows them, Spark runs no job for them.
        """
        listed = self.listed_files()
        if listed is None:
            return DataFrame(self._snapshot.allFiles().toDF(), spark).select(*_FILE_COLUMNS.names)
        rows = [
            (quote(file.name, safe="/="), list(file.partition.items()), file.size, file.stats)
            for file in listed
        ]
        columns = zip(*rows, strict=True) if rows else [()] * len(_FILE_COLUMNS)
        return spark.createDataFrame(pa.table([list(column) for column in columns], _FILE_COLUMNS))

    def listed_files(self) -> list[ListedFile] | None:
        """All its files, where the version's checksum file lists them; None where it does not, or lists over FILES_LISTED.

        Delta lists them there while they are few. Otherwise Delta runs four Spark jobs to list the files of a version it has
        not read yet: half a second for a table of ten rows.
        """
        return self._listed_files

    @cached_property
    def _listed_files(self) -> list[ListedFile] | None:
        checksum = self._checksum_file
        if checksum is None or checksum.numFiles() > FILES_LISTED:
            return None
        if self.table_property(_COLUMN_MAPPING) not in (None, "none"):
            return None  # columns have other names in the files
        files = self._in_checksum_file("allFiles")
        if files is None:
            return None
        names = [unquote(file["path"]) for file in files]
        if any(NOT_BELOW.search(name) for name in names) or any(file.get("deletionVector") for file in files):
            return None
        return [
            ListedFile(name, file["partitionValues"], file["size"], file.get("stats"))
            for name, file in zip(names, files, strict=True)
        ]

    def all_files(self, spark: SparkSession) -> list[ListedFile]:
        """All its files, with a query where listed_files() is None: then a few hundred bytes a file come to the driver."""
        listed = self.listed_files()
        if listed is not None:
            return listed
        rows = self.files(spark).select("path", "partitionValues", "size", "stats").collect()
        return [ListedFile(unquote(row.path), row.partitionValues, row["size"], row.stats) for row in rows]

    def greatest(self, column: str) -> int | None:
        """The greatest value of a numeric column, by the statistics of its files; -1 without rows, None where unknown."""
        files = self.listed_files()
        if files is None or any(file.stats is None for file in files):
            return None
        stats = [json.loads(file.stats or "{}") for file in files]
        values = [each.get("maxValues", {}).get(column) for each in stats if each.get("numRecords") != 0]
        return None if any(value is None for value in values) else max(map(int, values), default=-1)

    @property
    def file_count(self) -> int:
        """The number of its files; by a query where the version has no checksum file."""
        checksum = self._checksum_file
        return int(self._snapshot.numOfFiles() if checksum is None else checksum.numFiles())

    @property
    def is_empty(self) -> bool:
        """Whether the version's checksum file says that it has no files; False also where there is no such file."""
        checksum = self._checksum_file
        return checksum is not None and checksum.numFiles() == 0

    def number(self, app_id: str) -> int:
        """The last number committed under `app_id`; -1 before the first."""
        known = self._known_numbers
        if known is not None:
            return known.get(app_id, -1)
        stored = self._snapshot.transactions().get(app_id)
        return int(stored.get()) if stored.isDefined() else -1

    def has_other_changes(self, app_id: str, since: int) -> bool:
        """Whether commits after version `since` without a number of `app_id` have changed rows: a RESTORE, an UPDATE.

        Commits whose files Delta has cleaned up are not known, and do not count.
        """
        return any(
            _changes_rows(actions) and not _has_number(actions, app_id)
            for _, actions in self._commits_after(since)
        )

    def lost_rows(self, app_id: str, column: str) -> LostRows | None:
        """What commits without a number of `app_id`, after the last one with a number, have taken out: a RESTORE, a DELETE.

        None also where a later one of them has put the rows back. Commits whose files Delta has cleaned up are not known.

        column  a column with statistics, whose greatest value shows in each partition whether the last rows are there
        """
        newest_first = takewhile(lambda each: not _has_number(each[1], app_id), self._commits_after(-1))
        since = [*newest_first][::-1]
        changes = [(version, actions) for version, actions in since if _changes_rows(actions)]
        if not changes or not loses_rows([action for _, actions in since for action in actions], column):
            return None
        version, actions = changes[0]
        return LostRows(version, _info(actions).get("operation") or "commit")

    def _commits_after(self, since: int) -> Iterator[tuple[int, Sequence[Mapping[str, Any]]]]:
        """Versions after `since` and their actions, the newest first, back to one whose file Delta has cleaned up."""
        for version in range(self.version, since, -1):
            actions = self._last_commit if version == self.version else self._table._actions(version)
            if actions is None:
                return
            yield version, actions

    def table_property(self, name: str) -> str | None:
        """A table property; None where it is not set."""
        found = self._snapshot.metadata().configuration().get(name)
        return str(found.get()) if found.isDefined() else None

    def load_state(self) -> None:
        """Have Delta know the version's state, which it needs before a commit that is numbered or replaces rows.

        By a query where the checksum file lacks a part of it.
        """
        checksum = self._checksum_file
        parts = [] if checksum is None else [checksum.setTransactions(), checksum.domainMetadata()]
        is_whole = bool(parts) and all(part.isDefined() for part in parts)
        if not is_whole or not put_state(self._table.java, self._snapshot, checksum):
            self._snapshot.transactions()

    @contextmanager
    def with_files(self, spark: SparkSession) -> Iterator[bool]:
        """A context in which Delta need not replay its log for this version's files, where listed_files() knows them.

        A commit that replaces some of the rows needs them, after load_state(). Whether Delta has them.
        """
        if not self._lists_its_files:
            yield False
            return
        with put_files(spark, self._table.java, self._snapshot, self._checksum_file) as are_put:
            yield are_put

    def replace_rows(
        self,
        rows: DataFrame,
        metadata: str,
        number: tuple[str, int],
        partitions: Mapping[str, Sequence[str]],
        where: str,
    ) -> bool:
        """Commit rows in place of those in some partitions, after load_state(): see Replaced, `replacement.replace_rows`."""
        if not self._lists_its_files:
            return False
        replaced, files = Replaced(partitions, where), self._checksum_file.allFiles().get()
        removed = [
            files.apply(index)
            for index, file in enumerate(self.listed_files() or ())
            if replaced.covers(file.partition)
        ]
        return replace_rows(self._snapshot, replaced, removed, rows, metadata, number)

    @property
    def _lists_its_files(self) -> bool:
        """Whether listed_files() are all files that the version's checksum file counts."""
        checksum, listed = self._checksum_file, self.listed_files()
        return listed is not None and (len(listed), sum(file.size for file in listed)) == (
            checksum.numFiles(),
            checksum.tableSizeBytes(),
        )

    def write_checkpoint(self) -> None:
        """Write a checkpoint of this version: what opens the table reads it in place of the commits.

        Of Delta's own checkpoints it is unlike in that no old commit is removed: other sessions may still need them. Raises
        Delta's error where the log does not add up to the version's checksum file.
        """
        forget_state(self._table.java, self._snapshot)
        self._table.delta_log.writeCheckpointFiles(self._snapshot, self._table.java.scala.Option.empty())

    @cached_property
    def _known_numbers(self) -> dict[str, int] | None:
        """All commit numbers by application id; None where the version's checksum file lacks them.

        Delta writes at most a hundred of them there. To read them from the snapshot itself replays the table's log.
        """
        numbered = self._in_checksum_file("setTransactions")
        return None if numbered is None else {each["appId"]: each["version"] for each in numbered}

    @cached_property
    def _checksum_file(self) -> Any:
        """The content of the version's checksum file; None where there is no such file, or it is of another commit.

        Where a commit's file was removed, or put back from a copy, the checksum file of another commit may be there: Delta
        writes none where there is one, and does not compare. The id of the commit is in both.
        """
        checksum = self._snapshot.checksumOpt()
        if not checksum.isDefined():
            return None
        if _proven.get(self._table.path) != self.identity:
            written_for = checksum.get().txnId()
            if not written_for.isDefined() or written_for.get() != _commit_id(self._last_commit):
                return None
            _proven[self._table.path] = self.identity
        return checksum.get()

    @cached_property
    def _last_commit(self) -> list[dict[str, Any]] | None:
        """The actions of the version's own commit; None where the log does not have its file."""
        return self._table._actions(self.version) if self.exists else None

    def _in_checksum_file(self, field: str) -> list[dict[str, Any]] | None:
        """A list in the version's checksum file; None where there is no such list or file.

        Delta writes it as JSON (`JsonUtils.mapper`, as in its log): one call, where each value read by its own call takes a
        third of a millisecond.
        """
        checksum = self._checksum_file
        found = None if checksum is None else getattr(checksum, field)()
        if found is None or not found.isDefined():
            return None
        mapper = self._table.java.org.apache.spark.sql.delta.util.JsonUtils.mapper()
        listed: list[dict[str, Any]] = json.loads(mapper.writeValueAsString(found.get()))
        return listed


def log_store_class(log_store: Any, path: Any) -> str:
    """The class of the log store that serves a path; one that only delegates is followed."""
    while True:
        name = str(log_store.getClass().getName())
        if name.endswith(".DelegatingLogStore"):  # chooses by scheme
            log_store = log_store.getDelegate(path)
        elif name.endswith(".LogStoreAdaptor"):  # from Delta's Java interface to its Scala one
            log_store = log_store.logStoreImpl()
        else:
            return name


def _commit_id(actions: Sequence[Mapping[str, Any]] | None) -> str | None:
    return None if actions is None else str(_info(actions).get("txnId") or "")


def _has_number(actions: Sequence[Mapping[str, Any]], app_id: str) -> bool:
    """Whether a commit has a number of `app_id`."""
    return any(action["txn"]["appId"] == app_id for action in actions if "txn" in action)


def _changes_rows(actions: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a commit does: one of OPTIMIZE, VACUUM or a table property does not."""
    files = (action.get("add") or action.get("remove") or {} for action in actions)
    return any(file.get("dataChange", False) for file in files)


def commit_file(version: int) -> str:
    return f"{version:020d}.json"


def _commit_info(version: int, actions: Sequence[Mapping[str, Any]]) -> CommitInfo:
    info = _info(actions)
    rows = (info.get("operationMetrics") or {}).get("numOutputRows", 0)
    return CommitInfo(version, info.get("userMetadata") or "", int(rows), info.get("operation") or "")


def _info(actions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """A commit's commitInfo; empty without one. Delta writes it first, other writers may write it later, or not at all."""
    return next((action["commitInfo"] for action in actions if action.get("commitInfo")), {})


def has_commit(spark: SparkSession, path: str, version: int) -> bool:
    """Whether a directory has the file of this commit of a Delta table."""
    target, files = hadoop_path(spark, f"{path}/_delta_log/{commit_file(version)}")
    return bool(files.exists(target))


def is_delta_table(spark: SparkSession, path: str) -> bool:
    """Whether a directory holds a Delta table: one whose creation was interrupted has a log, but no commit in it.

    Raises BadInput for what is neither a path nor a URI that Hadoop knows.
    """
    hadoop_path(spark, path)
    is_one = jvm(spark).io.delta.tables.DeltaTable.isDeltaTable(java_session(spark), path)
    return bool(is_one) and DeltaTable(spark, path).newest().exists
