"""Following the log: each entry once, whatever runs beside, ends early, or runs again."""

import json
import threading
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

from pipelines.dispatch import follow
from pipelines.dispatch.follow import plan_dispatch
from pipelines.errors import BadInput, StoreError
from pipelines.store.commit import Committed, commit
from pipelines.store.plan import Plan
from pipelines.store.progress import Followed, covered
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from schemas import COMMITLOG, DERIVED, PARKED, Table
from tests.conftest import JobRun
from tests.dispatch.log_rows import append, properties

MESSAGE = {"properties": properties(UNIQ_KEY="u", TAGS="TagA", KEYS="k")}
PARKED_MESSAGE = {"topic": "SCHEDULE_TOPIC_XXXX", "due_ms": 9, "properties": properties(DELAY="1")}
DELIVERED = {"claim": "settle", "source_offset": 0, "origin_offset": 0, "purpose": "deliver"}


def dispatch(store: Store) -> Committed:
    return commit(store, plan_dispatch)


def offsets(rows: DataFrame) -> list[int]:
    return sorted(row.physical_offset for row in rows.select("physical_offset").collect())


@pytest.mark.quick
def test_an_append_gives_entries_keys_parked_rows_and_claims_once(store: Store) -> None:
    append(store, MESSAGE, PARKED_MESSAGE, DELIVERED)
    first = dispatch(store)
    assert first.counts == {"consume_queue": 3, "message_index": 2, "parked": 1, "claims": 1, "progress": 4}
    again = dispatch(store)
    assert again.counts == {}
    assert first.result == again.result == {"dispatched_to": 300}
    append(store, MESSAGE)
    assert dispatch(store).counts == {"consume_queue": 1, "message_index": 2, "progress": 4}
    assert offsets(store.consume_queue) == [0, 100, 200, 300]
    assert offsets(store.parked) == [100]
    assert offsets(store.claims) == [200]


def test_an_append_that_gives_a_table_nothing_is_covered_all_the_same(store: Store) -> None:
    append(store, MESSAGE)
    dispatch(store)
    assert [covered(store.snapshot(), table) for table in DERIVED] == [0, 0, 0, 0]
    assert store.snapshot().number(PARKED) == -1  # and nothing was committed for it


def test_an_empty_log_has_nothing_to_dispatch(store: Store) -> None:
    assert (dispatch(store).counts, dispatch(store).result) == ({}, {"dispatched_to": 0})


@pytest.mark.slow
@pytest.mark.parametrize("writes_before_the_crash", [1, 3])
def test_a_crash_between_two_tables_repeats_nothing_and_leaves_nothing_out(
    store: Store, writes_before_the_crash: int
) -> None:
    append(store, MESSAGE, PARKED_MESSAGE, DELIVERED)

    def cut_short(at: Snapshot) -> Plan:
        return Plan(plan_dispatch(at).writes[:writes_before_the_crash])

    commit(store, cut_short)
    append(store, MESSAGE)
    dispatch(store)
    assert offsets(store.consume_queue) == [0, 100, 200, 300]
    assert offsets(store.message_index) == [0, 0, 300, 300]
    assert offsets(store.parked) == [100]
    assert offsets(store.claims) == [200]
    assert {covered(store.snapshot(), table) for table in DERIVED} == {1}


def test_two_overlapping_runs_give_each_entry_once(store: Store) -> None:
    append(store, MESSAGE, MESSAGE)
    plans = 0

    def overtaken(at: Snapshot) -> Plan:
        nonlocal plans
        plans += 1
        plan = plan_dispatch(at)
        if plans == 1:
            append(store, MESSAGE)
            dispatch(store)  # another run, between this one's plan and its writes
        return plan

    committed = commit(store, overtaken)
    assert (plans, committed.counts) == (2, {})
    assert offsets(store.consume_queue) == [0, 100, 200]


