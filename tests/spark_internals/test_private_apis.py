"""All that Spark, Delta and py4j do not document does what this project was written for. These tests run first.

What fails here makes many other tests fail, so a failure is a sentence: what broke, where it is used, and the versions.
"""

import importlib
import inspect
import json
import os
import pkgutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from py4j.java_gateway import JavaClass
from pyspark.errors import PySparkTypeError, PySparkValueError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines import spark_internals
from pipelines.errors import BadInput, StoreError
from pipelines.spark_internals import (
    arrow,
    catalyst,
    conflicts,
    delta_log,
    files,
    jvm,
    lost_rows,
    parser,
    process,
    sessions,
    snapshot_state,
)
from pipelines.spark_internals.delta_log import DeltaSnapshot, DeltaTable
from pipelines.spark_internals.java_properties import java_properties
from pipelines.spark_internals.jvm_start import StartedJvm
from pipelines.spark_internals.python_workers import without_spark_archives
from pipelines.store.sql_text import text_literal
from tests.conftest import PROJECT
from tests.newest_of_log import newest_of_log

pytestmark = pytest.mark.quick

WRITTEN_FOR = {"pyspark": "4.1.4", "delta-spark": "4.4.0", "py4j": "0.10.9.9"}
NO_END = np.full(1, 2**62, np.int64)
# They work on damaged tables, and no check here damages one: see tests/quality/test_damage.py.
OF_DAMAGED_TABLES = {
    "delta_files.forget_logs",
    "delta_files.rows_of_files",
    "delta_files.take_out",
    "delta_log.DeltaTable.at_version",
    "delta_log.DeltaTable.has_lost_commit",
}


@dataclass(frozen=True)
class Ground:
    """What the checks work on: a session, and a Delta table of two rows, written by one commit with number 7 of `app`."""

    spark: SparkSession
    path: str

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.spark, self.path)

    @property
    def snapshot(self) -> DeltaSnapshot:
        return self.table.update()

    def write(self) -> None:
        rows = self.spark.range(2).coalesce(1).write.format("delta").mode("append")
        numbered = rows.option("txnAppId", "app").option("txnVersion", 7).option("userMetadata", "a token")
        numbered.save(self.path)

    def replace(self) -> None:
        rows = self.spark.range(2).coalesce(1).write.format("delta").mode("overwrite")
        rows.option("replaceWhere", "id >= 0").save(self.path)

    def spread(self, rows: DataFrame) -> None:
        """The rows in partitions 0 and 1 of `part`, and a of `half`."""
        spread = in_parts(rows, "CAST(id % 2 AS STRING)", "'a'").write.format("delta")
        spread.partitionBy("part", "half").save(self.path)

    def value(self, column: Column) -> Any:
        return self.spark.range(1).select(column.alias("value")).collect()[0]["value"]


def in_parts(rows: DataFrame, part: str, half: str) -> DataFrame:
    return rows.selectExpr("id", f"{part} AS part", f"{half} AS half").coalesce(1)


