"""Small tables are read where their files lie: the same rows as Delta gives, of the version that is pinned."""

import io
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pipelines.consume.offsets import Reached, plan_commit
from pipelines.errors import StoreError
from pipelines.spark_internals.delta_files import forget_logs
from pipelines.spark_internals.sessions import cloned
from pipelines.store.commit import commit
from pipelines.store.plan import Plan
from pipelines.store.progress import progress_write
from pipelines.store.snapshot import PARTITIONS_READ, Snapshot
from pipelines.store.store import Store
from schemas import (
    COMMITLOG,
    CONSUMER_OFFSETS,
    PARKED,
    PROGRESS,
    QUEUE_BOUNDS,
    STORE_SETTINGS,
    SUBSCRIPTION_GROUPS,
    TOPICS,
    Table,
)
from tests.life import B, Life

GROUPS = {
    "one": ["T"],
    "g|2%_-": ["T", "%RETRY%g|2%_-", "%DLQ%x"],
    "wide": [f"T{number}" for number in range(PARTITIONS_READ + 1)],
}


def record(store: Store, group: str, topics: list[str], next_offset: int) -> None:
    reached = [Reached((topic, queue_id), next_offset) for topic in topics for queue_id in range(2)]
    commit(store, lambda at: plan_commit(at, group, "", reached, 1))


def delta(at: Snapshot, table: Table) -> DataFrame:
    """The rows as Delta itself reads them."""
    by_version = at.store.spark.read.format("delta").option("versionAsOf", at.version(table))
    return by_version.load(at.store.path(table)).select(*table.names)


def by_delta(at: Snapshot, group: str) -> list:
    return sorted(delta(at, CONSUMER_OFFSETS).where(F.col("group") == group).collect())


def offsets(at: Snapshot) -> list[int]:
    rows = at.rows(CONSUMER_OFFSETS, group="one")
    assert list(rows) == at.read(CONSUMER_OFFSETS, group="one").collect()
    return [row.next_offset for row in rows]


def copy(store: Store, directory: Path) -> Store:
    shutil.copytree(store.uri, directory)
    return Store(store.spark, str(directory))


@pytest.mark.quick
def test_a_groups_partitions_are_read_as_delta_reads_them(store: Store) -> None:
    for next_offset in (3, 4):  # the second time puts rows in the place of others
        for group, topics in GROUPS.items():
            record(store, group, topics, next_offset)
    at = store.snapshot()
    for group, topics in GROUPS.items():
        rows = sorted(at.read(CONSUMER_OFFSETS, group=group).collect())
        assert rows == sorted(at.rows(CONSUMER_OFFSETS, group=group)) == by_delta(at, group)
        assert [row.next_offset for row in rows] == [4] * 2 * len(topics)
    assert at.read(CONSUMER_OFFSETS, group="nobody").collect() == []
    assert at.rows(CONSUMER_OFFSETS, group="nobody") == ()


def test_a_pinned_version_is_read_whatever_came_after_it(store: Store) -> None:
    record(store, "one", ["T"], 3)
    before = store.snapshot()
    before.version(CONSUMER_OFFSETS)
    record(store, "one", ["T"], 7)
    for at, next_offset in ((before, 3), (store.snapshot(), 7)):
        assert offsets(at) == [next_offset] * 2
        assert [row.next_offset for row in by_delta(at, "one")] == [next_offset] * 2


def test_what_another_process_has_committed_is_seen(store: Store, tmp_path: Path) -> None:
    record(store, "one", ["T"], 3)
    other = copy(store, tmp_path / "other")
    record(other, "one", ["T"], 7)
    assert offsets(store.snapshot()) == [3, 3]
    shutil.copytree(other.uri, store.uri, dirs_exist_ok=True)
    assert offsets(store.snapshot()) == [7, 7]


def test_a_store_made_anew_in_the_place_of_another_is_seen(store: Store, tmp_path: Path) -> None:
    other = copy(store, tmp_path / "other")
    for made, next_offset in ((store, 3), (other, 7)):  # as many commits, at different times
        record(made, "one", ["T"], next_offset)
    assert offsets(store.snapshot()) == [3, 3]
    shutil.rmtree(store.uri)
    copy(other, Path(store.uri))
    assert offsets(store.snapshot()) == [7, 7]


