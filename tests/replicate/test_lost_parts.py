"""Copies of a log that have given up a part of it, or were to be cut: nothing is skipped, and nothing comes twice."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import functions as F

from pipelines.expiry.retention import HOUR_MS
from pipelines.produce import put
from pipelines.replicate import promote, truncate
from pipelines.replicate.fence import plan_fence
from pipelines.spark_internals.delta_files import forget_logs
from pipelines.store import cut_out
from pipelines.store.commit import commit
from pipelines.store.head import bounds_write, read_head
from pipelines.store.plan import Plan
from pipelines.store.store import Store
from schemas import COMMITLOG, QUEUE_BOUNDS
from tests.conftest import run_job
from tests.life import B, Life
from tests.quality.damages import data_files, lose_data
from tests.races import killed_at
from tests.replicate.conftest import Split
from tests.replicate.test_replicate import log_of, replicate, slave_of
from tests.store.test_planned import has_every_row_twice, written

pytestmark = pytest.mark.slow


def message(body: str, topic: str = "T", queue_id: int = 0) -> dict[str, Any]:
    return {"topic": topic, "queue_id": queue_id, "body": body}


def give_up(life: Life, body: str) -> None:
    """Lose the file with a message, and go on without it."""
    rows = life.store.commitlog.where(F.col("body") == F.lit(body.encode()))
    (file,) = rows.select("_metadata.file_path").collect()
    Path(file.file_path.removeprefix("file:")).unlink()
    life.job("validate", B, "--cut-damaged")


def went_another_way(
    old: Life,
    directory: Path,
    own: list[dict[str, Any]],
    new: dict[str, Any],
    lost: tuple[str, ...] = ("lost",),
) -> Life:
    """A slave of a store that goes on with messages of its own, and loses some, until the slave is promoted."""
    slave = slave_of(old, directory)
    for each in own:
        old.put(B, each)
    for body in lost:
        give_up(old, body)
    slave.job("promote", B, "--old-master", old.store.uri)
    slave.put(B + 1, new)
    return slave


def expect_one_log(old: Life, new: Life) -> None:
    assert log_of(old.store) == log_of(new.store)
    assert old.store.holes.count() == 0
    assert (
        read_head(old.store.snapshot()).next_queue_offsets
        == read_head(new.store.snapshot()).next_queue_offsets
    )
    old.job("dispatch", B)
    assert old.job("validate", B, "--full").result["broken"] == 0


@pytest.mark.parametrize("more", [(), (message("longer" * 40, "Q", 3),)])
def test_a_tail_that_an_old_master_has_lost_is_cut_off_as_if_it_were_there(
    lost_tail: Split, more: tuple[dict[str, Any], ...]
) -> None:
    old, new = lost_tail
    if more:
        new.put(B + 2, *more)
    followed = replicate(old.store.uri, new.store.uri).result
    assert (followed["copied"], followed["truncated_from"]) == (1 + len(more), new.rows()[1].physical_offset)
    assert [row.next_offset for row in old.store.consumer_offsets.collect()] == [1]
    expect_one_log(old, new)
    assert replicate(old.store.uri, new.store.uri).result["copied"] == 0


def test_a_cut_of_a_lost_tail_that_was_killed_at_one_step_after_the_other_is_made_again(
    lost_tail: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = lost_tail
    for step in ("_plan_bounds", "plan_void", "_plan_holes", "take_out"):
        with killed_at(monkeypatch, truncate, step):
            replicate(old.store.uri, new.store.uri, exit_status=9)
    assert replicate(old.store.uri, new.store.uri).result["copied"] == 1
    assert [row.next_offset for row in old.store.consumer_offsets.collect()] == [1]
    expect_one_log(old, new)


def fence_before(monkeypatch: pytest.MonkeyPatch, step: str, old: Life, new: Life) -> list[str]:
    """Have another run's fence take the number of a cut before a step of it."""
    planned, fenced = getattr(truncate, step), list[str]()

    def after_a_fence(at: Any, *more: Any) -> Plan:
        if not fenced:
            fenced.append(step)
            commit(old.store, partial(plan_fence, master_uri=new.store.uri))
        return planned(old.store.snapshot(), *more)

    monkeypatch.setattr(truncate, step, after_a_fence)
    return fenced


