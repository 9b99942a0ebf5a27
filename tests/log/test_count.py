"""What counting finds in each split of an input: its rows, their queues and turns, their sizes, their order of arrival."""

import pickle
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from pipelines.log.batches import Unit
from pipelines.log.count import (
    BAD_ROWS_SHOWN,
    CountedSplit,
    CountRules,
    QueueNums,
    chosen_queues,
    further_digits,
    split_counter,
    split_runs,
    topic_codes,
)

pytestmark = pytest.mark.quick

RULES = CountRules(QueueNums({"few": 3, "many": 12, "eleven": 11, "ten": 10}, 4), 1_000, max_unit_bytes=900)
COLUMNS = {
    "file_hash": pa.int64(), "block_start": pa.int64(), "topic": pa.string(), "size_bytes": pa.int32(),
    "queue_id": pa.int32(), "shard": pa.int32(), "arrival": pa.int64(), "reason": pa.string(),
    "parked_topic": pa.string(), "parked_queue": pa.int32(), "batch": pa.string(), "wire_bytes": pa.int32(),
}  # fmt: skip
ROW = {"file_hash": 1, "block_start": 0, "topic": "few", "size_bytes": 100}


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    """One batch of slim rows, with the columns that some row has."""
    given = [ROW | row for row in rows]
    names = [name for name in COLUMNS if any(name in row for row in given)]
    return pa.RecordBatch.from_pylist(
        [{name: row.get(name) for name in names} for row in given],
        pa.schema([(name, COLUMNS[name]) for name in names]),
    )


def counted(*batches: pa.RecordBatch, rules: CountRules = RULES) -> list[CountedSplit]:
    found = split_counter(rules)(batches)
    return [pickle.loads(one.column(0)[0].as_py()) for one in found]


def test_a_batch_is_cut_where_another_split_begins() -> None:
    file_hash, block_start = pa.array([1, 1, 2, 2]), pa.array([0, 64, 64, 64])
    assert list(split_runs(file_hash, block_start)) == [(0, 1, (1, 0)), (1, 2, (1, 64)), (2, 4, (2, 64))]


def test_a_split_of_several_batches_is_counted_once_and_in_order() -> None:
    here, there = {"block_start": 0}, {"block_start": 64}
    first, second = counted(
        batch({**here, "size_bytes": 1}, {**here, "size_bytes": 2}),
        batch({**here, "size_bytes": 3}, {**there, "size_bytes": 4}),
    )
    assert (first.id, first.rows, first.size_bytes, list(first.sizes)) == ((1, 0), 3, 6, [1, 2, 3])
    assert (second.id, second.rows, second.size_bytes, list(second.sizes)) == ((1, 64), 1, 4, [4])


def test_three_splits_of_one_batch_are_counted_apart() -> None:
    splits = counted(batch({"block_start": 0}, {"block_start": 64}, {"block_start": 128}))
    assert [(split.id, split.rows) for split in splits] == [((1, 0), 1), ((1, 64), 1), ((1, 128), 1)]


def test_a_row_that_names_its_queue_is_as_long_as_it_is() -> None:
    [split] = counted(batch({"topic": "many", "queue_id": 11}, {}))
    assert list(split.sizes) == [100, 100]


def test_rows_that_name_no_queue_take_turns_of_their_topic() -> None:
    [split] = counted(batch({"queue_id": 2}, {}, {"topic": "many"}, {}))
    assert split.turns == Counter({"few": 2, "many": 1})
    assert split.rows_by_queue == Counter({("few", 2): 1})
    assert split.topics == {"few", "many"}


@pytest.mark.parametrize(
    ("shard", "queue"),
    [(7, 1), (-7, 1), (2**31 - 1, 1), (-(2**31), 2)],
    ids=["7 % 3", "|-7 % 3|", "the largest", "the least, which has no absolute value of its own"],
)
def test_a_sharding_key_chooses_by_the_absolute_value_of_its_remainder(shard: int, queue: int) -> None:
    run = batch({"shard": shard})
    codes, topics = topic_codes(run.column("topic"))
    chosen = chosen_queues(run, codes, topics, RULES.queue_nums.of)
    assert chosen is not None
    assert chosen.tolist() == [queue]


def test_a_row_without_a_key_takes_a_turn_beside_those_that_have_one() -> None:
    [split] = counted(batch({"shard": 1}, {"shard": None}))
    assert (split.rows_by_queue, split.turns) == (Counter({("few", 1): 1}), Counter({"few": 1}))


def test_a_queue_that_is_named_goes_before_a_sharding_key() -> None:
    [split] = counted(batch({"queue_id": 0, "shard": 2}, {"shard": 2}))
    assert split.rows_by_queue == Counter({("few", 0): 1, ("few", 2): 1})
    assert split.turns == Counter()


@pytest.mark.parametrize(("topic", "queues"), [("few", 3), ("new", 4), ("%RETRY%g", 1), ("%DLQ%g", 1)])
def test_queues_of_a_topic_and_of_one_that_is_not_made_yet(topic: str, queues: int) -> None:
    assert RULES.queue_nums.of(topic) == queues


def test_a_parked_row_lies_where_it_is_parked_and_takes_the_turn_of_its_topic() -> None:
    parked = {"parked_topic": "W", "parked_queue": 5}
    [split] = counted(batch({}, parked, parked, {**parked, "queue_id": 1}))
    assert split.parked == Counter({("W", 5): 3})
    assert split.turns == Counter({"few": 3})
    assert split.parked_turns == Counter({("few", 1): 1, ("few", 2): 1})
    assert split.parked_for == Counter({("few", 1): 1})
    assert split.rows_by_queue == Counter()


