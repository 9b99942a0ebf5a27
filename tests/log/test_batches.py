"""Units: what is put as one, and why a batch cannot be (docs/rocketmq/store.md 1.14, consume-filter-ha.md 1.3)."""

from typing import Any

import pyarrow as pa
import pytest

from pipelines.log.batches import BadRange, Unit, units_of

pytestmark = pytest.mark.quick

# On the wire each takes 22 bytes more.
ROW = {"topic": "T", "size_bytes": 100, "wire_bytes": 28, "batch": "b"}
TYPES = {
    "topic": pa.string(), "size_bytes": pa.int32(), "wire_bytes": pa.int32(), "batch": pa.string(),
    "queue_id": pa.int32(), "shard": pa.int32(), "reason": pa.string(), "parked_topic": pa.string(),
    "parked_queue": pa.int32(),
}  # fmt: skip


def units(
    *rows: dict[str, Any], on_wire: int = 1_000, in_log: int = 1_000, split: bool = False
) -> tuple[list[Unit], list[BadRange]]:
    given = [ROW | row for row in rows]
    names = [name for name in TYPES if any(name in row for row in given)]
    table = pa.table({name: pa.array([row.get(name) for row in given], TYPES[name]) for name in names})
    return units_of(table, lambda topic: 4, on_wire, split, in_log)


def test_neighbours_of_one_name_are_one_unit() -> None:
    assert units({}, {}, {"batch": None}, {"batch": "c"}) == (
        [Unit(0, 2, "T", None, 200), Unit(2, 1, "T", None, 100), Unit(3, 1, "T", None, 100)],
        [],
    )


def test_the_same_name_further_on_is_another_batch() -> None:
    assert [unit.rows for unit in units({}, {"batch": None}, {})[0]] == [1, 1, 1]


def test_messages_without_a_batch_stay_apart_and_bad_ones_of_them_are_left_out() -> None:
    alone = {"batch": None}
    assert units(alone, {**alone, "reason": "bad"}, alone) == (
        [Unit(0, 1, "T", None, 100), Unit(2, 1, "T", None, 100)],
        [],
    )


@pytest.mark.parametrize(
    ("more", "queue"),
    [({"queue_id": 3}, 3), ({"shard": -6}, 2), ({"queue_id": 0, "shard": 2}, 0), ({}, None)],
)
def test_the_queue_of_a_unit_is_what_its_messages_say(more: dict[str, Any], queue: int | None) -> None:
    [unit] = units(more, more)[0]
    assert unit.queue_id == queue


def test_a_parked_message_keeps_where_it_is_parked() -> None:
    [unit] = units({"batch": None, "parked_topic": "W", "parked_queue": 2, "queue_id": 1})[0]
    assert unit == Unit(0, 1, "T", 1, 100, ("W", 2))


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([{}, {"topic": "U"}], r"batch 'b' has messages of 2 topics (T, U); one is allowed"),
        ([{"queue_id": 0}, {"queue_id": 1}], "batch 'b' has messages for different queues; one is allowed"),
        ([{"shard": 1}, {"shard": 2}], "batch 'b' has messages for different queues; one is allowed"),
        ([{"topic": "%RETRY%g"}, {"topic": "%RETRY%g"}], "batch 'b' is for the retry topic %RETRY%g; a batch cannot be"),
    ],
    ids=["two topics", "two queues", "two keys", "retry topic"],
)  # fmt: skip
def test_a_batch_that_a_broker_refuses_is_refused_whole(rows: list[dict[str, Any]], complaint: str) -> None:
    assert units(*rows) == ([], [(0, 1, complaint), (1, 2, complaint)])


def test_a_bad_message_of_a_batch_keeps_its_own_reason_and_the_others_get_one() -> None:
    assert units({}, {"reason": "bad"}, {}) == (
        [],
        [
            (0, 1, "another message of its batch 'b' is bad"),
            (2, 3, "another message of its batch 'b' is bad"),
        ],
    )


def test_a_batch_of_exactly_the_limit_is_put_whole() -> None:
    assert units({}, {}, on_wire=100, in_log=200)[0] == [Unit(0, 2, "T", None, 200)]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"on_wire": 99}, "is 100 bytes; at most 99 (maxMessageSize)"),
        ({"in_log": 199}, "is 200 bytes in the log; at most 199 (mappedFileSizeCommitLog less 8)"),
    ],
)
def test_a_byte_more_is_refused_or_cut(limits: dict[str, int], said: str) -> None:
    found, bad = units({}, {}, **limits)
    assert found == []
    assert [each for _, _, each in bad] == [f"batch 'b' {said}: make it smaller or pass --split-batches"] * 2
    assert units({}, {}, split=True, **limits) == (
        [Unit(0, 1, "T", None, 100), Unit(1, 1, "T", None, 100)],
        [],
    )


def test_a_batch_is_cut_into_as_few_parts_as_fit() -> None:
    found, _ = units(*[{}] * 5, on_wire=100, split=True)
    assert [(unit.first_row, unit.rows, unit.size_bytes) for unit in found] == [
        (0, 2, 200), (2, 2, 200), (4, 1, 100),
    ]  # fmt: skip


def test_a_message_that_is_too_large_alone_is_a_part_of_its_own() -> None:
    found, bad = units({}, {"wire_bytes": 500}, {}, on_wire=100, split=True)
    assert ([unit.rows for unit in found], bad) == ([1, 1, 1], [])
