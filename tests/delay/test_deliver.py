"""Parking at put and bringing back when due; vectors of docs/rocketmq/delay-retry-transaction.md 9 by number."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.store.store import Store
from tests.conftest import JobRun, write_jsonl
from tests.model.log import read_properties

Commitlake = Callable[..., JobRun]

B = 1_700_000_000_000
SCHEDULE, WHEEL, HALF = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"


def raw(**properties: object) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


class Life:
    """A store whose clock is set by hand: put, deliver, and look at the log."""

    def __init__(self, commitlake: Commitlake, store: Store, directory: Path) -> None:
        self.commitlake = commitlake
        self.store = store
        self.directory = directory
        self.puts = 0

    def put(self, now: int, *rows: dict[str, Any], **options: Any) -> JobRun:
        self.puts += 1
        source = write_jsonl(
            self.directory / f"put-{self.puts}.jsonl", [{"body": "b", **row} for row in rows]
        )
        run = self.commitlake("put_messages", "--store", self.store.uri, "--input", source, "--now", now)
        assert run.exit_status == options.get("exit_status", 0), run.stderr
        return run

    def deliver(self, now: int) -> dict[str, Any]:
        run = self.commitlake("deliver", "--store", self.store.uri, "--now", now)
        assert run.exit_status == 0, run.stderr
        return run.result

    def rows(self) -> list[Any]:
        return self.store.commitlog.orderBy("physical_offset").collect()

    def by_key(self, key: str) -> list[Any]:
        return [row for row in self.rows() if read_properties(row.properties).get("UNIQ_KEY") == key]


@pytest.fixture
def life(commitlake: Commitlake, new_store: Callable[..., Store], tmp_path: Path) -> Callable[..., Life]:
    return lambda **settings: Life(commitlake, new_store(**settings), tmp_path)


def place(row: Any) -> tuple[str, int]:
    return row.topic, row.queue_id


def test_vectors_1_to_4_and_11_to_16_and_29_what_a_put_makes_of_messages_that_wait(
    life: Callable[..., Life],
) -> None:
    store = life()
    store.put(
        B,
        {"topic": "T", "queue_id": 3, "unique_key": "v1", "delay_level": 3},
        {"topic": "T", "queue_id": 1, "unique_key": "v3", "delay_level": 25},
        {"topic": "T", "queue_id": 1, "unique_key": "v4a", "delay_level": 0},
        {"topic": "T", "queue_id": 1, "unique_key": "v4b", "delay_level": -1},
        {"topic": "T", "queue_id": 1, "unique_key": "v4c"},
        {"topic": "T", "unique_key": "v12", "deliver_at_ms": B + 90_000},
        {"topic": "T", "queue_id": 2, "unique_key": "v14", "deliver_at_ms": B - 1},
        {"topic": "T", "properties_raw": raw(UNIQ_KEY="v16", DELAY=3, TIMER_DELAY_SEC=90)},
        {
            "topic": "T", "queue_id": 3, "unique_key": "v29", "transaction": True, "producer_group": "pg", "flag": 9,
            "born_timestamp": B - 5,
        },
    )  # fmt: skip
    store.put(
        B + 250,
        {"topic": "T", "properties_raw": raw(UNIQ_KEY="v11", TIMER_DELAY_SEC=90)},
        {"topic": "T", "unique_key": "v13", "delay_ms": 400},
    )
    found = {
        read_properties(row.properties)["UNIQ_KEY"]: (row, read_properties(row.properties))
        for row in store.rows()
    }

    row, properties = found["v1"]
    assert (place(row), row.due_ms) == ((SCHEDULE, 2), B + 10_000)
    assert properties == {"UNIQ_KEY": "v1", "DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "3"}
    row, properties = found["v3"]
    assert (place(row), row.due_ms, properties["DELAY"]) == ((SCHEDULE, 17), B + 7_200_000, "18")
    for key in ("v4a", "v4b", "v4c"):
        assert (place(found[key][0]), found[key][0].due_ms, found[key][1]) == (
            ("T", 1),
            None,
            {"UNIQ_KEY": key},
        )
    row, properties = found["v11"]
    assert (place(row), properties["TIMER_OUT_MS"], row.due_ms) == ((WHEEL, 0), str(B + 90_000), B + 91_000)
    row, properties = found["v12"]
    assert (properties["TIMER_OUT_MS"], row.due_ms, properties["REAL_TOPIC"]) == (
        str(B + 89_000),
        B + 90_000,
        "T",
    )
    row, properties = found["v13"]
    assert (properties["TIMER_OUT_MS"], row.due_ms) == (str(B), B + 1_000)
    row, properties = found["v14"]
    assert (place(row), row.due_ms, properties["TIMER_DELIVER_MS"]) == (("T", 2), None, str(B - 1))
    row, properties = found["v16"]
    assert (place(row), properties["DELAY"], "TIMER_DELAY_SEC" in properties) == ((SCHEDULE, 2), "3", False)
    row, properties = found["v29"]
    assert (place(row), row.sys_flag, row.flag, row.due_ms) == ((HALF, 0), 0, 9, B - 5 + 6_000)
    assert properties == {
        "UNIQ_KEY": "v29", "TRAN_MSG": "true", "PGROUP": "pg", "REAL_TOPIC": "T", "REAL_QID": "3",
        "__transactionId__": "v29",
    }  # fmt: skip
    # Turns are taken by messages that wait too: v12, v16, v11 and v13 name no queue.
    assert [found[key][1]["REAL_QID"] for key in ("v12", "v16")] == ["0", "1"]

    idle = store.deliver(B + 999)
    assert (idle["delivered"], idle["skipped"], idle["next_due_ms"]) == (0, 0, B + 1_000)
    assert store.deliver(B + 9_999)["delivered"] == 1
    assert [row.topic for row in store.by_key("v13")] == [WHEEL, "T"]  # due since B + 1,000
    assert store.deliver(B + 10_000)["delivered"] == 2  # vector 2: v1 and v16
    source, copy = store.by_key("v1")
    assert place(copy) == ("T", 3)
    assert copy.properties == source.properties  # DELAY and REAL_* are still stored
    assert (copy.source_offset, copy.origin_offset, copy.purpose, copy.claim) == (
        source.physical_offset, source.physical_offset, "deliver", "settle",
    )  # fmt: skip
    assert copy.due_ms is None
    assert store.deliver(B + 89_999)["next_due_ms"] == B + 90_000
    assert store.deliver(B + 90_000)["delivered"] == 1  # v12
    assert store.deliver(B + 90_999)["delivered"] == 0
    last = store.deliver(B + 91_000)
    assert (last["delivered"], last["next_due_ms"]) == (1, B + 7_200_000)
    assert read_properties(store.by_key("v11")[1].properties)["TIMER_DEQUEUE_MS"] == str(B + 91_000)
    end = store.deliver(B + 8_000_000)
    assert (end["delivered"], end["next_due_ms"]) == (1, None)
