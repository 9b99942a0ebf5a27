"""Inner batches: one record that takes an offset of its queue for each message it holds, whoever counts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.rocketmq.queue_slots import LAST_OFFSET
from pipelines.store.commit import commit
from pipelines.store.head import bounds_of, bounds_write, read_head
from pipelines.store.plan import Plan
from pipelines.store.store import Store
from tests.conftest import JobRun
from tests.life import SCHEDULE, B, Life, raw
from tests.model.log import slots_taken
from tests.model.records import Record, place, write_commitlog

BATCH = 0xC0
SEGMENT_BYTES = 65_536
# What a record may say it holds, in the order of the queues.
SAID = (
    b"INNER_NUM\x013\x02", b"", b"INNER_NUM\x01\x02", b"INNER_NUM\x01three\x02", b"INNER_NUM\x010\x02",
    b"INNER_NUM\x01-3\x02", b"INNER_NUM\x01+4\x02", b"INNER_NUM\x0132767\x02", b"INNER_NUM\x0132768\x02",
    b"INNER_NUM\x01" + b"9" * 30 + b"\x02", b"INNER_NUM\x015\x02A\x01b\x02INNER_NUM\x016\x02", b"XINNER_NUM\x017\x02",
    b"INNER_NUM\x018", b"INNER_NUM\x019\n\x02",
)  # fmt: skip


@pytest.mark.usefixtures("short_or_long")
def test_head_import_and_model_count_alike_whatever_a_record_says(
    commitlake: Callable[..., JobRun], new_store: Callable[..., Store], tmp_path: Path
):
    """A record without the flag, and one with, a queue for each thing it may say."""
    store = new_store(mappedFileSizeCommitLog=str(SEGMENT_BYTES))
    records = [
        Record(queue_id=queue_id, sys_flag=flag, queue_offset=offset, properties=said)
        for queue_id, said in enumerate(SAID)
        for offset, flag in ((5, 0), (6, BATCH))
    ]
    # Offsets no queue can have leave their queue's bounds as they are.
    records += [
        Record(queue_id=0, queue_offset=offset) for offset in (-1, -(2**63), 2**63 - 1, LAST_OFFSET + 1)
    ]
    write_commitlog(tmp_path / "broker", place(records, SEGMENT_BYTES), SEGMENT_BYTES)
    run = commitlake("import_store", "--store", store.uri, "--from", tmp_path / "broker")
    assert run.exit_status == 0, run.stderr
    expected = {
        ("orders", queue_id): 6 + slots_taken(BATCH, said.decode()) for queue_id, said in enumerate(SAID)
    }
    assert expected["orders", 0] == 9
    assert read_head(store.snapshot()).next_queue_offsets == expected
    told = bounds_of(store.commitlog).where("topic <> ''").collect()
    assert {(row.topic, row.queue_id): row.next_offset for row in told} == expected
    assert {row.min_offset for row in told} == {5}


@pytest.mark.slow
def test_copies_of_an_inner_batch_take_as_many_offsets_as_it(life: Callable[..., Life]):
    """Delivered, redriven, sent back and delivered again, each before a message that follows it in its queue."""
    store = life(messageDelayLevel="1s 5s 10s")
    batch = {"sys_flag": BATCH, "body": b"batch", "body_crc": 2014008020}
    waits = raw(UNIQ_KEY="a", INNER_NUM=3, INNER_BASE=0, DELAY=1, REAL_TOPIC="T", REAL_QID=0)
    store.append(
        {**batch, "topic": SCHEDULE, "properties": waits, "due_ms": B + 1_000},
        {
            "topic": SCHEDULE,
            "properties": raw(UNIQ_KEY="b", DELAY=1, REAL_TOPIC="T", REAL_QID=0),
            "due_ms": B + 1_000,
        },
    )
    assert store.deliver(B + 1_000)["delivered"] == 2
    again = ("--where", "unique_key IN ('a', 'b') AND topic = 'T'", "--redrive-id", "again")
    assert store.job("redrive", B + 2_000, *again).result["redriven"] == 2
    offsets = [row.physical_offset for row in store.rows() if row.topic == "T"]
    failed = store.input(*[{"physical_offset": offset, "delay_level": 1} for offset in offsets])
    assert store.job("send_back", B + 3_000, "--group", "g", "--input", failed).result["sent_back"] == 4
    assert store.deliver(B + 5_000)["delivered"] == 4
    rows = [(row.topic, row.queue_offset) for row in store.rows() if row.topic in ("T", "%RETRY%g")]
    assert rows == [("T", 0), ("T", 3), ("T", 4), ("T", 7)] + [("%RETRY%g", at) for at in (0, 3, 4, 7)]
    store.expect_promises()
    assert store.job("dispatch", B + 6_000).exit_status == 0
    # The head is what the rows say, also from bounds; nothing else of the store is at odds.
    assert read_head(store.store.snapshot()).next_of("T", 0) == 8
    validated = store.commitlake("validate", "--store", store.store.uri, "--quiet")
    assert validated.exit_status == 0, validated.lines


@pytest.mark.slow
@pytest.mark.parametrize("sys_flag", [0, BATCH])
def test_a_copy_for_a_queue_below_0_lies_there(life: Callable[..., Life], sys_flag: int):
    """An imported row may name any queue as its own."""
    store = life()
    waits = raw(DELAY=1, REAL_TOPIC="T", REAL_QID=-7, INNER_NUM=2)
    store.append(*[{"topic": SCHEDULE, "sys_flag": sys_flag, "properties": waits, "due_ms": B}] * 2)
    assert store.deliver(B)["delivered"] == 2
    first, second = store.rows()[2:]
    step = slots_taken(sys_flag, waits)
    assert [(row.topic, row.queue_id, row.queue_offset) for row in (first, second)] == [
        ("T", -7, 0),
        ("T", -7, step),
    ]
    assert read_head(store.store.snapshot()).next_of("T", -7) == 2 * step


@pytest.mark.slow
def test_pages_of_one_message_pass_over_nothing_behind_an_inner_batch(life: Callable[..., Life]):
    store = life()
    batch = {"sys_flag": BATCH, "properties": raw(INNER_NUM=3)}
    store.append({}, batch, {}, batch)
    store.job("dispatch", B)
    at, found = 0, []
    while len(found) < 9:
        pull = ("pull", "--topic", "T", "--queue-id", 0, "--offset", at, "--max", 1, "--output", "json")
        answer = store.job("query", B, *pull)
        found.append((at, answer.result["pull_status"], len(answer.lines)))
        if answer.result["pull_status"] == "OFFSET_OVERFLOW_ONE":
            break
        at = answer.result["next_offset"]
    assert [offset for offset, _, rows in found if rows] == [0, 1, 4, 5]
    assert found[-1][0] == 8
    # The view says the same, from the rows and, once they are far behind, from queue_bounds.
    for _ in range(2):
        (queue,) = store.store.topic_status.where("topic = 'T' AND queue_id = 0").collect()
        assert (queue.min_offset, queue.max_offset) == (0, 8)
        commit(store.store, lambda at: Plan((bounds_write(at, read_head(at)),)))
