"""Random histories of puts, clock steps, failures, ends and questions: the log is the one of the plain model."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.life import B, Life
from tests.model.life import HALF_TOPIC, Store
from tests.model.log import Log, read_properties

ANSWERS = """
from pipelines.transaction import TransactionState

def by_key(message):
    return {"0": TransactionState.COMMIT, "1": TransactionState.ROLLBACK}.get(message.unique_key[-1])
"""


def story(row: Any) -> tuple:
    return (
        row.topic, row.queue_id, row.physical_offset, row.queue_offset, row.size_bytes, row.flag, row.sys_flag,
        row.born_timestamp, row.store_timestamp, row.reconsume_times, row.prepared_transaction_offset, bytes(row.body),
        read_properties(row.properties), row.due_ms, row.source_offset, row.origin_offset, row.purpose, row.claim,
    )  # fmt: skip


def told(store: Store) -> list[tuple]:
    records = {record.physical_offset: record for record in store.log.records}
    return [
        (
            row.message.topic, row.message.queue_id, row.physical_offset, row.queue_offset,
            records[row.physical_offset].size_bytes, row.message.flag, row.message.sys_flag, row.message.born_timestamp,
            row.store_timestamp, row.message.reconsume_times, row.message.prepared_transaction_offset, row.message.body,
            row.properties, row.due_ms, row.source_offset, row.origin_offset, row.purpose, row.claim,
        )
        for row in store.rows
    ]  # fmt: skip


def random_row(chance: random.Random, number: int, now: int, keys: list[str]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "topic": chance.choice("TU"),
        "body": "b" * chance.randint(0, 9),
        "unique_key": f"k{number}",
    }
    if chance.random() < 0.3:
        row["queue_id"] = chance.randrange(4)
    kind = chance.choice(["plain", "level", "level", "list", "timer", "delay", "cancel", "half", "half"])
    if kind == "level":
        row["delay_level"] = chance.randint(1, 6)
    elif kind == "list":
        row["deliver_through"] = [chance.randint(1, 4) for _ in range(chance.randint(1, 3))]
    elif kind == "timer":
        row["deliver_at_ms"] = B + chance.randrange(10) * 9_500
    elif kind == "delay":
        row["delay_ms"] = chance.choice([0, 400, 9_000])
    elif kind == "cancel" and keys:
        row |= {"deliver_at_ms": now + 20_000, "cancel_unique_key": chance.choice(keys)}
    elif kind == "half":
        row |= {"transaction": True, "producer_group": "pg", "flag": chance.randrange(3)}
        row["born_timestamp"] = now - chance.choice([0, 5_000, 60_000])
    return row


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 3))
def test_random_histories(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    (tmp_path / "answers_of_random.py").write_text(ANSWERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    chance = random.Random(seed)
    store = life(mappedFileSizeCommitLog="6000")
    model = Store(Log(6000))
    now, number, keys = B, 0, list[str]()
    for _ in range(9):
        now += chance.choice([0, 700, 5_000, 11_000, 40_000])
        clock = now - chance.choice([0, 0, 0, 15_000])  # sometimes it is set back for a moment
        step = chance.choice(["put", "put", "deliver", "deliver", "send_back", "end", "check", "dispatch"])
        plain = [row for row in model.rows if row.message.topic in ("T", "U", "%RETRY%g")]
        halves = [row for row in model.rows if row.message.topic == HALF_TOPIC]
        if step == "put" or not model.rows:
            rows = [random_row(chance, number + n, clock, keys) for n in range(chance.randint(3, 12))]
            number += len(rows)
            keys += [row["unique_key"] for row in rows if "deliver_at_ms" in row]
            store.put(clock, *rows)
            model.put(rows, clock)
        elif step == "deliver":
            assert store.deliver(clock)["delivered"] == model.deliver(clock)
        elif step == "send_back" and plain:
            offsets = [row.physical_offset for row in chance.sample(plain, min(3, len(plain)))]
            path = store.input(*[{"physical_offset": offset} for offset in offsets])
            store.job("send_back", clock, "--group", "g", "--input", path)
            model.send_back("g", offsets, clock)
        elif step == "end" and halves:
            ends = [
                (row.physical_offset, chance.choice(["COMMIT", "ROLLBACK"]))
                for row in chance.choices(halves, k=3)
            ]
            path = store.input(
                *[
                    {"producer_group": "pg", "physical_offset": offset, "state": state}
                    for offset, state in ends
                ]
            )
            store.job("end_transactions", clock, "--input", path)
            model.end(ends, clock)
        elif step == "check":
            store.job("check_transactions", clock, "--checker", "answers_of_random:by_key")
            model.check(clock, {key: word for n in range(number) for key, word in answer(f"k{n}")})
        elif step == "dispatch":
            store.job("dispatch", clock)
        assert [story(row) for row in store.rows()] == told(model), step


def answer(key: str) -> list[tuple[str, str]]:
    word = {"0": "COMMIT", "1": "ROLLBACK"}.get(key[-1])
    return [(key, word)] if word else []
