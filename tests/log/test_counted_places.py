"""Count and place: random slim rows through numpy on the driver and Catalyst in the pass, against a plain loop."""

import pickle
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from pipelines.log.count import CountedSplit, CountRules, QueueNums, split_counter
from pipelines.log.place import Placement, input_row, is_placed, place, with_places
from pipelines.store.head import LogHead

SEGMENT_BYTES = 1_000
QUEUE_NUMS = {"few": 3, "many": 120, "%RETRY%g": 1}
HEAD = LogHead(7, 0, 2_940, 5, {("few", 0): 4, ("few", 2): 7, ("many", 9): 1, ("few2", 0): 50, ("W", 1): 3})
# In the order of the input, which is not that of their numbers; neighbours differ in one of the two, or in both.
SPLITS = [(9, 0), (-5, 0), (-5, 64), (9, 2**40)]
PARKED = [("W", 0), ("W", 1), ("S", 17)]
SLIM = pa.schema(
    [
        ("file_hash", pa.int64()), ("block_start", pa.int64()), ("topic", pa.string()), ("size_bytes", pa.int32()),
        ("queue_id", pa.int32()), ("shard", pa.int32()), ("batch", pa.string()), ("wire_bytes", pa.int32()),
        ("reason", pa.string()), ("parked_topic", pa.string()), ("parked_queue", pa.int32()),
    ]
)  # fmt: skip
KINDS = {
    "turns": {"turn": 1.0},
    "turns, queues and keys": {"turn": 0.5, "queue": 0.25, "key": 0.25},
    "bad rows": {"turn": 0.5, "queue": 0.3, "bad": 0.2},
    "parked": {"turn": 0.4, "queue": 0.2, "key": 0.2, "bad": 0.2, "parked": 0.5},
    "batches": {"turn": 0.4, "queue": 0.3, "key": 0.3, "batch": 0.5},
    "batches beside parked and bad rows": {"turn": 0.5, "queue": 0.2, "key": 0.2, "bad": 0.1, "parked": 0.3, "batch": 0.3},
}  # fmt: skip


def random_slim(chance: random.Random, shares: dict[str, float]) -> list[dict[str, Any]]:
    """Rows of four splits of two files, in the order of the input."""
    rows: list[dict[str, Any]] = []
    for file_hash, block_start in SPLITS:
        left = chance.randrange(1, 30)
        while left > 0:
            row = random_row(chance, shares) | {"file_hash": file_hash, "block_start": block_start}
            size = 1
            if "batch" in shares and chance.random() < shares["batch"] and is_fit_for_a_batch(row):
                size = min(chance.randrange(1, 4), left)
                row["batch"] = f"batch {len(rows)}"
            for _ in range(size):
                rows.append(row | {"size_bytes": chance.randrange(91, 200)})
            left -= size
    return rows


def random_row(chance: random.Random, shares: dict[str, float]) -> dict[str, Any]:
    topic = chance.choice(list(QUEUE_NUMS))
    row: dict[str, Any] = {**dict.fromkeys(SLIM.names), "topic": topic, "wire_bytes": 50}
    kinds = [name for name in ("turn", "queue", "key", "bad") if name in shares]
    match chance.choices(kinds, [shares[kind] for kind in kinds])[0]:
        case "queue":
            row["queue_id"] = chance.randrange(QUEUE_NUMS[topic])
        case "key":
            row["shard"] = chance.choice([0, 1, -1, 2**31 - 1, -(2**31), chance.randrange(-1_000, 1_000)])
        case "bad":
            row["reason"] = "bad"
    if chance.random() < shares.get("parked", 0) and row["reason"] is None:
        row["parked_topic"], row["parked_queue"] = chance.choice(PARKED)
    return row


def is_fit_for_a_batch(row: dict[str, Any]) -> bool:
    return row["reason"] is None and row["parked_topic"] is None and not row["topic"].startswith("%RETRY%")