def test_only_a_table_that_is_known_to_have_no_rows_is_empty(store: Store) -> None:
    before = store.snapshot()
    assert before.is_empty(CONSUMER_OFFSETS)
    record(store, "one", ["T"], 3)
    assert before.is_empty(CONSUMER_OFFSETS), "the version that is pinned still has none"
    assert not store.snapshot().is_empty(CONSUMER_OFFSETS)


def test_without_checksum_files_delta_is_asked(new_store: Callable[..., Store], tmp_path: Path) -> None:
    written = new_store()
    commit(written, lambda at: Plan((progress_write(at, {"follower": 5}),)))
    record(written, "one", ["T"], 3)
    copied = copy(written, tmp_path / "copied")
    for checksum in Path(copied.uri).rglob("*.crc"):
        checksum.unlink()
    at = copied.snapshot()
    assert at.listed_files(PROGRESS) is None
    assert {row.follower: row.append_seq for row in at.rows(PROGRESS)} == {"follower": 5}
    assert len(at.read(CONSUMER_OFFSETS, group="one").collect()) == 2


@contextmanager
def expect_jobs(spark: SparkSession, expected: int) -> Iterator[None]:
    """Raises AssertionError where the block takes another number of Spark jobs."""
    group = str(uuid4())
    spark.sparkContext.setJobGroup(group, group)
    try:
        yield
    finally:
        spark.sparkContext.setJobGroup("", "")
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(group)) == expected


@pytest.mark.slow
def test_small_tables_have_the_rows_and_types_that_spark_reads(life: Callable[..., Life]) -> None:
    one = life()
    one.job("topics", B, "create", "quoted", "--queues", 3, "--attributes", "+message.type=DELAY")
    one.put(B, {"topic": "T", "body": "b", "delay_level": 3}, {"topic": "T", "body": "b"})
    one.job("dispatch", B)
    at = one.store.snapshot()
    for table in (TOPICS, STORE_SETTINGS, QUEUE_BOUNDS, PROGRESS, PARKED, SUBSCRIPTION_GROUPS):
        with expect_jobs(one.store.spark, 0):
            read = at.rows(table)
        found, read_again = delta(at, table).collect(), at.read(table).collect()
        assert sorted(map(str, read)) == sorted(map(str, read_again)) == sorted(map(str, found)), table.name
        assert sorted(map(repr, map(Row.asDict, read))) == sorted(map(repr, map(Row.asDict, found)))
    assert {"attributes": {"message.type": "DELAY"}}.items() <= next(
        row.asDict().items() for row in at.rows(TOPICS) if row.topic == "quoted"
    )


def test_a_small_table_whose_file_is_damaged_is_an_error_as_of_any_table(store: Store) -> None:
    record(store, "one", ["T"], 3)
    for file in Path(store.uri, CONSUMER_OFFSETS.name).rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(Exception, match="FAILED_READ_FILE"):
        store.snapshot().rows(CONSUMER_OFFSETS, group="one")


@pytest.mark.slow
def test_rows_of_later_appends_are_those_that_delta_reads(life: Callable[..., Life]) -> None:
    one = life(mappedFileSizeCommitLog="4096")
    for number in range(4):
        one.put(B + number, *({"topic": "T", "body": "b" * 300} for _ in range(5)))
    at = one.store.snapshot()
    for append in range(-1, 5):
        rows = at.read_after(COMMITLOG, append)
        found = delta(at, COMMITLOG).where(F.col("append_seq") > append)
        assert rows.schema.simpleString() == found.schema.simpleString()
        assert sorted(map(str, rows.collect())) == sorted(map(str, found.collect()))
        assert rows.count() == 5 * max(3 - append, 0)
    with expect_jobs(one.store.spark, 1):
        at.read_after(COMMITLOG, 2).collect()
    assert at.read_after(COMMITLOG, 3).isEmpty()


