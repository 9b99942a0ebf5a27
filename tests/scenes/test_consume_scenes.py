"""Groups that are killed, raced and reset while they read: nothing is skipped, each failure is sent back once."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.life import B, Life
from tests.scenes.processes import Moment, end, kill_at, kill_when, start, wait_for

MESSAGES = 12

LISTENER = """
import os, time
from pathlib import Path
from pipelines.consume import ConsumeStatus

DIRECTORY = Path({directory!r})

def listen(message):
    (DIRECTORY / f"handed-{{message.queue_id}}-{{message.queue_offset}}-{{os.getpid()}}").touch()
    while (DIRECTORY / "hold").exists():
        time.sleep(0.05)
    return at_once(message)

def at_once(message):
    number = int(message.body)
    return ConsumeStatus.RECONSUME_LATER if number % 3 == 0 else ConsumeStatus.CONSUME_SUCCESS
"""


class Group:
    """A group whose listener notes in files what it was handed, and waits while there is a file `hold`."""

    def __init__(self, store: Life, directory: Path) -> None:
        self.store, self.directory = store, directory
        (directory / "listener_of_a_scene.py").write_text(LISTENER.format(directory=str(directory)))
        self.fill()
        self.arguments = ("--group", "g", "--topic", "T", "--listener", "listener_of_a_scene:listen")

    def fill(self) -> None:
        """As many messages again, in three queues."""
        self.store.put(B, *[{"topic": "T", "queue_id": n % 3, "body": str(n)} for n in range(MESSAGES)])
        self.store.job("dispatch", B)

    @property
    def path(self) -> str:
        """Where a process of its own finds the listener."""
        return f"import sys; sys.path.insert(0, {str(self.directory)!r})"

    def start(self, *more: str) -> "subprocess.Popen[str]":
        arguments = (*self.arguments, *more)
        return start("consume", "--store", self.store.store.uri, "--now", B, *arguments, before=self.path)

    def kill_at(self, moment: Moment, with_jvm: bool) -> None:
        """Kill a run at this moment of the commit that sends its failures back."""
        log, arguments = Path(self.store.store.uri) / "commitlog", ("--now", B, *self.arguments)
        command = ("consume", "--store", self.store.store.uri, *arguments)
        kill_at(moment, log, *command, with_jvm=with_jvm, before=self.path)

    def run(self) -> dict[str, int]:
        return self.store.job("consume", B, *self.arguments).result

    def wait_until_it_reads(self, process: "subprocess.Popen[str]") -> None:
        wait_for(process, self.directory / "handed-*", 1, seconds=120)
        assert process.poll() is None, end(process)
        assert self.places()

    def offsets(self) -> list[int | None]:
        """Where the group goes on in each of the three queues."""
        rows = self.store.store.consumer_offsets.where("topic = 'T'").collect()
        offsets = {row.queue_id: row.next_offset for row in rows}
        return [offsets.get(queue) for queue in range(3)]

    def places(self) -> set[str]:
        """Which messages have been handed over, by anyone."""
        return {file.name.rpartition("-")[0] for file in self.directory.glob("handed-*")}

    def expect_all_settled(self) -> None:
        """Every message was handed over; each failure is on its way back once; progress is at the end."""
        assert len(self.places()) == MESSAGES
        sources = [row.source_offset for row in self.store.rows() if row.purpose == "retry"]
        assert len(sources) == len(set(sources)) == MESSAGES // 3
        assert self.offsets() == [MESSAGES // 3] * 3
        self.store.expect_promises()


@pytest.fixture
def group(life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Group:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "listener_of_a_scene", raising=False)
    return Group(life(), tmp_path)


@pytest.mark.nightly
def test_a_run_killed_before_its_failures_are_sent_back_loses_nothing(group: Group) -> None:
    (group.directory / "hold").touch()
    kill_when(group.start(), group.directory / "handed-*", 1, with_jvm=False)
    os.remove(group.directory / "hold")
    group.kill_at(Moment.BEFORE, with_jvm=True)
    group.kill_at(Moment.DURING, with_jvm=True)
    assert not [row for row in group.store.rows() if row.purpose == "retry"]
    assert group.offsets() == [None] * 3
    group.run()
    group.expect_all_settled()


@pytest.mark.slow
def test_a_run_killed_between_its_append_and_its_offsets_does_not_ask_again_about_failures(
    group: Group,
) -> None:
    group.kill_at(Moment.AFTER, with_jvm=True)
    handed = {file.name for file in group.directory.glob("handed-*")}
    again = group.run()
    # What was sent back is settled; what succeeded was not recorded, so it comes again: at least once.
    assert (again["consumed"], again["failed"]) == (MESSAGES - MESSAGES // 3, 0)
    assert len({file.name for file in group.directory.glob("handed-*")} - handed) == MESSAGES - MESSAGES // 3
    group.expect_all_settled()


@pytest.mark.nightly
def test_two_runs_of_a_group_at_once_send_each_failure_back_once(group: Group) -> None:
    for process in [group.start(), group.start()]:
        status, said = end(process)
        assert status == 0, said
    group.expect_all_settled()


@pytest.mark.nightly
@pytest.mark.slow
def test_two_orderly_runs_at_once_hand_each_message_over_once(group: Group) -> None:
    (group.directory / "hold").touch()
    first = group.start("--orderly")
    group.wait_until_it_reads(first)
    status, said = end(group.start("--orderly"))
    assert (status, '"queues_left": 3' in said) == (0, True), said
    assert group.offsets() == [None, None, None]
    os.remove(group.directory / "hold")
    status, said = end(first)
    assert status == 0, said
    # The first message of queue 0 fails, so that the queue waits at it.
    assert group.offsets() == [0, MESSAGES // 3, MESSAGES // 3]
    assert len(list(group.directory.glob("handed-*"))) == 1 + 2 * MESSAGES // 3


@pytest.mark.nightly
def test_a_slow_run_does_not_overwrite_a_reset(group: Group) -> None:
    (group.directory / "hold").touch()
    process = group.start()
    group.wait_until_it_reads(process)
    group.store.job("reset_offsets", B, "--group", "g", "--topic", "T", "--to-offset", 1)
    os.remove(group.directory / "hold")
    status, said = end(process)
    assert status == 0, said
    assert "was reset while it was read" in said
    assert group.offsets() == [1, 1, 1]
    assert all(
        row.next_offset == 1 for row in group.store.store.consumer_offsets.where("queue_id < 3").collect()
    )
    assert not [row for row in group.store.rows() if row.purpose == "retry"]
    again = group.run()
    assert again["consumed"] + again["failed"] == MESSAGES - 3


@pytest.mark.nightly
def test_a_client_that_lost_its_queues_moves_none_of_them_back(group: Group) -> None:
    (group.directory / "hold").touch()
    alone = group.start("--clients", "a", "--client-id", "a")
    group.wait_until_it_reads(alone)
    # While it is busy another one joins, gets the last queue and reads it, and what has come since.
    group.fill()
    joined = (*group.arguments[:-1], "listener_of_a_scene:at_once", "--clients", "a,b", "--client-id", "b")
    counts = group.store.job("consume", B, *joined).result
    assert counts["consumed"] + counts["failed"] == 2 * MESSAGES // 3
    assert group.offsets() == [None, None, 2 * MESSAGES // 3]
    os.remove(group.directory / "hold")
    status, said = end(alone)
    assert status == 0, said
    assert group.offsets() == [MESSAGES // 3, MESSAGES // 3, 2 * MESSAGES // 3]
    rest = group.run()
    assert rest["consumed"] + rest["failed"] == 2 * MESSAGES // 3
    sources = [row.source_offset for row in group.store.rows() if row.purpose == "retry"]
    assert len(sources) == len(set(sources)) == 2 * MESSAGES // 3, "each failure is on its way back once"
    group.store.expect_promises()
