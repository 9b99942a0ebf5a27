"""A slave becomes the master, and the old master its slave: nobody's rows are mixed, and none are lost."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.expiry.retention import HOUR_MS
from pipelines.produce import put
from pipelines.reports.copies import election
from pipelines.store import commit as committing
from pipelines.store.commit import commit
from pipelines.store.epochs import read_epochs
from pipelines.store.head import bounds_write, read_head
from pipelines.store.plan import Plan
from pipelines.store.role import is_slave, settings_now
from pipelines.store.small_tables import whole_table_write
from pipelines.store.store import Store
from schemas import COMMITLOG, CUTS, EPOCHS
from tests.conftest import run_job
from tests.life import B, Life
from tests.replicate.test_replicate import bounds_of, log_of, replicate, slave_of
from tests.store.earlier_versions import forget_tables
from tests.store.test_planned import has_every_row_twice, written


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
        (second, (), f"follows {first.store.uri} now"),
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
    forget_tables(old.store, CUTS.generation + 1)
    shutil.rmtree(old.store.path(CUTS))
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


def test_an_epoch_after_which_no_later_one_fits_is_refused_before_the_first_step(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    old = life()
    new = slave_of(old, tmp_path / "new")
    for number in (2**31 - 1, 3_000_000_000):
        refused = new.run("promote", B, "--epoch", number, "--old-master", old.store.uri)
        assert refused.exit_status == 2
        assert "expected at most 2000000000" in refused.stderr
    refused = new.run("promote", B, "--epoch", 1)
    assert refused.exit_status == 2
    assert "the store's last epoch is 1" in refused.stderr
    assert is_slave(new.store.snapshot())
    # An earlier version took the greatest int.
    commit(new.store, lambda at: Plan((whole_table_write(at, EPOCHS, [(1, 0), (2**31 - 1, 0)]),)))
    refused = new.run("promote", B, "--old-master", old.store.uri)
    assert refused.exit_status == 2
    assert "no later epoch can begin" in refused.stderr
    assert not is_slave(old.store.snapshot())


def test_a_promotion_of_an_ordinary_master_says_that_it_was_one(life: Callable[..., Life]) -> None:
    master = life()
    promoted = master.run("promote", B, "--epoch", 2)
    assert (promoted.exit_status, promoted.result["epoch"]) == (0, 2)
    assert "was a master already" in promoted.stderr


@pytest.mark.slow
def test_a_promotion_that_was_killed_once_it_had_let_go_fences_no_store_but_its_old_master(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, other, empty = life(), life(), life()
    old.put(B, {"topic": "T", "body": "both"})
    other.put(B, {"topic": "T", "body": "unrelated"})
    new = slave_of(old, tmp_path / "new")
    old.put(B, {"topic": "T", "body": "not copied"})
    with monkeypatch.context() as killed:
        killed.setattr("pipelines.replicate.promote._plan_epoch", lambda *_a, **_k: sys.exit(9))
        promote(new, exit_status=9)
    for unrelated in (other, empty):
        refused = new.run("promote", B, "--old-master", unrelated.store.uri)
        assert refused.exit_status == 2
        assert "it never was its master" in refused.stderr
        assert not is_slave(unrelated.store.snapshot())
    promoted = new.run("promote", B, "--old-master", old.store.uri)
    assert promoted.exit_status == 0, promoted.stderr
    lacking = old.rows()[1]
    assert f"has {lacking.size_bytes} bytes from byte {lacking.physical_offset} on" in promoted.stderr


@pytest.mark.slow
def test_a_promotion_that_is_made_again_says_that_the_old_master_is_not_fenced(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = life()
    old.put(B, {"topic": "T"})
    new = slave_of(old, tmp_path / "new")
    with monkeypatch.context() as killed:
        killed.setattr("pipelines.replicate.promote._plan_epoch", lambda *_a, **_k: sys.exit(9))
        promote(new, exit_status=9)
    again = new.run("promote", B)
    assert again.exit_status == 0
    assert f"the old master at {old.store.uri} is not fenced" in again.stderr


@pytest.mark.slow
def test_an_old_master_is_not_promoted_again_before_it_has_followed_the_new_one(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    old = life()
    old.put(B, {"topic": "T", "body": "both"})
    new = slave_of(old, tmp_path / "new")
    old.put(B, {"topic": "T", "body": "old"})
    promote(new, "--old-master", old.store.uri)
    new.put(B, {"topic": "T", "body": "new"})
    refused = old.run("promote", B, "--old-master", new.store.uri)
    assert refused.exit_status == 2
    assert (
        f"run `commitlake replicate --store {old.store.uri} --master {new.store.uri}` first" in refused.stderr
    )
    assert not is_slave(new.store.snapshot())
    replicate(old.store.uri, new.store.uri)
    promote(old, "--old-master", new.store.uri)


@pytest.mark.slow
def test_a_slave_whose_master_has_a_new_master_is_not_promoted_without_naming_it(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    old = life()
    old.put(B, {"topic": "T"})
    first, second = (slave_of(old, tmp_path / name) for name in ("first", "second"))
    promote(first, "--old-master", old.store.uri)
    refused = second.run("promote", B)
    assert refused.exit_status == 2
    assert f"replicate --store {second.store.uri} --master {first.store.uri}" in refused.stderr
    shutil.rmtree(first.store.uri)
    assert promote(second)["epoch"] == 2


@pytest.mark.slow
def test_a_damaged_append_of_the_old_master_is_set_aside_before_the_fence(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = life()
    old.put(B, {"topic": "T", "body": "both"})
    new = slave_of(old, tmp_path / "new")
    with monkeypatch.context() as patched:
        written(patched, put.Put, "log_rows", has_every_row_twice)
        source = old.input({"topic": "T", "body": "twice"})
        assert old.run("put_messages", B, "--input", source).exit_status == 1
    promoted = new.run("promote", B, "--old-master", old.store.uri)
    assert promoted.exit_status == 0, promoted.stderr
    assert "was damaged: append 1 of the log holds 2 rows" in promoted.stderr
    assert old.bodies() == ["both"]
    assert [bytes(row.body) for row in old.store.cut_rows.collect()] == [b"twice"] * 2
    shutil.rmtree(new.store.uri)
    promote(old)
    old.put(B, {"topic": "T", "body": "next"})
    old.job("dispatch", B)
    assert old.job("validate", B, "--suite", "log", "--suite", "queues").result["broken"] == 0


@pytest.mark.slow
def test_a_store_whose_promotion_was_killed_names_it_where_its_master_is_to_be_read(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = life()
    old.put(B, {"topic": "T"})
    new = slave_of(old, tmp_path / "new")
    promotion = ("promote", B, "--old-master", old.store.uri)
    with monkeypatch.context() as killed:
        killed.setattr("pipelines.replicate.promote._plan_letting_go", lambda *_: sys.exit(9))
        new.job(*promotion, exit_status=9)
    refused = new.job("query", B, "topic-status", "--replica", "master", exit_status=2)
    assert f"Run `commitlake promote --store {new.store.uri} --old-master {old.store.uri}`" in refused.stderr
    new.job(*promotion)
    new.job("query", B, "topic-status", "--replica", "master")


@pytest.mark.slow
def test_an_old_master_that_was_put_back_and_has_gone_on_is_not_fenced(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    """Its log is another by then. Put back alone, it is shorter and can follow."""
    old = life()
    old.put(B, {"topic": "T", "body": "both"})
    earlier = old.copied("earlier")
    old.put(B, {"topic": "T", "body": "lost"})
    new = slave_of(old, tmp_path / "new")
    shutil.rmtree(old.store.uri)
    shutil.copytree(earlier.store.uri, old.store.uri)
    gone_on = Life(old.commitlake, Store(old.store.spark, old.store.uri), old.directory)
    gone_on.put(B, {"topic": "T", "body": "other"})
    refused = new.run("promote", B, "--old-master", old.store.uri)
    assert refused.exit_status == 2
    assert "was put back as it was earlier, or its log was cut" in refused.stderr
    assert is_slave(new.store.snapshot())
    assert not is_slave(gone_on.store.snapshot())
    shutil.rmtree(old.store.uri)
    shutil.copytree(earlier.store.uri, old.store.uri)
    promote(new, "--old-master", old.store.uri)
    assert replicate(old.store.uri, new.store.uri).result["truncated_from"] is None
    assert Store(old.store.spark, old.store.uri).commitlog.count() == 2


@pytest.mark.slow
def test_an_old_master_that_has_lost_a_file_is_fenced(life: Callable[..., Life], tmp_path: Path) -> None:
    old = life()
    for body in ("one", "two"):
        old.put(B, {"topic": "T", "body": body})
    new = slave_of(old, tmp_path / "new")
    lost = max(Path(old.store.uri, "commitlog").glob("*/*.parquet"), key=lambda file: file.stat().st_mtime)
    old.put(B, {"topic": "T", "body": "three"})
    commit(old.store, lambda at: Plan((bounds_write(at, read_head(at)),)))
    lost.unlink()
    promoted = new.run("promote", B, "--old-master", old.store.uri)
    assert promoted.exit_status == 0, promoted.stderr
    assert "cannot be compared with this one" in promoted.stderr
    assert is_slave(old.store.snapshot())


@pytest.mark.slow
def test_an_old_master_that_is_named_late_is_not_said_to_be_fenced(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    old = life()
    old.put(B, {"topic": "T"})
    new = slave_of(old, tmp_path / "new")
    promote(new, "--epoch", 2)
    assert promote(new, "--epoch", 2)["epoch"] == 2
    for number in ((), ("--epoch", 2), ("--epoch", 3)):
        refused = new.run("promote", B, *number, "--old-master", old.store.uri)
        assert refused.exit_status == 2
        assert f"replicate --store {old.store.uri} --master {new.store.uri}" in refused.stderr
    replicate(old.store.uri, new.store.uri)
    assert promote(new, "--epoch", 2, "--old-master", old.store.uri)["epoch"] == 2


@pytest.mark.slow
def test_a_store_of_another_set_is_not_cut_to_a_master_whose_log_begins_with_its_epoch(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    """What they would be compared by has expired there."""
    message = {"topic": "T", "queue_id": 0, "body": "b" * 300}
    old, unrelated = (life(mappedFileSizeCommitLog="1024") for _ in range(2))
    for _ in range(2):
        old.put(B, message)
    for _ in range(3):
        unrelated.put(B, message)
    new = slave_of(old, tmp_path / "new")
    promote(new, "--old-master", old.store.uri)
    new.put(B, message)
    new.job("dispatch", B)
    expired = new.job("maintain", B + 2 * HOUR_MS, "--retention-hours", 1, "--force").result
    assert expired["segments_expired"] == 1
    refused = replicate(unrelated.store.uri, new.store.uri, exit_status=2)
    assert "may never have been one log" in refused.stderr
    assert len(unrelated.rows()) == 3
    assert replicate(old.store.uri, new.store.uri).result["copied"] == 1
