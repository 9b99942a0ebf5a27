"""Java starts before a command's code is loaded: the same answers, and nothing is left where the command ends early."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs.launch.cli import main
from jobs.launch.head_start import start_java
from jobs.launch.size_of_work import Work, typed
from tests.conftest import PROJECT

COMMAND = [sys.executable, "-c", "from jobs.launch.cli import main; main()"]


def started(arguments: list[str], folder: Path, **environment: str) -> subprocess.Popen:
    """A command as a process of its own, whose temporary files are in a folder; its JVM writes there too."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=PROJECT,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(PROJECT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(folder: Path) -> list[str]:
    """The processes that were started with this folder for temporary files, and live."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def wait_until_none(folder: Path) -> None:
    deadline = time.monotonic() + 30
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


@pytest.mark.slow
def test_a_command_that_starts_java_at_once_answers_and_leaves_no_file(tmp_path: Path) -> None:
    ran = started(["sql", "--store", str(tmp_path / "none"), "SELECT 1"], tmp_path)
    said, complaint = ran.communicate(timeout=120)
    assert (ran.returncode, json.loads(said)["status"]) == (2, "failed")
    assert "no store at" in complaint
    wait_until_none(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("tmp")] == []


@pytest.mark.quick
def test_wrong_options_end_the_java_that_was_started(tmp_path: Path) -> None:
    ran = started(["query", "by-key", "--store", str(tmp_path / "none"), "--kee", "k"], tmp_path)
    said, complaint = ran.communicate(timeout=60)
    assert (ran.returncode, json.loads(said)["status"]) == (2, "failed")
    assert "error: No such option: --kee" in complaint
    wait_until_none(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.quick
def test_a_java_that_is_not_there_is_reported_once(tmp_path: Path) -> None:
    ran = started(["sql", "--store", str(tmp_path), "SELECT 1"], tmp_path, JAVA_HOME=str(tmp_path / "none"))
    _, complaint = ran.communicate(timeout=60)
    assert ran.returncode == 1
    assert complaint.count("error: Spark did not start") == 1
    assert complaint.count("No such file or directory") == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_is_ended_while_java_starts_leaves_no_process(
    number: signal.Signals, tmp_path: Path
) -> None:
    ran = started(["sql", "--store", str(tmp_path / "none"), "SELECT 1"], tmp_path)
    deadline = time.monotonic() + 30
    while len(processes_of(tmp_path)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    ran.send_signal(number)
    _, complaint = ran.communicate(timeout=60)
    assert ran.returncode == (1 if number == signal.SIGINT else -number)
    assert ("interrupted before it began; nothing was changed" in complaint) == (number == signal.SIGINT)
    wait_until_none(tmp_path)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["doctor"], {}),
        (["sql", "--help"], {}),
        (["sql", "SELECT 1"], {"PYSPARK_GATEWAY_PORT": "1"}),
        (["sql", "SELECT 1"], {"PYSPARK_SUBMIT_ARGS": "pyspark-shell"}),
    ],
)
def test_java_is_not_started_where_another_one_is_used_or_none(
    arguments: list[str], variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    monkeypatch.setattr("jobs.launch.head_start.StartedJvm", lambda *settings: begun.append(settings))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    start_java(arguments)
    assert begun == []


@pytest.mark.quick
@pytest.mark.parametrize(
    "arguments",
    [
        ["dispatch", "--store", "{store}", "--rebuild"],
        ["run_cycle", "--every", "5", "--store={store}"],
        ["put_messages", "--store", "{store}", "--input", "{large}"],
        ["put_messages", "--input={large}", "--store", "{store}", "--quiet"],
        ["put_messages", "--store", "{store}", "--input", "hdfs:///in"],
        ["sql", "SELECT count(*) FROM messages", "--store", "{store}"],
        ["report", "--watch", "--store", "{store}"],
        ["query", "by-key", "a key", "--store", "s3a://bucket/store"],
        ["shell", "--store", "{store}"],
    ],
)
def test_work_is_judged_alike_by_arguments_that_are_not_parsed_yet(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobs.launch.cli import run

    large, store = tmp_path / "large", tmp_path / "store"
    with large.open("wb") as file:
        file.truncate(1 << 30)
    arguments = [part.format(store=store, large=large) for part in arguments]
    parsed: list[Work] = []

    def judged(run: object, *_: object) -> int:
        parsed.append(run.work)  # type: ignore[attr-defined]
        return 0

    monkeypatch.setattr("jobs.launch.job._run", judged)
    with pytest.raises(SystemExit):
        run(arguments)
    assert parsed == [Work.of(arguments[0], *typed(arguments[1:]))]


@pytest.mark.quick
@pytest.mark.parametrize("where", ["typer.main.get_command", "jobs.launch.cli.application"])
def test_a_control_c_before_typer_looks_for_one_is_said_in_a_sentence(
    where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupted)
    monkeypatch.setattr("jobs.launch.cli.start_java", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["commitlake", "sql", "--store", "s", "SELECT 1"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    out, complaint = capsys.readouterr()
    assert "interrupted before it began; nothing was changed" in complaint
    assert json.loads(out)["status"] == "failed"
