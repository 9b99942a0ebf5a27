"""Cuts: what an append that is not as planned holds, and nothing else, is kept and taken off the log."""

from collections.abc import Callable
from unittest import mock

import pytest
from pyspark.sql import DataFrame

import jobs.validate
import pipelines.store.commit as committing
import pipelines.store.head
from pipelines.errors import StoreError
from pipelines.produce import put
from pipelines.store.commit import commit
from pipelines.store.cut import cut_damaged_append, is_append_only, plan_cut, plan_record_cut, plan_set_aside
from pipelines.store.plan import Plan, Planned
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from schemas import COMMITLOG, CUT_ROWS, CUTS
from tests.dispatch.log_rows import log_rows
from tests.life import B, Life
from tests.store.test_planned import has_every_row_twice

LISTENERS = "tests.consume.odd_listeners:"


@pytest.mark.slow
def test_a_cut_whose_rebuild_was_killed(life: Callable[..., Life]) -> None:
    one = life()
    real = put.Put.log_rows
    with mock.patch.object(committing, "expect_as_planned"):
        with mock.patch.object(put.Put, "log_rows", lambda *a: has_every_row_twice(real(*a))):
            one.put(B, *[{"topic": "T", "queue_id": 0, "body": "v", "tags": "a"} for _ in range(2)])
        with mock.patch.object(pipelines.store.head, "expect_whole"):
            one.job("dispatch", B + 1)  # as pipelines/quality/repair.py foresees
    with mock.patch.object(jobs.validate, "dispatch_store", side_effect=RuntimeError("killed")):
        one.job("validate", B + 2, "--suite", "log", "--repair", exit_status=1)
    one.put(B + 3, *[{"topic": "T", "queue_id": 0, "body": "w", "tags": "a"} for _ in range(2)])
    one.job("dispatch", B + 4)
    done = one.run(
        "consume", B + 5, "--group", "g", "--topic", "T", "--listener", LISTENERS + "ok", "--filter", "a"
    )
    assert done.result["consumed"] == 2, done.result


def append(store: Store, *offsets: int, planned: Planned) -> None:
    """An append of these rows, whose writer was killed before it compared them with its plan."""

    def plan(at: Snapshot) -> Plan:
        number = at.number(COMMITLOG) + 1
        rows = log_rows(store.spark, *[{"physical_offset": n, "append_seq": number} for n in offsets])
        return Plan((at.append(COMMITLOG, rows, planned=planned),))

    with mock.patch.object(committing, "expect_as_planned"):
        commit(store, plan)


@pytest.mark.slow
def test_an_append_is_cut_off_whatever_it_has_lost(store: Store) -> None:
    append(store, 0, 100, planned=Planned(2, 0, 100, 200))
    versions = [store.snapshot().version(table) for table in (COMMITLOG, CUT_ROWS, CUTS)]
    assert cut_damaged_append(store) is None
    assert (plan_set_aside(store.snapshot()), plan_cut(store.snapshot())) == (Plan(), Plan())
    assert [store.snapshot().version(table) for table in (COMMITLOG, CUT_ROWS, CUTS)] == versions

    append(store, 300, 400, planned=Planned(3, 200, 400, 500))  # its first row
    fails = mock.patch("pipelines.store.cut.plan_cut", side_effect=RuntimeError("no room left"))
    with fails, pytest.raises(RuntimeError):
        cut_damaged_append(store)
    assert is_append_only(store.snapshot())
    assert cut_damaged_append(store) is not None
    append(store, planned=Planned(2, 200, 300, 400))  # all
    assert cut_damaged_append(store) is not None

    at = store.snapshot()
    assert is_append_only(at)
    assert at.number(COMMITLOG) == 4
    assert {(row.append_seq, row.physical_offset) for row in store.commitlog.collect()} == {(0, 0), (0, 100)}
    assert sorted(map(tuple, store.cuts.collect())) == [(2, 300), (4, 200)]
    kept = store.cut_rows.select("cut_seq", "append_seq", "physical_offset").orderBy("physical_offset")
    assert [tuple(row) for row in kept.collect()] == [(2, 1, 300), (2, 1, 400)]


def test_rows_that_were_not_all_set_aside_stay_in_the_log(store: Store) -> None:
    append(store, 0, 100, planned=Planned(3, 0, 200, 300))

    def loses_a_row(at: Snapshot, rows: DataFrame, offset: int | None, planned: Planned | None) -> Plan:
        return plan_record_cut(at, rows.limit(1), offset, planned)

    with (
        mock.patch("pipelines.store.cut.plan_record_cut", loses_a_row),
        pytest.raises(StoreError, match="cut_rows"),
    ):
        cut_damaged_append(store)
    assert store.commitlog.count() == 2
    assert store.cuts.isEmpty()
    assert cut_damaged_append(store) is not None
    assert (store.commitlog.count(), store.cut_rows.count()) == (0, 2)
