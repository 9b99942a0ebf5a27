"""The commit protocol: who comes first wins, who comes second plans again, nobody writes twice."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions import captured
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

import pipelines.store.commit as module
from pipelines.errors import HeadMoved, StoreError
from pipelines.spark_internals.conflicts import CONFLICTS, is_conflict
from pipelines.store.commit import commit
from pipelines.store.plan import Plan, Write
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from schemas import CONSUMER_OFFSETS, CUTS, EPOCHS, JOB_RUNS, PROGRESS, QUEUE_BOUNDS, Table
from tests.races import in_threads, meet_before_saving


def cut(store: Store, append_seq: int) -> DataFrame:
    return store.spark.createDataFrame([(append_seq, 0)], CUTS.columns).coalesce(1)


def offset(store: Store, group: str, next_offset: int = 1) -> DataFrame:
    return store.spark.createDataFrame([(group, "T", 0, "", next_offset, 0, 0)], CONSUMER_OFFSETS.columns)


def replaced_offset(store: Store, group: str, next_offset: int = 1) -> Callable[[Snapshot], Plan]:
    def planner(at: Snapshot) -> Plan:
        rows = offset(store, group, next_offset)
        return Plan((at.replace_partitions(CONSUMER_OFFSETS, rows, {"group": [group]}, key=group),))

    return planner


def next_cut(store: Store) -> Callable[[Snapshot], Plan]:
    """A plan whose row depends on what is there: only planning again keeps it right."""
    return lambda at: Plan((at.append(CUTS, cut(store, at.read(CUTS).count())),))


@pytest.mark.quick
def test_commits_are_numbered_from_0_without_gaps(store: Store) -> None:
    assert store.snapshot().number(CUTS) == -1
    for number in range(3):
        committed = commit(store, next_cut(store))
        assert committed.counts == {"cuts": 1}
        assert store.snapshot().number(CUTS) == number


def test_a_writer_who_comes_second_plans_again_from_the_new_head(store: Store) -> None:
    plans = 0

    def planner(at: Snapshot) -> Plan:
        nonlocal plans
        plans += 1
        plan = next_cut(store)(at)
        if plans == 1:
            commit(store, next_cut(store))  # another writer, between this plan and its write
        return plan

    committed = commit(store, planner)
    assert (plans, committed.lost_races) == (2, 1)
    assert sorted(row.append_seq for row in store.cuts.collect()) == [0, 1]


def test_a_stale_write_is_refused_and_leaves_nothing(store: Store) -> None:
    stale = store.snapshot()
    stale.number(CUTS)
    commit(store, next_cut(store))
    with pytest.raises(HeadMoved, match="planned commit 0 of cuts, but its last commit is 0"):
        commit(store, lambda _: Plan((stale.append(CUTS, cut(store, 99)),)), attempts=2)
    assert [row.append_seq for row in store.cuts.collect()] == [0]


def test_who_loses_every_attempt_is_told_to_run_again(store: Store) -> None:
    stale = store.snapshot()
    stale.number(CUTS)
    commit(store, next_cut(store))
    with pytest.raises(HeadMoved, match=r"kept winning for 2 attempts .* run it again") as refused:
        commit(store, lambda _: Plan((stale.append(CUTS, cut(store, 99)),)), attempts=2)
    assert "plan again" not in str(refused.value)


def test_delta_itself_refuses_a_number_taken_without_our_lock(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on an object store: no lock, and the look at the head just before the write saw nothing."""
    stale = store.snapshot()
    stale.number(CUTS)
    commit(store, next_cut(store))
    monkeypatch.setattr(module, "expect_head", lambda store, write: None)
    with pytest.raises(HeadMoved, match="another writer took commit 0 of cuts"):
        commit(store, lambda _: Plan((stale.append(CUTS, cut(store, 99)),)), attempts=1)
    assert [row.append_seq for row in store.cuts.collect()] == [0]


def test_threads_of_one_session_all_get_their_turn(store: Store) -> None:
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for _ in range(2):
                commit(store, next_cut(store))
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sorted(row.append_seq for row in store.cuts.collect()) == list(range(6))


def test_a_cache_may_lose_its_race_without_harm(store: Store) -> None:
    rows = store.spark.createDataFrame([("T", 0, 0, 1, 0)], QUEUE_BOUNDS.columns)
    stale = store.snapshot()
    stale.number(QUEUE_BOUNDS)

    def write(at: Snapshot) -> Plan:
        return Plan((at.replace(QUEUE_BOUNDS, rows, may_lose=True),))

    assert commit(store, write).counts == {"queue_bounds": 1}
    assert commit(store, lambda _: write(stale)).counts == {}
    assert store.queue_bounds.count() == 1


