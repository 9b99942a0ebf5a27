"""Two stores a real broker wrote, imported: every record, entry, bound and config is what that broker says it is."""

import base64
import gzip
import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.store.head import read_head
from pipelines.store.store import Store
from schemas import COMMITLOG, CONSUMER_OFFSETS, FLOORS, JOB_RUNS, QUEUE_BOUNDS, TOPICS
from tests.broker_files.conftest import DATA
from tests.conftest import JobRun, run_job

pytestmark = pytest.mark.usefixtures("users_engine")

WRITTEN = (COMMITLOG, CONSUMER_OFFSETS, FLOORS, JOB_RUNS, QUEUE_BOUNDS, TOPICS)


@dataclass
class Imported:
    """A golden store, its import, and what the broker answered."""

    store: Store
    broker: Path
    run: JobRun
    answers: dict[str, list[dict[str, Any]]]
    name: str


@pytest.fixture(scope="module", params=["a", pytest.param("b", marks=pytest.mark.slow)])
def imported(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    golden_broker: Callable[[str], Path],
    imported_broker: Callable[[str], tuple[Path, JobRun]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Imported:
    made, run = imported_broker(request.param)
    store = tmp_path_factory.mktemp(f"imported-{request.param}") / "store"
    shutil.copytree(made, store)
    answers: dict[str, list[dict[str, Any]]] = {}
    with gzip.open(DATA / f"store-{request.param}.answers.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            answer = json.loads(line)
            answers.setdefault(answer["kind"], []).append(answer)
    return Imported(Store(spark, str(store)), golden_broker(request.param), run, answers, request.param)


def properties_of(stored: str) -> dict[str, str]:
    pairs = [segment.partition("\x01") for segment in stored.split("\x02")]
    return {name: value for name, _, value in pairs if name and value}


def offset_message_id(host: str, offset: int) -> str:
    address, _, port = host.rpartition(":")
    return (
        (bytes(int(part) for part in address.split(".")) + struct.pack(">iq", int(port), offset))
        .hex()
        .upper()
    )


def test_every_record_is_as_the_broker_decodes_it(imported: Imported):
    messages = imported.answers["message"]
    assert imported.run.exit_status == 0, imported.run.stderr
    assert imported.run.result["messages"] == len(messages)
    assert imported.run.result["segments"] == len(list((imported.broker / "commitlog").iterdir()))
    assert imported.run.result["truncated_at"] is None

    segment_bytes = imported.store.settings.segment_bytes
    rows = {row.physical_offset: row for row in imported.store.commitlog.collect()}
    assert rows.keys() == {message["commitLogOffset"] for message in messages}
    for message in messages:
        row = rows[message["commitLogOffset"]]
        found = {
            "kind": "message",
            "commitLogOffset": row.physical_offset,
            "storeSize": row.size_bytes,
            "topic": row.topic,
            "queueId": row.queue_id,
            "queueOffset": row.queue_offset,
            "flag": row.flag,
            "sysFlag": row.sys_flag,
            "bodyCRC": row.body_crc,
            "bornTimestamp": row.born_timestamp,
            "bornHost": f"/{row.born_host}",
            "storeTimestamp": row.store_timestamp,
            "storeHost": f"/{row.store_host}",
            "reconsumeTimes": row.reconsume_times,
            "preparedTransactionOffset": row.prepared_transaction_offset,
            "properties": properties_of(row.properties),
            "body": base64.b64encode(row.body).decode(),
            "msgId": offset_message_id(row.store_host, row.physical_offset),
        }
        assert found == message
        assert row.segment == row.physical_offset - row.physical_offset % segment_bytes
        assert row.append_seq == 0
        assert row.append_id.startswith("import:")
        assert (row.source_offset, row.origin_offset, row.purpose, row.claim) == (None, None, None, None)


Unit = tuple[int, int, int]


def queue_files(broker: Path) -> dict[tuple[str, int], list[Unit]]:
    """(physical offset, size, tags code) of every unit of each of the broker's queues, in the order of its files."""
    queues: dict[tuple[str, int], list[Unit]] = {}
    for file in sorted(broker.glob("consumequeue/*/*/*")):
        queue = queues.setdefault((file.parts[-3], int(file.parts[-2])), [])
        units = [unit for unit in struct.iter_unpack(">qiq", file.read_bytes()) if unit[1] > 0]
        assert not units or int(file.name) == 20 * len(queue)
        queue.extend(units)
    return {name: units for name, units in queues.items() if units}


def test_consume_queues_equal_the_broker_s_files_entry_by_entry_in_order(
    imported: Imported, dispatched_broker: Callable[[str], Store]
) -> None:
    queues: dict[tuple[str, int], list[Unit]] = {}
    rows = dispatched_broker(imported.name).consume_queue.collect()
    # Dispatch's own rows: the order is that of their positions, of which each is there once.
    for row in sorted(rows, key=lambda row: (row.topic, row.queue_id, row.queue_offset)):
        queue = queues.setdefault((row.topic, row.queue_id), [])
        assert row.queue_offset == len(queue)
        queue.append((row.physical_offset, row.size_bytes, row.tags_code))
    assert queues == queue_files(imported.broker)


def test_parked_rows_are_due_when_the_broker_s_queue_entry_says(imported: Imported):
    queues = queue_files(imported.broker).values()
    delivery_times = {offset: tags_code for units in queues for offset, _, tags_code in units}
    kinds = set()
    for row in imported.store.commitlog.collect():
        properties = properties_of(row.properties)
        if row.topic == "SCHEDULE_TOPIC_XXXX":
            assert row.due_ms == delivery_times[row.physical_offset]
        elif row.topic == "rmq_sys_wheel_timer":
            # The slot is read when its second is over: never early.
            assert row.due_ms == int(properties["TIMER_OUT_MS"]) + 1_000
        elif row.topic == "RMQ_SYS_TRANS_HALF_TOPIC":
            immunity = int(properties.get("CHECK_IMMUNITY_TIME_IN_SECONDS", "2"))
            assert row.due_ms == row.born_timestamp + immunity * 1_000
        else:
            assert row.due_ms is None
            continue
        kinds.add(row.topic)
    assert {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"} <= kinds


def test_the_log_goes_on_where_the_broker_s_would(imported: Imported):
    head = read_head(imported.store.snapshot())
    (said,) = imported.answers["store"]
    assert (head.min_offset, head.next_offset) == (said["minPhyOffset"], said["maxPhyOffset"])
    assert head.bounds_append_seq == head.append_seq == 0
    assert head.last_store_timestamp == max(
        message["storeTimestamp"] for message in imported.answers["message"]
    )
    for queue in imported.answers["queue"]:
        name = (queue["topic"], queue["queueId"])
        assert (head.min_queue_offsets[name], head.next_of(*name)) == (queue["min"], queue["max"]), name


def test_config_comes_along(imported: Imported):
    store, config = imported.store, imported.broker / "config"
    topics = json.loads((config / "topics.json").read_text())["topicConfigTable"]
    assert {
        row.topic: (row.read_queue_nums, row.write_queue_nums, row.perm) for row in store.topics.collect()
    } == {
        name: (topic["readQueueNums"], topic["writeQueueNums"], topic["perm"])
        for name, topic in topics.items()
    }
    groups = json.loads((config / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]
    assert {row.group: row.retry_max_times for row in store.subscription_groups.collect()} == {
        name: group["retryMaxTimes"] for name, group in groups.items()
    }
    offsets = {
        (row.group, row.topic, row.queue_id, row.client_id): row.next_offset
        for row in store.consumer_offsets.collect()
    }
    assert offsets["CG_ORDER", "%RETRY%CG_ORDER", 0, ""] == {"a": 42, "b": 28}[imported.name]
    assert len(offsets) == 12
    (subscription,) = store.subscriptions.collect()
    assert (subscription.group, subscription.topic, subscription.expression_type) == (
        "CG_PAY",
        "PayTopic",
        "SQL92",
    )
    assert subscription.expression == "amount > 500 AND region IN ('cn-hz','us-1') OR vip = TRUE"
    floors = {row.follower: row.position for row in store.floors.collect()}
    (said,) = imported.answers["store"]
    assert floors.pop("log") == said["maxPhyOffset"]
    assert floors == {
        "a": {
            "schedule:1": 14, "schedule:2": 10, "schedule:3": 31, "schedule:4": 31, "schedule:5": 12,
            "schedule:17": 0, "schedule:18": 0, "half": 90, "op": 1, "dispatch": said["maxPhyOffset"],
        },
        "b": {
            "schedule:1": 5, "schedule:2": 5, "schedule:3": 17, "schedule:4": 19, "schedule:5": 6, "schedule:18": 0,
            "timer:read_time_ms": 1_795_245_816_000, "timer:log_position": 2_028, "timer:queue_offset": 39,
            "half": 84, "op": 1, "dispatch": said["maxPhyOffset"],
        },
    }[imported.name]  # fmt: skip
    assert store.settings.segment_bytes == {"a": 65_536, "b": 131_072}[imported.name]
    assert store.settings["mappedFileSizeConsumeQueue"] == 6_000


def test_again_with_nothing_new_writes_nothing(imported: Imported):
    versions = {table.name: imported.store.delta(table).update().version for table in WRITTEN}
    again = run_job(["import_store", "--store", imported.store.uri, "--from", str(imported.broker)])
    assert (again.exit_status, again.result["messages"], again.result["segments"]) == (0, 0, 0), again.stderr
    assert {table.name: imported.store.delta(table).update().version for table in WRITTEN} == versions
