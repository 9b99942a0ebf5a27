"""`commitlake settings`: shown, changed, and what cannot be changed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas import STORE_SETTINGS
from tests.conftest import JobRun, write_jsonl


@pytest.fixture
def job(commitlake: Callable[..., JobRun], new_store: Callable[..., Any]) -> Callable[..., JobRun]:
    store = new_store(maxMessageSize="100", fileReservedTime="9")

    def settings(*arguments: str, exit_status: int = 0) -> JobRun:
        run = commitlake("settings", "--store", store.uri, *arguments)
        assert run.exit_status == exit_status, run.stderr
        return run

    settings.store = store  # type: ignore[attr-defined]
    return settings


def given(store: Any) -> dict[str, str]:
    return {row.name: row.value for row in store.store_settings.collect()}


@pytest.mark.slow
def test_settings_are_set_and_unset_and_messages_fix_some(commitlake, job):
    store = job.store
    run = job("set", "maxMessageSize=200", "slaveReadEnable=true", "mappedFileSizeCommitLog=5000")
    assert run.result["changed"] == 3
    assert "maxMessageSize: 100 -> 200" in run.stderr
    assert "slaveReadEnable: false -> true" in run.stderr
    after = {
        "maxMessageSize": "200", "slaveReadEnable": "true", "mappedFileSizeCommitLog": "5000", "fileReservedTime": "9",
    }  # fmt: skip
    assert given(store) == after
    version = store.snapshot().version(STORE_SETTINGS)
    assert job("set", "maxMessageSize=200").result["changed"] == 0
    assert job("set", "maxMessageSize=300", "--dry-run").result["changed"] == 0
    for refused in ("brokerRole=SLAVE", "brokerId=3", "haMasterAddress=/x"):
        assert "cannot be changed like this" in job("set", refused, exit_status=2).stderr
    assert "is not known" in job("set", "maxMessageSiz=1", exit_status=2).stderr
    assert "is not known" in job("unset", "maxMessageSiz", exit_status=2).stderr
    assert "names no setting" in job("set", exit_status=2).stderr
    assert 'a setting is "maxMessageSize"' in job("set", "maxMessageSize", exit_status=2).stderr
    job("set", "brokerRole=SYNC_MASTER", "brokerRole=ASYNC_MASTER")
    put = write_jsonl(Path(store.uri).parent / "one.jsonl", [{"topic": "T", "body": "b"}])
    assert commitlake("put_messages", "--store", store.uri, "--input", put).exit_status == 0
    for fixed in (("set", "mapedFileSizeCommitLog=6000"), ("unset", "mappedFileSizeCommitLog")):
        assert "the store has messages that lie or wait by it" in job(*fixed, exit_status=2).stderr
    job("set", "mapedFileSizeCommitLog=5000", "fileReservedTime=8")
    assert store.snapshot().version(STORE_SETTINGS) == version + 2
    run = job("unset", "fileReservedTime", "slaveReadEnable", "messageDelayLevel")
    assert (run.result["changed"], "fileReservedTime: 8 -> 72" in run.stderr) == (2, True)
    assert "fileReservedTime" not in given(store)
    assert commitlake("put_messages", "--store", store.uri, "--input", put).result["already"] == 1


def test_what_a_store_goes_by_is_shown(job):
    shown = {each["name"]: each for each in map(json.loads, job("show", "--output", "json").lines)}
    assert shown["maxMessageSize"] == {
        "name": "maxMessageSize", "value": "100", "given": True, "meaning": "bytes of the largest body",
    }  # fmt: skip
    assert (shown["slaveReadEnable"]["value"], shown["slaveReadEnable"]["given"]) == ("false", False)
    run = job("show", "deleteWhen", "flushDiskType", "mapedFileSizeCommitLog", "--output", "json")
    told = [(each["value"], each["meaning"]) for each in map(json.loads, run.lines)]
    assert told == [
        ("04", "hours of the day at which segments expire"),
        ("", "without effect here"),
        ("1073741824", "as mappedFileSizeCommitLog"),
    ]
    assert "deleteWhen" in job("show").stderr
    assert "is not known" in job("show", "deleteWhn", exit_status=2).stderr