def test_a_write_afterwards_is_planned_from_what_the_others_have_written(store: Store) -> None:
    seen = []

    def afterwards(at: Snapshot) -> Write:
        seen.append(at.number(CUTS))
        return at.replace(EPOCHS, store.spark.createDataFrame([(1, at.number(CUTS))], EPOCHS.columns))

    committed = commit(
        store, lambda at: Plan((at.append(CUTS, cut(store, 0)),), {"is": "told"}, afterwards=afterwards)
    )
    assert (seen, committed.counts, committed.result) == ([0], {"cuts": 1, "epochs": 1}, {"is": "told"})


@pytest.mark.parametrize(
    ("table", "key"), [(CONSUMER_OFFSETS, ""), (PROGRESS, "deliver"), (JOB_RUNS, ""), (JOB_RUNS, "g")]
)
def test_a_table_is_numbered_in_one_way(store: Store, table: Table, key: str) -> None:
    with pytest.raises(AssertionError, match=f"{table.name} is numbered by"):
        store.snapshot().number(table, key)


@pytest.mark.slow
def test_of_writes_side_by_side_one_may_come_second_and_the_others_stay(store: Store) -> None:
    plans = 0

    def planner(at: Snapshot) -> Plan:
        nonlocal plans
        plans += 1
        cuts = next_cut(store)(at).writes
        others = (at.append(EPOCHS, store.spark.createDataFrame([(plans, 0)], EPOCHS.columns)),)
        if plans == 1:
            commit(store, next_cut(store))  # another writer, between this plan and its writes
        return Plan((*cuts, *others), side_by_side=2)

    committed = commit(store, planner)
    assert (plans, committed.lost_races) == (2, 1)
    assert committed.counts == {"cuts": 1, "epochs": 2}
    assert sorted(row.append_seq for row in store.cuts.collect()) == [0, 1]
    assert sorted(row.epoch for row in store.epochs.collect()) == [1, 2]


@pytest.mark.nightly
def test_what_fails_beside_a_lost_race_is_told(store: Store) -> None:
    stale = store.snapshot()
    stale.number(CUTS)
    commit(store, next_cut(store))
    broken = stale.append(
        EPOCHS, store.spark.sql("SELECT CAST('no disk' AS INT) AS epoch, 0L AS start_offset")
    )
    with pytest.raises(Exception, match="no disk"):
        commit(store, lambda _: Plan((stale.append(CUTS, cut(store, 99)), broken), side_by_side=2))
    assert [row.append_seq for row in store.cuts.collect()] == [0]


def test_keys_of_a_table_are_numbered_apart(store: Store) -> None:
    for group in ("x", "y", "x"):
        commit(store, replaced_offset(store, group))
    at = store.snapshot()
    assert (at.number(CONSUMER_OFFSETS, "x"), at.number(CONSUMER_OFFSETS, "y")) == (1, 0)
    assert store.consumer_offsets.count() == 2


def test_an_empty_append_with_a_number_is_a_fence(store: Store) -> None:
    commit(store, lambda at: Plan((at.append(CUTS, cut(store, 0).limit(0)),)))
    assert store.snapshot().number(CUTS) == 0
    assert store.cuts.count() == 0


@pytest.mark.parametrize("name", [conflict.__name__ for conflict in CONFLICTS[1:]])
def test_each_of_deltas_conflicts_is_one_bare_and_wrapped(spark: SparkSession, name: str) -> None:
    """The first of the eight is abstract in Java: what the others are made of."""
    java = spark._jvm
    thrown = getattr(java.io.delta.exceptions, name)("another commit")
    converted = captured.convert_exception(thrown)
    assert type(converted).__name__ == name
    assert is_conflict(converted)
    assert is_conflict(as_py4j_raises(java.java.lang.RuntimeException("while saving", thrown)))
    wrapped = RuntimeError("while saving")
    wrapped.__cause__ = converted
    assert is_conflict(wrapped)


def test_a_log_store_that_finds_the_commits_file_is_a_conflict_and_other_failures_are_none(
    spark: SparkSession,
) -> None:
    java = spark._jvm
    taken = java.java.nio.file.FileAlreadyExistsException("hdfs:/s/cuts/_delta_log/00000000000000000001.json")
    other = java.java.nio.file.FileAlreadyExistsException("/s/cuts/part-0.parquet")
    assert is_conflict(as_py4j_raises(java.java.lang.RuntimeException(taken)))
    assert is_conflict(as_py4j_raises(java.io.delta.storage.commit.CommitFailedException(True, True, "lost")))
    assert not is_conflict(as_py4j_raises(other))
    assert not is_conflict(
        as_py4j_raises(java.io.delta.storage.commit.CommitFailedException(True, False, ""))
    )
    assert not is_conflict(as_py4j_raises(java.java.lang.IllegalStateException("io.delta.exceptions")))
    assert not is_conflict(OSError("no disk"))


