"""`commitlake shell`: many commands in one session."""

import io
import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.shell import _history, _words
from tests.conftest import PROJECT, JobRun
from tests.life import Life


@pytest.mark.quick
def test_jobs_their_options_and_the_words_of_their_arguments_are_completed() -> None:
    words = _words()
    assert {"by-key", "election", "--topic"} <= words["query"].keys()
    assert {"create", "list-groups", "--queues"} <= words["topics"].keys()
    assert {"exit", "sql", "run_cycle"} <= words.keys()
    assert not {"shell", "register"} & words.keys()


def test_lines_of_a_file_are_commands_on_one_store(
    commitlake: Callable[..., JobRun], life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = life()
    source = store.input({"topic": "T", "body": "it's"})
    lines = f"""
        # what a script would say
        put_messages --input {source} --quiet
        commitlake sql --output json --quiet "SELECT CAST(body AS STRING) AS body FROM commitlog"
        sql "SELECT 'open
        query by-key --topic T --output json -- -x
        topics create T --queues 0
        register --database d
        exit
        deliver
    """
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    run = commitlake("shell", "--store", store.store.uri, "--quiet")
    assert (run.result["jobs"], run.result["failed"]) == (6, 3)
    assert (run.exit_status, run.result["status"]) == (2, "failed"), "as the last that failed"
    assert [json.loads(line).get("job") for line in run.lines] == [
        "put_messages", None, "sql", "query", "topics",
    ]  # fmt: skip
    assert json.loads(run.lines[1]) == {"body": "it's"}
    assert "No closing quotation" in run.stderr
    assert "register is a command of its own" in run.stderr


@pytest.mark.quick
def test_lines_are_remembered_in_a_file_where_there_is_room_for_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    _history().store_string("deliver")
    assert "+deliver" in (tmp_path / "commitlake" / "history").read_text()
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/no home")
    _history().store_string("deliver")


def test_commands_of_a_file(
    commitlake: Callable[..., JobRun], life: Callable[..., Life], tmp_path: Path
) -> None:
    (tmp_path / "night.commitlake").write_text("topics create T --quiet\n\n  # and\ntopics list --quiet")
    run = commitlake("shell", "--store", life().store.uri, "--file", tmp_path / "night.commitlake", "--quiet")
    assert (run.exit_status, run.result["jobs"], run.result["failed"]) == (0, 2, 0)
    (tmp_path / "latin").write_bytes(b"topics create \xe9")
    run = commitlake("shell", "--store", life().store.uri, "--file", tmp_path / "latin", "--quiet")
    assert (run.exit_status, "is not UTF-8 text" in run.stderr) == (2, True)


def test_a_store_that_is_not_there_is_refused(commitlake: Callable[..., JobRun], tmp_path: Path) -> None:
    assert commitlake("shell", "--store", tmp_path / "none").exit_status == 2


@pytest.mark.slow
def test_a_person_types_completes_and_ends(life: Callable[..., Life], tmp_path: Path) -> None:
    store = life()
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", "from jobs.launch.cli import main; main()", "shell", "--store", store.store.uri],
        stdin=terminal, stdout=terminal, stderr=terminal, cwd=PROJECT,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "xterm"}, start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    shown = b""

    def until(text: bytes, seconds: float = 120) -> None:
        nonlocal shown
        ends = time.monotonic() + seconds
        while text not in shown:
            assert select.select([master], [], [], max(0.0, ends - time.monotonic()))[0], shown
            shown += os.read(master, 65_536)
            if b"\x1b[6n" in shown:  # the terminal is asked where its cursor is
                os.write(master, b"\x1b[1;1R")
                shown = shown.replace(b"\x1b[6n", b"")
        shown = shown.partition(text)[2]

    until(b"Tab completes")
    os.write(master, b"topics li\t")
    until(b"list")
    os.write(master, b"\x15sql 'SELECT 400000 + 56789 AS answer'\r")
    until(b"456789")
    until(b'"rows"')
    time.sleep(2)  # until it prompts again
    os.write(master, b"\x03")
    os.write(master, b"\x04")
    until(b'"job": "shell", "status": "ok"')
    assert process.wait(60) == 0
    history = (tmp_path / "commitlake" / "history").read_text()
    assert "+sql 'SELECT 400000 + 56789 AS answer'" in history
