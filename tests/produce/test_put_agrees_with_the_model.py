"""Random batches through Spark and through plain loops: the same rows at the same offsets."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.store.store import Store
from tests.conftest import JobRun, write_jsonl
from tests.model import producer
from tests.model.log import Log

pytestmark = pytest.mark.usefixtures("users_engine")

STORE_HOST = "127.0.0.1:10911"
QUEUES = {"orders": 4, "payments": 3, "%RETRY%audit": 1}


def random_rows(chance: random.Random, count: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    batch = 0
    while len(rows) < count:
        row = random_row(chance, len(rows))
        if chance.random() < 0.15 and not row["topic"].startswith("%RETRY%"):
            batch += 1
            shared = {name: row[name] for name in ("topic", "queue_id", "sharding_key") if name in row}
            for _ in range(chance.randint(2, 5)):
                other = random_row(chance, len(rows))
                for name in ("queue_id", "sharding_key"):
                    other.pop(name, None)
                rows.append({**other, **shared, "batch": f"batch-{batch}"})
        else:
            rows.append(row)
    return rows


def random_row(chance: random.Random, number: int) -> dict[str, Any]:
    topic = chance.choice(list(QUEUES))
    row: dict[str, Any] = {
        "topic": topic,
        "body": chance.choice(["", "é" * chance.randint(1, 20), "x" * chance.randint(1, 200)]),
        "unique_key": f"K{number:04d}",
    }
    if chance.random() < 0.5:
        row["tags"] = chance.choice(["TagA", "中文", "b"])
    if chance.random() < 0.3:
        row["keys"] = chance.choice(["one", "one two", "order-7"])
    if chance.random() < 0.2:
        row["properties"] = {"z": "1", "a": "ü"}
    if chance.random() < 0.2:
        row["queue_id"] = chance.randrange(QUEUES[topic])
    elif chance.random() < 0.3:
        row["sharding_key"] = chance.choice(["customer-9", "polygenelubricants", "中"])
    if chance.random() < 0.1:
        row["born_host"] = chance.choice(["[2001:db8::1]:9", "10.0.0.1:50000"])
    if chance.random() < 0.1:
        row |= {"flag": chance.randrange(-5, 5), "born_timestamp": 1_600_000_000_000 + number}
    return row


def facts(store: Store) -> list[tuple[Any, ...]]:
    rows = store.commitlog.orderBy("physical_offset").collect()
    return [
        (
            row.segment, row.physical_offset, row.size_bytes, row.topic, row.queue_id, row.queue_offset, row.flag,
            row.sys_flag, row.body_crc, row.born_timestamp, row.born_host, row.store_timestamp, bytes(row.body),
            row.properties,
        )
        for row in rows
    ]  # fmt: skip


def expected_facts(log: Log) -> list[tuple[Any, ...]]:
    return [
        (
            record.segment, record.physical_offset, record.size_bytes, record.message.topic, record.message.queue_id,
            record.queue_offset, record.message.flag, record.message.sys_flag, record.body_crc,
            record.message.born_timestamp, record.message.born_host, record.store_timestamp, record.message.body,
            record.message.properties,
        )
        for record in log.records
    ]  # fmt: skip


def make_topics(commitlake: Callable[..., JobRun], store: Store) -> None:
    for topic, queues in QUEUES.items():
        if not topic.startswith("%"):
            made = commitlake("topics", "--store", store.uri, "create", topic, "--queues", queues)
            assert made.exit_status == 0, made.stderr


@pytest.mark.usefixtures("short_or_long")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "segment_bytes"),
    [
        pytest.param(1, 1_200, id="tiny"),
        pytest.param(2, 1_700, id="small", marks=pytest.mark.nightly),
        pytest.param(3, 4_096, id="several records", marks=pytest.mark.nightly),
    ],
)
def test_random_batches_lie_where_the_model_puts_them(
    commitlake: Callable[..., JobRun],
    new_store: Callable[..., Store],
    tmp_path: Path,
    seed: int,
    segment_bytes: int,
) -> None:
    store = new_store(mappedFileSizeCommitLog=str(segment_bytes))
    make_topics(commitlake, store)
    chance = random.Random(seed)
    log = Log(segment_bytes)
    for number, now in enumerate(
        [1_700_000_000_000, 1_600_000_000_000]
    ):  # the clock is set back: time does not
        rows = random_rows(chance, 60)
        source = write_jsonl(tmp_path / f"input{number}.jsonl", rows)
        run = commitlake("put_messages", "--store", store.uri, "--input", source, "--now", now)
        assert run.exit_status == 0, run.stderr
        put = producer.put(log, rows, QUEUES, now, STORE_HOST)
        # Born when put, unless the row says otherwise: the store's own clock never goes back.
        assert run.result["appended"] == len(put)
        assert run.result["first_offset"] == put[0].physical_offset
        assert run.result["next_offset"] == log.next_offset
    assert facts(store) == expected_facts(log)


@pytest.mark.usefixtures("short_or_long")
def test_files_are_put_in_the_order_of_their_names_whatever_their_size(
    commitlake: Callable[..., JobRun], new_store: Callable[..., Store], tmp_path: Path
) -> None:
    """Spark reads the largest file first; messages lie in the order of names, and rows within a file in theirs."""
    store = new_store(mappedFileSizeCommitLog="4096")
    make_topics(commitlake, store)
    directory = tmp_path / "input"
    directory.mkdir()
    rows: list[dict[str, Any]] = []
    for number, count in enumerate([3, 150, 1, 40]):
        part = [
            {"topic": "orders", "body": f"{number}-{row}", "unique_key": f"{number}-{row}", "queue_id": None}
            for row in range(count)
        ]
        table = pa.Table.from_pylist(
            part,
            pa.schema(
                [("topic", "string"), ("body", "string"), ("unique_key", "string"), ("queue_id", "int32")]
            ),
        )
        pq.write_table(table, directory / f"{number}.parquet", row_group_size=50)
        rows += part
    log = Log(4096)
    producer.put(log, rows, QUEUES, 1_700_000_000_000, STORE_HOST)
    run = commitlake(
        "put_messages",
        "--store",
        store.uri,
        "--input",
        directory,
        "--format",
        "parquet",
        "--now",
        1_700_000_000_000,
    )
    assert run.exit_status == 0, run.stderr
    assert facts(store) == expected_facts(log)
