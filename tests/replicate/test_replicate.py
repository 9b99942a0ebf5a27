"""A slave follows its master: the same rows at the same offsets, whatever happens in between."""

import dataclasses
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from pipelines.errors import BadInput
from pipelines.expiry.retention import HOUR_MS
from pipelines.produce import put
from pipelines.replicate import acks, copy_log
from pipelines.replicate import follow as replication
from pipelines.replicate.fence import plan_fence
from pipelines.replicate.join import expect_joins, plan_role
from pipelines.replicate.master import Master
from pipelines.store import commit as committing
from pipelines.store.commit import commit
from pipelines.store.head import LogHead, bounds_write, read_head
from pipelines.store.plan import Plan
from pipelines.store.store import Store
from schemas import COMMITLOG, HOLES, REPLICAS, SUBSCRIPTION_GROUPS, SUBSCRIPTIONS, TOPICS
from tests.conftest import JobRun, run_job
from tests.consume.listeners import Listeners
from tests.life import B, Life
from tests.store.test_planned import has_every_row_twice, written

COPIED = [name for name in COMMITLOG.names if name != "append_seq"]


def replicate(slave: str, master: str, *more: Any, now: int = B, exit_status: int = 0) -> JobRun:
    run = run_job(
        ["replicate", "--store", slave, "--master", master, "--now", str(now), "--quiet", *map(str, more)]
    )
    assert run.exit_status == exit_status, run.stderr
    return run


def slave_of(master: Life, directory: Path, *more: Any) -> Life:
    replicate(str(directory), master.store.uri, *more)
    return Life(master.commitlake, Store(master.store.spark, str(directory)), master.directory)


def log_of(store: Store, since: int = 0) -> list[tuple[Any, ...]]:
    rows = store.commitlog.where(F.col("physical_offset") >= since).select(*COPIED)
    return sorted((tuple(row) for row in rows.collect()), key=lambda row: row[1])


def bounds_of(store: Store) -> dict[tuple[str, int], tuple[int, int]]:
    head = read_head(store.snapshot())
    return {queue: (head.min_queue_offsets[queue], end) for queue, end in head.next_queue_offsets.items()}


