"""A group reads while the log is cut: nothing of what was cut off is recorded, as other messages come to its offsets."""

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipelines.consume.reader import Reader
from pipelines.produce import put
from pipelines.replicate import truncate
from pipelines.store import commit
from pipelines.store.plan import Write
from pipelines.store.store import Store
from schemas import CONSUMER_OFFSETS, CUTS, IN_FLIGHT
from tests.consume.listeners import Listeners
from tests.life import B, Life
from tests.replicate.conftest import Split
from tests.replicate.test_replicate import replicate
from tests.store.test_planned import has_every_row_twice, written

pytestmark = pytest.mark.slow


def do_while_it_reads(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Have this done once, after the next page was handed over and before anything is recorded of it."""
    call = Reader._call_listener

    def then_do(*arguments: Any) -> Any:
        outcomes = call(*arguments)
        monkeypatch.setattr(Reader, "_call_listener", call)
        do()
        return outcomes

    monkeypatch.setattr(Reader, "_call_listener", then_do)


@pytest.mark.parametrize(
    "is_recorded", [False, True], ids=["not recorded", "recorded by a run that was killed"]
)
@pytest.mark.parametrize("options", [(), ("--orderly",)])
def test_a_consumer_beside_the_cut_records_nothing_of_what_was_cut_off(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_recorded: bool, options: tuple[str, ...]
) -> None:
    old, new = split
    old.job("dispatch", B)
    listeners = Listeners(tmp_path, monkeypatch)
    consume = ("--group", "g", "--topic", "T", *options, "--listener")
    old.job("consume", B, *consume, listeners.name("accept"), "--max-messages", 2)
    assert len(listeners.handed()) == 2
    if is_recorded:
        with monkeypatch.context() as killed:
            killed.setattr(truncate, "_plan_bounds", lambda *_: sys.exit(9))
            replicate(old.store.uri, new.store.uri, exit_status=9)
    do_while_it_reads(monkeypatch, lambda: replicate(old.store.uri, new.store.uri))
    # In order, the group waits at a message of the old master's.
    listener = listeners.name("never" if options else "accept")
    assert "was cut while group g read it" in old.job("consume", B, *consume, listener, exit_status=1).stderr
    assert "old-0" in [row[3] for row in listeners.handed()]
    assert old.store.in_flight.isEmpty()
    old.job("dispatch", B)
    old.job("consume", B + 60_000, *consume, listeners.name("accept"))
    assert [(row[3], row[4]) for row in listeners.handed()] == [("new-0", 0), ("new-1", 0), ("new-2", 0)]


def test_nor_in_the_file_of_a_broadcasting_client(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = split
    old.job("dispatch", B)
    listeners = Listeners(tmp_path, monkeypatch)
    offsets = tmp_path / "offsets.json"
    client = ("--model", "broadcasting", "--client-id", "c", "--offsets-file", offsets)
    consume = ("consume", B, "--group", "g", "--topic", "T", *client, "--listener", listeners.name("accept"))
    do_while_it_reads(monkeypatch, lambda: replicate(old.store.uri, new.store.uri))
    assert "was cut while group g read it" in old.job(*consume, exit_status=1).stderr
    assert not offsets.exists()
    assert len(listeners.handed()) == 4
    old.job("dispatch", B)
    old.job(*consume)
    assert [row[3] for row in listeners.handed()] == ["both-0", "both-1", "new-0", "new-1", "new-2"]


@pytest.mark.parametrize(
    ("options", "has_read"), [((), True), (("--orderly",), True), ((), False)], ids=["", "orderly", "first"]
)
def test_nor_by_a_commit_that_was_planned_before_the_cut_and_is_written_after_it(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], has_read: bool
) -> None:
    old, new = split
    old.job("dispatch", B)
    listeners = Listeners(tmp_path, monkeypatch)
    consume = ("--group", "g", "--topic", "T", *options, "--listener")
    # The group has read all that stays, so its recorded offsets are right after the cut too.
    if has_read:
        old.job("consume", B, *consume, listeners.name("accept"), "--max-messages", 2)
        assert len(listeners.handed()) == 2
    held = IN_FLIGHT if options else CONSUMER_OFFSETS
    write = commit._write

    def after_the_cut(store: Store, writes: Sequence[Write], committed: commit.Committed) -> None:
        if any(each.table is held for each in writes):
            monkeypatch.setattr(commit, "_write", write)
            replicate(old.store.uri, new.store.uri)
        write(store, writes, committed)

    monkeypatch.setattr(commit, "_write", after_the_cut)
    # In order, the group waits at a message of the old master's.
    listener = listeners.name("never" if options else "accept")
    assert "was cut while group g read it" in old.job("consume", B, *consume, listener, exit_status=1).stderr
    assert commit._write is write
    assert "old-0" in [row[3] for row in listeners.handed()]
    assert old.store.in_flight.isEmpty()
    old.job("dispatch", B)
    old.job("consume", B + 60_000, *consume, listeners.name("accept"))
    both = [] if has_read else ["both-0", "both-1"]
    assert [row[3] for row in listeners.handed()] == [*both, "new-0", "new-1", "new-2"]


def test_a_damaged_append_that_is_set_aside_after_what_is_read_changes_nothing(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = life()
    one.put(B, {"topic": "T"})
    one.job("dispatch", B)
    listeners = Listeners(tmp_path, monkeypatch)

    def set_aside() -> None:
        with monkeypatch.context() as patched:
            written(patched, put.Put, "log_rows", has_every_row_twice)
            twice = one.input({"topic": "T", "body": "twice"})
            assert one.run("put_messages", B, "--input", twice).exit_status == 1
        one.job("validate", B, "--repair")

    do_while_it_reads(monkeypatch, set_aside)
    consume = ("consume", B, "--group", "g", "--topic", "T", "--listener", listeners.name("accept"))
    one.job(*consume)
    assert one.store.cuts.count() == 1
    one.job(*consume)
    assert len(listeners.handed()) == 1


def test_a_group_reads_a_store_whose_cuts_are_lost(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = life()
    one.put(B, {"topic": "T"})
    one.job("dispatch", B)
    shutil.rmtree(one.store.path(CUTS))
    listeners = Listeners(tmp_path, monkeypatch)
    one.job("consume", B, "--group", "g", "--topic", "T", "--listener", listeners.name("accept"))
    assert len(listeners.handed()) == 1
