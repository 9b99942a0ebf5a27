"""Which copy answers questions, and which would be elected master."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import BadInput
from pipelines.reports.copies import Candidate, copy_to_query
from pipelines.store.store import Store
from tests.life import B, Life
from tests.replicate.test_replicate import replicate, slave_of


@pytest.fixture
def trio(life: Callable[..., Life], tmp_path: Path) -> tuple[Life, Life, Life]:
    """A master with four messages, a slave 1 that has them and a slave 2 that has two."""
    master = life(haMaxGapNotInSync="300")
    master.put(B, {"topic": "T"}, {"topic": "T"})
    slow = slave_of(master, tmp_path / "slow", "--replica-id", "2")
    master.put(B, {"topic": "T"}, {"topic": "T"})
    fast = slave_of(master, tmp_path / "fast", "--replica-id", "1")
    return master, fast, slow


@pytest.mark.slow
def test_the_slave_that_has_most_of_the_log_answers(trio: tuple[Life, Life, Life]) -> None:
    master, fast, slow = trio
    said: list[str] = []

    def asked(store: Life, replica: str | None) -> str:
        return copy_to_query(store.store, replica, said.append).uri

    assert asked(slow, None) == slow.store.uri
    assert asked(slow, "master") == asked(slow, "0") == asked(slow, "auto") == master.store.uri
    assert asked(master, "2") == asked(slow, "2") == slow.store.uri
    for each in trio:
        each.job("settings", B, "set", "slaveReadEnable=true")
    assert asked(master, "auto") == asked(slow, "auto") == fast.store.uri
    assert said[-1] == f"reading the copy at {fast.store.uri}"
    fast.job("settings", B, "set", "slaveReadEnable=false")
    assert asked(master, "auto") == slow.store.uri
    row = json.loads(
        master.job(
            "sql", B, "SELECT count(*) AS n FROM commitlog", "--replica", "2", "--output", "json"
        ).lines[0]
    )
    assert row == {"n": 2}


def election(store: Life) -> tuple[str | None, list[tuple[Any, ...]]]:
    run = store.job("query", B, "election", "--output", "json")
    rows = [json.loads(line) for line in run.lines]
    assert [row["place"] for row in rows] == list(range(1, len(rows) + 1))
    return run.result["elected"], [(row["replica_id"], row["verdict"]) for row in rows]


@pytest.mark.slow
def test_the_slave_with_the_longest_log_is_elected_once_the_master_is_gone(
    trio: tuple[Life, Life, Life], tmp_path: Path
) -> None:
    master, _, slow = trio
    everybody = ("0", [("0", "elected"), ("1", "candidate"), ("2", "candidate")])
    assert election(master) == everybody
    replicate(slow.store.uri, master.store.uri)  # it knows of slave 1 then
    assert election(slow) == everybody
    # They have the same, so the lower number of brokerElectionPriority decides.
    slow.job("settings", B, "set", "brokerElectionPriority=1")
    assert election(slow)[1] == [("0", "elected"), ("2", "candidate"), ("1", "candidate")]
    Path(master.store.uri).rename(tmp_path / "gone")
    assert election(slow) == ("2", [("2", "elected"), ("1", "candidate"), ("0", "cannot be reached")])
    slow.job("promote", B)
    assert election(slow) == ("0", [("0", "elected")])


@pytest.mark.slow
def test_the_copies_say_themselves_what_they_are(trio: tuple[Life, Life, Life]) -> None:
    """What a slave's rows say of them is as of its last run."""
    old, new, stale = trio
    replicate(stale.store.uri, old.store.uri)
    new.job("promote", B, "--old-master", old.store.uri)
    assert election(stale) == ("1", [("1", "elected"), ("2", "candidate"), ("0", "not in sync")])
    replicate(old.store.uri, new.store.uri)
    assert election(stale) == ("1", [("1", "elected"), ("0", "candidate"), ("2", "candidate")])
    shutil.rmtree(Path(old.store.uri) / "epochs")
    assert election(stale) == ("1", [("1", "elected"), ("2", "candidate"), ("0", "damaged")])


@pytest.mark.slow
def test_a_copy_that_is_damaged_is_passed_over(trio: tuple[Life, Life, Life]) -> None:
    master, fast, slow = trio
    for each in trio:
        each.job("settings", B, "set", "slaveReadEnable=true")
    shutil.rmtree(Path(fast.store.uri) / "replicas")
    assert copy_to_query(master.store, "auto", print).uri == slow.store.uri
    shutil.rmtree(Path(slow.store.uri) / "queue_bounds")
    assert copy_to_query(master.store, "auto", print).uri == master.store.uri


@pytest.mark.slow
def test_a_copy_that_has_other_messages_than_its_master_is_not_read(trio: tuple[Life, Life, Life]) -> None:
    """The master is put back as it was earlier, and then goes on."""
    master, fast, _ = trio
    earlier = master.copied("earlier")
    master.put(B, {"topic": "T", "body": "lost"})
    replicate(fast.store.uri, master.store.uri)
    for store in (master, earlier, fast):
        store.job("settings", B, "set", "slaveReadEnable=true")
    shutil.rmtree(master.store.uri)
    shutil.copytree(earlier.store.uri, master.store.uri)
    for reason in ("goes on to byte", "has another record at byte"):
        put_back = Life(master.commitlake, Store(master.store.spark, master.store.uri), master.directory)
        with pytest.raises(BadInput, match=reason):
            copy_to_query(put_back.store, "1", print)
        assert copy_to_query(put_back.store, "auto", print).uri == master.store.uri
        assert ("1", "not in sync") in election(put_back)[1]
        put_back.put(B, {"topic": "T", "body": "other"})
    assert fast.rows()[-1].body == b"lost"


@pytest.mark.slow
def test_a_copy_of_a_damaged_master_is_read_and_elected(trio: tuple[Life, Life, Life]) -> None:
    master, fast, _ = trio
    for store in (master, fast):
        store.job("settings", B, "set", "slaveReadEnable=true")
    shutil.rmtree(Path(master.store.uri) / "commitlog")
    assert election(fast)[0] == "1"
    assert copy_to_query(fast.store, "1", print).uri == fast.store.uri


@pytest.mark.slow
def test_a_slave_that_is_not_in_sync_is_elected_only_where_that_is_allowed(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    master = life(haMaxGapNotInSync="0")
    master.put(B, {"topic": "T"})
    slave = slave_of(master, tmp_path / "slave", "--replica-id", "1")
    master.store.spark.sql(f"UPDATE delta.`{slave.store.uri}/replicas` SET in_sync = false")
    Path(master.store.uri).rename(tmp_path / "gone")
    assert election(slave) == (None, [("1", "not in sync"), ("0", "cannot be reached")])
    slave.job("settings", B, "set", "enableElectUncleanMaster=true")
    assert election(slave)[0] == "1"


def test_a_later_epoch_is_worth_more_than_a_longer_log() -> None:
    def order(name: str, epoch: int, max_offset: int, priority: int) -> tuple[Any, ...]:
        return Candidate(name, "", "SLAVE", True, epoch, max_offset, priority).order

    expected = [order("d", 3, 10, 9), order("a", 2, 30, 5), order("b", 2, 20, 1), order("c", 2, 20, 2)]
    assert sorted([expected[2], expected[0], expected[3], expected[1]]) == expected