@pytest.mark.slow
def test_a_slave_has_what_its_master_has(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Listeners(tmp_path, monkeypatch)
    master = life(mappedFileSizeCommitLog="1024")
    for topic in ("T", "U", "V"):
        master.job("topics", B, "create", topic, "--queues", "2")
    master.put(B, *[{"topic": "T", "body": f"b{n}" * n} for n in range(9)])
    master.put(
        B + 1, {"topic": "U", "delay_level": 1}, {"topic": "T", "transaction": True, "producer_group": "p"}
    )
    master.job("dispatch", B + 1)
    master.job("reset_offsets", B + 1, "--group", "g", "--topic", "T", "--to-offset", "1")
    master.job("subscribe", B + 1, "--group", "g", "--topic", "T", "--filter", "a")

    slave = slave_of(master, tmp_path / "slave", "--replica-id", "1")
    assert log_of(slave.store) == log_of(master.store)
    assert bounds_of(slave.store) == bounds_of(master.store)
    for table in (TOPICS, SUBSCRIPTION_GROUPS, SUBSCRIPTIONS):
        assert sorted(map(str, slave.store.read(table).collect())) == sorted(
            map(str, master.store.read(table).collect())
        )
    assert sorted(slave.store.consumer_offsets.collect()) == sorted(master.store.consumer_offsets.collect())
    end = read_head(master.store.snapshot()).next_offset
    assert [tuple(row) for row in master.store.replicas.collect()] == [
        ("1", slave.store.uri, "SLAVE", end, True, B)
    ]

    # A topic is gone, a delayed message is back, and a master's offset is lower than the slave's own.
    master.job("topics", B + 2, "delete", "V")
    master.deliver(B + 5_000)
    slave.job("dispatch", B)
    slave.job("consume", B, "--group", "h", "--topic", "T", "--listener", "listeners_of_a_test:accept")
    slave.job("consume", B, "--group", "g", "--topic", "T", "--listener", "listeners_of_a_test:accept")
    again = replicate(slave.store.uri, master.store.uri).result
    assert (again["copied"], again["truncated_from"]) == (1, None)
    assert log_of(slave.store) == log_of(master.store)
    assert "V" not in {row.topic for row in slave.store.topics.collect()}
    offsets = {
        (row.group, row.topic, row.queue_id): row.next_offset
        for row in slave.store.consumer_offsets.collect()
    }
    assert offsets["g", "T", 0] == 1
    assert offsets["h", "T", 0] > 1
    slave.job("dispatch", B)
    slave.expect_promises()
    nothing_new = replicate(slave.store.uri, master.store.uri).result
    assert (nothing_new["copied"], nothing_new["max_offset"]) == (0, again["max_offset"])


@pytest.mark.slow
def test_a_new_slave_may_begin_with_the_last_segment(life: Callable[..., Life], tmp_path: Path) -> None:
    master = life(mappedFileSizeCommitLog="1024")
    master.put(B, {"topic": "Early", "body": "b"}, *[{"topic": "T", "body": f"b{n}"} for n in range(20)])
    slave = slave_of(master, tmp_path / "slave", "--from-last-file")
    end = read_head(master.store.snapshot()).next_offset
    assert log_of(slave.store) == log_of(master.store, end - end % 1024)
    assert slave.store.commitlog.count() < master.store.commitlog.count()
    # Queues without a message there go on at the master's end all the same.
    assert {queue: end for queue, (_, end) in bounds_of(slave.store).items()} == {
        queue: end for queue, (_, end) in bounds_of(master.store).items()
    }
    assert bounds_of(slave.store)["Early", 0][0] == 1
    master.put(B, {"topic": "Early", "queue_id": 0}, {"topic": "New"})
    assert replicate(slave.store.uri, master.store.uri).result["copied"] == 2
    slave.job("dispatch", B)
    slave.job("validate", B, "--suite", "log", "--suite", "caches", "--suite", "queues")


@pytest.mark.slow
def test_a_large_log_is_copied_in_parts_of_whole_appends(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = life(mappedFileSizeCommitLog="1024")
    for number in range(5):
        master.put(B, *[{"topic": "T", "body": f"{number}-{n}"} for n in range(3)])
    monkeypatch.setattr(copy_log, "PART_BYTES", 700)
    slave = slave_of(master, tmp_path / "slave")
    assert log_of(slave.store) == log_of(master.store)
    of_commits = slave.store.commitlog.groupBy("append_seq").agg(
        F.count("*").alias("rows"), F.countDistinct("append_id")
    )
    rows = [row.rows for row in of_commits.orderBy("append_seq").collect()]
    assert len(rows) > 1
    assert all(count % 3 == 0 for count in rows)
    slave.job("dispatch", B)
    slave.expect_promises()


@pytest.mark.slow
def test_what_a_repair_will_cut_off_is_not_copied(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = life()
    master.put(B, {"topic": "T"})
    slave = slave_of(master, tmp_path / "slave")
    source = master.input(*[{"topic": "T", "body": str(n)} for n in range(3)])
    with monkeypatch.context() as killed:  # before it looked at what it had written
        written(killed, put.Put, "log_rows", has_every_row_twice)
        killed.setattr(committing, "expect_as_planned", lambda *_: None)
        master.job("put_messages", B, "--input", source)
    refused = replicate(slave.store.uri, master.store.uri, exit_status=1)
    assert "validate --repair" in refused.stderr
    assert slave.store.commitlog.count() == 1
    master.job("validate", B, "--suite", "log", "--repair")
    master.job("put_messages", B, "--input", source)
    replicate(slave.store.uri, master.store.uri)
    assert log_of(slave.store) == log_of(master.store)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"body_crc": "7"}, "does not have the length or the CRC of its parts"),
        ({"size_bytes": "size_bytes + 1"}, "do not lie one after the other"),
        ({"queue_offset": "queue_offset + 1"}, "the slave's queue goes on at 1"),
    ],
    ids=["crc", "length", "queue"],
)
def test_rows_that_are_not_right_are_not_copied(
    life: Callable[..., Life], tmp_path: Path, broken: dict[str, str], reason: str
) -> None:
    master = life()
    master.put(B, {"topic": "T", "queue_id": 0})
    slave = slave_of(master, tmp_path / "slave")
    master.put(B, *[{"topic": "T", "queue_id": 0}] * 3)
    is_middle = F.col("queue_offset") == 2
    at = master.store.snapshot()
    rows = at.read(COMMITLOG).where("append_seq = 1")
    rows = rows.withColumns(
        {name: F.when(is_middle, F.expr(wrong)).otherwise(F.col(name)) for name, wrong in broken.items()}
    )
    master.store.spark.sql(
        f"ALTER TABLE delta.`{master.store.path(COMMITLOG)}` SET TBLPROPERTIES ('delta.appendOnly' = 'false')"
    )
    commit(master.store, lambda at: Plan((at.replace(COMMITLOG, rows.localCheckpoint(), "append_seq = 1"),)))
    refused = replicate(slave.store.uri, master.store.uri, exit_status=1)
    assert reason in refused.stderr
    assert slave.store.commitlog.count() == 1


