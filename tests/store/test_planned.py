"""What a commit holds is compared with its plan; where it differs nothing follows, until the append is cut off."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.broker_files import import_log
from pipelines.dispatch import follow
from pipelines.log import append, copies
from pipelines.produce import put
from pipelines.store import commit as committing
from pipelines.store.commit import commit
from pipelines.store.cut import is_append_only, plan_set_aside, set_append_only
from pipelines.store.store import Store
from schemas import QUEUE_BOUNDS
from tests.conftest import JobRun
from tests.life import B, Life


def loses_its_first_row(rows: DataFrame) -> DataFrame:
    return rows.where(F.col("queue_offset") > 0)


def has_every_row_twice(rows: DataFrame) -> DataFrame:
    return rows.unionAll(rows)


def written(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, change: Callable[[DataFrame], DataFrame]
) -> None:
    """What `owner.name` returns to be written is changed on its way, once."""
    real = getattr(owner, name)

    def changed(*arguments: Any, **named: Any) -> DataFrame:
        monkeypatch.setattr(owner, name, real)
        return change(real(*arguments, **named))

    monkeypatch.setattr(owner, name, changed)


def test_an_append_that_misses_rows_is_told_by_the_job_that_wrote_it(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    store_life = life()
    source = store_life.input(*[{"topic": "orders", "body": str(n), "queue_id": 0} for n in range(3)])
    written(monkeypatch, put.Put, "log_rows", loses_its_first_row)
    damaged = store_life.job("put_messages", B, "--input", source, exit_status=1)
    assert "append 0 of the log holds 2 rows" in damaged.stderr
    assert "planned were 3 rows, the first at byte 0" in damaged.stderr
    assert "validate --repair" in damaged.stderr


@pytest.mark.slow
def test_an_append_that_is_not_as_planned_blocks_the_log_until_it_is_cut_off(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = (store_life := life()).store
    store_life.put(B, {"topic": "other"})
    source = store_life.input(*[{"topic": "orders", "body": str(n), "queue_id": 0} for n in range(3)])
    with monkeypatch.context() as killed:  # before it looked at what it had written
        written(killed, put.Put, "log_rows", has_every_row_twice)
        killed.setattr(committing, "expect_as_planned", lambda *_: None)
        store_life.job("put_messages", B, "--input", source)

    # Nobody goes on from it.
    for job in (["put_messages", "--input", source], ["dispatch"]):
        refused = store_life.job(job[0], B, *job[1:], exit_status=1)
        assert "append 1 of the log holds 6 rows" in refused.stderr
    assert store.consume_queue.count() == 0

    repaired = store_life.job("validate", B, "--suite", "log", "--repair")
    assert (repaired.result["broken"], repaired.result["repaired"] > 0) == (0, True)
    assert sorted(row.cut_seq for row in store.cut_rows.collect()) == [2] * 6
    [cut] = store.cuts.collect()
    assert (cut.append_seq, cut.physical_offset) == (
        2,
        store.cut_rows.agg(F.min("physical_offset")).first()[0],
    )
    assert is_append_only(store.snapshot())

    again = store_life.job("put_messages", B, "--input", source).result
    assert (again["appended"], again["already"]) == (3, 0)
    assert [row.append_seq for row in store_life.rows()] == [0, 3, 3, 3]
    store_life.expect_promises()
    assert store_life.job("dispatch", B).result["queue_entries"] == 4


@pytest.mark.slow
def test_bounds_do_not_follow_an_append_that_is_not_as_planned(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    store_life = life()
    monkeypatch.setattr(append, "ROWS_BETWEEN_BOUNDS", 1)  # each append brings them up to the log's end
    store_life.put(B, {"topic": "orders", "queue_id": 0})
    bounds = store_life.store.snapshot().version(QUEUE_BOUNDS)
    written(monkeypatch, put.Put, "log_rows", has_every_row_twice)
    source = store_life.input({"topic": "orders", "body": "b", "queue_id": 0})
    store_life.job("put_messages", B, "--input", source, exit_status=1)
    assert store_life.store.snapshot().version(QUEUE_BOUNDS) == bounds
    store_life.job("validate", B, "--suite", "log", "--repair")
    store_life.job("put_messages", B, "--input", source)
    assert store_life.store.snapshot().version(QUEUE_BOUNDS) > bounds
    store_life.expect_promises()


@pytest.mark.nightly
@pytest.mark.slow
def test_a_repair_that_was_cut_short_is_made_again(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = (store_life := life()).store
    written(monkeypatch, put.Put, "log_rows", has_every_row_twice)
    monkeypatch.setattr(committing, "expect_as_planned", lambda *_: None)  # killed before it looked
    store_life.put(B, {"topic": "orders"})
    monkeypatch.undo()
    commit(store, plan_set_aside)
    set_append_only(store, False)
    repair = ("validate", B, "--suite", "log", "--repair")
    assert store_life.job(*repair).result["repaired"] >= 2
    assert (store.commitlog.count(), store.cut_rows.count(), store.cuts.count()) == (0, 2, 1)
    assert is_append_only(store.snapshot())
    # Cut, and killed before the log was closed again.
    set_append_only(store, False)
    assert store_life.job(*repair).result["repaired"] == 1
    assert is_append_only(store.snapshot())
    assert store_life.put(B, {"topic": "orders"})["first_offset"] == 0


@pytest.mark.nightly
@pytest.mark.slow
def test_copies_that_are_not_as_planned_are_cut_off_and_made_again(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    store_life = life(messageDelayLevel="1s 5s")
    store_life.put(B, {"topic": "orders", "delay_level": 1}, {"topic": "orders", "delay_level": 1})
    store_life.job("dispatch", B)
    written(monkeypatch, copies, "log_rows_of", has_every_row_twice)
    damaged = store_life.job("deliver", B + 9_000, exit_status=1)
    assert "append 1 of the log holds 4 rows" in damaged.stderr
    store_life.job("validate", B, "--suite", "log", "--repair")
    assert store_life.deliver(B + 9_000)["delivered"] == 2
    assert store_life.deliver(B + 9_000)["delivered"] == 0
    store_life.expect_promises()


@pytest.mark.nightly
@pytest.mark.slow
def test_an_import_that_is_not_as_planned_is_cut_off_and_goes_on(
    commitlake: Callable[..., JobRun],
    golden_broker: Callable[[str], Path],
    tmp_path: Path,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store(spark, str(tmp_path / "store"))

    def run(job: str, *arguments: object, exit_status: int = 0) -> JobRun:
        done = commitlake(job, "--store", store.uri, *arguments)
        assert done.exit_status == exit_status, done.stderr
        return done

    written(monkeypatch, import_log, "read_rows", lambda rows: rows.limit(5))
    damaged = run("import_store", "--from", golden_broker("b"), exit_status=1)
    assert "of the log holds 5 rows" in damaged.stderr
    assert "append 0 of the log" in run("import_store", "--from", golden_broker("b"), exit_status=1).stderr
    run("validate", "--suite", "log", "--repair")
    imported = run("import_store", "--from", golden_broker("b")).result["messages"]
    assert imported == store.commitlog.count() > 5
    assert run("import_store", "--from", golden_broker("b")).result["messages"] == 0


def test_a_dispatch_that_writes_other_rows_than_it_counted_says_so(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    store_life = life()
    store_life.put(B, *[{"topic": "orders", "queue_id": 0}] * 3)
    written(monkeypatch, follow, "consume_queue_entries", loses_its_first_row)
    short = store_life.job("dispatch", B, exit_status=1)
    assert "commit 0 of consume_queue holds 2 rows; expected were 3" in short.stderr
    assert store_life.job("dispatch", B, "--rebuild").result["queue_entries"] == 3
