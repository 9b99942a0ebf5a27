"""A slave becomes the master, and the old master its slave: nobody's rows are mixed, and none are lost."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.reports.copies import election
from pipelines.store import commit as committing
from pipelines.store.commit import commit
from pipelines.store.epochs import read_epochs
from pipelines.store.plan import Plan
from pipelines.store.role import is_slave, settings_now
from pipelines.store.small_tables import whole_table_write
from pipelines.store.store import Store
from schemas import COMMITLOG, EPOCHS
from tests.conftest import run_job
from tests.life import B, Life
from tests.replicate.test_replicate import bounds_of, log_of, replicate, slave_of


def promote(slave: Life, *more: object, exit_status: int = 0) -> dict:
    return slave.job("promote", B, *more, exit_status=exit_status).result


def epochs(store: Store) -> list[tuple[int, int]]:
    return [(each.epoch, each.start_offset) for each in read_epochs(store.snapshot())]


@pytest.mark.slow
def test_an_old_master_rejoins_and_what_it_alone_had_is_kept_aside(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    old = life(mappedFileSizeCommitLog="1024")
    old.put(B, *[{"topic": "T", "body": f"both{n}"} for n in range(5)])
    new = slave_of(old, tmp_path / "new")
    shared = log_of(new.store)
    other = slave_of(old, tmp_path / "other")
    # Two rows that no slave has, of which a group has read, and the queues are built.
    old.put(B, {"topic": "T", "body": "lost"}, {"topic": "Only", "body": "lost"})
    old.job("dispatch", B)
    old.job("reset_offsets", B, "--group", "g", "--topic", "Only", "--skip-accumulation")
    reached = max(row.next_offset for row in old.store.consumer_offsets.collect())

    promoted = promote(new, "--old-master", old.store.uri)
    end = max(row[1] + row[2] for row in shared)
    assert (promoted["epoch"], promoted["max_offset"]) == (2, end)
    assert epochs(new.store) == [(1, 0), (2, end)]
    assert promote(new, "--old-master", old.store.uri) == {**promoted, "seconds": pytest.approx(0, abs=60)}
    late = old.run("put_messages", B, "--input", old.input({"topic": "T", "body": "late"}))
    assert late.exit_status == 2
    assert f"is a slave of {new.store.uri}" in late.stderr

    new.put(B + 1, {"topic": "T", "body": "new"}, {"topic": "U", "body": "new"})
    rejoined = replicate(old.store.uri, new.store.uri).result
    assert (rejoined["truncated_from"], rejoined["copied"]) == (end, 2)
    assert log_of(old.store) == log_of(new.store)
    assert sorted(bytes(row.body) for row in old.store.cut_rows.collect()) == [b"lost", b"lost"]
    assert {queue: at for queue, at in bounds_of(old.store).items() if queue[0] != "Only"} == bounds_of(
        new.store
    )
    assert {at for queue, at in bounds_of(old.store).items() if queue[0] == "Only"} == {(0, 0)}
    assert reached == 1
    assert {row.next_offset for row in old.store.consumer_offsets.where("topic = 'Only'").collect()} == {0}
    old.job("dispatch", B)
    old.expect_promises()
    assert (
        old.job("validate", B, "--suite", "log", "--suite", "caches", "--suite", "queues").result["broken"]
        == 0
    )
    # The other slave goes over to the new master without a cut.
    assert replicate(other.store.uri, new.store.uri).result["truncated_from"] is None
    assert log_of(other.store) == log_of(new.store)
    assert epochs(other.store) == epochs(new.store) == epochs(old.store)
    assert {row.replica_id for row in new.store.replicas.collect()} == {"1", "2"}
    # A slave knows the others of its set.
    assert {row.replica_id: row.uri for row in old.store.replicas.collect()}["0"] == new.store.uri

    # And back: the first master is one again.
    promote(old, "--old-master", new.store.uri)
    assert epochs(old.store)[-1][0] == 3
    old.put(B + 2, {"topic": "T", "body": "back"})
    assert replicate(new.store.uri, old.store.uri).result["copied"] == 1
    assert log_of(old.store) == log_of(new.store)
    new.job("dispatch", B)
    new.expect_promises()


@pytest.mark.slow
def test_a_put_that_was_planned_before_the_promotion_is_refused(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = life()
    old.put(B, {"topic": "T"})
    new = slave_of(old, tmp_path / "new")
    source = old.input({"topic": "T", "body": "in flight"})
    write = committing._write

    def after_a_promotion(store: Store, *arguments: object) -> None:
        if store.uri == old.store.uri:
            monkeypatch.setattr(committing, "_write", write)
            promote(new, "--old-master", old.store.uri)
        write(store, *arguments)

    monkeypatch.setattr(committing, "_write", after_a_promotion)
    late = old.run("put_messages", B, "--input", source)
    assert late.exit_status == 2
    assert f"is a slave of {new.store.uri}" in late.stderr
    assert [bytes(row.body) for row in old.store.commitlog.collect()] == [b"b"]
    assert new.job("put_messages", B, "--input", source).result["appended"] == 1


@pytest.mark.slow
def test_who_is_promoted_second_follows_who_was_first(life: Callable[..., Life], tmp_path: Path) -> None:
    old = life()
    old.put(B, {"topic": "T"})
    first, second = (slave_of(old, tmp_path / name) for name in ("first", "second"))
    promote(first, "--old-master", old.store.uri)
    refused = second.run("promote", B, "--old-master", old.store.uri)
    assert refused.exit_status == 2
    assert f"follows {first.store.uri} now" in refused.stderr
    for slave, arguments, reason in (
        (first, (), "is a master already"),
        (second, ("--old-master", second.store.uri), "which is the store to be promoted"),
        (second, ("--old-master", first.store.uri), f"follows {old.store.uri}"),
        (second, ("--old-master", str(tmp_path / "nowhere")), "there is no store"),
        (second, ("--epoch", "1"), "the store's last epoch is 1"),
    ):
        said = slave.run("promote", B, *arguments)
        assert said.exit_status == 2
        assert reason in said.stderr
    assert replicate(second.store.uri, first.store.uri).result["truncated_from"] is None


@pytest.mark.slow
def test_a_master_that_was_never_fenced_is_cut_when_it_comes_back(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    old = life()
    old.put(B, {"topic": "T", "body": "both"})
    new = slave_of(old, tmp_path / "new")
    warned = new.job("promote", B, "--epoch", "7")
    assert "is not fenced" in warned.stderr
    assert warned.result["epoch"] == 7
    old.put(B, {"topic": "T", "body": "split"})
    new.put(B, {"topic": "T", "body": "new"})
    # The wrong way round nothing is cut.
    wrong = run_job(["replicate", "--store", new.store.uri, "--master", old.store.uri])
    assert wrong.exit_status == 2
    assert "was promoted after that master" in wrong.stderr
    assert replicate(old.store.uri, new.store.uri).result["truncated_from"] == warned.result["max_offset"]
    assert log_of(old.store) == log_of(new.store)
    assert [bytes(row.body) for row in old.store.cut_rows.collect()] == [b"split"]


@pytest.mark.slow
def test_an_old_master_of_an_earlier_version_gets_what_its_fence_needs(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    old = life()
    old.put(B, {"topic": "T"})
    new = slave_of(old, tmp_path / "new")
    shutil.rmtree(Path(old.store.uri, "cuts"))
    before = old.store.snapshot().number(COMMITLOG)
    promote(new, "--old-master", old.store.uri)
    assert old.store.snapshot().number(COMMITLOG) == before + 1


@pytest.mark.slow
def test_a_promoted_slave_has_its_masters_role_also_after_a_run_that_was_killed(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = life(brokerRole="SYNC_MASTER", minInSyncReplicas="2")
    new = slave_of(old, tmp_path / "new")
    for step in ("_plan_master", "_plan_no_master"):
        with monkeypatch.context() as killed:
            killed.setattr(f"pipelines.replicate.promote.{step}", lambda *_, **__: sys.exit(9))
            promote(new, exit_status=9)
    replicate(old.store.uri, new.store.uri)  # whose row the killed one has left
    old.job("promote", B, "--old-master", new.store.uri)
    replicate(new.store.uri, old.store.uri)
    promote(new, "--old-master", old.store.uri)
    assert settings_now(new.store.snapshot())["brokerRole"] == "SYNC_MASTER"
    assert new.store.replicas.count() == 0
    refused = new.run("put_messages", B, "--input", new.input({"topic": "T", "body": "alone"}))
    assert refused.exit_status == 1
    assert "IN_SYNC_REPLICAS_NOT_ENOUGH" in refused.stderr


@pytest.mark.slow
def test_an_old_master_has_its_role_again_where_the_new_one_is_lost_at_once(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    old = life(brokerRole="SYNC_MASTER")
    new = slave_of(old, tmp_path / "new")
    promote(new, "--old-master", old.store.uri)
    elected = {row.replica_id: row.uri for row in election(old.store.snapshot()).rows.collect()}
    assert elected["0"] == new.store.uri
    shutil.rmtree(new.store.uri)
    promote(old)
    assert settings_now(old.store.snapshot())["brokerRole"] == "SYNC_MASTER"
    assert old.store.replicas.where("replica_id = '0'").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("is_at_same_byte", [False, True])
def test_of_two_slaves_that_were_promoted_one_goes_on_with_a_later_epoch(
    life: Callable[..., Life], tmp_path: Path, is_at_same_byte: bool
) -> None:
    old = life()
    old.put(B, {"topic": "T", "body": "both"})
    second = slave_of(old, tmp_path / "second")
    if not is_at_same_byte:
        old.put(B, {"topic": "T", "body": "one has it"})
    first = slave_of(old, tmp_path / "first")
    for store, body in ((first, "first"), (second, "second")):
        promote(store)
        store.put(B, {"topic": "T", "body": body})
    refused = replicate(second.store.uri, first.store.uri, exit_status=2).stderr
    assert f"promote --store {first.store.uri} --epoch 3" in " ".join(refused.split())
    assert promote(first, "--epoch", 2)["epoch"] == 2  # as it is
    assert promote(first, "--epoch", 3)["epoch"] == 3
    ended = replicate(second.store.uri, first.store.uri).result
    assert ended["copied"] == (1 if is_at_same_byte else 2)
    assert log_of(second.store) == log_of(first.store)
    assert epochs(second.store) == epochs(first.store)
    assert [bytes(row.body) for row in second.store.cut_rows.collect()] == [b"second"]


@pytest.mark.slow
def test_a_promotion_with_a_number_of_its_own_that_was_killed_is_made_again(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = life()
    old.put(B, {"topic": "T"})
    new = slave_of(old, tmp_path / "new")
    number = ("--epoch", 5)
    with monkeypatch.context() as killed:
        killed.setattr("pipelines.replicate.promote._plan_no_replicas", lambda *_: sys.exit(9))
        promote(new, *number, exit_status=9)
    assert promote(new, *number)["epoch"] == 5
    assert not is_slave(new.store.snapshot())


@pytest.mark.slow
def test_an_old_master_follows_a_slave_that_was_promoted_before_it_had_a_message(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    old, unrelated = life(), life()
    new = slave_of(old, tmp_path / "new")
    old.put(B, {"topic": "T", "body": "old"})
    unrelated.put(B, {"topic": "T", "body": "unrelated"})
    promote(new)
    new.put(B, {"topic": "T", "body": "new"})
    assert epochs(new.store) == [(1, 0), (2, 0)]
    refused = replicate(unrelated.store.uri, new.store.uri, exit_status=2)
    assert "may never have been one log" in refused.stderr
    # An earlier version has recorded the second epoch alone.
    commit(new.store, lambda at: Plan((whole_table_write(at, EPOCHS, [(2, 0)]),)))
    rejoined = replicate(old.store.uri, new.store.uri).result
    assert (rejoined["truncated_from"], rejoined["copied"]) == (0, 1)
    assert log_of(old.store) == log_of(new.store)
    assert [bytes(row.body) for row in old.store.cut_rows.collect()] == [b"old"]
    assert epochs(old.store) == epochs(new.store)
    old.job("dispatch", B)
    old.expect_promises()


def test_an_epoch_that_no_int_holds_is_refused_before_the_first_step(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    old = life()
    new = slave_of(old, tmp_path / "new")
    for number in (2**31, 3_000_000_000):
        promote(new, "--epoch", number, "--old-master", old.store.uri, exit_status=2)
    assert is_slave(new.store.snapshot())
    assert not is_slave(old.store.snapshot())