def lose_an_append(master: Life, append_seq: int) -> None:
    """As `validate --cut-damaged` leaves a log that has lost an append."""
    spark, condition = master.store.spark, f"append_seq = {append_seq}"
    lost = [row for row in master.rows() if row.append_seq == append_seq]
    first, end = lost[0], lost[-1].physical_offset + lost[-1].size_bytes
    hole = (first.physical_offset, end, "", -1, None, None, "a file", B)
    spark.sql(
        f"ALTER TABLE delta.`{master.store.path(COMMITLOG)}` SET TBLPROPERTIES ('delta.appendOnly' = 'false')"
    )
    commit(master.store, lambda at: Plan((bounds_write(at, read_head(at)),)))
    commit(master.store, lambda at: Plan((at.append(HOLES, spark.createDataFrame([hole], HOLES.columns)),)))
    commit(master.store, lambda at: Plan((at.replace(COMMITLOG, at.read(COMMITLOG).limit(0), condition),)))


@pytest.mark.slow
@pytest.mark.parametrize("append_id", ["put", "import:1"])
def test_what_a_master_has_lost_is_not_passed_over(
    life: Callable[..., Life], tmp_path: Path, append_id: str
) -> None:
    """Also of what an import brought, which may have gaps of its own."""
    master = life()
    master.append({"append_id": append_id})
    lacking = slave_of(master, tmp_path / "lacking")
    master.append({"append_id": append_id})
    whole = slave_of(master, tmp_path / "whole")
    at_the_end = master.copied("at-the-end")
    lose_an_append(at_the_end, 1)
    assert "has given up there" in replicate(lacking.store.uri, at_the_end.store.uri, exit_status=1).stderr
    master.append({"append_id": append_id})
    lose_an_append(master, 1)
    for store in (lacking.store.uri, str(tmp_path / "new")):
        assert "has given up there" in replicate(store, master.store.uri, exit_status=1).stderr
    assert len(lacking.rows()) == 1
    # One that has what its master has lost keeps it, and goes on.
    assert replicate(whole.store.uri, master.store.uri).result["copied"] == 1
    assert len(whole.rows()) == 3


@pytest.fixture(scope="module")
def followed(
    spark: Any, store_template: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str]:
    """A master with a message, and its slave: only read."""
    directory = tmp_path_factory.mktemp("followed")
    master, slave = str(directory / "master"), str(directory / "slave")
    shutil.copytree(store_template(), master)
    source = directory / "one.jsonl"
    source.write_text('{"topic": "T", "body": "b"}\n')
    assert (
        run_job(["put_messages", "--store", master, "--input", str(source), "--now", str(B)]).exit_status == 0
    )
    replicate(slave, master)
    return master, slave


@pytest.mark.slow
def test_it_follows_no_store_that_is_not_its_master(
    followed: tuple[str, str], new_store: Callable[..., Store], tmp_path: Path
) -> None:
    master, slave = followed
    link = tmp_path / "link"
    link.symlink_to(master)
    own = new_store()
    source = tmp_path / "own.jsonl"
    source.write_text('{"topic": "T", "body": "other"}\n' * 2)
    assert (
        run_job(["put_messages", "--store", own.uri, "--input", str(source), "--now", str(B)]).exit_status
        == 0
    )
    for store, of, reason in (
        (str(tmp_path / "new"), "", "--master is empty"),
        (f"{master}/inside", master, "lies in the master's directory"),
        (f"{link}/inside", master, "lies in the master's directory"),
        (master, master, "is the slave's own directory"),
        (master, str(link), "is the slave's own directory"),
        (str(tmp_path / "new"), str(tmp_path / "nowhere"), "where there is no store"),
        (str(tmp_path / "new"), slave, f"is a slave itself (of {master})"),
        (master, slave, "is a slave itself"),
        (own.uri, master, "no promotion or cut says why"),
        (slave, own.uri, "has a log of its own"),
        (new_store(mappedFileSizeCommitLog="4096").uri, master, "mappedFileSizeCommitLog"),
    ):
        assert reason in replicate(store, of, exit_status=2).stderr
    assert not (tmp_path / "new").exists()
    taken = replicate(str(tmp_path / "new"), master, "--replica-id", "1", exit_status=2)
    assert "the replica id 1 is that of" in taken.stderr
    assert own.settings["brokerRole"] == "ASYNC_MASTER"


