"""Ctrl-C while Spark's JVM commits: Python is interrupted, the JVM goes on, and the lock is kept until it has ended."""

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.store.lock import LOCK_FILE, under_lock
from schemas import COMMITLOG
from tests.life import Life
from tests.scenes.processes import end, start, wait_for

# The JVM waits, in the middle of the commit to the log, for Delta's own lock of the table, which another thread has.
SLOW_COMMIT = """
import pathlib, threading, time
import pipelines.store.commit as module
expect_head = module.expect_head
def slow(store, write):
    newest = expect_head(store, write)
    if write.table.name == "commitlog":
        held = threading.Event()
        def hold():
            lock = store.delta(write.table).delta_log.snapshotLock()
            lock.lock()
            held.set()
            time.sleep({seconds})
            lock.unlock()
        threading.Thread(target=hold, daemon=True).start()
        held.wait()
        pathlib.Path({flag!r}).touch()
    return newest
module.expect_head = slow
"""


class SlowPut:
    """A put in a process of its own whose only commit takes some seconds in the JVM, and what others see of it."""

    def __init__(self, store: Life, directory: Path, seconds: int) -> None:
        self.store = store
        self.arguments = ("--input", store.input(*[{"topic": "T", "body": str(n)} for n in range(4)]))
        flag = directory / "commits"
        before = SLOW_COMMIT.format(seconds=seconds, flag=str(flag))
        self.process = start("put_messages", "--store", store.store.uri, *self.arguments, before=before)
        wait_for(self.process, flag, 1)
        time.sleep(0.5)
        assert self.process.poll() is None

    def press_control_c(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)  # a terminal tells all of its processes

    def has_lock(self) -> bool:
        with Path(self.store.store.uri, LOCK_FILE).open("r+b") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def version(self) -> int:
        return self.store.store.delta(COMMITLOG).update().version

    def versions_while_another_holds_the_lock(self) -> set[int]:
        """Those of the log at the beginning and at the end of three seconds in which nobody else may commit."""

        def look() -> set[int]:
            first = self.version()
            time.sleep(3)
            return {first, self.version()}

        return under_lock(self.store.store.spark, self.store.store.uri, look)

    def put_again(self) -> dict[str, int]:
        return self.store.commitlake(
            "put_messages", "--store", self.store.store.uri, "--quiet", *self.arguments
        ).result

    def expect_each_once(self) -> None:
        assert sorted(bytes(row.body).decode() for row in self.store.rows()) == ["0", "1", "2", "3"]
        self.store.expect_promises()


@pytest.mark.slow
def test_control_c_in_a_commit_waits_for_it_and_keeps_the_lock(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    put = SlowPut(life(), tmp_path, seconds=8)
    before = put.version()
    put.press_control_c()
    time.sleep(2)
    assert put.has_lock()
    assert put.versions_while_another_holds_the_lock() == {before + 1}
    status, said = end(put.process)
    assert status == 1
    assert "a commit is under way and is waited for; press Ctrl-C again" in said
    assert "error: put_messages was interrupted; nothing is lost, it is safe to run again" in said
    assert "Traceback" not in said
    assert put.put_again()["already"] == 4
    put.expect_each_once()


@pytest.mark.nightly
def test_a_second_control_c_ends_the_process_and_the_lock_is_the_jvms_to_its_end(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    put = SlowPut(life(), tmp_path, seconds=300)
    before = put.version()
    put.press_control_c()
    time.sleep(1)
    assert put.has_lock()
    put.press_control_c()
    try:
        put.process.wait(30)
    except subprocess.TimeoutExpired:
        pytest.fail("it still waits for the commit")
    assert put.versions_while_another_holds_the_lock() == {before}
    status, said = end(put.process)
    assert status == 1
    assert "error: put_messages was interrupted; nothing is lost, it is safe to run again" in said
    assert put.put_again()["appended"] == 4
    put.expect_each_once()
