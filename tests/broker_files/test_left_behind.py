"""What an import leaves behind is said, and only where there is something."""

import json
from pathlib import Path

import pytest

from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.export_note import UNDER_WAY
from pipelines.broker_files.left_behind import left_behind


@pytest.mark.quick
def test_files_of_a_broker_that_are_not_taken_along_are_said(tmp_path: Path) -> None:
    config = tmp_path / "config"
    (config / "topics").mkdir(parents=True)
    (config / "consumerOffsets").mkdir()
    (config / "consumerOffset.json").write_text("{}")
    for name in ("topics", "consumerOffsets"):
        (config / name / "CURRENT").write_text("MANIFEST-000004\n")
    (config / "messageRequestMode.json").write_text('{"messageRequestModeMap":{"T":{"g":{"mode":"POP"}}}}')
    (config / "consumerOrderInfo.json").write_text('{"table":{},"dataVersion":{"counter":3}}')
    said = list(left_behind(BrokerDirectory(str(tmp_path)), {}))
    assert [line.split()[0] for line in said] == [
        "config/messageRequestMode.json", "config/topics", "config/consumerOffsets"
    ]  # fmt: skip
    assert "it is left out" in said[1]
    assert "consumerOffset.json beside it is read" in said[2]


@pytest.mark.quick
def test_databases_instead_of_files_are_said(tmp_path: Path) -> None:
    (tmp_path / "config" / "rdb").mkdir(parents=True)
    (tmp_path / "consumequeue").mkdir()
    (tmp_path / "config" / "topics.json").write_text("{}")
    for path in ("config/rdb", "consumequeue"):
        (tmp_path / path / "CURRENT").write_text("MANIFEST-000004\n")
    queues, config = left_behind(BrokerDirectory(str(tmp_path)), {})
    assert "consumequeue is a RocksDB database" in queues
    assert "config/rdb is a RocksDB database" in config
    assert "topics.json beside it are read" in config
    (tmp_path / "consumequeue" / "T" / "0").mkdir(
        parents=True
    )  # with rocksdbCQDoubleWriteEnable both are there
    assert len(list(left_behind(BrokerDirectory(str(tmp_path)), {}))) == 1


@pytest.mark.quick
def test_what_no_table_has_a_place_for_is_said(tmp_path: Path) -> None:
    queue = tmp_path / "compaction" / "compactionLog" / "T" / "0"
    queue.mkdir(parents=True)
    (tmp_path / "config").mkdir()
    groups = tmp_path / "config" / "subscriptionGroup.json"
    nothing = {"dataVersion": {"counter": 1}, "forbiddenTable": {}, "subscriptionGroupTable": {"g": {}}}
    groups.write_text(json.dumps(nothing))
    assert list(left_behind(BrokerDirectory(str(tmp_path)), {})) == []
    (queue / f"{0:020d}").write_bytes(b"message")
    subscribed = {"subscriptionDataSet": [{"topic": "T", "subString": "a"}]}
    groups.write_text(
        json.dumps({"forbiddenTable": {"g": {"T": 1}}, "subscriptionGroupTable": {"g": subscribed}})
    )
    forbidden, of_group, compacted = left_behind(BrokerDirectory(str(tmp_path)), {})
    assert "forbiddenTable" in forbidden
    assert "of groups g" in of_group
    assert "newest message of each key of T" in compacted


@pytest.mark.quick
def test_an_export_that_was_cut_short_is_said(tmp_path: Path) -> None:
    (tmp_path / UNDER_WAY).mkdir()
    (said,) = left_behind(BrokerDirectory(str(tmp_path)), {})
    assert "is an export that was cut short" in said


@pytest.mark.quick
def test_a_directory_with_nothing_beside_has_nothing_to_say(tmp_path: Path) -> None:
    assert list(left_behind(BrokerDirectory(str(tmp_path)), {})) == []
