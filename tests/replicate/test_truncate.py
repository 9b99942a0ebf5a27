"""A slave's log is cut to its master's while others work on it: dispatch, another run, a run that is killed."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.consume.offsets import plan_in_flight
from pipelines.dispatch.follow import plan_dispatch
from pipelines.errors import BadInput, HeadMoved
from pipelines.expiry.retention import HOUR_MS
from pipelines.produce import put
from pipelines.replicate import copy_log, follow, truncate
from pipelines.replicate.fence import plan_fence
from pipelines.replicate.join import expect_joins
from pipelines.replicate.master import Master, open_master
from pipelines.spark_internals.arrow import frame_of
from pipelines.store import commit as committing
from pipelines.store.commit import commit
from pipelines.store.head import read_head
from pipelines.store.plan import Plan
from pipelines.store.store import Store
from schemas import COMMITLOG, CUT_ROWS, CUTS, STORE_SETTINGS
from tests.conftest import run_job
from tests.life import B, Life
from tests.quality.damages import lose_data
from tests.replicate.conftest import Split
from tests.replicate.test_replicate import log_of, replicate, slave_of
from tests.store.test_planned import has_every_row_twice, written

pytestmark = pytest.mark.slow


@pytest.fixture
def pair(life: Callable[..., Life], tmp_path: Path) -> Split:
    """A master with a message, and its slave."""
    master = life()
    master.put(B, {"topic": "T"})
    return master, slave_of(master, tmp_path / "new")


def cut_rows(store: Life) -> list[str]:
    return sorted(bytes(row.body).decode() for row in store.store.cut_rows.collect())


def expect_one_log(old: Life, new: Life) -> None:
    assert log_of(old.store) == log_of(new.store)
    assert cut_rows(old) == ["old-0", "old-1"]
    old.job("dispatch", B)
    assert old.store.consume_queue.count() == old.store.commitlog.count()
    assert old.job("validate", B, "--full").result["broken"] == 0


# Once the bounds have gone back it is refused.
@pytest.mark.parametrize(
    "statuses", [{"plan_record_cut": 0}, {"_plan_bounds": 0}, {"plan_void": 1, "take_out": 1}]
)
def test_a_dispatch_beside_the_cut_leaves_nothing_of_what_was_cut_off(
    split: Split, monkeypatch: pytest.MonkeyPatch, statuses: dict[str, int]
) -> None:
    old, new = split
    found = dict[str, int]()

    def after_a_dispatch(*arguments: Any, step: str, made: Any, **named: Any) -> Any:
        if step not in found:
            found[step] = run_job(["dispatch", "--store", old.store.uri, "--quiet"]).exit_status
        return made(*arguments, **named)

    for step in statuses:
        monkeypatch.setattr(
            truncate, step, partial(after_a_dispatch, step=step, made=getattr(truncate, step))
        )
    replicate(old.store.uri, new.store.uri)
    assert found == statuses
    expect_one_log(old, new)


def test_an_orderly_message_that_is_cut_off_leaves_its_tries_to_no_other(split: Split) -> None:
    old, new = split
    for group, queue_offset in (("cut", 2), ("kept", 1)):
        waits = {("T", 0): ((queue_offset, 2, B),)}
        commit(old.store, partial(plan_in_flight, group=group, changes=waits, reached=()))
    replicate(old.store.uri, new.store.uri)
    assert [(row.group, row.queue_offset) for row in old.store.in_flight.collect()] == [("kept", 1)]


def fenced_before_the_cut(split: Split, monkeypatch: pytest.MonkeyPatch, is_killed: bool) -> list[str]:
    """Have another run's fence, which was planned before, take the number of the cut."""
    new = split[1]
    take_out, fenced = truncate.take_out, list[str]()

    def after_a_fence(store: Store, planner: Any) -> Any:
        if not fenced:
            fenced.append("fence")
            commit(store, partial(plan_fence, master_uri=new.store.uri))
            if is_killed:
                raise SystemExit(9)
        return take_out(store, planner)

    monkeypatch.setattr(truncate, "take_out", after_a_fence)
    return fenced


