"""Which commands are small, judged by files alone."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from jobs.launch.cli import run as run_command
from jobs.launch.size_of_work import MODERATE_BYTES, SMALL_BYTES, Work, is_moderate, is_small
from pipelines.errors import BadInput


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of a large log, all of it dispatched; its files are holes."""
    store = tmp_path / "store"
    for name in ("commitlog/segment=0", "parked", "progress/_delta_log", "commitlog/_delta_log"):
        (store / name).mkdir(parents=True)
    commits = {0: 500_000, 1: 2_000_000}
    for number, timestamp in commits.items():
        actions = [{"protocol": {}}, {"commitInfo": {"timestamp": timestamp}}]
        log = store / "progress" / "_delta_log" / f"{number:020d}.json"
        log.write_text("\n".join(map(json.dumps, actions)))
    large(store / "commitlog/segment=0/part.parquet")
    for folder in (store / "commitlog/segment=0", store / "commitlog"):
        os.utime(folder, (1_000, 1_000))
    return store


def large(file: Path, size: int = SMALL_BYTES + 1) -> None:
    with file.open("wb") as out:
        out.truncate(size)


def test_jobs_that_read_a_few_files_are_small_whatever_the_store_holds(store: Path) -> None:
    assert is_small("query", str(store), {"key": "k"})
    assert not is_small("sql", str(store), {"statement": "SELECT 1"})
    assert not is_small("validate", str(store), {})


def test_a_tick_is_small_where_little_is_new_and_little_waits(store: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"input_": None, "every": None}
    for job in ("dispatch", "deliver", "put_messages", "run_cycle"):
        assert is_small(job, f"file://{store}", options), job
    assert not is_small("dispatch", str(store), {"rebuild": True})
    source = tmp_path / "input.jsonl"
    large(source)
    assert not is_small("put_messages", str(store), {"input_": str(source)})
    assert not is_small("put_messages", str(store), {"input_": source.as_uri()})
    large(source, 100)
    assert is_small("put_messages", str(store), {"input_": str(source)})
    large(store / "parked/part.parquet")
    assert not is_small("deliver", str(store), options)
    large(store / "parked/part.parquet", 100)
    large(store / "commitlog/segment=0/new.parquet")
    assert not is_small("dispatch", str(store), options)


def test_nothing_is_known_of_what_lies_elsewhere(store: Path) -> None:
    assert not is_small("dispatch", "s3a://bucket/store", {})
    assert not is_small("put_messages", str(store), {"input_": "hdfs:///in"})


def test_in_a_copy_of_a_store_what_was_dispatched_is_not_known_by_the_times_of_files(store: Path) -> None:
    for folder in (store / "commitlog/segment=0", store / "commitlog"):
        os.utime(folder, (3_000, 3_000))
    assert not is_small("dispatch", str(store), {})


def test_a_query_of_a_moderate_store_is_not_compiled_for_speed(store: Path) -> None:
    assert is_moderate("sql", str(store), {"statement": "SELECT 1"})
    assert not is_moderate("export_store", str(store), {})
    large(store / "commitlog/segment=0/part.parquet", MODERATE_BYTES + 1)
    assert not is_moderate("sql", str(store), {"statement": "SELECT 1"})


@pytest.mark.parametrize(
    ("job", "options", "may"),
    [
        ("dispatch", {}, False),
        ("import_store", {"from_": "/broker"}, False),
        ("put_messages", {"input_": "/in.jsonl", "selector": "hash", "batch_id": None}, False),
        ("put_messages", {"input": "hdfs://host:9000/in"}, False),
        ("put_messages", {"selector": "my.own_module:choose"}, True),
        ("put_messages", {"hook": "2024-größen:Hook"}, True),
        ("put_messages", {"local-transaction": "हिन्दी:f"}, True),
        ("consume", {}, True),
        ("shell", {}, True),
        ("report", {"watch": 60}, True),
    ],
)
def test_data_sources_in_python_are_looked_for_where_a_users_function_may_run(
    tmp_path: Path, job: str, options: dict[str, Any], may: bool
) -> None:
    assert Work.of(job, str(tmp_path), options).runs_users_code == may


def test_a_small_store_is_small_for_all(tmp_path: Path) -> None:
    for job in ("sql", "report", "validate", "import_store", "consume"):
        assert is_small(job, str(tmp_path / "none"), {"from_": "no such thing", "listener": "module:name"}), (
            job
        )


@pytest.mark.parametrize(
    ("command", "is_lasting"),
    [
        (["report", "--out", "page.html"], False),
        (["report", "--watch"], True),
        (["run_cycle"], False),
        (["run_cycle", "--every", "5"], True),
        (["shell"], True),
        (["deliver"], False),
    ],
)
def test_only_what_goes_on_after_its_first_answer_is_compiled_for_speed(
    command: list[str], is_lasting: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def session(*_: Any, is_short: bool, **__: Any) -> None:
        asked.append(is_short)
        raise BadInput("no session is started")

    monkeypatch.setattr("jobs.launch.run.session", session)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        run_command([*command, "--store", str(tmp_path / "store")])
    assert asked[0] is not is_lasting
