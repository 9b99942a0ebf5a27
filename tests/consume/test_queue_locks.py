"""Queues that a run reads alone: who holds them, until when, and what becomes of a run that has lost them."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.consume import consume_as
from jobs.launch.run import Run
from pipelines.consume import held_queues, reader
from pipelines.consume.offsets import (
    Queue,
    Reached,
    plan_commit,
    plan_in_flight,
    plan_reset,
    read_in_flight,
    read_offsets,
)
from pipelines.consume.options import Options
from pipelines.consume.queue_locks import (
    CLOCKS_APART_MS,
    LOCK_MS,
    Lock,
    forget_renewals,
    is_held,
    plan_lock,
    plan_unlock,
    read_locks,
    renew,
    renewed_until,
)
from pipelines.spark_internals.process import is_gone, process_of
from pipelines.store.commit import commit
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from schemas import QUEUE_LOCKS
from tests.life import B, Life
from tests.store.earlier_versions import forget_tables

FIRST, SECOND = ("T", 0), ("T", 1)
MINE = Lock("me", None, B + LOCK_MS)


def lock(store: Store, queues: list[Queue], mine: Lock, now_ms: int = B) -> tuple[list[Queue], list[Queue]]:
    """Which queues are locked, and which are left to others."""
    plan: Callable[[Snapshot], Plan] = lambda at: plan_lock(  # noqa: E731
        at, "g", queues, mine, lambda each: is_held(store, each, now_ms)
    )
    result = commit(store, plan).result
    return result["held"], list(result["left"])


@pytest.mark.quick
@pytest.mark.parametrize(
    ("later_ms", "has_ended"),
    [
        (0, False),
        (LOCK_MS + CLOCKS_APART_MS, False),  # by a clock that is a minute ahead its last minute has begun
        (LOCK_MS + CLOCKS_APART_MS + 1, True),
        (-CLOCKS_APART_MS, False),
        (-CLOCKS_APART_MS - 1, True),  # its writer's clock was wrong: it may say any year
    ],
)
def test_a_lock_counts_for_clocks_a_minute_apart(later_ms: int, has_ended: bool) -> None:
    assert MINE.has_ended(B + later_ms) == has_ended


def test_a_queue_is_one_runs_until_it_is_unlocked_or_its_lock_ends(store: Store) -> None:
    assert lock(store, [FIRST], MINE) == ([FIRST], [])
    other = replace(MINE, holder="other")
    assert lock(store, [FIRST, SECOND], other) == ([SECOND], [FIRST])
    commit(store, lambda at: plan_unlock(at, "g", "me"))
    assert lock(store, [FIRST], other) == ([FIRST], [])
    late = B + LOCK_MS + CLOCKS_APART_MS + 1
    assert lock(store, [FIRST], replace(MINE, holder="third"), late - 1) == ([], [FIRST])
    # Renewed beside its reading, it ends later.
    renew(store, "other", B + 2 * LOCK_MS)
    renew(store, "other", B + 3 * LOCK_MS)
    assert lock(store, [FIRST], replace(MINE, holder="third"), late) == ([], [FIRST])
    assert lock(store, [FIRST], replace(MINE, holder="third"), late + 2 * LOCK_MS) == ([FIRST], [])
    forget_renewals(store, "other")
    commit(store, lambda at: plan_unlock(at, "g", "third"))
    # The lock of the second queue has ended, so that nobody keeps it.
    assert read_locks(store.snapshot(), "g") == {}
    assert read_locks(store.snapshot(), "another group") == {}


def test_a_lock_ends_with_the_process_that_reads(store: Store) -> None:
    living = process_of(store.spark)
    assert living is not None
    assert not is_gone(living)
    ended = subprocess.Popen(["true"])
    ended.wait()
    space, _, started = living.rsplit("/", 2)
    assert is_gone(f"{space}/{ended.pid}/{started}")
    assert is_gone(f"{space}/{os.getpid()}/1"), "another process has its id by now"
    assert not is_gone(f"another machine/{ended.pid}/{started}")
    lock(store, [FIRST], replace(MINE, process=living))
    lock(store, [SECOND], replace(MINE, holder="dead", process=f"{space}/{ended.pid}/{started}"))
    assert lock(store, [FIRST, SECOND], replace(MINE, holder="third")) == ([SECOND], [FIRST])


def test_two_that_lock_at_once_do_not_both_get_the_queue(store: Store) -> None:
    taken: list[Any] = []

    def plan(at: Snapshot) -> Plan:
        planned = plan_lock(at, "g", [FIRST], MINE, lambda _: True)
        if not taken:
            taken.append(lock(store, [FIRST], replace(MINE, holder="faster")))
        return planned

    committed = commit(store, plan)
    assert (taken, committed.result["held"], committed.lost_races) == ([([FIRST], [])], [], 1)


def record(store: Store, *reached: Reached, now_ms: int = 1) -> dict[str, Any]:
    return commit(store, lambda at: plan_commit(at, "g", "", reached, now_ms)).result


def test_a_run_that_lost_its_queue_moves_it_neither_back_nor_on(store: Store) -> None:
    record(store, Reached(FIRST, 2, was=0, is_alone=True))
    record(store, Reached(FIRST, 4, was=2, is_alone=True))
    # One that began to read at 0, and is slow.
    for reached in (2, 3, 5):
        slow = Reached(FIRST, reached, was=0, is_alone=True, goes_back=True)
        assert record(store, slow)["taken"] == [FIRST]
    assert record(store, Reached(FIRST, 4, was=0, is_alone=True))["recorded"] == {FIRST: 4}
    # One of several that share the queues moves it on, never back.
    assert record(store, Reached(FIRST, 3, was=0))["recorded"] == {FIRST: 4}
    assert record(store, Reached(FIRST, 6, was=0))["recorded"] == {FIRST: 6}
    # Back from what was read, where that is what is there.
    assert record(store, Reached(FIRST, 1, was=6, goes_back=True))["recorded"] == {FIRST: 1}
    commit(store, lambda at: plan_reset(at, "g", {FIRST: 0}, 1))
    assert record(store, Reached(FIRST, 3, was=1, is_alone=True))["reset"] == [FIRST]
    assert read_offsets(store.snapshot(), "g")[FIRST].next_offset == 0


def test_a_run_that_lost_its_queue_does_not_have_it_wait(store: Store) -> None:
    record(store, Reached(FIRST, 4, was=0), Reached(SECOND, 1, was=0))
    mine, lost = Reached(SECOND, 1, was=1, is_alone=True), Reached(FIRST, 2, was=0, is_alone=True)
    waits = {FIRST: ((2, 1, B),), SECOND: ((1, 1, B),)}
    commit(store, lambda at: plan_in_flight(at, "g", waits, [mine, lost]))
    assert read_in_flight(store.snapshot(), "g") == {SECOND: ((1, 1, B),)}


def test_names_of_a_broker_are_values_and_not_sql(store: Store) -> None:
    name, topics = "it's \\ a\ngroup", ["T') OR ('1' = '1", "T"]

    def plan_all(at: Snapshot, group: str, offset: int) -> Plan:
        locks = plan_lock(at, group, [(topics[0], offset)], MINE, lambda _: True)
        waits = plan_in_flight(at, group, {(topics[0], 0): ((0, offset, B),)}, [])
        offsets = plan_commit(at, group, "", [Reached((topic, 0), offset) for topic in topics[:offset]], 1)
        return Plan((*locks.writes, *waits.writes, *offsets.writes))

    for group, offset in (("g", 2), (name, 2), (name, 1), (name, 3)):
        commit(store, lambda at: plan_all(at, group, offset))  # noqa: B023
    at = store.snapshot()
    for group, offset in (("g", 2), (name, 3)):
        found = {queue: each.next_offset for queue, each in read_offsets(at, group).items()}
        assert found == {(topic, 0): offset for topic in topics}
    assert read_in_flight(at, name) == {(topics[0], 0): ((0, 3, B),)}
    assert set(read_locks(at, name)) == {(topics[0], 3)}


LISTENER = """
import json, time
from pathlib import Path
from pipelines.consume import ConsumeStatus

