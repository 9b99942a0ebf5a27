"""Recorded offsets that are not of their queue, and retries in queues that their topic does not have."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.consume.offsets import Reached, plan_commit, plan_import_offsets
from pipelines.consume.queue_locks import CLOCKS_APART_MS
from pipelines.store.commit import commit
from pipelines.store.head import bounds_write, read_head
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from schemas import CONSUMER_OFFSETS, FLOORS, Table
from tests.consume.listeners import Listeners
from tests.consume.test_consume import consume, fill, offsets
from tests.life import B, Life

YEAR_MS = 365 * 86_400_000


@pytest.fixture
def listeners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Listeners:
    return Listeners(tmp_path, monkeypatch)


def record(store: Life, offset: int, group: str = "g") -> None:
    """As an import records a broker's offset."""
    commit(store.store, lambda at: plan_import_offsets(at, group, {("T", 0): offset}, B))


def lags(store: Life) -> list[Any]:
    by_view = [
        row.lag for row in store.store.consumer_progress.where("topic = 'T' AND queue_id = 0").collect()
    ]
    status = store.job("query", B, "consumer-status", "--group", "g", "--output", "json")
    return [*by_view, *[line for line in status.lines if '"lag": -' in line]]


@pytest.mark.slow
def test_an_offset_beyond_the_end_of_its_queue_becomes_the_end(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    fill(store, "a", "b", "c")  # queue 0: a c
    record(store, 5)
    assert lags(store) == [0]
    given = ("--group", "g", "--topic", "T", "--listener", listeners.name("accept"))
    run = store.job("consume", B, *given)
    assert "group g is at offset 5 of queue 0 of T, which ends at 2; it goes on from there" in run.stderr
    assert (run.result["consumed"], offsets(store)["T", 0]) == (1, 2)
    listeners.handed()
    fill(store, "d")
    run = store.job("consume", B, *given)
    assert (run.result["consumed"], "warning" in run.stderr) == (1, False)
    assert listeners.handed() == [["T", 0, 2, "d", 0]]


def test_an_offset_that_an_import_has_brought_before_its_messages_stays(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    fill(store, "a")
    record(store, 5)
    rows = store.store.spark.createDataFrame([("dispatch", 1_000_000)], FLOORS.columns)
    commit(store.store, lambda at: Plan((at.replace(FLOORS, rows),)))
    consume(store, B, listeners.name("accept"))
    assert offsets(store)["T", 0] == 5


@pytest.mark.nightly
def test_an_offset_before_the_first_message_becomes_the_first(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    fill(store, "a", "b", "c", "d", "e", "f")
    record(store, 1)

    def plan(at: Snapshot) -> Plan:
        head = read_head(at)
        head.min_queue_offsets["T", 0] = 2  # type: ignore[index]
        return Plan((bounds_write(at, head),))

    commit(store.store, plan)
    given = ("--group", "g", "--topic", "T", "--listener", listeners.name("accept"))
    run = store.job("consume", B, *given)
    said = (
        "group g is at offset 1 of queue 0 of T, which begins at 2: 1 messages are gone that it has not read"
    )
    assert said in run.stderr
    assert [entry[1:3] for entry in listeners.handed() if entry[1] == 0] == [[0, 2]]
    assert offsets(store)["T", 0] == 3


@pytest.mark.slow
def test_offsets_are_reset_between_the_first_and_one_after_the_last(life: Callable[..., Life]) -> None:
    store = life()
    fill(store, "a", "b", "c")
    reset = ("--group", "g", "--topic", "T", "--queue-id", 0, "--to-offset")
    for outside in (-1, 4):
        run = store.job("reset_offsets", B, *reset, outside, exit_status=2)
        assert f"--to-offset is {outside}; queue 0 of T has offsets 0 to 2; nothing was set" in run.stderr
    for asked, becomes in ((0, 0), (2, 2), (3, 2)):
        store.job("reset_offsets", B, *reset, asked)
        assert offsets(store)["T", 0] == becomes


@pytest.mark.slow
def test_a_run_with_a_clock_far_ahead_does_not_park_an_orderly_queue(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    store.put(B, {"topic": "T", "queue_id": 0, "body": "stuck"})
    store.job("dispatch", B)
    orderly = (listeners.name("in_order"), "--orderly")
    consume(store, B + YEAR_MS, *orderly, failed=1)
    consume(store, B, *orderly, failed=1)
    # A clock as far ahead as clocks may be has it wait as long, and no longer.
    consume(store, B + 1_000 + CLOCKS_APART_MS, *orderly, consumed=1)
    assert offsets(store)["T", 0] == 1


def test_retries_are_read_from_every_queue_that_has_some(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    store.job("topics", B, "create", "T")
    store.append(*[{"topic": "%RETRY%g", "queue_id": queue} for queue in (0, 5, 7)])
    store.job("dispatch", B)
    store.job("topics", B, "create", "%RETRY%g", "--queues", 1)
    consume(store, B, listeners.name("accept"), consumed=3)
    assert sorted(entry[1] for entry in listeners.handed()) == [0, 5, 7]


def ids_of_commits(store: Store, table: Table) -> list[str]:
    """Under which ids the commits of a table are numbered, in their order."""
    commits = sorted(Path(store.path(table), "_delta_log").glob("*.json"))
    actions = [json.loads(line) for path in commits for line in path.read_text().splitlines()]
    return [action["txn"]["appId"] for action in actions if "txn" in action]


@pytest.mark.slow
def test_whoever_records_a_groups_offsets_numbers_the_commit_by_the_group(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    fill(store, "a", "b", "c")
    record(store, 1, "h")
    consume(store, B, listeners.name("accept"), consumed=3)
    store.job("reset_offsets", B, "--group", "g", "--topic", "T", "--to-offset", 0)
    found = ids_of_commits(store.store, CONSUMER_OFFSETS)
    assert (found[0], set(found[1:])) == ("consumer_offsets:h", {"consumer_offsets:g"})


@pytest.mark.parametrize("is_old", [False, True])
def test_an_import_and_a_consumer_that_record_a_groups_offsets_at_once_plan_again(
    life: Callable[..., Life], is_old: bool
) -> None:
    store = life().store
    other = ("T", 1)
    if is_old:  # an import of version 0.1 numbered by the table
        rows = store.spark.createDataFrame([("g", "T", 0, "", 2, 0, B)], CONSUMER_OFFSETS.columns)
        writer = rows.write.format("delta").mode("append").option("txnAppId", "consumer_offsets")
        writer.option("txnVersion", 0).save(store.path(CONSUMER_OFFSETS))

    def beside(plan: Callable[[Snapshot], Plan], rival: Callable[[Snapshot], Plan]) -> int:
        """Commit a plan that another writer comes before."""
        rivals = iter([rival])

        def planned_late(at: Snapshot) -> Plan:
            planned = plan(at)
            for each in rivals:
                commit(store, each)
            return planned

        return commit(store, planned_late).lost_races

    def consumer(at: Snapshot) -> Plan:
        return plan_commit(at, "g", "", [Reached(other, 7)], B)

    def importer(at: Snapshot) -> Plan:
        return plan_import_offsets(at, "g", {("T", 0): 4, other: 3}, B)

    assert beside(importer, consumer) == 1
    found = {(row.topic, row.queue_id): row.next_offset for row in store.consumer_offsets.collect()}
    assert found == {("T", 0): 4, other: 7}
    assert beside(lambda at: plan_commit(at, "g", "", [Reached(other, 9)], B), lambda at: plan_import_offsets(
        at, "g", {("T", 0): 5}, B
    )) == 1  # fmt: skip
    found = {(row.topic, row.queue_id): row.next_offset for row in store.consumer_offsets.collect()}
    assert found == {("T", 0): 5, other: 9}
