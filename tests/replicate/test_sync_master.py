"""A put that waits for slaves, and consumers that see only what all copies in sync have."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.launch.run import Run
from pipelines.dispatch.follow import plan_dispatch
from pipelines.produce import send_status
from pipelines.replicate import follow as replication
from pipelines.replicate.follow import Following, follow, join_master
from pipelines.store import commit as committing
from pipelines.store.commit import commit
from pipelines.store.head import read_head
from pipelines.store.plan import Plan
from pipelines.store.replicas import confirm_offset, is_acknowledged
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from schemas import REPLICAS
from tests.conftest import JobRun, run_job
from tests.consume.listeners import Listeners
from tests.life import B, Life
from tests.replicate.test_replicate import replicate, slave_of


def put(master: Life, *arguments: Any, exit_status: int = 0) -> JobRun:
    source = master.input({"topic": "T", "body": "b", "queue_id": 0})
    return master.job("put_messages", B, "--input", source, *arguments, exit_status=exit_status)


def read_by(store: Life, group: str, listeners: Listeners) -> int:
    store.job("dispatch", B)
    consume = ("consume", B, "--group", group, "--topic", "T", "--listener", listeners.name("accept"))
    return int(store.job(*consume).result["consumed"])


def end_of(store: Life) -> int:
    return read_head(store.store.snapshot()).next_offset


def entries_of(store: Life) -> int:
    store.job("dispatch", B)
    return store.store.consume_queue.count()


def acks_of(master: Life) -> dict[str, tuple[int, bool]]:
    return {row.replica_id: (row.acked_offset, row.in_sync) for row in master.store.replicas.collect()}


@pytest.mark.slow
def test_a_sync_master_says_whether_its_slaves_have_what_was_put(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = life(brokerRole="SYNC_MASTER", inSyncReplicas="2")
    source = master.input({"topic": "T", "body": "b"})
    first = master.job("put_messages", B, "--input", source)
    assert first.result["send_status"] == "FLUSH_SLAVE_TIMEOUT"
    assert "no slave has reported" in first.stderr
    slave = slave_of(master, tmp_path / "slave")
    again = master.job("put_messages", B, "--input", source).result
    assert (again["appended"], again["send_status"]) == (0, "SEND_OK")

    waiting = put(master, "--wait-for-replicas", 50)
    assert waiting.result["send_status"] == "FLUSH_SLAVE_TIMEOUT"
    assert f"1 has it up to byte {end_of(slave)}" in waiting.stderr

    looks = []

    def comes_at_the_third_look(at: Snapshot, offset: int) -> bool:
        looks.append(offset)
        if len(looks) == 3:
            run = Run("replicate", slave.store.uri, B, quiet=True)
            follow(run, join_master(slave.store, Following(master.store.uri), B), from_last_file=False)
        return is_acknowledged(at, offset)

    monkeypatch.setattr(send_status, "is_acknowledged", comes_at_the_third_look)
    assert put(master, "--wait-for-replicas", 120_000).result["send_status"] == "SEND_OK"
    assert len(looks) >= 3
    assert end_of(slave) == end_of(master)
    # A put that is made again waits for its own messages, not for those of others after it.
    put(master)
    again = master.job("put_messages", B, "--input", source).result
    assert (again["appended"], again["send_status"]) == (0, "SEND_OK")


def test_an_async_master_waits_only_where_it_is_asked_to(life: Callable[..., Life]) -> None:
    master = life(inSyncReplicas="2")
    assert put(master).result["send_status"] == "SEND_OK"
    assert put(master, "--wait-for-replicas", 1).result["send_status"] == "FLUSH_SLAVE_TIMEOUT"
    alone = life()
    assert put(alone, "--wait-for-replicas", 60_000).result["send_status"] == "SEND_OK"


@pytest.mark.slow
def test_a_sync_master_with_too_few_copies_in_sync_takes_nothing(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    master = life(brokerRole="SYNC_MASTER", minInSyncReplicas="2", haMaxGapNotInSync="0")
    assert "IN_SYNC_REPLICAS_NOT_ENOUGH: 1 of" in put(master, exit_status=1).stderr
    assert master.rows() == []
    slave_of(master, tmp_path / "slave")
    put(master)
    assert len(master.rows()) == 1


@pytest.mark.slow
def test_consumers_see_what_all_copies_in_sync_have(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listeners = Listeners(tmp_path, monkeypatch)
    master = life(brokerRole="SYNC_MASTER", allAckInSyncStateSet="true")
    put(master)
    assert read_by(master, "g", listeners) == 1, "the master is the only copy"
    one = slave_of(master, tmp_path / "one", "--replica-id", "1")
    two = slave_of(master, tmp_path / "two", "--replica-id", "2")
    put(master)
    replicate(one.store.uri, master.store.uri)
    put(master)
    put(master)

    assert read_by(master, "g", listeners) == 0
    dispatched = master.job("dispatch", B).result
    assert (
        dispatched["dispatched_to"] == confirm_offset(master.store.snapshot(), end_of(master)) < end_of(one)
    )
    # Slave one has the second message, and knows that slave two lacks it.
    assert read_by(one, "own", listeners) == 1
    replicate(two.store.uri, master.store.uri)
    # It took over the second message with two that slave one lacks, in one append.
    assert read_by(two, "own", listeners) == 1
    assert read_by(master, "g", listeners) == 1
    master.job("dispatch", B, "--rebuild")
    assert master.store.consume_queue.count() == 2

    # A slave that is gone for good is waited for, until it is forgotten.
    replicate(two.store.uri, master.store.uri)
    assert read_by(master, "g", listeners) == 0
    refused = master.job("maintain", B, "--forget-replica", "7", exit_status=2)
    assert "the slaves of this store are 1, 2" in refused.stderr
    master.job("maintain", B, "--forget-replica", "1", "--dry-run")
    assert read_by(master, "g", listeners) == 0
    master.job("maintain", B, "--forget-replica", "1")
    assert read_by(master, "g", listeners) == 2
    master.job("validate", B, "--full")


@pytest.mark.slow
def test_a_slave_shows_nothing_before_its_first_run_has_ended(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not know yet what its master's consumers may read."""
    master = life(allAckInSyncStateSet="true")
    put(master)
    one = slave_of(master, tmp_path / "one", "--replica-id", "1")
    put(master)  # slave one lacks it
    uri = str(tmp_path / "two")
    with monkeypatch.context() as killed:
        killed.setattr(replication, "plan_ack", lambda *_, **__: sys.exit(9))
        replicate(uri, master.store.uri, "--replica-id", "2", exit_status=9)
    two = Life(master.commitlake, Store(master.store.spark, uri), tmp_path)
    assert two.store.commitlog.count() == 2
    assert (entries_of(two), entries_of(master)) == (0, 1)
    for each in (one.store.uri, uri):
        replicate(each, master.store.uri)
    assert (entries_of(two), entries_of(master)) == (2, 2)