def test_two_runs_at_the_same_time_give_each_entry_once(store: Store) -> None:
    append(store, MESSAGE, MESSAGE, PARKED_MESSAGE)
    found: list[Committed] = []
    runs = [threading.Thread(target=lambda: found.append(dispatch(store))) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert sum(committed.counts.get("consume_queue", 0) for committed in found) == 3
    assert offsets(store.consume_queue) == [0, 100, 200]
    assert offsets(store.message_index) == [0, 0, 100, 100]
    assert offsets(store.parked) == [200]


@pytest.mark.slow
def test_a_rebuild_gives_equal_tables(store: Store) -> None:
    append(store, MESSAGE, PARKED_MESSAGE, DELIVERED)
    dispatch(store)
    append(store, MESSAGE)
    dispatch(store)
    before = {table.name: sorted(store.read(table).collect()) for table in DERIVED}
    assert all(before.values())
    rebuilt = commit(store, lambda at: plan_dispatch(at, rebuild=True))
    assert rebuilt.counts == {"consume_queue": 4, "message_index": 4, "parked": 1, "claims": 1, "progress": 4}
    assert {table.name: sorted(store.read(table).collect()) for table in DERIVED} == before
    assert dispatch(store).counts == {}


@pytest.mark.slow
def test_a_rebuild_that_others_overtake_loses_nothing(store: Store) -> None:
    append(store, MESSAGE)
    plans = 0

    def overtaken(at: Snapshot) -> Plan:
        nonlocal plans
        plans += 1
        plan = plan_dispatch(at, rebuild=True)
        if plans == 1:
            append(store, MESSAGE)
            dispatch(store)
        return plan

    commit(store, overtaken)
    assert (plans, offsets(store.consume_queue)) == (2, [0, 100])
    assert dispatch(store).counts == {}


@pytest.mark.nightly
def test_a_rebuild_that_is_overtaken_while_it_looks_around_loses_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, MESSAGE)
    look, looks = follow.followed_by, 0

    def look_and_be_overtaken(at: Snapshot, table: Table) -> Followed:
        nonlocal looks
        looks += 1
        found = look(at, table)
        if looks == 1:
            append(store, MESSAGE)
            dispatch(store)
        return found

    monkeypatch.setattr(follow, "followed_by", look_and_be_overtaken)
    commit(store, lambda at: plan_dispatch(at, rebuild=True))
    assert offsets(store.consume_queue) == [0, 100]
    assert offsets(store.message_index) == [0, 0, 100, 100]


def test_bodies_are_never_read(store: Store) -> None:
    append(store, MESSAGE, PARKED_MESSAGE, DELIVERED)
    plan = plan_dispatch(store.snapshot())
    tables = [write.table.name for write in plan.writes]
    assert tables == ["consume_queue", "message_index", "parked", "claims", "progress"]
    for write in plan.writes[:-1]:
        # What Spark prints of a scan's schema is cut; the scan itself has all of it.
        leaves = write.rows._jdf.queryExecution().executedPlan().collectLeaves()
        scans = [leaves.apply(n) for n in range(leaves.size())]
        read = [
            set(scan.requiredSchema().fieldNames())
            for scan in scans
            if scan.getClass().getSimpleName() == "FileSourceScanExec"
        ]
        assert any("physical_offset" in names for names in read), (write.table.name, read)
        assert not any("body" in names for names in read), (write.table.name, read)
    assert "body" in COMMITLOG.names


def test_the_job_says_what_it_did(commitlake: Callable[..., JobRun], store: Store) -> None:
    append(store, MESSAGE, MESSAGE)
    said = [commitlake("dispatch", "--store", store.uri).result for _ in range(2)]
    assert [(run["queue_entries"], run["index_entries"], run["dispatched_to"]) for run in said] == [
        (2, 4, 200),
        (0, 0, 200),
    ]
    rebuilt = commitlake("dispatch", "--store", store.uri, "--rebuild").result
    assert (rebuilt["queue_entries"], rebuilt["index_entries"]) == (2, 4)


def test_a_run_that_failed_is_in_job_runs_and_one_with_wrong_input_is_not(
    commitlake: Callable[..., JobRun], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(failure: Exception) -> JobRun:
        def planned(at: Snapshot, rebuild: bool) -> Plan:
            raise failure

        monkeypatch.setattr("jobs.dispatch.plan_dispatch", planned)
        return commitlake("dispatch", "--store", store.uri)

    assert fails(BadInput("not that")).exit_status == 2
    assert store.job_runs.where("job = 'dispatch'").isEmpty()
    for failure in (StoreError("no disk"), OSError("no wire")):
        failed = fails(failure)
        assert failed.exit_status == 1
        (row,) = store.job_runs.where("job = 'dispatch'").orderBy("started_ms").collect()[-1:]
        assert (row.status, json.loads(row.result)) == ("failed", failed.result)
    assert store.job_runs.where("job = 'dispatch'").count() == 2