@pytest.mark.slow
def test_where_little_is_done_a_small_table_is_one_task_but_for_rows_of_users_code(
    life: Callable[..., Life],
) -> None:
    one = life(mappedFileSizeCommitLog="4096")
    for number in range(4):
        one.put(B + number, *({"topic": "T", "body": "b" * 300} for _ in range(5)))
    spark = cloned(one.store.spark)
    spark.conf.set("spark.sql.shuffle.partitions", 1)
    at = Store(spark, one.store.uri).snapshot()
    by_segment = at.read(COMMITLOG).groupBy("segment").count()
    in_tasks = at.read_in_tasks(COMMITLOG).groupBy("segment").count()
    assert "Exchange" not in plan_of(by_segment)
    assert "Exchange" in plan_of(in_tasks)
    assert "PushedFilters: [IsNotNull(queue_id), EqualTo(queue_id,0)]" in plan_of(
        at.read(COMMITLOG).where("queue_id = 0")
    )
    assert sorted(by_segment.collect()) == sorted(in_tasks.collect())
    assert sum(row["count"] for row in by_segment.collect()) == 20


def plan_of(rows: DataFrame) -> str:
    said = io.StringIO()
    with redirect_stdout(said):
        rows.explain("formatted")
    return said.getvalue()


@pytest.mark.slow
def test_a_table_whose_path_spark_could_take_for_a_pattern_has_its_rows_once(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    """Its copy beside it has files of the same names, which the pattern would match too."""
    one = life()
    one.put(B, {"topic": "T", "body": "b", "delay_level": 3}, {"topic": "T", "body": "b"})
    one.job("dispatch", B)
    store = copy(one.store, tmp_path / "st*re")
    copy(one.store, tmp_path / "store")
    at = store.snapshot()
    for table in (COMMITLOG, TOPICS, PARKED):
        assert sorted(map(str, at.read(table).collect())) == sorted(map(str, delta(at, table).collect()))
    with expect_jobs(store.spark, 1):
        assert len(at.read_after(COMMITLOG, -1).collect()) == 2


def log_files(store: Store, pattern: str) -> list[Path]:
    """Files of the offsets' Delta log, with Hadoop's own checksum files of them."""
    return sorted(Path(store.uri, CONSUMER_OFFSETS.name, "_delta_log").glob(f"*{pattern}*"))


@pytest.mark.slow
def test_a_checksum_file_of_another_commit_is_not_believed(store: Store, tmp_path: Path) -> None:
    record(store, "one", ["T"], 3)
    other = copy(store, tmp_path / "other")
    record(store, "one", ["T"], 7)
    for next_offset in (8, 9):  # a number that the store itself has not reached
        record(other, "one", ["T"], next_offset)
    version = store.snapshot().version(CONSUMER_OFFSETS)
    (mine,) = (file for file in log_files(store, f"{version:020d}.crc") if file.name[0] != ".")
    shutil.copy(log_files(other, f"{version + 1:020d}.crc")[-1], mine)
    for file in log_files(store, ".crc.crc"):
        file.unlink()
    forget_logs(store.spark)
    at = store.snapshot()
    assert (at.version(CONSUMER_OFFSETS), at.listed_files(CONSUMER_OFFSETS)) == (version, None)
    assert at.number(CONSUMER_OFFSETS, "one") == 1
    assert offsets(at) == [row.next_offset for row in by_delta(at, "one")] == [7, 7]
    record(store, "one", ["T"], 10)
    assert offsets(store.snapshot()) == [10, 10]


def test_nothing_is_written_after_a_commit_whose_file_is_lost(store: Store) -> None:
    for next_offset in (3, 7):
        record(store, "one", ["T"], next_offset)
    version = store.snapshot().version(CONSUMER_OFFSETS)
    for file in log_files(store, f"{version:020d}.json"):
        file.unlink()
    forget_logs(store.spark)
    with pytest.raises(StoreError, match=rf"consumer_offsets: _delta_log/{version:020d}\.json is missing"):
        record(store, "one", ["T"], 5)
    assert store.snapshot().version(CONSUMER_OFFSETS) == version - 1


def test_a_table_whose_columns_have_other_names_in_its_files_is_read_by_delta(store: Store) -> None:
    record(store, "one", ["T"], 3)
    table = f"delta.`{store.path(CONSUMER_OFFSETS)}`"
    store.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    store.spark.sql(f"ALTER TABLE {table} DROP COLUMN client_id")
    store.spark.sql(f"ALTER TABLE {table} ADD COLUMN client_id STRING")
    record(store, "two", ["T"], 5)  # the checksum file lists the files again
    at = store.snapshot()
    assert offsets(at) == [3, 3]
    assert [row.client_id for row in at.rows(CONSUMER_OFFSETS, group="one")] == [None, None]