@pytest.mark.slow
def test_a_slave_is_in_sync_once_it_has_what_consumers_have_seen(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = life(allAckInSyncStateSet="true")
    put(master)
    one = slave_of(master, tmp_path / "one", "--replica-id", "1")
    plan_ack = replication.plan_ack

    def after_a_put_that_slave_one_has(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(replication, "plan_ack", plan_ack)
        put(master)
        replicate(one.store.uri, master.store.uri)
        assert entries_of(master) == 2
        return plan_ack(*arguments, **named)

    monkeypatch.setattr(replication, "plan_ack", after_a_put_that_slave_one_has)
    two = slave_of(master, tmp_path / "two", "--replica-id", "2")
    assert acks_of(master) == {"1": (end_of(master), True), "2": (end_of(two), False)}
    assert confirm_offset(master.store.snapshot(), end_of(master)) == end_of(master) > end_of(two)
    replicate(two.store.uri, master.store.uri)
    assert acks_of(master)["2"] == (end_of(master), True)
    # In sync it is waited for.
    put(master)
    replicate(one.store.uri, master.store.uri)
    assert entries_of(master) == 2


@pytest.mark.slow
def test_what_a_slave_has_of_a_log_that_was_put_back_counts_for_no_other_message(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    master = life(brokerRole="SYNC_MASTER", inSyncReplicas="2", allAckInSyncStateSet="true")
    put(master)
    end, earlier = end_of(master), tmp_path / "earlier"
    for name in ("commitlog", "queue_bounds"):
        shutil.copytree(Path(master.store.uri) / name, earlier / name)
    put(master)
    put(master)
    slave_of(master, tmp_path / "slave")
    for name in ("commitlog", "queue_bounds"):
        shutil.rmtree(Path(master.store.uri) / name)
        shutil.copytree(earlier / name, Path(master.store.uri) / name)
    master.store = Store(master.store.spark, master.store.uri)
    source = master.input({"topic": "T", "body": "other", "queue_id": 0})
    late = master.job("put_messages", B, "--input", source)
    assert late.result["send_status"] == "FLUSH_SLAVE_TIMEOUT"
    assert acks_of(master) == {"1": (end, True)}
    assert entries_of(master) == 1


@pytest.mark.slow
def test_a_promoted_slave_is_not_its_own_slave(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of replicate that is still to write the set of its master comes too late."""
    master = life(allAckInSyncStateSet="true")
    put(master)
    uri, write = str(tmp_path / "slave"), committing._write

    def after_a_promotion(store: Store, writes: Any, committed: Any) -> None:
        if store.uri == uri and any(each.table is REPLICAS for each in writes):
            monkeypatch.setattr(committing, "_write", write)
            assert run_job(["promote", "--store", uri, "--now", str(B), "--quiet"]).exit_status == 0
        write(store, writes, committed)

    monkeypatch.setattr(committing, "_write", after_a_promotion)
    late = replicate(uri, master.store.uri, exit_status=2)
    assert "does not follow" in late.stderr
    promoted = Life(master.commitlake, Store(master.store.spark, uri), tmp_path)
    assert acks_of(promoted) == {}
    put(promoted)
    assert entries_of(promoted) == 2


@pytest.mark.slow
def test_a_confirm_offset_that_goes_back_gives_no_entry_twice(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    master = life()
    message = {"topic": "T", "queue_id": 0, "keys": ["k"]}
    master.put(B, message)
    slave = slave_of(master, tmp_path / "slave")
    master.put(B + 1, message)
    master.job("dispatch", B)
    master.put(B + 2, message)
    # A dispatch that was killed between its rows and its progress.
    commit(master.store, lambda at: Plan(plan_dispatch(at).writes[:-1]))
    master.job("settings", B, "set", "allAckInSyncStateSet=true")  # the slave has the first message only
    master.job("dispatch", B)
    replicate(slave.store.uri, master.store.uri)
    master.job("dispatch", B)
    assert sorted(row.queue_offset for row in master.store.consume_queue.collect()) == [0, 1, 2]
    master.expect_promises()