def test_a_cut_whose_number_a_fence_has_taken_is_made_with_the_next(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = split
    fenced = fenced_before_the_cut(split, monkeypatch, is_killed=False)
    assert replicate(old.store.uri, new.store.uri).result["copied"] == 3
    assert fenced
    expect_one_log(old, new)


def test_a_run_that_was_killed_once_a_fence_had_its_number_is_made_again(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = split
    fenced = fenced_before_the_cut(split, monkeypatch, is_killed=True)
    replicate(old.store.uri, new.store.uri, exit_status=9)
    assert fenced
    assert log_of(old.store) != log_of(new.store)
    again = replicate(old.store.uri, new.store.uri).result
    cut_from = [row.physical_offset for row in old.store.cuts.collect()]
    assert (again["copied"], [again["truncated_from"]]) == (3, cut_from)
    expect_one_log(old, new)


def test_a_run_that_is_killed_while_it_copies_an_epoch_is_gone_on_with(
    split: Split, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The rows it has copied are the master's: they are not taken for those of a master that was deposed."""
    _, new = split
    for name, more in (("first", ()), ("last file", ("--from-last-file",))):
        slave = tmp_path / name
        with monkeypatch.context() as killed:
            killed.setattr(follow, "offset_planners", lambda *_: sys.exit(9))
            killed.setattr(follow.copy_log, "PART_BYTES", 1)
            copy = follow.commit_in_parts

            def one_part(*arguments: Any, copy: Any = copy, **named: Any) -> Any:
                copy(*arguments, **named)
                sys.exit(9)

            killed.setattr(follow, "commit_in_parts", one_part)
            replicate(str(slave), new.store.uri, *more, exit_status=9)
        again = replicate(str(slave), new.store.uri).result
        assert again["truncated_from"] is None
        store = Store(new.store.spark, str(slave))
        assert store.cut_rows.count() == 0
        assert log_of(store) == log_of(new.store)[-store.commitlog.count() :]


def test_a_put_that_was_planned_while_the_store_was_master_is_refused_once_it_follows(
    pair: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = pair
    new.job("promote", B)
    new.put(B, {"topic": "T", "body": "new"})
    source, write = old.input({"topic": "T", "body": "old"}), committing._write
    copied = list[int]()

    def after_it_follows(store: Store, *arguments: Any) -> None:
        if store.uri == old.store.uri:
            monkeypatch.setattr(committing, "_write", write)
            joined = follow.join_master(old.store, follow.Following(new.store.uri), B)
            copied.append(joined.master.end)
            assert joined.replica_id == "1"
        write(store, *arguments)

    monkeypatch.setattr(committing, "_write", after_it_follows)
    assert old.run("put_messages", B, "--input", source).exit_status == 2
    assert copied
    replicate(old.store.uri, new.store.uri)
    assert log_of(old.store) == log_of(new.store)


def test_a_store_that_is_promoted_while_it_joins_stays_a_master(
    pair: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = pair
    joins = follow.expect_joins

    def then_promoted(at: Any, master: Master) -> int:
        point = joins(at, master)
        monkeypatch.setattr(follow, "expect_joins", joins)
        new.job("promote", B)
        return point

    monkeypatch.setattr(follow, "expect_joins", then_promoted)
    refused = replicate(new.store.uri, old.store.uri, exit_status=1)
    assert "was promoted or follows another master since this began" in refused.stderr
    new.put(B, {"topic": "T", "body": "new"})


def test_two_runs_that_join_at_once_both_end_well(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = split
    joins = follow.expect_joins

    def beside_another_run(at: Any, master: Master) -> int:
        point = joins(at, master)
        monkeypatch.setattr(follow, "expect_joins", joins)
        assert replicate(old.store.uri, new.store.uri).result["copied"] == 3
        return point

    monkeypatch.setattr(follow, "expect_joins", beside_another_run)
    assert replicate(old.store.uri, new.store.uri).result["copied"] == 0
    expect_one_log(old, new)


def test_after_a_fail_back_what_the_cut_took_of_a_delivery_is_delivered_again(split: Split) -> None:
    old, new = split
    wait = {"topic": "T", "queue_id": 0, "body": "delayed", "delay_level": 1}
    replicate(old.store.uri, new.store.uri)
    new.put(B + 3, wait)
    replicate(old.store.uri, new.store.uri)
    assert new.job("deliver", B + 10_000).result["delivered"] == 1
    # Its copy is beyond what the old master has when that is promoted.
    old.job("promote", B + 20_000, "--epoch", "9")
    old.put(B + 20_000, {"topic": "T", "queue_id": 0, "body": "after"})
    assert replicate(new.store.uri, old.store.uri).result["truncated_from"]
    new.job("promote", B + 30_000, "--epoch", "10")
    assert new.job("deliver", B + 40_000).result["delivered"] == 1
    assert new.job("deliver", B + 50_000).result["delivered"] == 0
    assert [bytes(row.body) for row in new.rows()].count(b"delayed") == 2  # parked, and delivered once


def test_a_master_that_was_put_back_as_it_was_earlier_cuts_nothing_off(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    """Its log had a cut long ago: that says nothing about what it has lost since."""
    master = life()
    master.put(B, {"topic": "T", "body": "one"})
    master.put(B, {"topic": "T", "body": "two"})
    second = master.rows()[1].physical_offset
    cut = master.store.spark.createDataFrame([(1, second)], CUTS.columns)
    commit(master.store, lambda at: Plan((at.replace(CUTS, cut, where="append_seq = 1"),)))
    slave = slave_of(master, tmp_path / "slave")
    earlier = master.copied("earlier")
    master.put(B, {"topic": "T", "body": "three"})
    replicate(slave.store.uri, master.store.uri)
    refused = replicate(slave.store.uri, earlier.store.uri, exit_status=2)
    assert "was put back as it was earlier" in refused.stderr
    assert len(slave.rows()) == 3


def test_a_dispatch_of_a_log_that_was_cut_since_it_was_read_is_planned_again(split: Split) -> None:
    old, new = split
    at = old.store.snapshot()
    assert at.number(COMMITLOG) == 1
    replicate(old.store.uri, new.store.uri)
    with pytest.raises(HeadMoved):
        plan_dispatch(at)


def test_what_another_run_has_copied_meanwhile_is_not_cut_off(split: Split) -> None:
    old, new = split
    master = Master.read(open_master(old.store, new.store.uri))
    replicate(old.store.uri, new.store.uri)
    assert truncate.truncate(old.store, lambda at: expect_joins(at, master), master.uri) is None
    expect_one_log(old, new)


def test_a_cut_that_another_run_has_recorded_is_made_where_it_was_recorded(split: Split) -> None:
    """Its bounds have gone back already. A run that finds another point cuts there too: no message comes over another."""
    old, new = split
    ends = [row.physical_offset + row.size_bytes for row in old.rows()]
    recorded, further = ends[2], ends[1]
    commit(old.store, lambda at: truncate._plan_record(at, recorded))
    commit(old.store, lambda at: truncate._plan_bounds(at, recorded))
    follow.join_master(old.store, follow.Following(new.store.uri), B)
    assert truncate.truncate(old.store, lambda _: further, new.store.uri) == further
    assert read_head(old.store.snapshot()).next_offset == further
    replicate(old.store.uri, new.store.uri)
    expect_one_log(old, new)


def test_a_run_that_follows_another_master_by_now_cuts_nothing(split: Split) -> None:
    old, new = split
    follow.join_master(old.store, follow.Following(new.store.uri), B)
    with pytest.raises(BadInput, match="does not follow"):
        truncate.truncate(old.store, lambda _: 0, f"{new.store.uri}-of-before")
    assert len(old.rows()) == 4


@pytest.mark.parametrize("has_followed_it_before", [False, True])
def test_a_put_in_flight_is_refused_also_where_the_run_was_killed_once_it_had_taken_the_role(
    pair: Split, monkeypatch: pytest.MonkeyPatch, has_followed_it_before: bool
) -> None:
    old, new = pair
    new.job("promote", B)
    if has_followed_it_before:
        replicate(old.store.uri, new.store.uri)
        old.job("promote", B)
        replicate(new.store.uri, old.store.uri)
        new.job("promote", B)
    source, write = old.input({"topic": "T", "body": "old"}), committing._write
    steps = list[str]()

    def after_it_follows(store: Store, *arguments: Any) -> None:
        if store.uri == old.store.uri:
            monkeypatch.setattr(committing, "_write", write)
            with monkeypatch.context() as killed:
                killed.setattr(follow, "_fence", lambda *_: sys.exit(9))
                replicate(old.store.uri, new.store.uri, exit_status=9)
            steps.append("killed")
            replicate(old.store.uri, new.store.uri)  # nothing is new, so nothing else takes the put's number
            steps.append("made again")
        write(store, *arguments)

    monkeypatch.setattr(committing, "_write", after_it_follows)
    assert old.run("put_messages", B, "--input", source).exit_status == 2
    assert steps == ["killed", "made again"]
    new.put(B, {"topic": "T", "body": "new"})
    assert replicate(old.store.uri, new.store.uri).result["truncated_from"] is None
    assert log_of(old.store) == log_of(new.store)


def test_a_job_that_finds_a_cut_half_made_names_the_job_that_makes_it(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = split
    with monkeypatch.context() as killed:
        killed.setattr(truncate, "take_out", lambda *_: sys.exit(9))
        replicate(old.store.uri, new.store.uri, exit_status=9)
    refused = old.run("dispatch", B)
    assert refused.exit_status == 1
    assert "run that job again (`commitlake replicate` or `promote`)" in refused.stderr
    replicate(old.store.uri, new.store.uri)
    expect_one_log(old, new)


def test_a_cut_of_a_later_time_hides_none_of_now(split: Split) -> None:
    """The log was put back below the cut of append 9 that an earlier life recorded."""
    old, new = split
    cut = old.store.spark.createDataFrame([(9, 0)], CUTS.columns)
    commit(old.store, lambda at: Plan((at.replace(CUTS, cut),)))
    replicate(old.store.uri, new.store.uri)
    expect_one_log(old, new)


def test_a_step_that_comes_late_does_nothing_to_another_cut(split: Split) -> None:
    old, new = split
    first, second = (old.rows()[number].physical_offset for number in (1, 3))
    commit(old.store, lambda at: truncate._plan_record(at, first))
    for late in (
        truncate._plan_bounds,
        truncate._plan_record_again,
        truncate._plan_epochs,
        truncate._plan_cut,
    ):
        assert not commit(old.store, lambda at, late=late: late(at, second)).wrote
    replicate(old.store.uri, new.store.uri)
    assert log_of(old.store) == log_of(new.store)


def test_a_run_whose_store_was_promoted_while_it_recorded_a_cut_cuts_nothing(
    pair: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = pair
    write = committing._write

    def after_a_promotion(*arguments: Any) -> None:
        monkeypatch.setattr(committing, "_write", write)
        slave.job("promote", B)
        write(*arguments)

    monkeypatch.setattr(committing, "_write", after_a_promotion)
    with pytest.raises(BadInput, match="does not follow"):
        truncate.truncate(slave.store, lambda _: 0, master.store.uri)
    slave.put(B, {"topic": "T"})
    assert len(slave.rows()) == 2


def test_a_cut_that_another_run_has_recorded_since_is_made_before_a_run_goes_on(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = split
    own = old.rows()[2].physical_offset
    follow.join_master(old.store, follow.Following(new.store.uri), B)
    join_master = follow.join_master

    def then_recorded(*arguments: Any) -> Any:
        joined = join_master(*arguments)
        commit(old.store, lambda at: truncate._plan_record(at, own))
        commit(old.store, lambda at: truncate._plan_bounds(at, own))
        return joined

    monkeypatch.setattr("jobs.replicate.join_master", then_recorded)
    assert replicate(old.store.uri, new.store.uri).result["copied"] == 3
    expect_one_log(old, new)


@pytest.mark.parametrize("number", [1, 2])
def test_a_cut_of_a_later_time_takes_nothing_of_a_log_that_was_put_back(split: Split, number: int) -> None:
    """The log has grown again, to the cut's number or to just before it, by messages that nobody has cut off."""
    store = split[0].store
    offset = split[0].rows()[2 * number - 2].physical_offset
    rows = store.commitlog.where((F.col("physical_offset") >= offset) & (F.col("append_seq") < number))

    def cut(copies: DataFrame) -> int | None:
        cuts = store.spark.createDataFrame([(number, offset)], CUTS.columns)
        copied = copies.withColumn("cut_seq", F.lit(number).cast("long"))
        commit(store, lambda at: Plan((at.replace(CUT_ROWS, copied), at.replace(CUTS, cuts))))
        return truncate.unfinished(store.snapshot())

    assert cut(rows.withColumn("append_id", F.lit("an earlier time"))) is None
    assert cut(rows) == offset


def failed_back(split: Split) -> Split:
    """The old master follows the new one, is promoted again, and takes messages in five segments; its log has a cut."""
    old, new = split
    replicate(old.store.uri, new.store.uri)
    old.job("promote", B, "--old-master", new.store.uri)
    for number in range(7):
        old.put(B + number, {"topic": "T", "queue_id": 0, "body": "b" * 300})
    replicate(new.store.uri, old.store.uri)
    assert old.store.cuts.count() == 1
    return old, new


@pytest.mark.parametrize("expires", ["master", "slave"])
def test_a_cut_of_long_ago_says_nothing_of_logs_that_begin_after_it(split: Split, expires: str) -> None:
    old, new = failed_back(split)
    one = old if expires == "master" else new
    one.job("dispatch", B)
    assert one.job("maintain", B + 5 * HOUR_MS, "--retention-hours", 1).result["segments_expired"]
    for number in range(2):
        old.put(B + 6 * HOUR_MS, {"topic": "T", "queue_id": 0, "body": f"later-{number}"})
        ended = replicate(new.store.uri, old.store.uri).result
        assert (ended["copied"], ended["truncated_from"]) == (1, None)
    assert [row.body for row in new.rows()][-2:] == [b"later-0", b"later-1"]


def test_nor_of_a_slave_that_began_with_the_last_segment(split: Split, tmp_path: Path) -> None:
    old, _ = failed_back(split)
    last = tmp_path / "last"
    assert replicate(str(last), old.store.uri, "--from-last-file").result["copied"] == 1
    for _ in range(2):
        ended = replicate(str(last), old.store.uri).result
        assert (ended["copied"], ended["truncated_from"]) == (0, None)


def test_a_slave_that_begins_after_what_it_shares_with_its_master_keeps_its_rows(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    message = {"topic": "T", "queue_id": 0, "body": "b" * 300}
    old = life(mappedFileSizeCommitLog="1024")
    old.put(B, message)
    lagging = slave_of(old, tmp_path / "lagging")
    for _ in range(3):
        old.put(B, message, message)
    replicate(str(tmp_path / "last"), old.store.uri, "--from-last-file")
    lagging.job("promote", B)
    for _ in range(3):
        lagging.put(B, message)
    refused = run_job(
        ["replicate", "--store", str(tmp_path / "last"), "--master", lagging.store.uri, "--now", str(B)]
    )
    assert refused.exit_status == 2
    assert "it has nothing of what they share" in refused.stderr
    assert Store(old.store.spark, str(tmp_path / "last")).commitlog.count() == 1


@pytest.mark.parametrize("has_cut", [False, True])
def test_a_run_whose_master_has_gone_on_since_it_read_it_takes_what_another_run_has_copied(
    pair: Split, monkeypatch: pytest.MonkeyPatch, has_cut: bool
) -> None:
    master, slave = pair
    if has_cut:  # where its log ended when the run began
        cut = frame_of(
            master.store.spark, [(0, read_head(master.store.snapshot()).next_offset)], CUTS.columns
        )
        commit(master.store, lambda at: Plan((at.replace(CUTS, cut),)))
    join_master = follow.join_master

    def then_another_run(*arguments: Any) -> Any:
        joined = join_master(*arguments)
        monkeypatch.setattr("jobs.replicate.join_master", join_master)
        master.put(B, {"topic": "T", "body": "more"})
        assert replicate(slave.store.uri, master.store.uri).result["copied"] == 1
        return joined

    monkeypatch.setattr("jobs.replicate.join_master", then_another_run)
    ended = replicate(slave.store.uri, master.store.uri).result
    assert (ended["copied"], ended["truncated_from"]) == (0, None)
    assert log_of(slave.store) == log_of(master.store)


def test_a_cut_planned_before_a_promotion_is_not_recorded_after_it(
    split: Split, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old, new = split
    follow.join_master(old.store, follow.Following(new.store.uri), B)
    write = committing._write

    def after_a_promotion(store: Store, writes: Any, committed: Any) -> None:
        if store.uri == old.store.uri and writes[0].table is CUT_ROWS:
            monkeypatch.setattr(committing, "_write", write)
            old.job("promote", B)
        write(store, writes, committed)

    monkeypatch.setattr(committing, "_write", after_a_promotion)
    refused = run_job(["replicate", "--store", old.store.uri, "--master", new.store.uri, "--now", str(B)])
    assert refused.exit_status == 2, refused.stderr
    assert old.store.cuts.count() == 0
    third = slave_of(old, tmp_path / "third")
    old.put(B, {"topic": "T", "queue_id": 0, "body": "acknowledged"})
    third.job("promote", B, "--old-master", old.store.uri)
    old.job("promote", B)  # the third one is lost
    assert [row.body for row in old.rows()] == [b"both-0", b"both-1", b"old-0", b"old-1", b"acknowledged"]


@pytest.mark.parametrize("step", ["commit_in_parts", "offset_planners"])
def test_a_cut_is_reported_also_where_the_run_that_made_it_was_killed(
    split: Split, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    old, new = split
    with monkeypatch.context() as killed:
        killed.setattr(follow, step, lambda *_, **__: sys.exit(9))
        for _ in range(2):
            replicate(old.store.uri, new.store.uri, exit_status=9)
    (cut,) = old.store.cuts.collect()
    assert replicate(old.store.uri, new.store.uri).result["truncated_from"] == cut.physical_offset
    expect_one_log(old, new)
    assert replicate(old.store.uri, new.store.uri).result["truncated_from"] is None


def test_a_promotion_says_which_cut_it_has_made(split: Split) -> None:
    old, new = split
    follow.join_master(old.store, follow.Following(new.store.uri), B)
    offset = old.rows()[2].physical_offset
    commit(old.store, lambda at: truncate._plan_record(at, offset))
    promoted = run_job(["promote", "--store", old.store.uri, "--now", str(B), "--quiet"])
    assert promoted.exit_status == 0, promoted.stderr
    assert f"cut the log at byte {offset}" in promoted.stderr
    assert cut_rows(old) == ["old-0", "old-1"]


def test_a_damaged_append_of_a_slave_is_not_hidden_by_a_fence(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = life()
    master.put(B, *({"topic": "T", "body": str(number)} for number in range(3)))
    command = ["replicate", "--store", str(tmp_path / "slave"), "--master", master.store.uri, "--now", str(B)]
    with monkeypatch.context() as patched:
        written(patched, copy_log, "copied_rows", has_every_row_twice)
        assert run_job(command).exit_status == 1
    again = run_job(command)
    assert again.exit_status == 1
    assert "validate" in again.stderr
    repaired = run_job(["validate", "--store", str(tmp_path / "slave"), "--repair", "--now", str(B)])
    assert (repaired.exit_status, repaired.result["repaired"]) == (0, 3), repaired.stderr
    assert run_job(command).exit_status == 0
    assert log_of(Store(master.store.spark, str(tmp_path / "slave"))) == log_of(master.store)


def test_a_master_named_by_another_path_is_the_same(pair: Split, tmp_path: Path) -> None:
    master, slave = pair
    link = tmp_path / "link"
    link.symlink_to(master.store.uri)
    before = slave.store.snapshot()
    for uri in (str(link), master.store.uri, str(link)):
        assert replicate(slave.store.uri, uri).result["copied"] == 0
    at = slave.store.snapshot()
    assert at.number(COMMITLOG) == before.number(COMMITLOG)
    assert at.version(STORE_SETTINGS) == before.version(STORE_SETTINGS)
    other = tmp_path / "other"
    other.symlink_to(slave.store.uri)
    slave.job("promote", B, "--old-master", str(link))
    again = run_job(["promote", "--store", str(other), "--old-master", str(link), "--now", str(B)])
    assert again.exit_status == 0, again.stderr


# The row after the cut begins at it, or, as it does not fit there, with the next segment.
@pytest.mark.parametrize("body", ["b0", "b0" * 400], ids=["at the cut", "in the next segment"])
def test_a_cut_in_bytes_that_the_master_has_lost_cuts_no_slave(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    master = life(mappedFileSizeCommitLog="1024")
    master.put(B, {"topic": "T", "queue_id": 0, "body": "a"})
    damaged = master.input({"topic": "T", "queue_id": 0, "body": "x"})
    written(monkeypatch, put.Put, "log_rows", has_every_row_twice)
    master.job("put_messages", B, "--input", damaged, exit_status=1)
    monkeypatch.undo()
    master.job("validate", B, "--repair")
    bodies = [body, "b1", "b2"]
    for each in bodies:
        master.put(B + 1, {"topic": "T", "queue_id": 0, "body": each})
    (cut,) = master.store.cuts.collect()
    (_, follows) = sorted(row.physical_offset for row in master.rows())[:2]
    assert follows == (cut.physical_offset if body == "b0" else 1024)
    slave = slave_of(master, tmp_path / "slave")
    lose_data("commitlog", -len(bodies))(Path(master.store.uri))
    master.job("validate", B, "--cut-damaged")
    assert replicate(slave.store.uri, master.store.uri).result["copied"] == 0
    assert slave.bodies() == ["a", *bodies]