@pytest.fixture(scope="module")
def ground(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    ground = Ground(spark, str(tmp_path_factory.mktemp("private") / "table"))
    ground.write()
    return ground


CHECKS: dict[str, tuple[str, Callable[[Ground], None]]] = {}


def check(name: str, uses: str) -> Callable[[Callable[[Ground], None]], None]:
    """A check of one function of the folder, and what it uses that is not documented."""

    def kept(function: Callable[[Ground], None]) -> None:
        CHECKS[name] = (uses, function)

    return kept


@check("arrow.unweighed", "the settings maxRecordsPerBatch and maxBytesPerBatch of Arrow")
def _(ground: Ground) -> None:
    def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    ground.spark.conf.set(arrow.ROWS_OF_A_BATCH, 1)
    with arrow.unweighed(ground.spark, 1):
        rows = ground.spark.range(0, 150, 1, 1).mapInArrow(sizes, "rows long").collect()
    assert [row.rows for row in rows] == [100, 50]


@check("arrow.over_columns", "annotations, from which `arrow_udf` infers the kind of a function")
def _(ground: Ground) -> None:
    def doubled(numbers: Any) -> Any:
        return pa.array([2 * number.as_py() for number in numbers])

    assert ground.value(arrow.over_columns(doubled, "long", F.lit(21).cast("long"))) == 42


@check("arrow.frame_of", "to_arrow_schema and _make_type_verifier of pyspark.sql")
def _(ground: Ground) -> None:
    columns = "number int, map map<string,string>, names array<string>, bytes binary, real double"
    rows = [(1, {"a": "b"}, ["c", None], b"\x00", 0.5), {"number": 2}]
    found = arrow.frame_of(ground.spark, rows, columns)
    assert (
        found.schema.simpleString()
        == "struct<number:int,map:map<string,string>,names:array<string>,bytes:binary,real:double>"
    )
    assert [tuple(row) for row in found.collect()] == [rows[0], (2, None, None, None, None)]
    assert "PythonRDD" not in found._jdf.queryExecution().toRdd().toDebugString()
    for value in (1.5, 1.0, True, "7", 2**31):
        with pytest.raises((PySparkTypeError, PySparkValueError)):
            arrow.frame_of(ground.spark, [(value,)], "number int")
    with pytest.raises(BadInput, match="not text in UTF-8"):
        arrow.frame_of(ground.spark, [("\udcff",)], "name string")


@check("catalyst.hive_hash", "Catalyst's HiveHash")
def _(ground: Ground) -> None:
    assert ground.value(catalyst.hive_hash(F.lit("ab"))) == 31 * 97 + 98


@check("catalyst.string_hash", "Catalyst's Invoke on java.lang.String")
def _(ground: Ground) -> None:
    assert ground.value(catalyst.string_hash(F.lit("ü"))) == 252


@check("catalyst.is_ascii", "UTF8String.isFullAscii")
def _(ground: Ground) -> None:
    assert ground.value(F.array(catalyst.is_ascii(F.lit("u")), catalyst.is_ascii(F.lit("ü")))) == [
        True,
        False,
    ]


@check("catalyst.runtime_literal", "Decimal.toLong, called by Invoke while a task runs")
def _(ground: Ground) -> None:
    assert ground.value(catalyst.runtime_literal(2**63 - 1)) == 2**63 - 1


@check("catalyst.number_of", "UTF8String.split, GenericArrayData and ArrayBasedMapData.toJavaMap")
def _(ground: Ground) -> None:
    assert ground.value(catalyst.number_of(["a", "ü"], F.lit("ü"))) == 1


@check("catalyst.search", "Catalyst's StaticInvoke and a long[] as Literal, filled by Platform.copyMemory")
def _(ground: Ground) -> None:
    assert ground.value(catalyst.search(np.array([3, 5], np.int64), F.lit(5).cast("long"))) == 1


@check("catalyst.number_at", "UnsafeArrayData.fromPrimitiveArray as Literal")
def _(ground: Ground) -> None:
    assert ground.value(catalyst.number_at(np.array([3, 5], np.int64), F.lit(1))) == 5


@check("catalyst.running_counter", "an object in a Literal, of which every task gets a copy of its own")
def _(ground: Ground) -> None:
    counter = catalyst.running_counter(np.array([10], np.int64), NO_END, F.lit(0), F.col("id"))
    rows = ground.spark.range(0, 4, 1, 2).select(counter.alias("value")).collect()
    assert [row.value for row in rows] == [10, 10, 10, 12]


@check("catalyst.off_counter", "the JVM's message for an index outside an array")
def _(ground: Ground) -> None:
    beyond = catalyst.running_counter(np.array([10], np.int64), NO_END, F.lit(1), F.lit(1).cast("long"))
    with pytest.raises(Exception, match="out of bounds") as failed:
        ground.value(beyond)
    assert catalyst.off_counter(failed.value) is not None


@check("catalyst.occurrences", "commons-lang's StringUtils.countMatches")
def _(ground: Ground) -> None:
    assert ground.value(catalyst.occurrences(F.lit("a,b,c"), ",")) == 2


@check("catalyst.parts_between", "commons-lang's StringUtils.substringsBetween and Array.getLength")
def _(ground: Ground) -> None:
    assert ground.value(catalyst.parts_between(F.lit("<a><b>"), "<", ">")) == 2


@check("catalyst.after_last", "commons-lang's StringUtils, Guava's Strings and UTF8String.fromString")
def _(ground: Ground) -> None:
    assert ground.value(catalyst.after_last(F.lit(";k=a;k=b;"), "k=", ";")) == "b"


@check("delta_log.DeltaTable.update", "DeltaLog.forTable and DeltaLog.update")
def _(ground: Ground) -> None:
    assert ground.table.update().version == 0


@check(
    "delta_log.DeltaTable.newest",
    "DeltaLog.unsafeVolatileSnapshot, history().getActiveCommitAtTime, getSnapshotAt",
)
def _(ground: Ground) -> None:
    assert ground.table.newest().version == 0
    after = int(time.time() * 1_000) + 1_000
    assert DeltaTable(ground.spark, ground.path, as_of_ms=after).newest().version == 0


@check("delta_log.DeltaTable.commits_are_files", "DeltaLog.store and the classes of its log stores")
def _(ground: Ground) -> None:
    delta_log._log_stores.pop(ground.path.partition("/")[0], None)
    assert ground.table.commits_are_files


@check("delta_log.DeltaTable.first_commit_ms", "DeltaHistoryManager.getActiveCommitAtTime")
def _(ground: Ground) -> None:
    assert ground.table.first_commit_ms() == ground.snapshot.last_commit_written_ms


@check("delta_log.DeltaTable.commits_since", "the actions in the files of Delta's log")
def _(ground: Ground) -> None:
    assert [(one.token, one.rows, one.operation) for one in ground.table.commits_since(-1)] == [
        ("a token", 2, "WRITE")
    ]


@check("delta_log.DeltaTable.complete", "LogStore.listFrom")
def _(ground: Ground) -> None:
    ground.table.complete(0)


@check("delta_log.DeltaTable.commit_numbered", "the action `txn` in the files of Delta's log")
def _(ground: Ground) -> None:
    found = ground.table.commit_numbered("app", 7, 0)
    assert found is not None
    assert found.token == "a token"


@check("delta_log.DeltaTable.added_rows", "the statistics in the action `add`")
def _(ground: Ground) -> None:
    assert ground.table.added_rows(0, "id") == delta_log.AddedRows(2, 0, 1)


@check("delta_log.DeltaTable.commit_id", "`txnId` in the action `commitInfo`")
def _(ground: Ground) -> None:
    assert ground.table.commit_id(0)


@check("delta_log.DeltaSnapshot.has_other_changes", "`appId` in the action `txn`, `dataChange` in `add`")
def _(ground: Ground) -> None:
    assert not ground.snapshot.has_other_changes("app", -1)
    assert ground.snapshot.has_other_changes("another", -1)
    assert not ground.snapshot.has_other_changes("another", ground.snapshot.version)


@check("delta_log.DeltaSnapshot.lost_rows", "`appId` in the action `txn`, `stats` in `add` and `remove`")
def _(ground: Ground) -> None:
    assert ground.snapshot.lost_rows("app", "id") is None
    assert ground.snapshot.lost_rows("another", "id") is None


@check("lost_rows.loses_rows", "`path`, `partitionValues` and `stats` in `add` and `remove`")
def _(ground: Ground) -> None:
    (added,) = [action["add"] for action in ground.table._actions(ground.snapshot.version) if "add" in action]
    removed = {"remove": added}
    assert lost_rows.loses_rows([removed], "id")
    assert not lost_rows.loses_rows([removed, {"add": added}], "id")
    assert not lost_rows.loses_rows([removed, {"add": {**added, "path": "packed"}}], "id")
    assert lost_rows.loses_rows(
        [{"remove": {**added, "stats": None}}, {"add": {**added, "path": "packed"}}], "id"
    )


@check("delta_log.DeltaTable.log_files", "the names of the files in Delta's log")
def _(ground: Ground) -> None:
    named = [name for name, _ in ground.table.log_files(ground.snapshot, 0)]
    assert named == [f"{0:020d}.json", f"{0:020d}.crc"]


@check("delta_log.DeltaSnapshot.version", "Snapshot.version")
def _(ground: Ground) -> None:
    assert ground.snapshot.version == 0


@check("delta_log.DeltaSnapshot.exists", "Snapshot.version, -1 where there is no commit")
def _(ground: Ground) -> None:
    assert not DeltaTable(ground.spark, f"{ground.path}-not-there").update().exists


@check("delta_log.DeltaSnapshot.table_id", "Snapshot.metadata")
def _(ground: Ground) -> None:
    assert len(ground.snapshot.table_id) == 36


@check("delta_log.DeltaSnapshot.identity", "LogSegment.lastCommitFileModificationTimestamp")
def _(ground: Ground) -> None:
    assert ground.snapshot.identity[1:] == (0, ground.snapshot.last_commit_written_ms)


@check("delta_log.DeltaSnapshot.last_commit_written_ms", "LogSegment.lastCommitFileModificationTimestamp")
def _(ground: Ground) -> None:
    written = Path(ground.path, "_delta_log", f"{0:020d}.json").stat().st_mtime
    assert ground.snapshot.last_commit_written_ms == pytest.approx(written * 1_000, abs=1)


@check("delta_log.DeltaSnapshot.checkpoint", "LogSegment.checkpointProvider")
def _(ground: Ground) -> None:
    assert ground.snapshot.checkpoint() == (-1, [])


@check("delta_log.DeltaSnapshot.read", "DeltaLog.createRelation and SparkSession.baseRelationToDataFrame")
def _(ground: Ground) -> None:
    assert sorted(row.id for row in ground.snapshot.read(ground.spark).collect()) == [0, 1]


@check("delta_log.DeltaSnapshot.files", "Snapshot.allFiles, and `allFiles` of Snapshot.checksumOpt")
def _(ground: Ground) -> None:
    few = ground.snapshot.files(ground.spark)
    with mock.patch.object(delta_log, "FILES_LISTED", 0):
        many = ground.snapshot.files(ground.spark)
    assert "LocalTableScan" in few._jdf.queryExecution().toString()
    assert "LocalTableScan" not in many._jdf.queryExecution().toString()
    assert few.columns == many.columns == ["path", "partitionValues", "size", "stats"]
    assert few.collect() == many.collect() != []


@check("delta_log.DeltaSnapshot.listed_files", "`allFiles` of Snapshot.checksumOpt, JsonUtils.mapper")
def _(ground: Ground) -> None:
    (listed,) = ground.snapshot.listed_files() or []
    assert Path(ground.path, listed.name).stat().st_size == listed.size


@check("delta_log.DeltaSnapshot.all_files", "`allFiles` of Snapshot.checksumOpt, else of the Snapshot")
def _(ground: Ground) -> None:
    listed = ground.snapshot.listed_files()
    with mock.patch.object(delta_log.DeltaSnapshot, "listed_files", return_value=None):
        assert ground.snapshot.all_files(ground.spark) == listed
    assert ground.snapshot.all_files(ground.spark) == listed


@check("delta_log.commit_file", "the names of the files in Delta's log")
def _(ground: Ground) -> None:
    assert Path(ground.path, "_delta_log", delta_log.commit_file(0)).exists()


@check("delta_log.DeltaSnapshot.greatest", "`allFiles` of Snapshot.checksumOpt and the files' statistics")
def _(ground: Ground) -> None:
    assert ground.snapshot.greatest("id") == 1


@check("delta_log.DeltaSnapshot.file_count", "Snapshot.numOfFiles")
def _(ground: Ground) -> None:
    assert ground.snapshot.file_count == 1


@check("delta_log.DeltaSnapshot.is_empty", "`numFiles` of Snapshot.checksumOpt")
def _(ground: Ground) -> None:
    assert not ground.snapshot.is_empty


@check("delta_log.DeltaSnapshot.number", "`setTransactions` of Snapshot.checksumOpt")
def _(ground: Ground) -> None:
    assert ground.snapshot._known_numbers == {"app": 7}
    assert ground.snapshot.number("app") == 7


@check("delta_log.DeltaSnapshot.table_property", "`configuration` of Snapshot.metadata")
def _(ground: Ground) -> None:
    assert ground.snapshot.table_property("delta.none") is None


@check(
    "snapshot_state.put_state",
    "`computedState` of Snapshot, a lazy value with a bit of `bitmap$0`; SnapshotState and VersionChecksum",
)
def _(ground: Ground) -> None:
    own = Ground(ground.spark, f"{ground.path}-numbered")
    own.write()
    snapshot = own.snapshot
    snapshot.load_state()
    inner = snapshot._snapshot
    (number,) = [inner.transactions().apply("app")]
    assert (number, inner.transactions().size()) == (7, 1)
    put = inner.computedState()
    assert not inner._computedStateTriggered(), "the log was not replayed"
    replayed = inner.extractComputedState(inner.stateDF())
    histogram = 12
    for place in set(range(put.productArity())) - {histogram}:
        assert put.productElement(place) == replayed.productElement(place), place
    counts = [list(each.productElement(histogram).get().fileCounts()) for each in (put, replayed)]
    assert counts[0] == counts[1]
    own.write()  # with the same number: it is not written
    assert own.snapshot.version == snapshot.version
    # What else the Snapshot finds out when it is asked is not touched.
    assert (inner.numOfFiles(), inner.allFiles().count(), inner.protocol().minReaderVersion()) == (1, 1, 1)
    assert inner.computedState().setTransactions().size() == 1
    # Rows are replaced as usual.
    rows = ground.spark.range(3).selectExpr("CAST(id AS INT) AS n").write.format("delta")
    rows.mode("overwrite").option("overwriteSchema", "true").save(own.path)
    assert own.snapshot.number("app") == 7
    assert ground.spark.read.format("delta").load(own.path).count() == 3


@check("delta_log.DeltaSnapshot.load_state", "snapshot_state.put_state, else Snapshot.transactions")
def _(ground: Ground) -> None:
    other = Ground(ground.spark, f"{ground.path}-of-another-version")
    other.write()
    snapshot = other.snapshot
    with mock.patch("pipelines.spark_internals.snapshot_state._DELTA_READ", "another"):
        snapshot.load_state()
    inner = snapshot._snapshot
    assert (inner.transactions().apply("app"), inner._computedStateTriggered()) == (7, True)
    assert inner.sizeInBytes() > 0


@check(
    "snapshot_state.put_files",
    "`cachedState` of Snapshot, a lazy value with a bit of `bitmap$0`; cacheDS, implicits.singleActionEncoder",
)
def _(ground: Ground) -> None:
    actions, tombstones = [], []
    for name in ("put", "replayed"):
        own = Ground(ground.spark, f"{ground.path}-of-files-{name}")
        for _ in range(3):  # each replaces the file of the one before
            own.replace()
        snapshot = own.snapshot
        with snapshot.with_files(ground.spark) as are_put:
            assert not are_put, "its state is not known yet"
        snapshot.load_state()
        inner = snapshot._snapshot
        with snapshot.with_files(ground.spark) if name == "put" else nullcontext() as are_put:
            assert bool(are_put) == (name == "put")
            listed = DataFrame(inner.allFiles().toDF(), ground.spark).collect()
            assert [row.path for row in listed] == [file.name for file in snapshot.listed_files() or ()]
            own.replace()
        # After it, Delta replays the log: the files removed before are there for a VACUUM.
        assert inner.tombstones().count() == 2
        assert ground.spark.read.format("delta").load(own.path).count() == 2
        last = Path(own.path, "_delta_log", delta_log.commit_file(snapshot.version + 1))
        made = [json.loads(line) for line in last.read_text().splitlines()]
        actions.append([sorted(action) for action in made])
        (removed,) = [action["remove"] for action in made if "remove" in action]
        assert [row.path for row in listed] == [removed["path"]]
        tombstones.append(sorted(removed))
    assert actions[0] == actions[1]
    assert tombstones[0] == tombstones[1]


@check("delta_log.DeltaSnapshot.with_files", "snapshot_state.put_files, else Snapshot.cachedState")
def _(ground: Ground) -> None:
    own = Ground(ground.spark, f"{ground.path}-of-files-of-another-version")
    own.replace()
    own.snapshot.load_state()
    with (
        mock.patch("pipelines.spark_internals.snapshot_state._DELTA_READ", "another"),
        own.snapshot.with_files(ground.spark) as are_put,
    ):
        assert not are_put
        own.replace()
    snapshot = own.snapshot
    snapshot.load_state()
    with suppress(ValueError), snapshot.with_files(ground.spark) as are_put:
        assert are_put
        raise ValueError("the write failed")
    assert snapshot._snapshot.tombstones().count() == 1
    # Not for a version of which Delta writes a checkpoint: another thread may be writing it, with the tombstones.
    interval = f"'delta.checkpointInterval' = '{snapshot.version + 1}'"
    ground.spark.sql(f"ALTER TABLE delta.`{own.path}` SET TBLPROPERTIES ({interval})")
    checkpointed = own.snapshot
    checkpointed.load_state()
    with checkpointed.with_files(ground.spark) as are_put:
        assert not are_put


@check(
    "replacement.replace_rows",
    "startTransaction, writeFiles, readWholeTable, trackReadPredicates, txnVersion and commit of OptimisticTransaction, "
    "DeltaOperations.Write, parseExpression of Spark's parser",
)
def _(ground: Ground) -> None:
    """The commit and the checksum file are those of Delta's writer: all rows, and those of a partition."""
    for partitions, where in (({}, "true"), ({"part": ["1"]}, "`part` IN ('1')")):
        made = []
        for name in ("by-delta", "by-its-transaction"):
            own = Ground(ground.spark, f"{ground.path}-{len(partitions)}-replaced-{name}")
            own.spread(ground.spark.range(4))
            snapshot = own.snapshot
            snapshot.load_state()
            rows = in_parts(ground.spark.range(5, 6), "'1'", "'a'")
            if name == "by-delta":
                writer = rows.write.format("delta").mode("overwrite").option("userMetadata", "token")
                writer = writer.option("replaceWhere", where) if partitions else writer
                writer.option("txnAppId", "app").option("txnVersion", 9).save(own.path)
            else:
                assert snapshot.replace_rows(rows, "token", ("app", 9), partitions, where)
                removed = {
                    action["remove"]["path"] for action in own.table._actions(1) or () if "remove" in action
                }
                assert removed == {
                    file.name
                    for file in snapshot.listed_files() or ()
                    if not partitions or file.partition == {"part": "1", "half": "a"}
                }
            made.append([newest_of_log(Path(own.path), suffix) for suffix in (".json", ".crc")])
            assert own.snapshot.number("app") == 9
        # Only Delta's writer counts what it removes (and of a partition the rows), and only here a removed file keeps all
        # its statistics: Delta's has none, or their number of rows.
        of_delta, ours = (
            next(action["commitInfo"].pop("operationMetrics") for action in log if "commitInfo" in action)
            for log, _ in made
        )
        assert ours.items() < of_delta.items()
        of_delta, ours = (
            [json.loads(action["remove"].pop("stats", "null")) for action in log if "remove" in action]
            for log, _ in made
        )
        assert all(stats in (None, {"numRecords": 2}) for stats in of_delta)
        assert all(stats["numRecords"] == 2 and stats["minValues"] and stats["maxValues"] for stats in ours)
        assert len(of_delta) == len(ours) > 0
        assert made[0] == made[1]


@check(
    "delta_log.DeltaSnapshot.replace_rows",
    "replacement.replace_rows, else Delta's own writer; partitions as text",
)
def _(ground: Ground) -> None:
    own = Ground(ground.spark, f"{ground.path}-replaced")
    own.replace()
    rows, before = ground.spark.range(5, 6).coalesce(1), own.snapshot
    before.load_state()
    with mock.patch("pipelines.spark_internals.snapshot_state._DELTA_READ", "another"):
        assert not before.replace_rows(rows, "token", ("app", 7), {}, "true")
    for others in (rows.withColumnRenamed("id", "n"), rows.selectExpr("CAST(id AS INT) AS id")):
        assert not before.replace_rows(others, "token", ("app", 7), {}, "true"), (
            "its writer says what is wrong with the columns"
        )
    assert before.replace_rows(rows.limit(0), "token", ("app", 7), {}, "true")
    assert ground.spark.read.format("delta").load(own.path).count() == 0
    with pytest.raises(Exception, match=r"(?i)concurrent") as refused:
        before.replace_rows(rows, "token", ("app", 8), {}, "true")  # what came since would be lost
    assert conflicts.is_conflict(refused.value)
    empty = own.snapshot
    empty.load_state()
    assert empty.replace_rows(rows, "token", ("app", 7), {}, "true")  # the number is taken: it is not written
    assert own.snapshot.version == empty.version
    own.replace()
    with pytest.raises(Exception, match=r"(?i)concurrent"):
        empty.replace_rows(rows, "token", ("app", 8), {}, "true")

    # Another writer's commit to another partition does not conflict.
    own = Ground(ground.spark, f"{ground.path}-partitions-replaced")
    own.spread(ground.spark.range(4))
    before = own.snapshot
    before.load_state()
    for app, written, replaced in (("app", "0", "0"), ("other", "1", "1")):
        rows = in_parts(ground.spark.range(5, 6), f"'{written}'", "'a'")
        assert before.replace_rows(rows, "token", (app, 9), {"part": [replaced]}, f"`part` IN ('{replaced}')")
    assert own.snapshot.version == 2
    # One to this partition does, also where neither removes a file: by the predicate alone.
    for partitions in ({"part": ["it's"]}, {"part": ["2", "x"], "half": ["a", "b"]}):
        where = " AND ".join(
            f"`{column}` IN ({', '.join(map(text_literal, values))})" for column, values in partitions.items()
        )
        first, second = (DeltaSnapshot(own.table, before._snapshot) for _ in range(2))
        rows = in_parts(ground.spark.range(5, 6), text_literal(partitions["part"][0]), "'a'")
        version = own.snapshot.version
        assert first.replace_rows(rows, "token", (f"first {where}", 1), partitions, where)
        with pytest.raises(Exception, match=r"(?i)concurrent_?append") as refused:
            second.replace_rows(rows, "token", (f"second {where}", 1), partitions, where)
        assert conflicts.is_conflict(refused.value)
        assert own.snapshot.version == version + 1
    now = own.snapshot
    now.load_state()
    with pytest.raises(StoreError, match="found some of"):
        now.replace_rows(rows, "token", ("app", 10), {"part": ["0"]}, "`part` IN ('0')")
    assert own.snapshot.version == now.version


@check("snapshot_state.is_known", "the version of Delta, io.delta.VERSION")
def _(ground: Ground) -> None:
    assert snapshot_state.is_known(jvm.jvm(ground.spark))


@check("delta_log.DeltaSnapshot.write_checkpoint", "DeltaLog.writeCheckpointFiles")
def _(ground: Ground) -> None:
    own = Ground(ground.spark, f"{ground.path}-of-a-checkpoint")
    own.write()
    own.snapshot.write_checkpoint()
    own.table.java.org.apache.spark.sql.delta.DeltaLog.clearCache()
    again = own.snapshot
    assert (again.checkpoint()[0], again.number("app")) == (0, 7)


@check("snapshot_state.forget_state", "`computedState` and `cachedState` of Snapshot, and their bits")
def _(ground: Ground) -> None:
    """What was put says what the checksum file says: compared with that, a log that was cut short would look whole."""
    own = Ground(ground.spark, f"{ground.path}-cut-short")
    own.replace()
    own.replace()
    commit = Path(own.path, "_delta_log", delta_log.commit_file(1))
    lines = commit.read_text().splitlines(keepends=True)
    commit.write_text("".join(line for line in lines if '"add"' not in line))
    commit.with_name(f".{commit.name}.crc").unlink()
    snapshot = own.snapshot
    snapshot.load_state()
    with pytest.raises(Exception, match="failed integrity checks"):
        snapshot.write_checkpoint()
    assert not list(commit.parent.glob("*.checkpoint*"))


@check("delta_log.log_store_class", "DelegatingLogStore.getDelegate and LogStoreAdaptor.logStoreImpl")
def _(ground: Ground) -> None:
    path, _ = files.hadoop_path(ground.spark, ground.path)
    assert delta_log.log_store_class(ground.table.delta_log.store(), path) in delta_log.PUTS_A_FILE


@check("delta_log.has_commit", "the names of the files in Delta's log")
def _(ground: Ground) -> None:
    assert [delta_log.has_commit(ground.spark, ground.path, number) for number in (0, 1)] == [True, False]


@check("delta_log.is_delta_table", "io.delta.tables.DeltaTable.isDeltaTable")
def _(ground: Ground) -> None:
    assert delta_log.is_delta_table(ground.spark, ground.path)


@check("conflicts.is_conflict", "Delta's exceptions, in Java and in Python")
def _(ground: Ground) -> None:
    java = jvm.jvm(ground.spark)
    for name in (
        conflicts.JAVA_CONFLICT,
        *conflicts.FILE_EXISTS,
        "io.delta.storage.commit.CommitFailedException",
    ):
        java.org.apache.spark.util.Utils.classForName(name, True, False)
    assert not conflicts.is_conflict(ValueError("another failure"))


@check("files.hadoop_path", "SessionState.newHadoopConf")
def _(ground: Ground) -> None:
    path, file_system = files.hadoop_path(ground.spark, ground.path)
    assert file_system.exists(path)


@check("files.default_scheme", "SparkContext.hadoopConfiguration")
def _(ground: Ground) -> None:
    assert files.default_scheme(ground.spark) == "file"


@check("files.read_text", "commons-io's IOUtils.toString")
def _(ground: Ground) -> None:
    assert "a token" in (files.read_text(ground.spark, f"{ground.path}/_delta_log/{0:020d}.json") or "")


@check("files.read_bytes", "commons-io's IOUtils.toByteArray")
def _(ground: Ground) -> None:
    Path(f"{ground.path}-bytes").write_bytes(bytes(range(256)))
    assert files.read_bytes(ground.spark, f"{ground.path}-bytes") == bytes(range(256))


@check("files.existing_path", "Hadoop's FileSystem.exists")
def _(ground: Ground) -> None:
    path, _ = files.existing_path(ground.spark, ground.path, "a table")
    assert str(path.toString()) == ground.path
    with pytest.raises(BadInput, match=f"nothing at {ground.path}-none; expected a table"):
        files.existing_path(ground.spark, f"{ground.path}-none", "a table")


@check("files.copy_file", "Hadoop's FileUtil.copy")
def _(ground: Ground) -> None:
    Path(f"{ground.path}-source").write_text("ü")
    files.copy_file(ground.spark, f"{ground.path}-source", f"{ground.path}-copy")
    assert Path(f"{ground.path}-copy").read_text() == "ü"


@check("files.length_of", "Hadoop's FileStatus")
def _(ground: Ground) -> None:
    log = f"{ground.path}/_delta_log/{0:020d}.json"
    assert files.length_of(ground.spark, log) == Path(log).stat().st_size


@check("files.sizes_and_times", "Hadoop's FileStatus")
def _(ground: Ground) -> None:
    log = f"{ground.path}/_delta_log/{0:020d}.json"
    (found, none) = files.sizes_and_times(ground.spark, [f"file:{log}", f"file:{log}.none"])
    assert found == (Path(log).stat().st_size, ground.snapshot.last_commit_written_ms)
    assert none is None


@check("files.locked_by_jvm", "the file lock of java.nio, which is POSIX's")
def _(ground: Ground) -> None:
    import fcntl

    path = Path(f"{ground.path}-lock")
    with (
        files.locked_by_jvm(ground.spark, path, 1, lambda: None),
        path.open("r+") as opened,
        pytest.raises(OSError, match="unavailable"),
    ):
        fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)


