"""Small tables are read where their files lie: the same rows as Delta gives, of the version that is pinned."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from pipelines.consume.offsets import Reached, plan_commit
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


def by_delta(at: Snapshot, group: str) -> list:
    return sorted(at.read(CONSUMER_OFFSETS).where(F.col("group") == group).collect())


def offsets(at: Snapshot) -> list[int]:
    rows = at.rows(CONSUMER_OFFSETS, group="one")
    assert list(rows) == at.read_small(CONSUMER_OFFSETS, group="one").collect()
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
        rows = sorted(at.read_small(CONSUMER_OFFSETS, group=group).collect())
        assert rows == sorted(at.rows(CONSUMER_OFFSETS, group=group)) == by_delta(at, group)
        assert [row.next_offset for row in rows] == [4] * 2 * len(topics)
    assert at.read_small(CONSUMER_OFFSETS, group="nobody").collect() == []
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
    assert len(at.read_small(CONSUMER_OFFSETS, group="one").collect()) == 2


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


def test_small_tables_have_the_rows_and_types_that_spark_reads(life: Callable[..., Life]) -> None:
    one = life()
    one.job("topics", B, "create", "quoted", "--queues", 3, "--attributes", "+message.type=DELAY")
    one.put(B, {"topic": "T", "body": "b", "delay_level": 3}, {"topic": "T", "body": "b"})
    one.job("dispatch", B)
    at = one.store.snapshot()
    for table in (TOPICS, STORE_SETTINGS, QUEUE_BOUNDS, PROGRESS, PARKED, SUBSCRIPTION_GROUPS):
        with expect_jobs(one.store.spark, 0):
            read = at.rows(table)
        by_spark = at.read(table).select(*table.names).collect()
        assert sorted(map(str, read)) == sorted(map(str, by_spark)), table.name
        assert sorted(map(repr, map(Row.asDict, read))) == sorted(map(repr, map(Row.asDict, by_spark)))
    assert {"attributes": {"message.type": "DELAY"}}.items() <= next(
        row.asDict().items() for row in at.rows(TOPICS) if row.topic == "quoted"
    )


def test_a_small_table_whose_file_is_damaged_is_an_error_as_of_any_table(store: Store) -> None:
    record(store, "one", ["T"], 3)
    for file in Path(store.uri, CONSUMER_OFFSETS.name).rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(Exception, match="FAILED_READ_FILE"):
        store.snapshot().rows(CONSUMER_OFFSETS, group="one")


def test_rows_of_later_appends_are_those_that_delta_reads(life: Callable[..., Life]) -> None:
    one = life(mappedFileSizeCommitLog="4096")
    for number in range(4):
        one.put(B + number, *({"topic": "T", "body": "b" * 300} for _ in range(5)))
    at = one.store.snapshot()
    for append in range(-1, 5):
        rows = at.read_after(COMMITLOG, append)
        by_delta = at.read(COMMITLOG).where(F.col("append_seq") > append)
        assert rows.schema.simpleString() == by_delta.schema.simpleString()
        assert sorted(map(str, rows.collect())) == sorted(map(str, by_delta.collect()))
        assert rows.count() == 5 * max(3 - append, 0)
    with expect_jobs(one.store.spark, 1):
        at.read_after(COMMITLOG, 2).collect()
    assert at.read_after(COMMITLOG, 3).isEmpty()
