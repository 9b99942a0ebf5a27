"""The main jobs on a real standalone cluster: a master and two workers with a bare Python and what `make package` made."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from pipelines.store.store import Store
from tests.conftest import JobRun, write_jsonl

PROJECT = Path(__file__).parents[2]
PROFILE = PROJECT / "dist" / "standalone.conf"
WORKERS = 2
PATIENCE_SECONDS = 120

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROFILE.exists(), reason="there is no package; make package"),
]


@dataclass(frozen=True)
class Cluster:
    """A master's address, and the folders its workers run executors in."""

    master: str
    folders: list[Path]

    def submit(self, job: str, *arguments: object, modules: Path = PROJECT) -> JobRun:
        """A job as the profile says, but for the size of this machine.

        modules  a folder with Python of the user's, where the driver alone finds it
        """
        here = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.executor.memory": "1g",
            "spark.executor.memoryOverhead": "384m",
            "spark.executor.cores": "1",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
        }
        settings = [word for name, value in here.items() for word in ("--conf", f"{name}={value}")]
        ran = subprocess.run(
            [PROJECT / ".venv/bin/spark-submit", "--properties-file", PROFILE, "--master", self.master, *settings,
             PROJECT / "jobs" / f"{job}.py", *map(str, arguments)],
            cwd=PROJECT, env=os.environ | {"PYTHONPATH": f"{PROJECT}:{modules}"},
            capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        lines = ran.stdout.splitlines()
        return JobRun(ran.returncode, json.loads(lines[-1]) if lines else {}, lines[:-1], ran.stderr)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    # The workers' machines: a Python 3.11 without packages, and nothing of this project.
    bare = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))
    }
    env = bare | {"PATH": f"{sys.base_prefix}/bin:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    with started(folder / "master.log", env, "master.Master", *here, "--port", "0") as log:
        master = said(log, r"Starting Spark master at (spark://\S+)")[0]
        folders = [folder / f"worker{number}" for number in range(WORKERS)]
        with (
            started(
                folder / "0.log", env, "worker.Worker", *here, "-c", "1", "-m", "2g", "-d", folders[0], master
            ),
            started(
                folder / "1.log", env, "worker.Worker", *here, "-c", "1", "-m", "2g", "-d", folders[1], master
            ),
        ):
            said(log, r"Registering worker", times=WORKERS)
            yield Cluster(master, folders)


@contextmanager
def started(log: Path, env: dict[str, str], part: str, *arguments: object) -> Iterator[Path]:
    """A part of Spark's own cluster, running; its log."""
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    command = [spark_class, f"org.apache.spark.deploy.{part}", *map(str, arguments)]
    with log.open("w") as output:
        process = subprocess.Popen(command, env=env, stdout=output, stderr=output, start_new_session=True)
    try:
        yield log
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)


def said(log: Path, pattern: str, times: int = 1) -> list[str]:
    """What a log says, once it has said it so many times."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found := re.findall(pattern, log.read_text())) < times:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)
    return found


# The user's own, which notes in its executor's folder what it was handed.
MODULE = """
from pathlib import Path
from pipelines.consume import ConsumeStatus
from pipelines.transaction import TransactionState

def note(kind, message):
    with Path(kind).open("a") as notes:
        notes.write(message.body.decode() + "\\n")

def check(message):
    note("checked", message)
    return TransactionState[message.body.decode()]

def listen(message):
    note("handed", message)
    return ConsumeStatus.RECONSUME_LATER if message.body == b"1-2" else ConsumeStatus.CONSUME_SUCCESS

class Even:
    def match(self, message, context):
        return message.tags == "even"
"""


@pytest.mark.nightly
def test_a_cycle_and_a_group_on_two_workers(
    cluster: Cluster, new_store: Callable[..., Store], commitlake: Callable[..., JobRun], tmp_path: Path
) -> None:
    store = new_store()
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "code_of_the_driver.py").write_text(MODULE)
    half = {
        "topic": "T",
        "transaction": True,
        "producer_group": "p",
        "born_timestamp": int(time.time() * 1_000) - 60_000,
    }
    halves = [{**half, "body": state} for state in ("COMMIT", "ROLLBACK")]
    earlier = write_jsonl(
        tmp_path / "earlier.jsonl", [{"topic": "T", "body": "due", "delay_level": 1}] * 4 + halves
    )
    commitlake("put_messages", "--store", store.uri, "--input", earlier, "--quiet")
    # Several files, so that there is work for both.
    messages = tmp_path / "messages"
    messages.mkdir()
    for number in range(4):
        rows = [
            {
                "topic": "T",
                "body": f"{number}-{row}",
                "tags": "even" if row % 2 == 0 else "odd",
                "keys": f"k{row}",
            }
            for row in range(500)
        ]
        write_jsonl(messages / f"{number}.jsonl", rows)

    def noted(kind: str) -> list[str]:
        """What the user's code has noted on the executors."""
        notes = [note for folder in cluster.folders for note in folder.glob(f"app-*/*/{kind}")]
        return sorted(body for note in notes for body in note.read_text().split())

    arguments = ("--store", store.uri, "--input", messages, "--checker", "code_of_the_driver:check")
    cycle = cluster.submit("run_cycle", *arguments, modules=modules)
    assert cycle.exit_status == 0, cycle.stderr
    assert cycle.result["put_messages"]["appended"] == 2000
    assert cycle.result["deliver"]["delivered"] == 4
    asked = cycle.result["check_transactions"]
    assert (asked["checked"], asked["committed"], asked["rolled_back"]) == (2, 1, 1)
    assert noted("checked") == ["COMMIT", "ROLLBACK"]
    # The four parked, the two thousand put, and the copies of the four, which are due; the two halves, their questions, the
    # message committed, and a mark of each end.
    assert cycle.result["dispatch"]["queue_entries"] == 2008 + 7

    # Both workers have had executors, with the packages unpacked beside them.
    assert all(list(folder.glob("app-*/*/packages/pyarrow")) for folder in cluster.folders)
    offsets = commitlake(
        "sql", "--store", store.uri, "--output", "json", "--quiet",
        "SELECT queue_id, count(*) AS n, max(queue_offset) + 1 AS next FROM messages WHERE topic = 'T' GROUP BY queue_id",
    )  # fmt: skip
    counted = [json.loads(line) for line in offsets.lines]
    assert sum(queue["n"] for queue in counted) == 2005
    assert all(queue["n"] == queue["next"] for queue in counted)

    group = ("--group", "g", "--topic", "T", "--listener", "code_of_the_driver:listen")
    even = ("--filter-type", "CLASS", "--filter", "code_of_the_driver:Even")
    read = cluster.submit("consume", "--store", store.uri, *group, *even, modules=modules)
    assert read.exit_status == 0, read.stderr
    assert (read.result["consumed"], read.result["sent_back"], read.result["filtered"]) == (999, 1, 1005)
    assert noted("handed") == sorted(f"{number}-{row}" for number in range(4) for row in range(0, 500, 2))


@pytest.mark.nightly
def test_an_import_on_two_workers(
    cluster: Cluster, golden_broker: Callable[[str], Path], tmp_path: Path
) -> None:
    imported = cluster.submit(
        "import_store", "--store", tmp_path / "store", "--from", golden_broker("a"), "--quiet"
    )
    assert imported.exit_status == 0, imported
    assert imported.result["messages"] == 958