@check("java_properties.java_properties", "java.util.Properties as a map of py4j")
def _(ground: Ground) -> None:
    assert java_properties(ground.spark, "a: b") == {"a": "b"}


@check("jvm.is_running", "SparkContext._active_spark_context")
def _(ground: Ground) -> None:
    assert jvm.is_running()
    asked = "from pipelines.spark_internals.jvm import is_running; print(is_running())"
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True).stdout == "False\n"


@check("jvm.jvm", "SparkSession._jvm")
def _(ground: Ground) -> None:
    assert jvm.jvm(ground.spark).java.lang.Math.max(1, 2) == 2


@check("jvm.remember_names", "`__getattr__` of py4j's JVMView, JavaPackage and JavaClass")
def _(ground: Ground) -> None:
    jvm.remember_names()
    math = jvm.jvm(ground.spark).java.lang.Math
    assert isinstance(math, JavaClass)
    assert jvm.jvm(ground.spark).java.lang.Math is math


@check("jvm.forget_property_sources", "the field `updatingResource` of Hadoop's Configuration")
def _(ground: Ground) -> None:
    settings = ground.spark.sparkContext._jsc.hadoopConfiguration()
    named = settings.size()
    jvm.forget_property_sources(ground.spark)
    assert settings.size() == named > 1000
    assert settings.getPropertySources("io.file.buffer.size") is None
    fresh = jvm.java_session(ground.spark).sessionState().newHadoopConf()
    assert fresh.get("io.file.buffer.size") == settings.get("io.file.buffer.size")
    assert fresh.getPropertySources("io.file.buffer.size") is None


