"""Records that say anything their fields can hold: they are imported, and every reader answers."""

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.rocketmq.times import LAST_MS
from pipelines.store.head import read_head
from pipelines.store.store import Store
from pipelines.views.read import VIEWS
from tests.conftest import JobRun
from tests.life import HALF, OP, SCHEDULE, WHEEL, B
from tests.model.records import Record, place, write_commitlog

SEGMENT_BYTES = 262_144
BODY_LENGTH_AT = 84
LONGS = (-(2**63), -1, 0, 2**53, 2**63 - 1)
INTS = (-(2**31), -1, 0, 2**31 - 1)
# The bits of IPv6 hosts say how long a record is; all others may be set or not.
FLAGS = (-1 & ~0x30, 0x7FFFFFFF & ~0x30, 0x4, 0x8, 0xC, 0x80, 0xC0, 0x701)
FIELDS = {
    "born_timestamp": LONGS, "store_timestamp": LONGS, "prepared_transaction_offset": LONGS, "queue_offset": LONGS,
    "queue_id": INTS, "flag": INTS, "reconsume_times": INTS, "sys_flag": FLAGS,
}  # fmt: skip
NUMBERS = ("", "x", "-1", "0", "7", "1.5", "9" * 18, str(2**31), str(2**63 - 1), str(-(2**63)), "9" * 40)
PROPERTIES = (
    "DELAY", "REAL_QID", "TIMER_OUT_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_ROLL_TIMES",
    "TIMER_ENQUEUE_MS", "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET",
    "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "BORN_TIMESTAMP", "INNER_NUM", "INNER_BASE", "TIMING-LIST", "TAGS", "KEYS",
)  # fmt: skip
PARKED = {
    SCHEDULE: {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "0"},
    WHEEL: {"TIMER_OUT_MS": str(B), "REAL_TOPIC": "orders", "REAL_QID": "0"},
    HALF: {"REAL_TOPIC": "orders", "REAL_QID": "0", "TRAN_MSG": "true", "PGROUP": "p"},
    OP: {},
    "orders": {},
}


def extreme_records() -> Iterator[Record]:
    """A record for each field and value in each topic, and for each property and value."""
    for topic, properties in PARKED.items():
        usual = Record(topic=topic, properties=properties, born_timestamp=B, store_timestamp=B)
        for field, values in FIELDS.items():
            for value in values:
                yield replace(usual, **{field: value})
        for name in PROPERTIES:
            for number in NUMBERS if topic != OP else ():
                yield replace(usual, properties={**properties, name: number}, queue_id=1)
    for body in NUMBERS:
        yield Record(topic=OP, body=body.encode(), store_timestamp=B)
    yield Record(body=b"", store_timestamp=B)


def with_own_keys(records: Iterator[Record]) -> Iterator[Record]:
    for number, record in enumerate(records):
        assert not isinstance(record.properties, bytes)
        # A sequence of its own in each queue, but where the record is to say another.
        offset = number if record.queue_offset == 0 else record.queue_offset
        yield replace(record, queue_offset=offset, properties={"UNIQ_KEY": f"k{number}", **record.properties})


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return place(list(with_own_keys(extreme_records())), SEGMENT_BYTES)


@pytest.mark.nightly
@pytest.mark.slow
def test_whatever_a_record_says_every_command_answers(
    commitlake: Callable[..., JobRun], new_store: Callable[..., Store], tmp_path: Path, records: list[Record]
):
    store = new_store(mappedFileSizeCommitLog=str(SEGMENT_BYTES), messageDelayLevel="1s 5s")
    write_commitlog(tmp_path / "broker", records, SEGMENT_BYTES)
    # A body shorter than nothing counts as none.
    last = records[-1]
    file = tmp_path / "broker" / "commitlog" / f"{last.physical_offset // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
    content = bytearray(file.read_bytes())
    at = last.physical_offset % SEGMENT_BYTES + BODY_LENGTH_AT
    content[at : at + 4] = struct.pack(">i", -5)
    file.write_bytes(content)

    failed: list[str] = []

    def run(*arguments: object, may_be_broken: bool = False) -> JobRun:
        name, *others = arguments
        done = commitlake(name, "--store", store.uri, *others)
        if done.exit_status not in ((0, 3) if may_be_broken else (0,)):
            failed.append(f"{' '.join(map(str, arguments))}: {done.exit_status} {done.stderr[:400]}")
        return done

    imported = run("import_store", "--from", tmp_path / "broker")
    assert imported.result.get("messages") == len(records), imported.stderr
    head = read_head(store.snapshot())
    assert head.next_offset == records[-1].physical_offset + records[-1].size_bytes
    assert 0 <= head.last_store_timestamp <= LAST_MS
    assert all(offset >= 0 for offset in head.next_queue_offsets.values())
    run("dispatch")
    for view in VIEWS:
        shown = run("sql", f"SELECT * FROM {view}", "--output", "json")
        for line in shown.lines:
            json.loads(line)
    for topic in PARKED:
        run(
            "query",
            "pull",
            "--topic",
            topic,
            "--queue-id",
            0,
            "--offset",
            0,
            "--max",
            1_000,
            "--output",
            "json",
        )
        run("query", "by-time", "--topic", topic, "--queue-id", 0, "--timestamp", B, "--output", "json")
    run("query", "by-offset", "--offset", records[7].physical_offset, "--output", "json")
    run("query", "by-key", "--topic", "orders", "--key", "k5", "--output", "json")
    run("query", "topic-status", "--topic", "orders")
    run("validate", may_be_broken=True)
    run("deliver", "--now", B + 10_000)
    outcomes = tmp_path / "outcomes.jsonl"
    outcomes.write_text("")
    run("check_transactions", "--outcomes", outcomes, "--now", B + 10_000)
    run("dispatch")
    run("report", "--out", tmp_path / "page.html")
    run(
        "redrive",
        "--where",
        "topic = 'orders' AND queue_id = 1",
        "--redrive-id",
        "again",
        "--now",
        B + 11_000,
    )
    run("deliver", "--now", B + 20_000)
    run("dispatch")
    run("validate", may_be_broken=True)
    put = tmp_path / "put.jsonl"
    put.write_text('{"topic": "orders", "body": "b"}\n')
    run("put_messages", "--input", put)
    assert not failed, "\n".join(failed)