def as_py4j_raises(thrown: Any) -> Exception:
    """A Java exception that PySpark has no class of its own for."""
    return Py4JJavaError("An error occurred", thrown)


def test_deltas_own_tries_used_up_is_a_conflict(spark: SparkSession) -> None:
    errors = spark._jvm.org.apache.spark.sql.delta.DeltaErrors
    assert is_conflict(as_py4j_raises(errors.maxCommitRetriesExceededException(3, 9, 6, 1, 100)))


@pytest.fixture
def without_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on HDFS and object stores. Here Delta itself is safe between the threads of one JVM."""
    monkeypatch.setattr(module, "under_lock", lambda spark, uri, write: write())


@pytest.mark.usefixtures("without_lock")
def test_without_a_lock_writers_that_save_at_the_same_moment_all_get_their_turn(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    meet_before_saving(monkeypatch, 3)
    in_threads(*[lambda: commit(store, next_cut(store))] * 3)
    assert sorted(row.append_seq for row in store.cuts.collect()) == [0, 1, 2]


@pytest.mark.usefixtures("without_lock")
@pytest.mark.parametrize("fails", [False, True])
def test_a_commit_is_ours_also_when_others_have_come_since(
    store: Store, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Between a write and the proof that it is ours another writer commits: ours is no longer the newest version."""
    find, found = module.find_commit, 0

    def find_late(*arguments: Any) -> Any:
        nonlocal found
        found += 1
        if found == 1:
            commit(store, next_cut(store))
        return find(*arguments)

    monkeypatch.setattr(module, "find_commit", find_late)
    if fails:
        monkeypatch.setattr(module, "save", save_and_fail_once(module.save))
    committed = commit(store, next_cut(store))
    assert (committed.counts, committed.lost_races) == ({"cuts": 1}, 0)
    assert sorted(row.append_seq for row in store.cuts.collect()) == [0, 1]


