"""Progress proves itself: what it says of tables that were deleted, made again or copied at another time does not count."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from pipelines.dispatch.follow import plan_dispatch
from pipelines.dispatch.runs import plan_merge
from pipelines.errors import StoreError, TableMissing
from pipelines.store.commit import commit
from pipelines.store.create import make_tables
from pipelines.store.plan import Plan
from pipelines.store.progress import (
    NOTHING_SEEN,
    Followed,
    Seen,
    covered,
    expect_intact,
    followed_by,
    followed_rows,
    plan_void,
    progress_rows,
    seen_by,
    seen_write,
)
from pipelines.store.small_tables import whole_table_write
from pipelines.store.snapshot import Snapshot
from pipelines.store.sql_text import delta_table
from pipelines.store.store import Store
from pipelines.store.upkeep import pack
from schemas import CLAIMS, COMMITLOG, CONSUME_QUEUE, DERIVED, MESSAGE_INDEX, PARKED, PROGRESS, TABLES, Table
from tests.conftest import JobRun, MadeOnce
from tests.consume.listeners import Listeners
from tests.dispatch.log_rows import append, properties
from tests.life import B, Life
from tests.scenes.processes import Moment, kill_at
from tests.store.earlier_versions import forget_clocks, keep_clocks_as_rows

MESSAGE = {"properties": properties(UNIQ_KEY="u", KEYS="k")}


def dispatch(store: Store) -> dict[str, int]:
    return commit(store, plan_dispatch).counts


def offsets(store: Store, table: Table) -> list[int]:
    return sorted(row.physical_offset for row in store.read(table).select("physical_offset").collect())


def delete(store: Store, *tables: Table) -> None:
    for table in tables:
        shutil.rmtree(store.path(table))


def copied(store: Store, directory: Path, between: Callable[[], None], last_before: str) -> Store:
    """A copy made table by table in the order of their names; `between` happens after one of them."""
    directory.mkdir()
    for table in sorted(TABLES, key=lambda table: table.name):
        shutil.copytree(store.path(table), directory / table.name)
        if table.name == last_before:
            between()
    return Store(store.spark, str(directory))


@pytest.mark.slow
@pytest.mark.quick
def test_progress_counts_while_its_table_and_its_log_are_the_same(store: Store) -> None:
    append(store, MESSAGE)
    dispatch(store)
    append(store, MESSAGE)
    at = store.snapshot()
    assert [followed_by(at, table) for table in DERIVED] == [Followed(0, True)] * 4
    assert dispatch(store)["progress"] == 4
    assert dispatch(store) == {}


@pytest.mark.slow
def test_a_table_that_was_made_again_covers_nothing(store: Store) -> None:
    append(store, MESSAGE)
    dispatch(store)
    delete(store, CONSUME_QUEUE)
    make_tables(store)  # and here a rebuild was killed
    at = store.snapshot()
    assert [covered(at, table) for table in DERIVED] == [-1, 0, 0, 0]
    with pytest.raises(StoreError, match="consume_queue does not have the rows that were dispatched to it"):
        expect_intact(at, CONSUME_QUEUE)
    assert dispatch(store) == {"consume_queue": 1, "progress": 4}
    expect_intact(store.snapshot(), CONSUME_QUEUE)
    assert offsets(store, CONSUME_QUEUE) == [0]


@pytest.mark.slow
def test_a_table_copied_from_before_covers_nothing_and_is_written_again(store: Store, tmp_path: Path) -> None:
    append(store, MESSAGE)
    dispatch(store)
    shutil.copytree(store.path(MESSAGE_INDEX), tmp_path / "before")
    append(store, MESSAGE)
    dispatch(store)
    delete(store, MESSAGE_INDEX)
    shutil.copytree(tmp_path / "before", store.path(MESSAGE_INDEX))
    assert followed_by(store.snapshot(), MESSAGE_INDEX).is_void
    # A merge must not make its commits as many as they were.
    assert commit(store, lambda at: plan_merge(at, MESSAGE_INDEX, fan_in=2)).counts == {}
    assert dispatch(store) == {"message_index": 4, "progress": 4}
    assert offsets(store, MESSAGE_INDEX) == [0, 0, 100, 100]


@pytest.mark.slow
@pytest.mark.quick
def test_a_table_that_was_restored_to_an_earlier_version_covers_nothing_and_is_written_again(
    store: Store,
) -> None:
    append(store, MESSAGE)
    dispatch(store)
    version = store.snapshot().version(CONSUME_QUEUE)
    append(store, MESSAGE)
    dispatch(store)
    beside = plan_dispatch(append_and_snapshot(store))  # another dispatch, which is about to write
    restore(store, CONSUME_QUEUE, version)
    assert store.snapshot().number(CONSUME_QUEUE) == 1  # the table has its number still
    assert [followed_by(store.snapshot(), table).is_void for table in DERIVED] == [True, False, False, False]
    with pytest.raises(StoreError, match="put back as it was earlier"):
        expect_intact(store.snapshot(), CONSUME_QUEUE)
    commit(store, lambda _: beside, attempts=1)
    assert followed_by(store.snapshot(), CONSUME_QUEUE).is_void
    assert dispatch(store) == {"consume_queue": 3, "progress": 4}
    assert offsets(store, CONSUME_QUEUE) == [0, 100, 200]
    assert dispatch(store) == {}


@pytest.mark.slow
def test_packing_keeps_what_covers_a_table_and_a_restore_shows_in_a_store_of_an_earlier_version(
    store: Store,
) -> None:
    for _ in range(2):
        append(store, MESSAGE)
        dispatch(store)
    assert pack(store, CONSUME_QUEUE) == 2
    assert followed_by(store.snapshot(), CONSUME_QUEUE) == Followed(1, True)
    unversioned = [{**row.asDict(), "table_version": None} for row in store.progress.collect()]
    commit(store, lambda at: Plan((whole_table_write(at, PROGRESS, unversioned),)))
    assert [covered(store.snapshot(), table) for table in DERIVED] == [1] * 4
    restore(store, CONSUME_QUEUE, 1)
    assert followed_by(store.snapshot(), CONSUME_QUEUE).is_void


@pytest.mark.slow
def test_what_was_done_of_a_log_that_is_restored_counts_again_once_its_rows_are_back(
    life: Callable[..., Life],
) -> None:
    one = life()
    one.put(B, {"topic": "A", "queue_id": 0})
    one.put(B, {"topic": "A", "queue_id": 0, "unique_key": "late", "delay_level": 1})
    one.job("dispatch", B)
    before = one.store.snapshot().version(COMMITLOG)
    assert one.deliver(B + 5_000)["delivered"] == 1
    one.put(B + 6_000, {"topic": "A", "queue_id": 0})
    one.job("dispatch", B + 6_000)
    seen, last = seen_by(one.store.snapshot(), "deliver"), one.store.snapshot().version(COMMITLOG)

    restore(one.store, COMMITLOG, before)  # the log's number stays, and so do the commits that prove progress
    at = one.store.snapshot()
    assert seen_by(at, "deliver") == NOTHING_SEEN
    assert [followed_by(at, table).is_void for table in DERIVED] == [True] * 4
    new = ("--input", one.input({"topic": "A", "queue_id": 0, "body": "new"}))
    for job, *arguments in (("deliver",), ("put_messages", *new), ("dispatch",)):
        refused = one.job(job, B + 7_000, *arguments, exit_status=1)
        assert f"TO VERSION AS OF {last}" in refused.stderr
    for more in ((), ("--repair",)):
        found = one.job("validate", B + 7_000, "--suite", "log", "--full", *more, exit_status=3)
        assert "the last append holds what was planned" in found.stderr

    restore(one.store, COMMITLOG, last)
    assert seen_by(one.store.snapshot(), "deliver") == seen
    assert one.deliver(B + 8_000)["delivered"] == 0
    one.job("put_messages", B + 8_000, *new)
    one.job("dispatch", B + 8_000)
    one.expect_promises()
    one.job("validate", B + 8_000, "--full")
    entries = one.store.consume_queue.where("topic = 'A'").orderBy("queue_offset").collect()
    assert [row.queue_offset for row in entries] == [0, 1, 2, 3]


def append_and_snapshot(store: Store) -> Snapshot:
    append(store, MESSAGE)
    return store.snapshot()


def restore(store: Store, table: Table, version: int) -> None:
    store.spark.sql(f"RESTORE TABLE {delta_table(store.path(table))} TO VERSION AS OF {version}")


def test_a_missing_table_is_named_and_nothing_is_written_in_its_place(store: Store) -> None:
    append(store, MESSAGE)
    delete(store, PROGRESS, CLAIMS)
    with pytest.raises(TableMissing, match="has no table progress: `commitlake dispatch"):
        store.snapshot().number(CLAIMS)
    with pytest.raises(TableMissing):
        dispatch(store)
    assert not Path(store.path(CLAIMS)).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "appends", [2, *(pytest.param(count, marks=pytest.mark.nightly) for count in (1, 3))]
)
def test_in_a_copy_made_in_the_order_of_names_new_appends_are_dispatched(
    store: Store, tmp_path: Path, appends: int
) -> None:
    append(store, MESSAGE)
    dispatch(store)

    def jobs_go_on() -> None:
        for _ in range(2):
            append(store, {**MESSAGE, "topic": "lost"})
            dispatch(store)

    copy = copied(store, tmp_path / "copy", jobs_go_on, "commitlog")
    for _ in range(appends):  # as many as were lost: the numbers are the same, the commits are others
        append(copy, MESSAGE)
    assert followed_by(copy.snapshot(), CONSUME_QUEUE).is_void
    dispatch(copy)
    log = [100 * place for place in range(1 + appends)]
    assert offsets(copy, CONSUME_QUEUE) == log
    assert copy.consume_queue.where("topic = 'lost'").count() == 0
    assert offsets(copy, MESSAGE_INDEX) == sorted(2 * log)
    assert dispatch(copy) == {}


@pytest.mark.slow
def test_rows_of_appends_the_log_does_not_have_do_not_count_and_are_dropped(store: Store) -> None:
    append(store, MESSAGE)
    dispatch(store)
    surplus = store.consume_queue.withColumn("append_seq", F.lit(1).cast("long"))
    commit(store, lambda at: Plan((at.append(CONSUME_QUEUE, surplus),)))
    at = store.snapshot()
    assert covered(at, CONSUME_QUEUE) == 0
    assert not followed_by(at, CONSUME_QUEUE).is_exact
    assert dispatch(store) == {"consume_queue": 0, "progress": 4}
    assert store.consume_queue.where("append_seq > 0").isEmpty()
    assert dispatch(store) == {}


@pytest.mark.slow
@pytest.mark.parametrize("is_old", [False, True])
def test_what_a_job_remembers_counts_for_its_log_only(store: Store, tmp_path: Path, is_old: bool) -> None:
    append(store, MESSAGE)
    see(store, Seen(0, 9_000))
    assert seen_by(store.snapshot(), "deliver") == Seen(0, 9_000)

    def jobs_go_on() -> None:
        append(store, MESSAGE)
        see(store, Seen(1, 9_500))
        if is_old:
            keep_clocks_as_rows(store)

    copy = copied(store, tmp_path / "copy", jobs_go_on, "commitlog")
    assert seen_by(store.snapshot(), "deliver") == Seen(1, 9_500)
    append(copy, MESSAGE)
    assert seen_by(copy.snapshot(), "deliver") == NOTHING_SEEN
    dispatch(copy)  # which keeps the row as it is
    assert seen_by(copy.snapshot(), "deliver") == NOTHING_SEEN


@pytest.mark.slow
@pytest.mark.quick
def test_clocks_that_an_earlier_version_kept_as_rows_are_read_as_before_and_upgraded(store: Store) -> None:
    append(store, MESSAGE)
    see(store, Seen(0, 9_000))
    see(store, Seen(0, 7_000), "check_transactions")
    dispatch(store)
    keep_clocks_as_rows(store)
    old = {row.follower: row.append_seq for row in store.progress.collect()}
    assert (old["deliver"], old["deliver:clock_ms"], "clock_ms" in store.progress.columns) == (
        0,
        9_000,
        False,
    )
    assert seen_of_both(store) == [Seen(0, 9_000), Seen(0, 7_000)]
    assert covered(store.snapshot(), CONSUME_QUEUE) == 0
    append(store, MESSAGE)
    assert dispatch(store)["progress"] == 6
    assert store.progress.columns == PROGRESS.names
    found = {row.follower: (row.append_seq, row.clock_ms) for row in store.progress.collect()}
    of_tables = {table.name: (1, None) for table in DERIVED}
    assert found == {**of_tables, "deliver": (0, 9_000), "check_transactions": (0, 7_000)}
    # All are proven by the newest log: Delta cleans up the commit that proved them before.
    assert {row.log_version for row in store.progress.collect()} == {store.snapshot().version(COMMITLOG)}
    assert seen_of_both(store) == [Seen(0, 9_000), Seen(0, 7_000)]


def test_a_job_whose_clock_an_earlier_version_has_dropped_has_seen_nothing(store: Store) -> None:
    append(store, MESSAGE)
    see(store, Seen(0, 9_000))
    forget_clocks(store)
    assert store.progress.columns == PROGRESS.names
    assert seen_by(store.snapshot(), "deliver") == NOTHING_SEEN
    see(store, Seen(0, 9_500))
    assert seen_by(store.snapshot(), "deliver") == Seen(0, 9_500)


def test_a_clock_without_the_proof_of_its_append_does_not_count(store: Store) -> None:
    append(store, MESSAGE)
    see(store, Seen(0, 9_000))
    keep_clocks_as_rows(store)
    others = F.when(F.col("follower") == "deliver", F.col("log_commit")).otherwise("another log's")
    rows = store.spark.createDataFrame(
        store.progress.withColumn("log_commit", others).collect(), store.progress.schema
    )
    commit(
        store, lambda at: Plan((at.replace(PROGRESS, rows.withColumn("clock_ms", F.lit(None).cast("long"))),))
    )
    assert seen_by(store.snapshot(), "deliver") == NOTHING_SEEN


def see(store: Store, seen: Seen, job: str = "deliver") -> None:
    commit(store, lambda at: Plan((seen_write(at, job, seen),)))


def seen_of_both(store: Store) -> list[Seen]:
    at = store.snapshot()
    return [seen_by(at, job) for job in ("deliver", "check_transactions")]


@pytest.mark.slow
def test_progress_of_an_older_version_is_proven_by_the_rows_and_upgraded(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, MESSAGE)
    earlier = store.snapshot()
    assert earlier.number(COMMITLOG) == 0
    append(store, MESSAGE)
    dispatch(store)
    delete(store, PROGRESS)
    old = store.spark.createDataFrame(
        [("consume_queue", 1), ("deliver", 1), ("parked", 2)], "follower string, append_seq long"
    )
    old.write.format("delta").save(store.path(PROGRESS))
    for checksum in Path(store.path(PROGRESS)).rglob("*.crc"):
        checksum.unlink()  # then Delta is asked for the rows
    # Rows, or a row of progress, of appends that the log does not have.
    assert followed_by(earlier, CONSUME_QUEUE) == Followed(-1, False, is_void=True)
    for is_known in (True, False):  # the greatest append of a table, by the statistics of its files
        at = Store(store.spark, store.uri).snapshot()
        if not is_known:
            monkeypatch.setattr(Snapshot, "greatest_by_statistics", lambda *_: None)
        assert [followed_by(at, table) for table in (CONSUME_QUEUE, MESSAGE_INDEX, PARKED, CLAIMS)] == [
            Followed(1, True), Followed(1, True), Followed(-1, True, is_void=True), Followed(-1, True),
        ]  # fmt: skip
        assert seen_by(at, "deliver") == NOTHING_SEEN
    monkeypatch.undo()
    append(store, MESSAGE)
    assert dispatch(store)["consume_queue"] == 1
    assert offsets(store, CONSUME_QUEUE) == [0, 100, 200]
    assert store.progress.columns == PROGRESS.names
    assert [covered(store.snapshot(), table) for table in DERIVED] == [2, 2, 2, 2]


def test_progress_newer_than_the_pinned_log_covers_that_log(store: Store) -> None:
    append(store, MESSAGE)
    dispatch(store)
    at = store.snapshot()
    at.number(COMMITLOG)
    append(store, MESSAGE)
    dispatch(store)
    assert covered(at, CONSUME_QUEUE) == 0
    assert [row.append_seq for row in followed_rows(at, CONSUME_QUEUE).collect()] == [0]
    assert at.number(COMMITLOG) == 0


def test_progress_that_another_writer_has_brought_further_is_left_to_it(store: Store) -> None:
    append(store, MESSAGE)
    see(store, Seen(0, 9_000))
    at = store.snapshot()
    late = seen_write(at, "deliver", Seen(0, 8_000))
    dispatch(store)
    commit(store, lambda _: Plan((late,)), attempts=1)
    at = store.snapshot()
    assert (seen_by(at, "deliver"), covered(at, CLAIMS)) == (Seen(0, 9_000), 0)
    commit(store, lambda at: plan_void(at, [CONSUME_QUEUE]))
    at = store.snapshot()
    assert [followed_by(at, table).is_void for table in DERIVED] == [
        table is CONSUME_QUEUE for table in DERIVED
    ]
    assert covered(at, CONSUME_QUEUE) == -1
    assert followed_rows(at, CONSUME_QUEUE).isEmpty()
    # The log loses rows then: what a job has done by the clock may be gone with them.
    assert {row.follower for row in progress_rows(at)} == {table.name for table in DERIVED}


# Through the commands.


@pytest.fixture
def filled(life: Callable[..., Life], made_once: MadeOnce, tmp_path: Path) -> Life:
    """Three messages dispatched, of which one was sent back."""

    def fill(directory: Path) -> None:
        store = life()
        store.put(B, *[{"topic": "T", "queue_id": 0} for _ in range(3)])
        store.job("dispatch", B)
        store.job("send_back", B, "--group", "g", "--input", store.input({"physical_offset": 0}))
        store.job("dispatch", B)
        shutil.copytree(store.store.uri, directory / "store")

    store = life()
    shutil.copytree(made_once("filled", fill) / "store", tmp_path / "filled")
    return Life(store.commitlake, Store(store.store.spark, str(tmp_path / "filled")), tmp_path)


Consume = Callable[..., JobRun]


@pytest.fixture
def consume(filled: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Consume:
    listener = Listeners(tmp_path, monkeypatch).name("accept")
    arguments = ("--group", "h", "--topic", "T", "--listener", listener)
    return lambda exit_status=0: filled.job("consume", B, *arguments, exit_status=exit_status)


@pytest.mark.nightly
def test_after_a_rebuild_that_was_killed_nothing_is_skipped_and_nothing_done_again(
    filled: Life, consume: Consume
) -> None:
    delete(filled.store, *DERIVED)
    make_tables(filled.store)
    said = consume(exit_status=1).stderr
    assert "consume_queue does not have the rows that were dispatched to it" in said
    assert filled.store.consumer_offsets.where("`group` = 'h'").isEmpty()
    again = filled.job("send_back", B, "--group", "g", "--input", filled.input({"physical_offset": 0})).result
    assert (again["sent_back"], again["already"]) == (0, 1)
    filled.job("dispatch", B, "--rebuild")
    assert consume().result["consumed"] == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment",
    [Moment.DURING, *(pytest.param(m, marks=pytest.mark.nightly) for m in (Moment.BEFORE, Moment.AFTER))],
)
def test_whenever_a_rebuild_is_killed_a_group_reads_every_message_once(
    filled: Life, consume: Consume, moment: Moment
) -> None:
    uri = filled.store.uri
    kill_at(moment, Path(uri) / "consume_queue", "dispatch", "--store", uri, "--rebuild", with_jvm=True)
    assert consume().result["consumed"] == 3
    assert consume().result["consumed"] == 0
    filled.job("dispatch", B, "--rebuild")
    again = filled.job("send_back", B, "--group", "g", "--input", filled.input({"physical_offset": 0})).result
    assert (again["sent_back"], again["already"]) == (0, 1)
    assert consume().result["consumed"] == 0
    filled.expect_promises()


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("job", ["dispatch", "create_store"])
def test_deleted_tables_are_filled_again_by_any_dispatch(filled: Life, consume: Consume, job: str) -> None:
    delete(filled.store, *DERIVED, PROGRESS)
    filled.job(job, B)
    filled.put(B, {"topic": "T", "queue_id": 0})
    filled.job("dispatch", B)
    assert len(offsets(filled.store, CONSUME_QUEUE)) == filled.store.commitlog.count() == 5
    assert filled.store.claims.count() == 1
    assert consume().result["consumed"] == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "job", [("dispatch", "--rebuild"), pytest.param(("create_store",), marks=pytest.mark.nightly)]
)
def test_a_table_whose_making_was_killed_is_made(filled: Life, job: tuple[str, ...]) -> None:
    delete(filled.store, CLAIMS)
    log = Path(filled.store.path(CLAIMS), "_delta_log")
    log.mkdir(parents=True)
    (log / ".00000000000000000000.json.5f3c.tmp").write_text('{"commitInfo":')
    filled.job(job[0], B, *job[1:])
    filled.job("dispatch", B)
    assert filled.store.claims.count() == 1


@pytest.mark.slow
def test_readers_beside_a_dispatch_that_writes_a_table_again_see_all_or_wait(
    filled: Life, consume: Consume
) -> None:
    delete(filled.store, *DERIVED)
    make_tables(filled.store)

    def looked_at_while_planned(at: Snapshot) -> Plan:
        plan = plan_dispatch(at, rebuild=True)
        consume(exit_status=1)
        found = filled.job("query", B, "by-key", "--topic", "%RETRY%g", "--key", "none").result
        assert found["complete"] is True
        return plan

    commit(filled.store, looked_at_while_planned)
    assert consume().result["consumed"] == 3
