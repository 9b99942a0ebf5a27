"""Backups beside processes that put, dispatch and read: the copy keeps every promise, and goes on."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.store.store import Store
from schemas import COMMITLOG
from tests.consume.listeners import Listeners
from tests.life import B, Life
from tests.scenes.processes import kill_when, start

WRITER = """
from itertools import count
from jobs.launch.cli import run

def job(*arguments):
    try:
        run([*arguments, "--store", {store!r}, "--quiet"])
    except SystemExit as ended:
        assert ended.code == 0, arguments

for n in count():
    job("put_messages", "--input", {source!r}, "--batch-id", {name!r} + str(n))
    job("dispatch")
    job("consume", "--group", "g", "--topic", "T", "--listener", "listeners_of_a_test:accept")
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_backups_beside_busy_writers_are_stores(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = life()
    listeners = Listeners(tmp_path, monkeypatch)
    source = store.input(*[{"topic": "T", "body": str(n), "keys": f"k{n}"} for n in range(20)])
    writers = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                WRITER.format(store=store.store.uri, source=str(source), name=name),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": f"{os.getcwd()}:{tmp_path}"},
        )
        for name in ("a", "b")
    ]
    to = tmp_path / "backup"
    try:
        appends = -1
        for backups in range(3):
            while store.store.snapshot().number(COMMITLOG) < appends + 3:
                assert all(writer.poll() is None for writer in writers)
                time.sleep(0.2)
            if backups == 1:  # one that is killed while it copies, wherever it is by then
                killed = start("backup", "--store", store.store.uri, "--to", to)
                kill_when(killed, to / "_backup.json", 1, with_jvm=True)
            appends = store.job("backup", B, "--to", to).result["append_seq"]
        assert all(writer.poll() is None for writer in writers)
    finally:
        for writer in writers:
            os.killpg(writer.pid, signal.SIGKILL)
            writer.wait()
    copied = Life(store.commitlake, Store(store.store.spark, str(to)), tmp_path)
    assert copied.rows() == store.rows()[: 20 * (appends + 1)]
    assert copied.job("validate", B, "--full").result["broken"] == 0
    copied.put(B, {"topic": "T"})
    copied.job("dispatch", B)
    listeners.handed()
    consumed = copied.job(
        "consume", B, "--group", "all", "--topic", "T", "--listener", listeners.name("accept")
    ).result["consumed"]
    assert consumed == copied.store.commitlog.count() == 20 * (appends + 1) + 1