@pytest.mark.parametrize("step", ["_plan_bounds", "_plan_holes", "_plan_cut"])
def test_a_cut_of_a_lost_tail_whose_number_a_fence_has_taken_is_made(
    lost_tail: Split, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    old, new = lost_tail
    fenced = fence_before(monkeypatch, step, old, new)
    assert replicate(old.store.uri, new.store.uri).result["copied"] == 1
    assert fenced
    expect_one_log(old, new)


@pytest.mark.parametrize("table", ["holes", "queue_bounds"])
def test_a_table_that_was_put_back_while_a_cut_was_half_made_hides_no_end(
    lost_tail: Split, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """The master knows where the queues ended."""
    old, new = lost_tail
    delta = DeltaTable.forPath(old.store.spark, f"{old.store.uri}/{table}")
    version = 0 if table == "holes" else old.store.snapshot().version(QUEUE_BOUNDS)
    with killed_at(monkeypatch, truncate, "_plan_bounds" if table == "holes" else "take_out"):
        replicate(old.store.uri, new.store.uri, exit_status=9)
    delta.restoreToVersion(version)
    forget_logs(old.store.spark)
    assert replicate(old.store.uri, new.store.uri).result["copied"] == 1
    expect_one_log(old, new)


@pytest.mark.parametrize(("step", "versions"), [("_plan_bounds", "all"), ("take_out", "the newest")])
def test_bounds_whose_files_are_lost_while_a_cut_is_half_made_hide_nothing(
    split: Split, monkeypatch: pytest.MonkeyPatch, versions: str, step: str
) -> None:
    old, new = split
    with killed_at(monkeypatch, truncate, step):
        replicate(old.store.uri, new.store.uri, exit_status=9)
    if versions == "all":
        for file in data_files(Path(old.store.uri), "queue_bounds"):
            file.unlink()
    else:
        lose_data("queue_bounds", -1)(Path(old.store.uri))
    forget_logs(old.store.spark)
    old.run("validate", B, "--repair")
    assert replicate(old.store.uri, new.store.uri).result["copied"] == 3
    expect_one_log(old, new)


def test_a_queue_goes_no_further_again_where_a_fence_has_taken_the_number(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = life()
    old.put(B, message("a"))
    new = went_another_way(old, tmp_path / "new", [message("lost"), message("own")], message("new"))
    fenced = fence_before(monkeypatch, "_plan_cut", old, new)
    assert replicate(old.store.uri, new.store.uri).result["copied"] == 1
    assert fenced
    expect_one_log(old, new)


def test_a_queue_whose_messages_are_all_lost_goes_on_where_its_master_has_it(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    old = life()
    old.put(B, message("a"))
    own = [message("own"), message("lost", "Q"), message("own too")]
    new = went_another_way(old, tmp_path / "new", own, message("new", "Q"))
    assert replicate(old.store.uri, new.store.uri).result["copied"] == 1
    assert sorted(bytes(row.body).decode() for row in old.store.cut_rows.collect()) == ["own", "own too"]
    expect_one_log(old, new)
    old.job("export_store", B, "--to", str(tmp_path / "export"))


def test_of_a_queue_that_has_lost_messages_on_both_sides_of_a_cut_the_master_says_the_end(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    old = life()
    old.put(B, message("a"))
    old.put(B, message("shared", "Q"))
    lost = "shared", "own"
    new = went_another_way(old, tmp_path / "new", [message("own", "Q")], message("new", "Q"), lost)
    followed = replicate(old.store.uri, new.store.uri)
    assert followed.result["copied"] == 1
    assert "does not count as a copy in sync" in followed.stderr
    assert (
        read_head(old.store.snapshot()).next_queue_offsets
        == read_head(new.store.snapshot()).next_queue_offsets
    )
    ends = [
        (row.topic, row.to_offset, row.to_queue_offset) for row in old.store.holes.orderBy("topic").collect()
    ]
    cut = new.rows()[2].physical_offset
    assert ends == [("", cut, None), ("Q", cut, 1)]


def test_bounds_that_a_repair_puts_back_beside_a_cut_hide_nothing(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = life()
    old.put(B, message("both"))
    new = slave_of(old, tmp_path / "new")
    old.put(B, message("own0"), message("own1"))
    new.job("promote", B)
    new.put(B + 1, message("new0"), message("new1"))
    take_out, repaired = truncate.take_out, list[Any]()

    def after_a_repair(*arguments: Any) -> Any:
        if not repaired:
            repaired.append(old.run("validate", B, "--repair"))
            # As a repair does that had read the table before the cut was recorded.
            head = replace(read_head(new.store.snapshot()), append_seq=old.store.snapshot().number(COMMITLOG))
            commit(old.store, lambda at: Plan((bounds_write(at, head),)))
        return take_out(*arguments)

    monkeypatch.setattr(truncate, "take_out", after_a_repair)
    assert replicate(old.store.uri, new.store.uri).result["copied"] == 2
    assert repaired[0].exit_status == 1
    assert "queue_bounds was not put right" in repaired[0].stderr
    expect_one_log(old, new)


def test_a_slave_that_ends_inside_a_record_of_its_master_is_refused(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    master = life()
    master.put(B, message("a"))
    slave = slave_of(master, tmp_path / "slave")
    master.put(B, message("b"))
    head = read_head(slave.store.snapshot())
    commit(slave.store, lambda at: Plan((bounds_write(at, replace(head, next_offset=head.next_offset + 1)),)))
    refused = replicate(slave.store.uri, master.store.uri, exit_status=1)
    assert f"ends at byte {head.next_offset + 1}, which is inside the master's record" in refused.stderr
    slave.job("validate", B, "--repair")
    assert replicate(slave.store.uri, master.store.uri).result["copied"] == 1


def expiring_pair(life: Callable[..., Life], tmp_path: Path) -> tuple[Life, Life]:
    """A master whose first segment holds a message that waits, and its slave, which has all."""
    master = life(mappedFileSizeCommitLog="1024")
    waits = {**message("waits"), "deliver_at_ms": B + 100 * HOUR_MS}
    master.put(B, waits, *(message(f"both{number}") for number in range(8)))
    slave = slave_of(master, tmp_path / "slave")
    master.job("dispatch", B)
    return master, slave


def test_a_rolled_message_expires_once_all_copies_have_its_roll(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    master, slave = expiring_pair(life, tmp_path)
    maintain = ("maintain", "--store", master.store.uri, "--now", B + 10 * HOUR_MS, "--retention-hours", 1)
    kept = master.commitlake(*maintain)
    assert (kept.result["rolled"], kept.result["segments_expired"]) == (1, 0)
    assert "a slave does not have the record" in kept.stderr
    # The master dies now, and takes messages of the promoted slave later: the message that waits comes once.
    dies = master.copied("dies"), slave.copied("promoted")
    dies[1].job("promote", B + 11 * HOUR_MS)
    replicate(dies[0].store.uri, dies[1].store.uri, now=B + 11 * HOUR_MS)
    for each in dies:
        assert "waits" in each.bodies()
    replicate(slave.store.uri, master.store.uri)
    done = master.commitlake(*maintain)
    assert (done.result["rolled"], done.result["segments_expired"] > 0) == (0, True)


def test_what_has_expired_here_and_is_owed_at_the_new_master_is_not_cut_off(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    master, slave = expiring_pair(life, tmp_path)
    later = B + 10 * HOUR_MS
    assert master.job("maintain", later, "--retention-hours", 1, "--forget-replica", "1").result[
        "segments_expired"
    ]
    slave.job("promote", later)
    refused = replicate(master.store.uri, slave.store.uri, now=later, exit_status=2)
    assert "has expired here and which the master" in refused.stderr
    assert "waits" in master.bodies()


def test_a_damaged_last_append_is_set_aside_before_another_file_is_given_up(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the queues that have lost nothing go on where they did."""
    one = life()
    one.put(B, message("a"), message("u", "U"))
    one.put(B, message("lost"), message("v0", "V"), message("v1", "V"))
    one.job("dispatch", B)
    ends = dict(read_head(one.store.snapshot()).next_queue_offsets)
    with monkeypatch.context() as patched:
        written(patched, put.Put, "log_rows", has_every_row_twice)
        one.job("put_messages", B, "--input", one.input(message("twice")), exit_status=1)
    lose_data("commitlog", 1)(Path(one.store.uri))
    one.job("validate", B, "--cut-damaged")
    assert dict(read_head(one.store.snapshot()).next_queue_offsets) == ends
    assert sorted(
        (row.topic, row.from_queue_offset, row.to_queue_offset) for row in one.store.holes.collect()
    )[1:] == [
        ("T", 1, 2),
        ("V", 0, 2),
    ]
    one.put(B, message("again"))
    assert one.bodies() == ["a", "u", "again"]
    assert [bytes(row.body).decode() for row in one.store.cut_rows.collect()] == ["twice", "twice"]
    one.job("dispatch", B)
    entries = one.store.consume_queue.where("topic = 'T'").orderBy("queue_offset").collect()
    assert [row.queue_offset for row in entries] == [0, 2]


def test_a_queue_that_was_quiet_over_an_older_loss_goes_on_where_the_master_has_it(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    old = life()
    old.put(B, message("a"), message("q0", "Q"))
    old.put(B, message("gone"))
    old.put(B, message("c"))
    give_up(old, "gone")
    old.job("backup", B, "--to", tmp_path / "new")
    replicate(str(tmp_path / "new"), old.store.uri)
    new = Life(old.commitlake, Store(old.store.spark, str(tmp_path / "new")), tmp_path)
    old.put(B, message("own", "Q"))
    give_up(old, "own")
    new.job("promote", B, "--old-master", old.store.uri)
    new.put(B + 1, message("new", "Q"))
    followed = replicate(old.store.uri, new.store.uri)
    assert (followed.result["copied"], "in sync" in followed.stderr) == (1, False)
    assert log_of(old.store) == log_of(new.store)


def test_holes_of_a_cut_that_was_killed_are_forgotten_once_the_file_is_back(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = life()
    one.put(B, message("a"))
    one.put(B, message("back"))
    one.put(B, message("b"))
    file = data_files(Path(one.store.uri), "commitlog")[1]
    saved = file.read_bytes()
    file.unlink()
    with killed_at(monkeypatch, cut_out, "_take_out"):
        one.job("validate", B, "--cut-damaged", exit_status=9)
    file.write_bytes(saved)
    assert one.store.holes.count() == 2
    one.job("validate", B, "--repair")
    assert one.store.holes.count() == 0
    assert one.bodies() == ["a", "back", "b"]
    one.job("dispatch", B)
    one.job("export_store", B, "--to", tmp_path / "export")


def test_a_slave_that_has_lost_what_its_master_has_is_no_copy_in_sync(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    master = life()
    master.put(B, message("a"))
    slave = slave_of(master, tmp_path / "slave")
    master.put(B, message("b"))
    replicate(slave.store.uri, master.store.uri)
    assert [row.in_sync for row in master.store.replicas.collect()] == [True]
    give_up(slave, "b")
    assert "does not count as a copy in sync" in replicate(slave.store.uri, master.store.uri).stderr
    assert [row.in_sync for row in master.store.replicas.collect()] == [False]
    # Both have lost it by now, and the master more next to it: nothing that the master has is missing.
    master.put(B, message("c"))
    replicate(slave.store.uri, master.store.uri)
    give_up(master, "b")
    give_up(master, "c")
    assert "in sync" not in replicate(slave.store.uri, master.store.uri).stderr
    assert [row.in_sync for row in master.store.replicas.collect()] == [True]
    assert "has lost bytes" in slave.job("promote", B).stderr


@pytest.mark.parametrize("step", ["_plan_letting_go", "_plan_epoch"])
def test_a_promotion_that_was_stopped_halfway_is_named_by_both_stores(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    old = life()
    old.put(B, message("a"))
    new = slave_of(old, tmp_path / "new")
    with killed_at(monkeypatch, promote, step):
        new.job("promote", B, "--old-master", old.store.uri, exit_status=9)
    way_out = ["promote", "--store", new.store.uri, "--old-master", old.store.uri]
    for follower, followed in ((old, new), (new, old)):
        refused = replicate(follower.store.uri, followed.store.uri, exit_status=2)
        assert " ".join(["commitlake", *way_out]) in refused.stderr
    assert run_job([*way_out, "--now", str(B)]).exit_status == 0
    replicate(old.store.uri, new.store.uri)


def test_a_slave_of_a_store_whose_promotion_was_stopped_is_not_taken_for_its_old_master(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = life()
    store.put(B, message("a"))
    its_slave, its_master = (slave_of(store, tmp_path / name) for name in ("slave", "master"))
    its_master.job("promote", B, "--old-master", store.store.uri)
    replicate(store.store.uri, its_master.store.uri)
    with killed_at(monkeypatch, promote, "_plan_epoch"):
        store.job("promote", B, exit_status=9)
    refused = replicate(its_slave.store.uri, store.store.uri, exit_status=2)
    assert f"`commitlake promote --store {store.store.uri}` ends it" in refused.stderr


def test_a_path_in_which_delta_makes_no_table_is_refused(life: Callable[..., Life], tmp_path: Path) -> None:
    made = run_job(["create_store", "--store", str(tmp_path / "a`b" / "store")])
    assert (made.exit_status, "without a backtick" in made.stderr) == (2, True)
    assert not (tmp_path / "a`b").exists()