DIRECTORY = Path({directory!r})

def note(who, message):
    with open(DIRECTORY / "handed", "a") as file:
        file.write(json.dumps([who, message.queue_id, message.queue_offset]) + "\\n")
    return ConsumeStatus.SUCCESS

def slow(message):
    answer = note("slow", message)
    while (DIRECTORY / "hold").exists():
        time.sleep(0.02)
    return answer

def fast(message):
    return note("fast", message)
"""


class Two:
    """A group with a run whose listener waits while there is a file `hold`, and others beside it."""

    def __init__(self, store: Life, directory: Path) -> None:
        self.store, self.directory = store, directory
        (directory / "listener_of_two.py").write_text(LISTENER.format(directory=str(directory)))
        self.result: dict[str, Any] = {}

    def fill(self, *queues: int) -> None:
        self.store.put(B, *[{"topic": "T", "queue_id": queue} for queue in queues])
        self.store.job("dispatch", B)

    def run(self, listener: str = "fast", now: int = B, *more: str) -> tuple[dict[str, Any], str]:
        arguments = ("--group", "g", "--topic", "T", "--listener", f"listener_of_two:{listener}", *more)
        run = self.store.commitlake("consume", "--store", self.store.store.uri, "--now", now, *arguments)
        assert run.exit_status == 0, run.stderr
        return run.result, run.stderr

    def begin(self, orderly: bool) -> threading.Thread:
        """The slow run, in a thread, up to its first message."""
        (self.directory / "hold").touch()
        options = Options("g", "T", "listener_of_two:slow", orderly=orderly)

        def work() -> None:
            self.result = consume_as(Run("consume", self.store.store.uri, B, quiet=True), options)

        thread = threading.Thread(target=work)
        thread.start()
        while not (self.directory / "handed").exists():
            assert thread.is_alive()
        return thread

    def end(self, thread: threading.Thread) -> None:
        (self.directory / "hold").unlink()
        thread.join()

    def handed(self) -> list[list[Any]]:
        return [json.loads(line) for line in (self.directory / "handed").read_text().splitlines()]

    def offsets(self) -> dict[int, int]:
        rows = self.store.store.consumer_offsets.where("topic = 'T'").collect()
        return {row.queue_id: row.next_offset for row in rows if row.next_offset}


@pytest.fixture
def two(life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Two:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "listener_of_two", raising=False)
    return Two(life(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("orderly", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_second_run_leaves_the_queues_that_another_reads_and_reads_the_others(
    two: Two, orderly: bool
) -> None:
    two.fill(0, 0)
    thread = two.begin(orderly)
    two.fill(0, 0, 1)
    result, said = two.run("fast", B, *(["--orderly"] if orderly else []))
    assert (result["consumed"], result["queues_left"]) == (1, 1)
    assert "queue 0 of T is left to run " in said
    two.end(thread)
    assert (two.result["consumed"], two.offsets()) == (2, {0: 2, 1: 1})
    assert two.store.store.queue_locks.isEmpty()
    result, _ = two.run()
    assert (result["consumed"], result["queues_left"], two.offsets()) == (2, 0, {0: 4, 1: 1})
    of_queue = [offset for _, queue_id, offset in two.handed() if queue_id == 0]
    assert of_queue == [0, 1, 2, 3]


@pytest.mark.slow
def test_the_offsets_of_a_run_whose_locks_were_taken_over_are_refused(two: Two) -> None:
    two.fill(0, 0)
    thread = two.begin(orderly=True)
    two.fill(0, 0)
    later = B + LOCK_MS + CLOCKS_APART_MS + 1_000
    result, _ = two.run("fast", later, "--orderly")
    assert (result["consumed"], two.offsets()) == (4, {0: 4})
    two.end(thread)
    assert two.offsets() == {0: 4}
    result, _ = two.run("fast", later)
    assert result["consumed"] == 0


@pytest.mark.slow
def test_locks_are_renewed_while_a_run_reads(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_queues, "RENEWED_AFTER_SECONDS", 0.2)
    two.fill(0, 0)
    thread = two.begin(orderly=True)
    [lock] = two.store.store.queue_locks.collect()
    deadline = time.monotonic() + 60
    # It is held by the renewal alone: the lock itself has ended by the clock of the second run.
    while (renewed_until(two.store.store, lock.holder) or 0) < lock.expires_ms + 1_000:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    result, said = two.run("fast", lock.expires_ms + CLOCKS_APART_MS + 500, "--orderly")
    assert (result["consumed"], result["queues_left"]) == (0, 1), said
    two.end(thread)
    assert (two.result["consumed"], two.offsets()) == (2, {0: 2})


@pytest.mark.slow
def test_a_run_whose_locks_cannot_be_renewed_hands_nothing_more_over_once_they_ended(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise OSError("no space left")

    two.fill(0, 0, 0)
    with monkeypatch.context() as slow:
        slow.setattr(held_queues, "RENEWED_AFTER_SECONDS", 0.1)
        slow.setattr(held_queues, "LOCK_MS", 1_500)
        slow.setattr(held_queues, "renew", fails)
        slow.setattr(reader, "MESSAGES_OF_A_PAGE", 1)
        slow.setattr(reader, "ENTRIES_OF_A_PAGE", 1)
        thread = two.begin(orderly=True)
        time.sleep(2)
        two.end(thread)
    # Another run may have it by now, so what was read after the end is not recorded either.
    assert (two.handed(), two.offsets()) == ([["slow", 0, 0]], {})
    two.run("fast", B, "--orderly")
    assert two.handed()[1:] == [["fast", 0, offset] for offset in range(3)]


@pytest.mark.slow
def test_clients_with_queues_of_their_own_do_not_wait_for_each_other(two: Two) -> None:
    two.fill(0, 3)
    thread = two.begin(orderly=False)
    result, _ = two.run("fast", B, "--clients", "a,b", "--client-id", "b")
    assert (result["consumed"], result["queues_left"]) == (1, 0)
    two.end(thread)


@pytest.mark.slow
def test_a_store_of_an_earlier_version_gets_the_table(two: Two) -> None:
    forget_tables(two.store.store, QUEUE_LOCKS.generation)
    two.fill(0)
    assert two.run()[0]["consumed"] == 1
    assert two.store.store.queue_locks.isEmpty()
