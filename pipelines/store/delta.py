"""What Delta's log says beyond its rows: commit numbers, versions, who wrote a commit, how many rows.

Delta keeps, for every application id, the last number it committed under; the number is part of a snapshot and a write
that carries the next one is refused when another writer took it first. The Python package has no way to ask for it, so
this module does, through the JVM; nothing else in the project touches Delta's internals.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from pipelines.store.jvm import hadoop_path, java_session, jvm

# In a file's name: an address of its own, or what Spark would take for a pattern.
NOT_BELOW = re.compile(r"\A/|:|[{}\[\]*?\\]")


@dataclass(frozen=True)
class CommitInfo:
    """One version of a table: who wrote it (`token`, the write's user metadata) and how many rows it added."""

    version: int
    token: str
    rows: int
    operation: str


@dataclass(frozen=True)
class ListedFile:
    """A file of a table: its name below the table's directory, and the values of the columns it is partitioned by."""

    name: str
    partition: Mapping[str, str | None]


class DeltaTable:
    """The transaction log of one table, as of the moment it was looked at."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._jvm = jvm(spark)
        self._log = self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(java_session(spark), path)
        self.path = path

    def update(self) -> "DeltaSnapshot":
        """The newest snapshot. Delta lists its whole log for it: 85 ms on a local disk for a log of a thousand commits."""
        none = self._jvm.scala.Option.empty()
        return DeltaSnapshot(self._log.update(False, none, none))

    def newest(self) -> "DeltaSnapshot":
        """As `update`, by two looks at the log where nothing was committed since this session last listed it.

        For a table whose commits are all files of its log as soon as they are made, as a store's are: not one with a
        coordinator of commits.
        """
        known = DeltaSnapshot(self._log.unsafeVolatileSnapshot())
        return known if self._is_newest(known) else self.update()

    def _is_newest(self, known: "DeltaSnapshot") -> bool:
        """Whether the log has the snapshot's last commit, that very file (a table may be made anew), and none behind it."""
        path, (directory, files) = self._jvm.org.apache.hadoop.fs.Path, self._log_directory
        if files.exists(path(directory, _commit_file(known.version + 1))):
            return False
        last = path(directory, _commit_file(known.version))
        return (
            bool(files.exists(last))
            and files.getFileStatus(last).getModificationTime() == known.last_commit_written_ms
        )

    @cached_property
    def _log_directory(self) -> tuple[Any, Any]:
        """Hadoop's Path of the log and the file system it is on."""
        return hadoop_path(self._spark, f"{self.path}/_delta_log")

    def version_at(self, timestamp_ms: int) -> int:
        """The version the table had at a time: the last one not later, and not earlier than Delta can still read."""
        return int(self._commit_at(timestamp_ms).version())

    def first_commit_ms(self) -> int:
        """When the oldest version that can still be read was committed, epoch milliseconds."""
        return int(self._commit_at(0).timestamp())

    def _commit_at(self, timestamp_ms: int) -> Any:
        none, time = self._jvm.scala.Option.empty(), self._jvm.java.sql.Timestamp(timestamp_ms)
        # The newest version for a later time, readable versions only, the oldest for an earlier time.
        return self._log.history().getActiveCommitAtTime(time, none, True, True, True)

    def commits_since(self, version: int) -> Iterator[CommitInfo]:
        """Every version after `version`, oldest first, read from the transaction log's files."""
        directory, files = self._log_directory
        while True:
            version += 1
            path = self._jvm.org.apache.hadoop.fs.Path(directory, _commit_file(version))
            if not files.exists(path):
                return
            yield _commit_info(version, self._lines(files, path))

    def _lines(self, files: Any, path: Any) -> Iterator[str]:
        opened = files.open(path)
        try:
            reader = self._jvm.java.io.BufferedReader(self._jvm.java.io.InputStreamReader(opened, "UTF-8"))
            while (line := reader.readLine()) is not None:
                yield line
        finally:
            opened.close()


class DeltaSnapshot:
    """One version of a table."""

    def __init__(self, snapshot: Any) -> None:
        self._snapshot = snapshot

    @property
    def version(self) -> int:
        return int(self._snapshot.version())

    @property
    def identity(self) -> tuple[str, int, int]:
        """What no other table and no other version has, also where a directory was removed and made anew."""
        return str(self._snapshot.metadata().id()), self.version, self.last_commit_written_ms

    @property
    def last_commit_written_ms(self) -> int:
        """When the file of its last commit was written, epoch milliseconds."""
        return int(self._snapshot.logSegment().lastCommitFileModificationTimestamp())

    def read(self, spark: SparkSession) -> DataFrame:
        """Its rows. As `versionAsOf` gives them, for which Delta lists the whole log to see whether it has the version."""
        java = jvm(spark)
        no_filters, no_catalog = java.PythonUtils.toSeq(java.java.util.List.of()), java.scala.Option.empty()
        this = java.scala.Some(self._snapshot)
        relation = self._snapshot.deltaLog().createRelation(no_filters, this, no_catalog, True)
        return DataFrame(java_session(spark).baseRelationToDataFrame(relation), spark)

    def files(self, spark: SparkSession) -> DataFrame:
        """Its files: `path`, `partitionValues`, `size`, `stats` (JSON: numRecords, minValues, maxValues), …"""
        return DataFrame(self._snapshot.allFiles().toDF(), spark)

    def listed_files(self) -> list[ListedFile] | None:
        """All its files, where the version's checksum file lists them; None where it does not.

        Delta writes them there while they are few. To ask Delta itself takes it four Spark jobs on a version it has not
        read yet, half a second for a table of ten rows.
        """
        files = self._in_checksum_file("allFiles")
        if files is None:
            return None
        names = [unquote(str(file.path())) for file in files]
        if any(NOT_BELOW.search(name) for name in names) or any(file.deletionVector() for file in files):
            return None
        return [
            ListedFile(name, _entries(file.partitionValues()))
            for name, file in zip(names, files, strict=True)
        ]

    @property
    def file_count(self) -> int:
        return int(self._snapshot.numOfFiles())

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

    def replay(self) -> None:
        """Have Delta find out the commit numbers by replaying the table's log, as it does itself before a numbered commit.

        A quarter of a second for a table of ten rows, but once for each version.
        """
        self._snapshot.transactions()

    @cached_property
    def _known_numbers(self) -> dict[str, int] | None:
        """All numbers, where the version's checksum file has them: asking the snapshot itself replays the table's log.

        Delta writes them there while they are a hundred at most.
        """
        numbered = self._in_checksum_file("setTransactions")
        return None if numbered is None else {each.appId(): each.version() for each in numbered}

    @property
    def _checksum_file(self) -> Any:
        """What the version's checksum file says; None where there is no such file."""
        checksum = self._snapshot.checksumOpt()
        return checksum.get() if checksum.isDefined() else None

    def _in_checksum_file(self, field: str) -> list[Any] | None:
        """A list in the version's checksum file; None where it has none, or there is no such file."""
        checksum = self._checksum_file
        found = None if checksum is None else getattr(checksum, field)()
        if found is None or not found.isDefined():
            return None
        listed = found.get()
        return [listed.apply(place) for place in range(listed.size())]


def _commit_file(version: int) -> str:
    return f"{version:020d}.json"


def _commit_info(version: int, lines: Iterator[str]) -> CommitInfo:
    """The commitInfo action is the first of a commit's lines in what Delta writes, but need not be."""
    for line in lines:
        if '"commitInfo"' not in line:
            continue
        info = json.loads(line).get("commitInfo")
        if info is not None:
            rows = (info.get("operationMetrics") or {}).get("numOutputRows", 0)
            return CommitInfo(version, info.get("userMetadata") or "", int(rows), info.get("operation") or "")
    return CommitInfo(version, "", 0, "")


def _entries(scala_map: Any) -> dict[str, str | None]:
    found = {}
    entries = scala_map.iterator()
    while entries.hasNext():
        entry = entries.next()
        found[str(entry._1())] = entry._2()
    return found


def is_delta_table(spark: SparkSession, path: str) -> bool:
    """Whether a directory holds a Delta table."""
    return bool(jvm(spark).io.delta.tables.DeltaTable.isDeltaTable(java_session(spark), path))
