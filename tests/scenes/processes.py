"""Fresh processes for the scenes: started as a user starts them, killed as an operator or a kernel kills them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path

# What a scene changes of a job's own limits, so that small inputs go in as several appends.
SMALL_APPENDS = (
    "import pipelines.produce.counted_input as put; put.APPEND_BYTES = 1; put.PARTS_OF_A_FILE = 2**40"
)

# Process groups of which Python was killed and nothing else.
_orphans: list[int] = []


class Moment(Enum):
    """When a run is killed, seen from one commit of it."""

    BEFORE = "before"  # planned; nothing is written
    DURING = "during"  # data files are there; the commit that names them is not
    AFTER = "after"  # committed; what follows it (further appends, caches, the result) is not


# The run stops itself right before, or right after, its nth commit to a table.
STOPS = """
import os, signal
import pipelines.store.commit as commit
save, saves = commit.save, []
def stopping(store, write, *arguments):
    is_of_table = write.table.name == "{table}"
    saves.extend([write] if is_of_table else [])
    is_it = is_of_table and len(saves) == {nth}
    if is_it and "{moment}" == "before":
        os.kill(os.getpid(), signal.SIGSTOP)
    save(store, write, *arguments)
    if is_it and "{moment}" == "after":
        os.kill(os.getpid(), signal.SIGSTOP)
commit.save = stopping
"""


def start(*arguments: object, before: str = "") -> "subprocess.Popen[str]":
    """`commitlake …` in a process group of its own; `before` is Python that runs first."""
    code = f"{before}\nfrom jobs.launch.cli import main\nmain()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
    )


def wait_for(process: "subprocess.Popen[str]", happens: Path, count: int, seconds: float = 180) -> None:
    """Return once `count` files match, or the process has ended, or so many seconds later."""
    deadline = time.monotonic() + seconds
    while _matching(happens) < count:
        if process.poll() is not None or time.monotonic() > deadline:
            break
        time.sleep(0.02)


def kill_at(
    moment: Moment,
    table: Path,
    *arguments: object,
    with_jvm: bool,
    nth: int = 1,
    before: str = "",
    altered: int = 0,
) -> None:
    """Run `commitlake …` and kill -9 it before, during or after its nth commit to a table.

    The log of the table proves the moment; a run that ends before it, or a kill at another moment, fails the test.

    table     the directory of the table
    with_jvm  the whole group is killed; else Python alone, whose JVM may go on and commit
    altered   commits before it that write no rows: of ALTER TABLE
    """
    assert moment is not Moment.DURING or nth == 1, "a first commit takes long enough to be seen"
    _wait_for_orphans()  # what they commit is not this run's
    # An import makes the table itself, which is a commit of its own.
    commits, files = max(1, _commits(table)), _data_files(table)
    stops = STOPS.format(table=table.name, nth=nth, moment=moment.value)
    process = start(*arguments, before=f"{before}\n{stops}")
    if moment is Moment.DURING:
        _wait_until(process, lambda: bool(_data_files(table) - files))
        os.killpg(process.pid, signal.SIGSTOP)
    else:
        _wait_until(process, lambda: _has_stopped(process))
    time.sleep(0.05)  # a JVM of many threads stops a moment later
    found = _commits(table) - commits - altered
    new_files = bool(_data_files(table) - files)
    _kill(process, with_jvm)
    assert found == (nth if moment is Moment.AFTER else nth - 1), f"killed at another moment than {moment}"
    assert new_files == (moment is not Moment.BEFORE or nth > 1), f"killed at another moment than {moment}"


def kill_when(process: "subprocess.Popen[str]", happens: Path, count: int, with_jvm: bool) -> None:
    """Kill -9 once `count` files match; a process that ends before fails the test.

    with_jvm  the whole group; else Python alone, whose JVM may go on and commit
    """
    _wait_until(process, lambda: _matching(happens) >= count)
    _kill(process, with_jvm)


def end(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Wait for a process; its exit status and what it said."""
    out, err = process.communicate(timeout=300)
    return process.returncode, out + err


def _matching(pattern: Path) -> int:
    """How many files match; folders of the pattern may have wildcards too."""
    return len(list(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))))


def _wait_until(process: "subprocess.Popen[str]", happens: Callable[[], bool], seconds: float = 180) -> None:
    """Return when it happens; a process that ends before, or takes longer, fails the test and is gone."""
    deadline = time.monotonic() + seconds
    while not happens():
        assert process.poll() is None, f"ended before it could be killed: {end(process)}"
        if time.monotonic() > deadline:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"did not come as far within {seconds} seconds: {end(process)}")
        time.sleep(0.005)


def _kill(process: "subprocess.Popen[str]", with_jvm: bool) -> None:
    if with_jvm:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        os.kill(process.pid, signal.SIGKILL)
        os.killpg(process.pid, signal.SIGCONT)  # its JVM, which may have been stopped with it
        _orphans.append(process.pid)
    assert process.wait() == -signal.SIGKILL, "ended by itself before the kill struck"


def _wait_for_orphans() -> None:
    """Return when JVMs that have outlived their Python are gone, which takes them a second or two."""
    deadline = time.monotonic() + 30
    while _orphans and time.monotonic() < deadline:
        try:
            os.killpg(_orphans[-1], 0)
            time.sleep(0.05)
        except ProcessLookupError:
            _orphans.pop()


def _has_stopped(process: "subprocess.Popen[str]") -> bool:
    """Whether the process has stopped itself; what is noticed here stays to be noticed by others."""
    kinds = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, kinds) is not None


def _commits(table: Path) -> int:
    return len(list((table / "_delta_log").glob("[0-9]*.json")))


def _data_files(table: Path) -> set[Path]:
    return set(table.rglob("part-*.parquet"))