def test_a_parked_row_is_longer_by_the_further_digits_of_the_queue_it_names() -> None:
    parked = {"topic": "many", "parked_topic": "W", "parked_queue": 0}
    [split] = counted(batch({**parked, "queue_id": 9}, {**parked, "queue_id": 10}, {"queue_id": 2}))
    assert list(split.sizes) == [100, 101, 100]
    assert further_digits(pa.array([-1, 0, 9, 10, 99, 100, 999, 1000]).to_numpy()).tolist() == [
        0, 0, 0, 1, 1, 2, 2, 3,
    ]  # fmt: skip


def test_parked_rows_whose_turn_may_have_two_digits_are_kept_with_their_turns() -> None:
    parked = {"parked_topic": "W", "parked_queue": 0}
    many = {"topic": "many"}
    [split] = counted(batch({}, many, {**many, **parked}), batch({**parked}, {**many, **parked}))
    assert set(split.wide) == {"many"}  # three queues have one digit
    rows, turns = split.wide["many"]
    assert (rows.tolist(), turns.tolist()) == ([2, 4], [1, 2])


def test_of_eleven_queues_one_has_two_digits() -> None:
    parked = {"parked_topic": "W", "parked_queue": 0}
    [split] = counted(batch({"topic": "ten", **parked}, {"topic": "eleven", **parked}))
    assert set(split.wide) == {"eleven"}


def test_bad_rows_are_counted_and_take_neither_a_turn_nor_room() -> None:
    [split] = counted(
        batch({"size_bytes": 1}, {"size_bytes": 2, "reason": "bad"}),
        batch({"size_bytes": 3, "reason": "worse"}, {"size_bytes": 4, "reason": None}),
    )
    assert (split.rows, split.good_rows, split.bad_rows, split.size_bytes) == (4, 2, 2, 5)
    assert split.bad == [(1, "bad"), (2, "worse")]
    assert (split.turns, list(split.sizes)) == (Counter({"few": 2}), [1, 4])


def test_of_many_bad_rows_the_first_are_kept_to_be_shown() -> None:
    bad = {"reason": "bad"}
    [split] = counted(batch(*[bad] * 15), batch(*[bad] * 15))
    assert split.bad_rows == 30
    assert [row for row, _ in split.bad] == list(range(BAD_ROWS_SHOWN))


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ([1, 2, 2], [2, 3], (1, 3, True)),
        ([2, 1], [3], (2, 3, False)),
        ([1, 3], [2, 4], (1, 4, False)),
        ([None, 1], [None, 2], (1, 2, True)),
        ([None], [None], None),
    ],
    ids=[
        "in order, equal ones too",
        "not in a batch",
        "not over its border",
        "none is not looked at",
        "none",
    ],
)
def test_whether_rows_come_in_order_of_arrival(
    first: list[int | None], second: list[int | None], found: tuple[int, int, bool] | None
) -> None:
    [split] = counted(*[batch(*[{"arrival": each} for each in arrivals]) for arrivals in (first, second)])
    assert split.arrival == found
    assert split.without_arrival == (first + second).count(None)


def test_bad_rows_have_no_part_in_the_order_of_arrival() -> None:
    bad = {"reason": "not a JSON object"}
    [split] = counted(batch({"arrival": 2}, bad, {"arrival": 1} | bad, {"arrival": 3}), batch(bad))
    assert (split.arrival, split.without_arrival) == ((2, 3, True), 0)
    assert [each for one in split.arrivals for each in one.tolist()] == [2]


def test_every_hundredth_arrival_comes_home_wherever_batches_end() -> None:
    arrivals = [{"arrival": each} for each in range(250)]
    [split] = counted(batch(*arrivals[:70]), batch(*arrivals[70:130]), batch(*arrivals[130:]))
    assert [each for one in split.arrivals for each in one.tolist()] == [0, 100, 200]


def test_units_of_an_input_with_batches_take_a_turn_each() -> None:
    rows = [{"wire_bytes": 50, "batch": name} for name in ("a", "a", None, "b", "b")]
    [split] = counted(batch(*rows[:1]), batch(*rows[1:]))  # a batch may lie in two of Arrow's
    assert split.units == [
        Unit(0, 2, "few", None, 200),
        Unit(2, 1, "few", None, 100),
        Unit(3, 2, "few", None, 200),
    ]
    assert (split.turns, split.sizes) == (Counter({"few": 3}), None)


def test_a_column_of_batches_that_no_row_uses_changes_nothing() -> None:
    [split] = counted(batch({"wire_bytes": 50, "batch": None}, {"wire_bytes": 50, "batch": None}))
    assert (split.units, list(split.sizes), split.turns) == (None, [100, 100], Counter({"few": 2}))


def test_a_parked_message_beside_batches_lies_where_it_is_parked_and_not_in_the_queue_it_names() -> None:
    alone = {"wire_bytes": 50, "batch": None, "queue_id": 1}
    parked = {**alone, "parked_topic": "W", "parked_queue": 0}
    [split] = counted(batch({**alone, "batch": "a"}, alone, parked))
    assert split.rows_by_queue == Counter({("few", 1): 2})
    assert split.parked_for == Counter({("few", 1): 1})


def test_messages_of_a_batch_that_cannot_be_put_are_bad_rows_with_its_reason() -> None:
    rows = [{"wire_bytes": 50, "batch": "a", "topic": topic} for topic in ("few", "many")]
    [split] = counted(batch(*rows, {"wire_bytes": 50, "batch": None}))
    assert (split.good_rows, split.bad_rows, split.size_bytes) == (1, 2, 100)
    assert [(row, "2 topics" in reason) for row, reason in split.bad] == [(0, True), (1, True)]
