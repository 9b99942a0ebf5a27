"""A real broker's answers (tests/data), and its messages as a store of ours."""

import base64
import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipelines.dispatch.entries import consume_queue_entries, message_index_entries
from pipelines.store.commit import commit
from pipelines.store.create import make_store
from pipelines.store.head import bounds_write, read_head
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from schemas import COMMITLOG, CONSUME_QUEUE, MESSAGE_INDEX, TOPICS

DATA = Path(__file__).parent.parent / "data"


@cache
def answers(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / f"store-{name}.answers.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def cases(name: str, kind: str) -> list[dict[str, Any]]:
    return [answer for answer in answers(name) if answer["kind"] == kind]


def log_row(message: dict[str, Any], segment_bytes: int, append_seq: int = 0) -> tuple[Any, ...]:
    offset = message["commitLogOffset"]
    properties = "".join(f"{name}\x01{value}\x02" for name, value in message["properties"].items())
    body = bytearray(base64.b64decode(message["body"]))
    return (
        offset - offset % segment_bytes, offset, message["storeSize"],
        message["topic"], message["queueId"], message["queueOffset"], message["flag"], message["sysFlag"],
        message["bodyCRC"], message["bornTimestamp"], message["bornHost"].lstrip("/"), message["storeTimestamp"],
        message["storeHost"].lstrip("/"), message["reconsumeTimes"], message["preparedTransactionOffset"], body,
        properties, append_seq, "golden", None, None, None, None, None,
    )  # fmt: skip


def golden_store(spark: SparkSession, name: str, directory: Path) -> Store:
    """The broker's messages in one append, followed by the queues and the index."""
    config = cases(name, "store")[0]["config"]
    store = make_store(
        Store(spark, str(directory)), {setting: str(value) for setting, value in config.items()}
    )
    segment_bytes = config["mappedFileSizeCommitLog"]
    rows = [log_row(message, segment_bytes) for message in cases(name, "message")]
    topics = [(topic, 4, 4, 6, "SINGLE_TAG", 0, False, {}) for topic in sorted({row[3] for row in rows})]

    def append(table: Any, given: list[tuple[Any, ...]]) -> None:
        frame = spark.createDataFrame(given, table.columns).coalesce(1)
        commit(store, lambda at: Plan((at.append(table, frame),)))

    append(TOPICS, topics)
    append(COMMITLOG, rows)

    def follow(at: Snapshot) -> Plan:
        log = at.read(COMMITLOG)
        entries = consume_queue_entries(log, store.settings.delay_levels_ms).coalesce(1)
        index = message_index_entries(log).coalesce(1)
        bounds = bounds_write(at, read_head(at))
        return Plan((at.append(CONSUME_QUEUE, entries), at.append(MESSAGE_INDEX, index), bounds))

    commit(store, follow)
    return store