@check("jvm.leave_pandas_out", "`can_convert` of PySpark's converters for NumPy")
def _(ground: Ground) -> None:
    jvm.leave_pandas_out()
    arrays = jvm.jvm(ground.spark).java.util.Arrays
    assert arrays.toString(np.array([1, 2], np.int64)) == "[1, 2]"
    assert arrays.toString(np.array([0.5])) == "[0.5]"
    assert jvm.jvm(ground.spark).java.lang.Long.toHexString(np.int64(255)) == "ff"


@check("jvm_start.StartedJvm.taken", "the file and the variables by which PySpark finds its JVM")
def _(ground: Ground) -> None:
    settings = {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.test.mark": "it's 1"}
    code = f"""
from pipelines.spark_internals.jvm_start import StartedJvm
started = StartedJvm({settings!r}, {{"MARK": "a b"}})
import sys
assert "pyspark" not in sys.modules
from pyspark.sql import SparkSession
with started.taken():
    spark = SparkSession.builder.getOrCreate()
is_same = spark._jvm.ProcessHandle.current().pid() == started._process.pid
print(spark.conf.get("spark.test.mark"), spark._jvm.System.getenv("MARK"), is_same)
"""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "it's 1 a b True\n", done.stderr


@check("jvm.java_session", "SparkSession._jsparkSession")
def _(ground: Ground) -> None:
    assert jvm.java_session(ground.spark).version() == ground.spark.version


def java_failure(ground: Ground) -> Exception:
    with pytest.raises(Exception, match="ümlaut") as failed:
        jvm.jvm(ground.spark).java.lang.Integer.parseInt("ümlaut")
    return failed.value


@check("jvm.java_causes", "`java_exception` of Py4JJavaError and `_origin` of PySpark's exceptions")
def _(ground: Ground) -> None:
    assert len(list(jvm.java_causes(java_failure(ground)))) == 1
    with pytest.raises(Exception, match="nonsense") as converted:
        ground.spark.sql("nonsense")
    assert list(jvm.java_causes(converted.value))


@check("jvm.spark_errors", "`java_exception` of Py4JJavaError, and PySpark's convert_exception")
def _(ground: Ground) -> None:
    rows = ground.spark.sql("SELECT CAST(concat('a', id) AS INT) FROM range(9)")
    with pytest.raises(Exception, match="awaitResult") as failed:
        list(rows.toLocalIterator(prefetchPartitions=True))
    assert "CAST_INVALID_INPUT" in [error.getCondition() for error in jvm.spark_errors(failed.value)]


@check("jvm.is_java", "SparkContext._gateway and py4j's is_instance_of")
def _(ground: Ground) -> None:
    (cause,) = jvm.java_causes(java_failure(ground))
    assert jvm.is_java(cause, "java.lang.IllegalArgumentException")


@check("jvm.is_java_failure", "py4j's Py4JJavaError")
def _(ground: Ground) -> None:
    with pytest.raises(Exception, match=r"no\.such\.Name") as failed:
        jvm.jvm(ground.spark).java.lang.Class.forName("no.such.Name")
    assert jvm.is_java_failure(failed.value)


@check("jvm.innermost_text", "`java_exception` of Py4JJavaError and `_origin` of PySpark's exceptions")
def _(ground: Ground) -> None:
    assert jvm.innermost_text(java_failure(ground)) == 'For input string: "ümlaut"'


@check(
    "parser.reads_of_query", "Catalyst's parsePlan, the classes it makes, and the groups of ExpressionInfo"
)
def _(ground: Ground) -> None:
    query = (
        "WITH w AS (SELECT * FROM a.b) SELECT upper(x), count(*) FROM w JOIN c USING (x) GROUP BY ALL LIMIT 1"
    )
    assert parser.reads_of_query(ground.spark, query).relations == {"a.b", "c"}
    with pytest.raises(parser.DoesMore, match="reflect"):
        parser.reads_of_query(ground.spark, "SELECT reflect('java.lang.System', 'exit', 1)")


@check("parser.reads_of_expression", "Catalyst's parseExpression")
def _(ground: Ground) -> None:
    assert parser.reads_of_expression(ground.spark, "x IN (SELECT y FROM t)").relations == {"t"}


@check("parser.is_too_deep", "the stack overflow of Catalyst's parser")
def _(ground: Ground) -> None:
    overflow = jvm.jvm(ground.spark).java.lang.StackOverflowError()
    failure = ValueError()
    failure._origin = overflow  # type: ignore[attr-defined]
    assert parser.is_too_deep(failure)


@check("process.process_of", "Spark's Utils.getProcessName")
def _(ground: Ground) -> None:
    if Path("/proc/self/stat").exists():
        assert process.process_of(ground.spark)


@check("process.is_gone", "the fields of /proc/PID/stat")
def _(ground: Ground) -> None:
    own = process.process_of(ground.spark)
    assert own is None or not process.is_gone(own)


@check("process.has_mapped", "/proc/PID/maps")
def _(ground: Ground) -> None:
    assert process.has_mapped(ground.spark, Path(ground.path)) in (False, None)


@check("python_workers.without_spark_archives", "where Spark's archives lie on the path of a worker")
def _(ground: Ground) -> None:
    def archives(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        for _ in batches:
            found = [path for path in sys.path if path.endswith((".jar", ".zip"))]
            yield pa.RecordBatch.from_pydict({"found": [" ".join(found)]})

    (row,) = ground.spark.range(0, 1, 1, 1).mapInArrow(archives, "found string").collect()
    assert without_spark_archives(row.found.split()) == row.found.split()


@check("python_workers.acknowledging_at_once", "`worker` of pyspark.daemon, which it replaces")
def _(ground: Ground) -> None:
    def name(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import daemon

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"name": [daemon.worker.__name__]})

    (row,) = ground.spark.range(0, 1, 1, 1).mapInArrow(name, "name string").collect()
    assert row.name == "run_task_at_once"


@check("sessions.cloned", "SparkSession.cloneSession in Java")
def _(ground: Ground) -> None:
    ground.spark.conf.set("spark.sql.session.timeZone", "UTC")
    copy = sessions.cloned(ground.spark)
    copy.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    assert ground.spark.conf.get("spark.sql.session.timeZone") == "UTC"


@check("sessions.compile_plans", "spark.sql.codegen.factoryMode, a setting that Spark does not document")
def _(ground: Ground) -> None:
    interpreting = sessions.cloned(ground.spark)
    interpreting.conf.set("spark.sql.codegen.wholeStage", "false")
    interpreting.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    sessions.compile_plans(interpreting)
    assert interpreting.conf.get("spark.sql.codegen.factoryMode") == "FALLBACK"
    plan = interpreting.range(9).selectExpr("sum(id)")._jdf.queryExecution().executedPlan().toString()
    assert "*(1)" in plan or "AdaptiveSparkPlan" in plan


@check("sessions.make_active", "SparkSession.setActiveSession of Spark's classic session in Java")
def _(ground: Ground) -> None:
    active = jvm.jvm(ground.spark).org.apache.spark.sql.classic.SparkSession
    active.clearActiveSession()
    sessions.make_active(ground.spark)
    assert active.getActiveSession().get().equals(jvm.java_session(ground.spark))


@check("sessions.moved", "Dataset.ofRows and Dataset.logicalPlan")
def _(ground: Ground) -> None:
    moved = sessions.moved(ground.spark.range(2), sessions.cloned(ground.spark))
    assert [row.id for row in moved.collect()] == [0, 1]


@pytest.mark.parametrize("name", CHECKS)
def test_it_does_what_it_was_written_for(name: str, ground: Ground) -> None:
    uses, function = CHECKS[name]
    try:
        function(ground)
    except Exception as failure:
        here = ", ".join(f"{package} {version(package)} ({known})" for package, known in WRITTEN_FOR.items())
        pytest.fail(
            f"pipelines/spark_internals/: {name} no longer does what it was written for. It uses {uses}. Installed, and in "
            f"parentheses written for: {here}. It failed with {type(failure).__name__}: {failure}",
            pytrace=False,
        )


def test_every_function_of_the_folder_has_a_check() -> None:
    found = set()
    for module in pkgutil.iter_modules(spark_internals.__path__):
        loaded = importlib.import_module(f"{spark_internals.__name__}.{module.name}")
        functions = {
            name
            for name, one in vars(loaded).items()
            if inspect.isfunction(one) and one.__module__ == loaded.__name__ and not name.startswith("_")
        }
        found |= {f"{module.name}.{name}" for name in functions}
    for kind in (DeltaTable, DeltaSnapshot, StartedJvm):
        members = {name for name in vars(kind) if not name.startswith("_")}
        found |= {f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}.{name}" for name in members}
    assert found - OF_DAMAGED_TABLES == set(CHECKS)