def save_and_fail_once(save: Callable[..., None]) -> Callable[..., None]:
    """The rows are committed, and then the answer is lost on its way."""
    calls = 0

    def lossy(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        save(*arguments)
        if calls == 1:
            raise OSError("connection reset")

    return lossy


@pytest.mark.parametrize(
    ("table", "some_rows"),
    [
        (EPOCHS, [(0, 0), (1, 7)]),
        (PROGRESS, [("queues", 3, "id", 1, 2, "log", 3, "", 4), ("half", 5, "", 0, 0, "", 0, "", 0)]),
        (QUEUE_BOUNDS, [("T", 0, 0, 1, 0)]),
    ],
    ids=["epochs", "progress", "queue_bounds"],
)
def test_a_small_table_is_replaced_without_deltas_writer(
    store: Store, monkeypatch: pytest.MonkeyPatch, table: Table, some_rows: list[tuple[Any, ...]]
) -> None:
    """As it is made, with rows in several files, and without rows again; the commit after it knows all files, too."""

    def no_writer(*_: Any, **__: Any) -> None:
        raise AssertionError("it asks for the files to remove by queries")

    rows = store.spark.createDataFrame(some_rows, table.columns)
    monkeypatch.setattr(DataFrameWriter, "save", no_writer)
    for written in (rows.repartition(2), rows.coalesce(1), rows.limit(0), rows):
        before = names_of(store, table)
        expected = written.collect()
        commit(store, lambda at, written=written: Plan((at.replace(table, written),)))  # type: ignore[misc]
        at = store.snapshot()
        assert sorted(at.read(table).collect()) == sorted(expected)
        assert sorted(store.spark.read.format("delta").load(store.path(table)).collect()) == sorted(expected)
        assert not before & names_of(store, table)


@pytest.mark.parametrize(
    ("group", "twin", "is_read_by_name"),
    [
        *[
            (group, twin, True)
            for group, twin in (
                ("g", "G"),
                ("it's", "its"),
                ('a "b"', 'a "b" '),
                ("back\\slash", "back\\\\slash"),
                ("a/b=c", "a%2Fb=c"),
                ("100%", "100%25"),
                ("Gruppe ü 你好", "Gruppe u\u0308 你好"),
            )
        ],
        # Their files cannot be read by their names (NOT_BELOW): Delta's writer replaces them.
        ("{x}[y]*?", "xy", False),
        ("${spark.master}", "local", False),
    ],
)
def test_partitions_are_replaced_without_deltas_writer(
    store: Store, monkeypatch: pytest.MonkeyPatch, group: str, twin: str, is_read_by_name: bool
) -> None:
    """Of two groups with almost the same name, and of one topic of a group: what else is there stays."""

    def no_writer(*_: Any, **__: Any) -> None:
        raise AssertionError("it asks for the files to remove by queries")

    def found() -> list[tuple[Any, ...]]:
        read = store.spark.read.format("delta").load(store.path(CONSUMER_OFFSETS)).collect()
        assert sorted(read) == sorted(store.snapshot().read(CONSUMER_OFFSETS).collect())
        assert sorted(store.snapshot().rows(CONSUMER_OFFSETS, group=group)) == sorted(
            row for row in read if row.group == group
        )
        return sorted((row.group, row.topic, row.next_offset) for row in read)

    if is_read_by_name:
        monkeypatch.setattr(DataFrameWriter, "save", no_writer)
    for next_offset in (1, 2):
        commit(store, replaced_offset(store, twin, 7))
        commit(store, replaced_offset(store, group, next_offset))
        assert found() == sorted([(twin, "T", 7), (group, "T", next_offset)])
    rows = store.spark.createDataFrame(
        [(group, topic, 0, "", 5, 0, 0) for topic in ("T", "U")], CONSUMER_OFFSETS.columns
    )
    for topics, written in ((["T", "U"], rows), (["U"], rows.where("topic = 'U'")), (["T"], rows.limit(0))):
        of_topics = {"group": [group], "topic": topics}
        commit(
            store,
            lambda at, r=written, p=of_topics: Plan(  # type: ignore[misc]
                (at.replace_partitions(CONSUMER_OFFSETS, r, p, key=group),)
            ),
        )
    assert found() == sorted([(twin, "T", 7), (group, "U", 5)])


def test_rows_outside_of_the_partitions_replaced_are_not_written(store: Store) -> None:
    commit(store, replaced_offset(store, "x"))
    before = store.consumer_offsets.collect()

    def of_another(at: Snapshot) -> Plan:
        rows = offset(store, "y").union(offset(store, "x", 2))
        return Plan((at.replace_partitions(CONSUMER_OFFSETS, rows, {"group": ["x"]}, key="x"),))

    with pytest.raises(
        StoreError, match=r"expected rows of `group` IN .'x'., found some of .*y.* Nothing was committed"
    ):
        commit(store, of_another)
    assert store.consumer_offsets.collect() == before
    assert store.snapshot().number(CONSUMER_OFFSETS, "x") == 0


@pytest.mark.usefixtures("without_lock")
@pytest.mark.parametrize(("groups", "lost_races"), [("xy", 0), ("xx", 1)])
def test_without_a_lock_only_writers_of_one_group_are_in_each_others_way(
    store: Store, monkeypatch: pytest.MonkeyPatch, groups: str, lost_races: int
) -> None:
    for group in set(groups):
        commit(store, replaced_offset(store, group))
    meet_before_saving(monkeypatch, 2)
    done = in_threads(*[partial(commit, store, replaced_offset(store, group, 2)) for group in groups])
    assert sum(each.lost_races for each in done) == lost_races
    assert sorted(row.group for row in store.consumer_offsets.collect()) == sorted(set(groups))
    assert {row.next_offset for row in store.consumer_offsets.collect()} == {2}


def names_of(store: Store, table: Table) -> set[str]:
    listed = store.delta(table).newest().listed_files()
    assert listed is not None
    return {file.name for file in listed}


@pytest.mark.parametrize("number_of_writers", [1, 2])
def test_a_replacement_whose_answer_is_lost_is_made_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, number_of_writers: int
) -> None:
    monkeypatch.setattr(module, "save", save_and_fail_once(module.save))

    def next_epoch(at: Snapshot) -> Plan:
        rows = [tuple(row) for row in at.read(EPOCHS).collect()]
        return Plan(
            (at.replace(EPOCHS, store.spark.createDataFrame([*rows, (len(rows), 0)], EPOCHS.columns)),)
        )

    in_threads(*[lambda: commit(store, next_epoch)] * number_of_writers)
    at = store.snapshot()
    assert sorted(row.epoch for row in at.read(EPOCHS).collect()) == [*range(number_of_writers)]
    assert at.number(EPOCHS) == number_of_writers - 1