def test_an_id_is_not_one_that_means_something_else(followed: tuple[str, str], tmp_path: Path) -> None:
    for name in ("0", "00", "01", " ", "master", "auto"):
        refused = replicate(str(tmp_path / "new"), followed[0], "--replica-id", name, exit_status=2)
        assert f"--replica-id is {name!r}; expected a number from 1" in refused.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_of_two_slaves_that_were_given_one_id_the_second_is_told_before_it_copies(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = life()
    master.put(B, {"topic": "T", "body": "b"})
    one, two = (Store(master.store.spark, str(tmp_path / name)) for name in ("one", "two"))
    named = acks.replica_id_of

    def beside_the_first(*arguments: Any) -> str:
        replica_id = named(*arguments)
        monkeypatch.setattr(replication, "replica_id_of", named)
        replicate(one.uri, master.store.uri)
        return replica_id

    monkeypatch.setattr(replication, "replica_id_of", beside_the_first)
    refused = replicate(two.uri, master.store.uri, exit_status=2)
    assert f"the replica id 1 is that of the store at {one.uri}" in refused.stderr
    assert two.commitlog.count() == 0
    replicate(two.uri, master.store.uri, "--replica-id", "2")
    assert {row.replica_id: row.uri for row in master.store.replicas.collect()} == {
        "1": one.uri,
        "2": two.uri,
    }
    # What int() takes for a number need not be one of RocketMQ's.
    for name in ("²", str(2**63)):
        replicate(two.uri, master.store.uri, "--replica-id", name)
        assert Store(master.store.spark, two.uri).settings["brokerId"] == 2


@pytest.mark.slow
def test_a_slave_has_one_row_at_its_master_by_whichever_path_it_is_named(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    master = life()
    slave = slave_of(master, tmp_path / "slave")
    link = tmp_path / "link"
    link.symlink_to(slave.store.uri)
    replicate(str(link), master.store.uri, "--replica-id", "5")
    assert [row.replica_id for row in master.store.replicas.collect()] == ["5"]


def test_a_slave_without_messages_is_told_that_what_it_lacks_has_expired(
    followed: tuple[str, str], new_store: Callable[..., Store]
) -> None:
    empty, master = new_store(), Store(new_store().spark, followed[0])
    commit(empty, lambda at: plan_role(at, Master.read(master), "3", empty.settings, B))
    commit(empty, lambda at: plan_fence(at, master.uri))
    known = Master.read(master)
    assert expect_joins(empty.snapshot(), known) == 0
    # Its messages have expired.
    commit(empty, lambda at: Plan((bounds_write(at, LogHead(0, 50, 50, 0)),)))
    later = dataclasses.replace(known, head=dataclasses.replace(known.head, min_offset=100))
    with pytest.raises(BadInput, match="the master's begins at 100: what lies between has expired there"):
        expect_joins(empty.snapshot(), later)


@pytest.mark.slow
def test_a_first_put_that_was_planned_before_an_empty_store_became_a_slave_is_refused(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, empty = life(), life()
    master.put(B, {"topic": "T", "body": "master's"})
    empty.job("topics", B, "create", "T")
    source, write = empty.input({"topic": "T", "body": "in flight"}), committing._write

    def after_it_follows(store: Store, writes: Any, committed: Any) -> None:
        if store.uri == empty.store.uri and any(each.table is COMMITLOG for each in writes):
            monkeypatch.setattr(committing, "_write", write)
            replication.join_master(empty.store, replication.Following(master.store.uri), B)
        write(store, writes, committed)

    monkeypatch.setattr(committing, "_write", after_it_follows)
    refused = empty.run("put_messages", B, "--input", source)
    assert refused.exit_status == 2
    assert f"is a slave of {master.store.uri}" in refused.stderr
    ended = replicate(empty.store.uri, master.store.uri).result
    assert (ended["copied"], ended["truncated_from"]) == (1, None)
    assert log_of(empty.store) == log_of(master.store)
    assert bounds_of(empty.store) == bounds_of(master.store)


@pytest.mark.slow
def test_an_empty_store_begins_where_its_master_does(life: Callable[..., Life]) -> None:
    master, empty = (life(mappedFileSizeCommitLog="1024") for _ in range(2))
    master.put(B, *[{"topic": "T", "queue_id": 0, "body": "b" * 300}] * 5)
    ended = replicate(empty.store.uri, master.store.uri, "--from-last-file").result
    assert ended["copied"] == 1
    assert log_of(empty.store) == log_of(master.store)[-1:]
    assert bounds_of(empty.store)["T", 0] == (4, 5)


@pytest.mark.slow
def test_the_rest_of_a_segment_is_not_taken_for_messages_that_have_expired(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    message = {"topic": "T", "queue_id": 0, "body": "b" * 300}
    master = life(mappedFileSizeCommitLog="1024")
    master.put(B, message)
    lacking = slave_of(master, tmp_path / "lacking")
    master.put(B, message)
    whole = slave_of(master, tmp_path / "whole")
    master.put(B, message)
    master.job("dispatch", B)
    # So long as it knows them it keeps what they lack.
    commit(master.store, lambda at: Plan((at.replace(REPLICAS, at.read(REPLICAS).limit(0)),)))
    expired = master.job("maintain", B + 2 * HOUR_MS, "--retention-hours", 1, "--force").result
    assert (expired["segments_expired"], read_head(master.store.snapshot()).min_offset) == (1, 1024)
    refused = replicate(lacking.store.uri, master.store.uri, exit_status=2)
    assert "what lies between has expired there" in refused.stderr
    assert replicate(whole.store.uri, master.store.uri).result["copied"] == 1
    whole.job("dispatch", B)
    whole.expect_promises()


WRITERS = """
put_messages --input {source}
deliver
subscribe --group g --topic T
topics create New
topics create-group new
reset_offsets --group g --topic T --to-offset 0
send_back --group g --input {failures}
redrive --where 1=1
end_transactions --input {ends}
check_transactions --checker builtins:print
import_store --from {directory}
run_cycle
""".strip().splitlines()


def test_a_slave_refuses_what_its_master_does_not_have(followed: tuple[str, str], tmp_path: Path) -> None:
    master, slave = followed
    files = {"source": '{"topic": "T", "body": "b"}', "failures": '{"physical_offset": 0}',
             "ends": '{"producer_group": "p", "physical_offset": 0, "queue_offset": 0, "state": "COMMIT"}'}  # fmt: skip
    for name, line in files.items():
        (tmp_path / f"{name}.jsonl").write_text(line + "\n")
    named = {name: tmp_path / f"{name}.jsonl" for name in files} | {"directory": tmp_path}
    for command in WRITERS:
        job, *arguments = command.format(**named).split()
        run = run_job([job, "--store", slave, "--now", str(B), "--quiet", *arguments])
        assert run.exit_status == 2, (command, run.stderr)
        assert f"is a slave of {master}" in run.stderr, command


@pytest.mark.slow
def test_a_slave_is_read_and_kept_by_its_own_jobs(
    followed: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Listeners(tmp_path, monkeypatch)
    _, slave = followed
    for command in (
        "dispatch",
        "query by-offset --topic T --queue-id 0 --offset 0",
        "consume --group mine --topic T --listener listeners_of_a_test:accept",
        "maintain",
        "topics list",
    ):
        run = run_job([*command.split(), "--store", slave, "--quiet"])
        assert run.exit_status == 0, (command, run.stderr)
    # Whoever fails is not sent back: that would be a message of the slave's own.
    failing = run_job(
        ["consume", "--store", slave, "--group", "other", "--topic", "T", "--listener", "builtins:print"]
    )
    assert failing.exit_status == 2
    assert "is a slave of" in failing.stderr


@pytest.mark.slow
def test_a_slave_that_is_made_again_has_nothing_of_the_log_for_its_master(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = life()
    master.put(B, {"topic": "T"})
    slave = slave_of(master, tmp_path / "slave")

    def acked() -> list[tuple[int, bool]]:
        return [(row.acked_offset, row.in_sync) for row in master.store.replicas.collect()]

    end = read_head(master.store.snapshot()).next_offset
    assert acked() == [(end, True)]
    shutil.rmtree(slave.store.uri)
    with monkeypatch.context() as killed:
        killed.setattr("jobs.replicate.follow", lambda *_: sys.exit(9))
        replicate(slave.store.uri, master.store.uri, exit_status=9)
    assert acked() == [(0, False)]
    replicate(slave.store.uri, master.store.uri)
    assert acked() == [(end, True)]
