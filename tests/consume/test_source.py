"""Which copy of a store a group reads from: RocketMQ's suggestion of a slave, and what is named."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.consume import source
from pipelines.consume.source import Copies, copies_for, position_of
from pipelines.errors import BadInput
from pipelines.reports.copies import copy_to_query
from tests.conftest import run_job
from tests.consume.listeners import Listeners
from tests.life import B, Life
from tests.replicate.test_replicate import replicate, slave_of


@pytest.fixture
def pair(life: Callable[..., Life], tmp_path: Path) -> tuple[Life, Life]:
    """A master and its slave 1, which serves consumers: three messages of queue 0, the group g at the second."""
    master = life(slaveReadEnable="true", accessMessageInMemoryMaxRatio="0", mappedFileSizeCommitLog="1024")
    master.job("topics", B, "create", "T", "--queues", "1")
    master.put(B, *[{"topic": "T", "body": "b" * 400, "queue_id": 0} for _ in range(3)])
    master.job("dispatch", B)
    master.job("topics", B, "create-group", "g")
    master.job("reset_offsets", B, "--group", "g", "--topic", "T", "--to-offset", "1")
    slave = slave_of(master, tmp_path / "slave", "--replica-id", "1")
    slave.job("dispatch", B)
    return master, slave


@pytest.mark.nightly
def test_a_group_that_lags_is_sent_to_the_slave_of_its_config(
    pair: tuple[Life, Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = pair

    def suggested(group: str = "g") -> str:
        copies = copies_for(master.store, "auto", group, None)
        assert copies.home.uri == master.store.uri
        return copies.source.uri

    rows = master.rows()
    at = master.store.snapshot()
    assert position_of(at, "g", None) == rows[1].physical_offset
    assert position_of(at, "g", "other") == position_of(at, "new", None) == 0
    # More than 0 per cent of the memory.
    assert suggested() == suggested("new") == slave.store.uri
    # A lag that fits into memory; the group's own broker is the master.
    lag = rows[-1].physical_offset + rows[-1].size_bytes - rows[1].physical_offset
    master.job("settings", B, "set", "accessMessageInMemoryMaxRatio=100")
    monkeypatch.setattr(source, "memory_bytes", lambda: lag)
    assert suggested() == master.store.uri
    monkeypatch.setattr(source, "memory_bytes", lambda: lag - 1)
    assert suggested() == slave.store.uri
    master.job("topics", B, "update-group", "g", "--which-broker-when-consume-slowly", "0")
    assert suggested() == master.store.uri
    # The next number where there is no such slave, else any.
    for broker_id in (0, 1, 7):
        master.job("topics", B, "update-group", "g", "--which-broker-when-consume-slowly", broker_id)
        assert suggested() == (slave if broker_id else master).store.uri
    # A group that has read everything needs nobody.
    master.job("reset_offsets", B, "--group", "g", "--topic", "T", "--to-offset", "3")
    assert position_of(master.store.snapshot(), "g", None) == lag + rows[1].physical_offset
    assert suggested() == master.store.uri
    # Both sides must allow it.
    slave.job("settings", B, "set", "slaveReadEnable=false")
    assert suggested("new") == master.store.uri
    slave.job("settings", B, "set", "slaveReadEnable=true")
    assert suggested("new") == slave.store.uri
    master.job("settings", B, "set", "slaveReadEnable=false")
    assert suggested("new") == master.store.uri


@pytest.mark.slow
def test_messages_come_from_the_slave_and_all_else_goes_to_the_master(
    pair: tuple[Life, Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = pair
    listeners = Listeners(tmp_path, monkeypatch)
    master.put(B, {"topic": "T", "body": "later", "queue_id": 0})
    master.job("dispatch", B)
    consume = ("consume", B, "--group", "g", "--topic", "T", "--listener", listeners.name("by_body"))
    # The slave lacks the fourth message, and does not know that the third was sent back before.
    source = master.input({"physical_offset": master.rows()[2].physical_offset})
    master.job("send_back", B, "--group", "g", "--input", source)
    counts = slave.job(*consume, "--replica", "auto").result
    assert (counts["failed"], counts["sent_back"]) == (1, 1)
    assert [row[2] for row in listeners.handed()] == [1]
    offsets = {row.group: row.next_offset for row in master.store.consumer_offsets.collect()}
    assert offsets["g"] == 3
    assert [row.purpose for row in master.rows()[4:]] == ["retry", "retry"]

    def known_to_the_slave() -> list[int]:
        offsets = slave.store.consumer_offsets.where("topic = 'T'").collect()
        return [row.next_offset for row in offsets]

    assert known_to_the_slave() == [1]
    assert master.job(*consume, "--replica", "master").result["failed"] == 1
    replicate(slave.store.uri, master.store.uri)
    assert known_to_the_slave() == [4]
    # What was sent back to the group lies before what is new: a copy must have that too.
    master.job("deliver", B + 60_000)
    master.job("dispatch", B + 60_000)
    sent_back = [row.physical_offset for row in master.rows() if row.topic == "%RETRY%g"]
    assert position_of(master.store.snapshot(), "g", "T") == min(sent_back)
    assert position_of(master.store.snapshot(), "g", "other") == 0


@pytest.mark.slow
def test_a_copy_that_cannot_serve_is_refused(
    pair: tuple[Life, Life], life: Callable[..., Life], tmp_path: Path
) -> None:
    master, slave = pair

    def refused(*arguments: str) -> str:
        consume = ("consume", B, "--group", "g", "--topic", "T", "--listener", "builtins:print")
        return master.job(*consume, *arguments, exit_status=2).stderr

    assert "expected master, auto or one of 1" in refused("--replica", "9")
    slave.job("settings", B, "set", "slaveReadEnable=false")
    assert "serves no consumers (slaveReadEnable is false there)" in refused("--replica", "1")
    # A slave that began with the last segment lacks what the group has to read: named it is refused, else passed over.
    late = slave_of(master, tmp_path / "late", "--replica-id", "2", "--from-last-file")
    late.job("dispatch", B)
    master.job("reset_offsets", B, "--group", "g", "--topic", "T", "--to-offset", "0")
    assert late.rows() != master.rows()
    assert "read from the master (--replica master)" in refused("--replica", "2")
    assert copies_for(master.store, "auto", "g", None).source.uri == master.store.uri


@pytest.mark.slow
def test_a_slave_that_was_promoted_is_no_copy_any_more(pair: tuple[Life, Life]) -> None:
    """Its log goes its own way: what the old master has at an offset is another message there."""
    master, slave = pair
    slave.job("promote", B)
    assert copies_for(master.store, "auto", "g", None).source.uri == master.store.uri
    assert copy_to_query(master.store, "auto", print).uri == master.store.uri
    with pytest.raises(BadInput, match="no longer follows"):
        copies_for(master.store, "1", "g", None)
    assert copies_for(slave.store, "auto", "g", None).source.uri == slave.store.uri


@pytest.mark.slow
def test_an_old_master_is_no_copy_until_it_is_cut_to_the_new_one(
    pair: tuple[Life, Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it alone had lies at the offsets of the new master's messages."""
    old, new = pair
    stale = slave_of(old, tmp_path / "stale", "--replica-id", "2")
    old.put(B, {"topic": "T", "body": "old", "queue_id": 0})
    new.job("promote", B, "--old-master", old.store.uri)
    new.put(B, {"topic": "T", "body": "new", "queue_id": 0})

    def refused(store: Life, replica: str, reason: str) -> None:
        with pytest.raises(BadInput, match=reason):
            copies_for(store.store, replica, "g", None)
        with pytest.raises(BadInput, match=reason):
            copy_to_query(store.store, replica, print)

    for replica in ("master", "auto", "2"):
        refused(stale, replica, f"is a slave itself by now, of {new.store.uri}")
    with monkeypatch.context() as killed:
        killed.setattr("jobs.replicate.follow", lambda *_: sys.exit(9))
        replicate(old.store.uri, new.store.uri, "--replica-id", "1", exit_status=9)
    for store in (old, new):
        refused(store, "1", "has not ended a run with its master")
        assert copies_for(store.store, "auto", "g", None).source.uri == new.store.uri
    replicate(old.store.uri, new.store.uri)
    replicate(stale.store.uri, new.store.uri)
    for replica, copy in (("1", old), ("2", stale), ("master", new)):
        assert copies_for(stale.store, replica, "g", None).source.uri == copy.store.uri
        assert copy_to_query(stale.store, replica, print).uri == copy.store.uri


