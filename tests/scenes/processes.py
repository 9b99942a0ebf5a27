"""Fresh processes for the scenes: started as a user starts them, killed as an operator or a kernel kills them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

# What a scene changes of a job's own limits, so that small inputs go in as several appends.
SMALL_APPENDS = "import pipelines.produce.put as put; put.APPEND_BYTES = 1; put.PARTS_OF_A_FILE = 2**40"


def start(*arguments: object, before: str = "") -> subprocess.Popen[str]:
    """`commitlake …` in a process group of its own; `before` is Python that runs first."""
    code = f"{before}\nfrom jobs.cli import main\nmain()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
    )


def wait_for(process: subprocess.Popen[str], happens: "Path", count: int, seconds: float = 180) -> None:
    """Return once `count` files match, or the process has ended, or so many seconds later."""
    deadline = time.monotonic() + seconds
    while len(list(happens.parent.glob(happens.name))) < count:
        if process.poll() is not None or time.monotonic() > deadline:
            break
        time.sleep(0.02)


def kill_when(
    process: subprocess.Popen[str], happens: "Path", count: int, delay: float, with_jvm: bool
) -> bool:
    """Kill -9 once `count` files match below `happens`, `delay` seconds later; False when it ended before.

    with_jvm  the whole group; else Python alone, whose JVM may go on and commit
    """
    wait_for(process, happens, count)
    time.sleep(delay)
    if process.poll() is not None:
        return False
    if with_jvm:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return True


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a process; its exit status and what it said."""
    out, err = process.communicate(timeout=300)
    return process.returncode, out + err