@dataclass
class Model:
    """Messages placed one by one, as a broker does."""

    end: int = HEAD.next_offset

    def __post_init__(self) -> None:
        self.queues = Counter(HEAD.next_queue_offsets)
        self.row = 0
        self.begin_append()

    def begin_append(self) -> None:
        """Turns begin where the offsets of the topic's queues, added up, say."""
        self.turns = Counter[str]()
        for (topic, _), offset in self.queues.items():
            self.turns[topic] += offset

    def put(self, rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        placed: list[tuple[Any, ...]] = []
        while rows:
            first, count = rows[0], 1
            while first["batch"] and count < len(rows) and rows[count]["batch"] == first["batch"]:
                count += 1
            placed += self._together(rows[:count])
            rows = rows[count:]
        return placed

    def _together(self, rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        first = rows[0]
        numbers = range(self.row, self.row + len(rows))
        self.row += len(rows)
        if first["reason"] is not None:
            return [(numbers[0], None, None, None, None, first["size_bytes"])]
        queues = QUEUE_NUMS[first["topic"]]
        if first["queue_id"] is not None:
            chosen = first["queue_id"]
        elif first["shard"] is not None:
            chosen = abs(first["shard"]) % queues
        else:
            chosen = self.turns[first["topic"]] % queues
            self.turns[first["topic"]] += 1
        is_parked = first["parked_topic"] is not None
        more = len(str(chosen)) - 1 if is_parked else 0
        queue = (first["parked_topic"], first["parked_queue"]) if is_parked else (first["topic"], chosen)
        total = sum(row["size_bytes"] + more for row in rows)
        if total + 8 > SEGMENT_BYTES - self.end % SEGMENT_BYTES:
            self.end += SEGMENT_BYTES - self.end % SEGMENT_BYTES
        placed = []
        for number, row in zip(numbers, rows, strict=True):
            size = row["size_bytes"] + more
            placed.append((number, self.end, chosen, queue[1], self.queues[queue], size))
            self.queues[queue] += 1
            self.end += size
        return placed


def frame(spark: SparkSession, rows: list[dict[str, Any]], drop: tuple[str, ...] = ()) -> DataFrame:
    """The rows in one partition, in order."""
    return spark.createDataFrame(pa.Table.from_pylist(rows, SLIM)).coalesce(1).drop(*drop)


def counted_here(slim: DataFrame, rules: CountRules) -> list[CountedSplit]:
    """As `counted_splits`, in this process, in batches that end in the middle of splits."""
    batches = slim.toArrow().combine_chunks().to_batches(max_chunksize=7)
    return [pickle.loads(one.column(0)[0].as_py()) for one in split_counter(rules)(batches)]


def placed_rows(messages: DataFrame, placement: Placement) -> list[tuple[Any, ...]]:
    names = ("input_row", "physical_offset", "chosen_queue_id", "queue_id", "queue_offset", "size_bytes")
    found = with_places(messages, placement).where("reason IS NULL").select(*names)
    return sorted(tuple(row) for row in found.collect())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_each_row_lies_where_a_loop_over_the_input_puts_it(spark: SparkSession, kind: str, seed: int) -> None:
    rows = random_slim(random.Random(f"{kind} {seed}"), KINDS[kind])
    unused = tuple(
        name
        for names in (("parked_topic", "parked_queue"), ("batch", "wire_bytes"), ("shard",), ("queue_id",))
        for name in names
        if all(row[names[0]] is None for row in rows)
    )
    slim = frame(spark, rows, unused)
    rules = CountRules(QueueNums(QUEUE_NUMS, 4), 100_000, max_unit_bytes=SEGMENT_BYTES - 8)
    by_id = {split.id: split for split in counted_here(slim, rules)}
    splits = [by_id[split] for split in SPLITS]
    assert [split.rows for split in splits] == [
        sum((row["file_hash"], row["block_start"]) == split.id for row in rows) for split in splits
    ]
    model = Model()
    expected = [row for row in model.put(rows) if row[1] is not None]

    # All in one append.
    whole = place(splits, 0, HEAD, SEGMENT_BYTES, QUEUE_NUMS, 9)
    assert placed_rows(slim, whole) == expected
    assert (whole.head.next_offset, whole.head.next_queue_offsets) == (model.end, dict(model.queues))
    assert (whole.rows, whole.first_offset, whole.to_row) == (len(expected), expected[0][1], len(rows))
    if whole.last_offset is not None:
        assert whole.last_offset == expected[-1][1]

    # In two: the second one goes on where the first ends.
    model, in_first = Model(), sum(split.rows for split in splits[:2])
    expected = model.put(rows[:in_first])
    model.begin_append()
    expected = [row for row in expected + model.put(rows[in_first:]) if row[1] is not None]
    first = place(splits[:2], 0, HEAD, SEGMENT_BYTES, QUEUE_NUMS, 9)
    second = place(splits[2:], first.to_row, first.head, SEGMENT_BYTES, QUEUE_NUMS, 9)
    parts = [placed_rows(slim.where(is_placed(part)), part) for part in (first, second)]
    assert parts[0] + parts[1] == expected
    assert (second.head.next_offset, second.head.next_queue_offsets) == (model.end, dict(model.queues))

    numbers = [row[0] for row in slim.select(input_row(splits)).collect()]
    assert numbers == list(range(len(rows)))