@pytest.mark.slow
def test_a_copy_that_is_promoted_meanwhile_is_read_no_further(
    pair: tuple[Life, Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = pair
    listeners = Listeners(tmp_path, monkeypatch)

    def promoted_after(*arguments: Any) -> Copies:
        copies = copies_for(*arguments)
        slave.job("promote", B)
        return copies

    monkeypatch.setattr("jobs.consume.copies_for", promoted_after)
    consume = ("--group", "g", "--topic", "T", "--listener", listeners.name("accept"), "--replica", "1")
    assert "no longer follows" in master.job("consume", B, *consume, exit_status=2).stderr
    assert listeners.handed() == []


@pytest.mark.slow
def test_a_slave_answers_where_its_master_is_gone(pair: tuple[Life, Life], tmp_path: Path) -> None:
    master, slave = pair
    count = ["sql", "SELECT count(*) AS n FROM commitlog", "--output", "json", "--quiet"]
    Path(master.store.uri).rename(tmp_path / "gone")
    for job in (count, ["query", "topic-status"], ["report", "--out", str(tmp_path / "page.html")]):
        assert run_job([*job, "--store", slave.store.uri, "--replica", "auto"]).exit_status == 0, job
        refused = run_job([*job, "--store", slave.store.uri, "--replica", "master"])
        assert refused.exit_status == 2
        assert "cannot be reached" in refused.stderr
    copies = copies_for(slave.store, "auto", "g", None)
    assert copies.home.uri == copies.source.uri == slave.store.uri
