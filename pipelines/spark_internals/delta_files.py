"""The files of a Delta table, read without Delta, which refuses a damaged log as a whole, or reads less of it.

Read from Delta 4.4.0: every commit `N.json` has a line for each action, commitInfo first, and ends with a newline. Its
checksum file `N.crc` repeats the whole state after it, with the table's files while they are few: so a lost commit can be
written again from it and the one before.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.spark_internals.conflicts import is_conflict
from pipelines.spark_internals.delta_log import NOT_BELOW, DeltaSnapshot, DeltaTable, ListedFile, commit_file
from pipelines.spark_internals.files import hadoop_path
from pipelines.spark_internals.jvm import is_java, java_session, jvm
from pipelines.uris import literal_path

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKSUM = re.compile(r"(\d{20})\.crc")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*parquet")
_HINT = "_last_checkpoint"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
# Further damage of one log is not listed.
_DAMAGE_LISTED = 20
_PARQUET_ENDS_WITH = b"PAR1"


@dataclass(frozen=True)
class LogDamage:
    """Damage of a Delta log.

    name     the file that is missing or damaged, in `_delta_log`
    wrong    what is wrong with it, after its name in a sentence
    version  of the commit; None for a checkpoint
    """

    name: str
    wrong: str
    version: int | None = None


@dataclass(frozen=True)
class DataFile:
    """A data file of a table's newest version.

    name       below the table's directory
    size       bytes it must have
    found      bytes it has; None where it is missing
    partition  values of the columns that the table is partitioned by
    stats      Delta's statistics of its rows
    """

    name: str
    size: int
    found: int | None
    partition: Mapping[str, str | None]
    stats: Mapping[str, Any]

    @classmethod
    def of(cls, listed: ListedFile, found: int | None) -> "DataFile":
        """A file as its table lists it, and the bytes that it has."""
        return cls(listed.name, listed.size, found, listed.partition, json.loads(listed.stats or "{}"))

    @property
    def rows(self) -> int | None:
        return self.stats.get("numRecords")

    def least(self, column: str) -> Any:
        return self.stats.get("minValues", {}).get(column)

    def greatest(self, column: str) -> Any:
        return self.stats.get("maxValues", {}).get(column)


class TableFiles:
    """The files in the directory of one table."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self.path = path

    @cached_property
    def log(self) -> dict[str, int]:
        """The files of the Delta log and their lengths, bytes; empty where there is none."""
        return dict(self._lengths("_delta_log"))

    @cached_property
    def commits(self) -> list[int]:
        return self._versions(_COMMIT)

    @cached_property
    def checkpoint(self) -> int:
        """The version of the newest checkpoint that is whole; -1 without one."""
        return max((version for version, is_whole in self._checkpoints() if is_whole), default=-1)

    @property
    def newest(self) -> int:
        """The newest version that any file of the log is of."""
        return max([self.checkpoint, *self.commits, *self._versions(_CHECKSUM)], default=-1)

    def log_damage(self) -> list[LogDamage]:
        """What is wrong with the files that the newest version is read from."""
        found = [
            LogDamage(name, "is not whole", None)
            for name in self.log
            if (match := _CHECKPOINT.fullmatch(name))
            and int(match[1]) > self.checkpoint
            and not self._is_whole_parquet(name)
        ]
        hint = self._hint()
        if hint > self.checkpoint and not found:
            found.append(LogDamage(f"{hint:020d}.checkpoint.parquet", "is missing"))
        there = set(self.commits)
        for version in range(self.checkpoint + 1, self.newest + 1):
            if version not in there:
                found.append(LogDamage(commit_file(version), "is missing", version))
            elif not self._is_whole_commit(version):
                found.append(LogDamage(commit_file(version), "is cut short", version))
        return found[:_DAMAGE_LISTED]

    def can_do_without_checkpoint(self) -> bool:
        """Whether every commit after the newest whole checkpoint is there."""
        return set(self.commits) >= set(range(self.checkpoint + 1, self.newest + 1))

    def commit_from_checksums(self, version: int) -> list[dict[str, Any]] | None:
        """The actions of a lost commit, from its checksum file and the one before; None where they do not list all files."""
        after = self._checksum(version)
        before = self._checksum(version - 1) if version else {"allFiles": []}
        if after is None or before is None or "allFiles" not in after or "allFiles" not in before:
            return None
        actions = self._beside_files(version, before, after)
        had = {each["path"]: each for each in before["allFiles"]}
        has = {each["path"]: each for each in after["allFiles"]}
        actions += [{"add": {**each, "dataChange": True}} for path, each in has.items() if path not in had]
        removed_ms = int(time.time() * 1000)
        actions += [
            {
                "remove": {
                    "path": path,
                    "deletionTimestamp": removed_ms,
                    "dataChange": True,
                    "extendedFileMetadata": True,
                    "partitionValues": each.get("partitionValues", {}),
                    "size": each["size"],
                    "stats": each.get("stats"),  # by which it is known whether rows are lost
                }
            }
            for path, each in had.items()
            if path not in has
        ]
        return actions

    def append_from_data_files(self, version: int, statistics: Sequence[str]) -> list[dict[str, Any]] | None:
        """The actions of a lost commit that only added files, where its checksum file does not list the table's files.

        statistics  the columns that the table keeps statistics of

        The files are those in the table's directory that no other commit names. They count only where their number and
        their bytes are what the commit added by the checksum files: else a writer that failed has left some. None then.
        """
        after, before = self._checksum(version), self._checksum(version - 1)
        if after is None or before is None:
            return None
        named = self._named_files(apart_from=version)
        unnamed = {name: size for name, size in self._data_files() if name not in named}
        added, grown = (after[key] - before[key] for key in ("numFiles", "tableSizeBytes"))
        if not unnamed or (len(unnamed), sum(unnamed.values())) != (added, grown):
            return None
        actions = self._beside_files(version, before, after)
        return actions + [
            {"add": self._add(name, size, statistics)} for name, size in sorted(unnamed.items())
        ]

    def _add(self, name: str, size: int, statistics: Sequence[str]) -> dict[str, Any]:
        """The action that adds a data file, with the statistics of its rows."""
        rows = self._spark.read.parquet(literal_path(f"{self.path}/{name}"))
        columns = [each for each in statistics if each in rows.columns]
        bounds = [
            bound.alias(f"{side}_{each}")
            for each in columns
            for side, bound in (("min", F.min(each)), ("max", F.max(each)))
        ]
        (found,) = rows.agg(F.count("*").alias("numRecords"), *bounds).collect()
        stats: dict[str, Any] = {"numRecords": found.numRecords}
        for side, key in (("min", "minValues"), ("max", "maxValues")):
            values = {each: found[f"{side}_{each}"] for each in columns}
            stats[key] = {each: value for each, value in values.items() if value is not None}
        folders = [part.partition("=") for part in name.split("/")[:-1]]
        return {
            "path": quote(name, safe="/="),
            "partitionValues": {column: unquote(value) for column, _, value in folders},
            "size": size,
            "modificationTime": int(time.time() * 1000),
            "dataChange": True,
            "stats": json.dumps(stats, ensure_ascii=False),
        }

    def _data_files(self) -> Iterator[tuple[str, int]]:
        """The Parquet files in the table's directory and one level below, and their lengths, bytes."""
        directory, files = hadoop_path(self._spark, self.path)
        folders = [
            str(status.getPath().getName()) for status in files.listStatus(directory) if status.isDirectory()
        ]
        for folder in ("", *(each for each in folders if not each.startswith(("_", ".")))):
            for name, size in self._lengths(folder):
                if name.endswith(".parquet"):
                    yield f"{folder}/{name}" if folder else name, size

    def _named_files(self, apart_from: int) -> set[str]:
        """Every data file that another commit or the newest whole checkpoint adds or removes."""
        paths = [
            (action.get("add") or action.get("remove") or {}).get("path")
            for version in self.commits
            if version != apart_from
            for action in self._actions(version) or ()
        ]
        checkpoints = [
            literal_path(f"{self.path}/_delta_log/{name}")
            for name in self.log
            if (match := _CHECKPOINT.fullmatch(name)) and int(match[1]) == self.checkpoint
        ]
        if checkpoints:  # a few bytes a file
            rows = self._spark.read.parquet(*checkpoints).select(
                "add.path", F.col("remove.path").alias("removed")
            )
            paths += [path for row in rows.collect() for path in row]
        return {unquote(path) for path in paths if path is not None}

    def _beside_files(
        self, version: int, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """The actions of a lost commit that are not about files."""
        kept = self._actions(version)
        info = kept[0] if kept and "commitInfo" in kept[0] else {"commitInfo": self._info(version, after)}
        actions = [info]
        for action, key in (("protocol", "protocol"), ("metaData", "metadata")):
            if after.get(key) != before.get(key):
                actions.append({action: after[key]})
        numbers = {each["appId"]: each for each in before.get("setTransactions", ())}
        return actions + [
            {"txn": each}
            for each in after.get("setTransactions", ())
            if each["version"] != numbers.get(each["appId"], {}).get("version")
        ]

    def write_commit(self, version: int, actions: Sequence[Mapping[str, Any]]) -> None:
        """Write the file of a commit that is missing."""
        target, files = hadoop_path(self._spark, f"{self.path}/_delta_log/{commit_file(version)}")
        text = "".join(json.dumps(action, ensure_ascii=False) + "\n" for action in actions)
        stream = files.create(target, False)
        stream.write(bytearray(text.encode()))
        stream.close()

    def set_aside(self, name: str, directory: str) -> None:
        """Move a file of the Delta log, where it is there, to a directory; the checkpoint's hint goes with a checkpoint."""
        if _CHECKPOINT.fullmatch(name):
            self.set_aside(_HINT, directory)
        source, files = hadoop_path(self._spark, f"{self.path}/_delta_log/{name}")
        if not files.exists(source):
            return
        target, _ = hadoop_path(self._spark, f"{directory}/{name}.{int(time.time() * 1000)}")
        files.mkdirs(target.getParent())
        files.rename(source, target)

    def damaged_data(self, version: DeltaSnapshot | None = None) -> list[DataFile]:
        """Files of a version, else of the newest, that are missing or have another length. The log itself must be sound.

        The driver gets a few bytes a file of the table's directory.
        """
        newest = DeltaTable(self._spark, self.path).newest() if version is None else version
        found: dict[str, dict[str, int]] = {}
        damaged = []
        for each in newest.all_files(self._spark):
            if NOT_BELOW.search(each.name):
                continue  # a file elsewhere
            folder, _, file = each.name.rpartition("/")
            if folder not in found:
                found[folder] = dict(self._lengths(folder))
            length = found[folder].get(file)
            if length != each.size:
                damaged.append(DataFile.of(each, length))
        return damaged

    def _info(self, version: int, checksum: Mapping[str, Any]) -> dict[str, Any]:
        """What is known of who made a commit whose own commitInfo is lost."""
        return {
            "timestamp": int(time.time() * 1000),
            "operation": "WRITE",
            "operationParameters": {},
            "readVersion": version - 1,
            "isolationLevel": "Serializable",
            "isBlindAppend": False,
            "engineInfo": "written again from the checksum file",
            "txnId": checksum.get("txnId"),
        }

    def _is_whole_commit(self, version: int) -> bool:
        text = self._read(commit_file(version)).decode(errors="replace")
        actions = _actions_in(text)
        if not text.endswith("\n") or not any("commitInfo" in each for each in actions):
            return False
        info = next(each["commitInfo"] for each in actions if "commitInfo" in each)
        is_append = (info.get("operationParameters") or {}).get("mode") == "Append"
        rows = (info.get("operationMetrics") or {}).get("numOutputRows")
        # Rows and not files: the file of a task without rows is counted, and is not added.
        stats = [json.loads(each["add"].get("stats") or "{}") for each in actions if "add" in each]
        counts = [each.get("numRecords") for each in stats]
        return not is_append or rows is None or None in counts or int(rows) == sum(counts)

    def _actions(self, version: int) -> list[dict[str, Any]] | None:
        """The actions of a commit up to the first line that is not whole; None where there is none."""
        if commit_file(version) not in self.log:
            return None
        return _actions_in(self._read(commit_file(version)).decode(errors="replace")) or None

    def _checksum(self, version: int) -> dict[str, Any] | None:
        name = f"{version:020d}.crc"
        if name not in self.log:
            return None
        try:
            found = json.loads(self._read(name))
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def _hint(self) -> int:
        """The version of the checkpoint that the log's hint names; -1 without one that can be read."""
        if _HINT not in self.log:
            return -1
        try:
            return int(json.loads(self._read(_HINT))["version"])
        except (ValueError, KeyError, TypeError):
            return -1

    def _checkpoints(self) -> Iterator[tuple[int, bool]]:
        for name in self.log:
            match = _CHECKPOINT.fullmatch(name)
            if match:
                yield int(match[1]), self._is_whole_parquet(name)

    def _is_whole_parquet(self, name: str) -> bool:
        return self._read(name, last=len(_PARQUET_ENDS_WITH)) == _PARQUET_ENDS_WITH

    def _versions(self, names: re.Pattern[str]) -> list[int]:
        return sorted(int(match[1]) for name in self.log if (match := names.fullmatch(name)))

    def _lengths(self, folder: str) -> Iterator[tuple[str, int]]:
        directory, files = hadoop_path(self._spark, f"{self.path}/{folder}" if folder else self.path)
        if not files.exists(directory):
            return
        for status in files.listStatus(directory):
            if not status.isDirectory():
                yield str(status.getPath().getName()), int(status.getLen())

    def _read(self, name: str, last: int | None = None) -> bytes:
        """The bytes of a file of the log, or its last ones, without Hadoop's own check: it refuses what is cut short."""
        path, files = hadoop_path(self._spark, f"{self.path}/_delta_log/{name}")
        if is_java(files, "org.apache.hadoop.fs.LocalFileSystem"):
            files = files.getRaw()
        stream = files.open(path)
        try:
            if last is not None:
                stream.seek(max(0, self.log[name] - last))
            return bytes(jvm(self._spark).org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()


def _actions_in(text: str) -> list[dict[str, Any]]:
    """The actions in the text of a commit, up to the first line that is not whole."""
    actions = []
    for line in text.split("\n"):
        if line:
            try:
                actions.append(json.loads(line))
            except ValueError:
                break
    return actions


def rows_of_files(spark: SparkSession, path: str, names: Sequence[str], like: DataFrame) -> DataFrame:
    """The rows of some of a table's data files, with the columns of `like`."""
    if not names:
        return like.limit(0)
    reader = spark.read.schema(like.schema).option("basePath", path)
    return reader.parquet(*(literal_path(f"{path}/{name}") for name in names))


def take_out(
    spark: SparkSession, path: str, names: Sequence[str], number: tuple[str, int] | None, token: str
) -> bool:
    """Take data files out of a table without reading them, in a commit with a number; False where another came first.

    number  the application id and the commit's number; None for a table whose commits have none
    """
    java = jvm(spark)
    log = java.org.apache.spark.sql.delta.DeltaLog.forTable(java_session(spark), path)
    spark.conf.set(_USER_METADATA, token)
    try:
        transaction = log.startTransaction()
        if number is not None and transaction.txnVersion(number[0]) >= number[1]:
            return False
        removed = set(names)
        actions = java.java.util.ArrayList()
        for file in transaction.snapshot().allFiles().collectAsList():
            if unquote(str(file.path())) in removed:
                actions.add(file.remove())
        if number is not None:
            now = java.scala.Some(int(time.time() * 1000))
            actions.add(java.org.apache.spark.sql.delta.actions.SetTransaction(number[0], number[1], now))
        operation = getattr(java.org.apache.spark.sql.delta, "DeltaOperations$ManualUpdate$")
        manual = getattr(operation, "MODULE$")
        transaction.commit(java.PythonUtils.toSeq(actions), manual)
    except Exception as failure:
        if is_conflict(failure):
            return False
        raise
    finally:
        spark.conf.unset(_USER_METADATA)
    return True


def forget_logs(spark: SparkSession) -> None:
    """Have Delta read logs again whose files were changed by other means than a commit."""
    jvm(spark).org.apache.spark.sql.delta.DeltaLog.clearCache()
