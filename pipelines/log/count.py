"""Count an input: for each split, what is needed to give every message its offsets. One pass over slim columns.

A split is a part of an input file that one task reads, in order. A task may read several splits, and Spark reads the
largest first; offsets follow the order of the splits in the input, so everything is counted by split. A row whose queue
round robin chooses takes a turn: its number among such rows of its topic.
"""

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from pipelines.log.batches import Unit, units_of
from pipelines.rocketmq.names import belongs_to_group
from pipelines.rocketmq.settings import LONG_MAX

SplitId = tuple[int, int]  # (hash of the file's name, where it starts in the file, bytes)
Queue = tuple[str, int]

# The arrival of one row in this many, 8 bytes, comes to the driver.
ROWS_OF_A_SAMPLE = 100
# Where a bad row without an arrival lies in the order of arrival.
ARRIVAL_OF_NONE = 0
# How many bad rows of a split are kept to be shown.
BAD_ROWS_SHOWN = 20


@dataclass
class CountedSplit:
    """The counts of one split of the input.

    rows, good_rows   rows of the split; those that can be put
    size_bytes        of its good rows together
    sizes             of its good rows in order, int32; None when CountRules.with_sizes is false
    rows_by_queue     rows whose queue is known
    turns             topic -> rows that take a turn
    parked            queue of the store's own -> rows parked there; one without a queue takes a turn of its topic too
    parked_for        queue of a parked row's own topic -> rows, where the row gives it
    parked_turns      (topic, turn modulo its queues) -> parked rows that took that turn
    wide              topic -> (numbers among the good rows, turns) of parked rows whose REAL_QID may have over one digit
    bad               (row, reason) of rows that cannot be put, the first BAD_ROWS_SHOWN
    bad_rows          how many there are
    arrival           (first, last, whether in order) of the arrivals of good rows; None when none of them has one
    without_arrival   good rows that have none
    arrivals          of every ROWS_OF_A_SAMPLE-th row, int64: arrivals at which a part of the sorted input may begin
    units             for an input with batches: its units in order, instead of sizes
    """

    id: SplitId
    rows: int = 0
    good_rows: int = 0
    size_bytes: int = 0
    sizes: np.ndarray | None = None
    rows_by_queue: Counter[Queue] = field(default_factory=Counter)
    turns: Counter[str] = field(default_factory=Counter)
    parked: Counter[Queue] = field(default_factory=Counter)
    parked_for: Counter[Queue] = field(default_factory=Counter)
    parked_turns: Counter[Queue] = field(default_factory=Counter)
    wide: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    bad: list[tuple[int, str]] = field(default_factory=list)
    bad_rows: int = 0
    arrival: tuple[int, int, bool] | None = None
    without_arrival: int = 0
    arrivals: list[np.ndarray] = field(default_factory=list)
    units: list[Unit] | None = None

    @property
    def topics(self) -> set[str]:
        return set(self.turns) | {topic for topic, _ in (*self.rows_by_queue, *self.parked_for)}


class QueueNums(NamedTuple):
    """The number of write queues of each topic; of one not made yet, the number it will get."""

    by_topic: Mapping[str, int]
    made_on_the_fly: int

    def of(self, topic: str) -> int:
        new = 1 if belongs_to_group(topic) else self.made_on_the_fly
        return self.by_topic.get(topic, new)


@dataclass(frozen=True)
class CountRules:
    """The settings of a count.

    max_message_bytes  of a batch on the wire
    with_sizes         whether the size of every row comes to the driver, 4 bytes each
    split_batches      whether a batch that is too large is cut
    max_unit_bytes     of a batch in the log: it never lies in two segments
    """

    queue_nums: QueueNums
    max_message_bytes: int
    with_sizes: bool = True
    split_batches: bool = False
    max_unit_bytes: int = LONG_MAX


def counted_splits(slim: DataFrame, rules: CountRules, is_short: bool = False) -> list[CountedSplit]:
    """The counts of `slim`, a small row per split (with sizes, 4 bytes a message more).

    is_short  whether the driver counts: Python workers of executors take more than a second to start

    slim   `file_hash` long, `block_start` long, `topic` string, `size_bytes` int, and where the input has them:
           `queue_id` int, `shard` int (hash of the sharding key), `batch` string, `wire_bytes` int, `arrival` long,
           `reason` string (why the row cannot be put)
    """
    count = split_counter(rules)
    if is_short:
        batches = (batch for batch in slim.toArrow().to_batches() if batch.num_rows)
        pickled = [one for counted in count(batches) for one in counted.column(0).to_pylist()]
    else:
        pickled = [row.counted for row in slim.mapInArrow(count, "counted binary").collect()]
    return [pickle.loads(one) for one in pickled]  # pickled by the function below


def split_counter(rules: CountRules) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for mapInArrow: from a task's slim rows to `counted`, a pickled CountedSplit for each split."""

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for split, runs in runs_by_split(batches):
            counted = CountedSplit(split)
            sizes: list[np.ndarray] = []
            kept: list[pa.RecordBatch] = []
            for run in runs:
                first_good_row = counted.good_rows
                good = _count_rows(counted, run)
                if "batch" in run.schema.names:
                    kept.append(run)
                good_rows = run.filter(good) if good is not None else run
                digits = _count_queues(counted, good_rows, rules, first_good_row)
                if rules.with_sizes:
                    sizes.append(good_rows.column("size_bytes").to_numpy(zero_copy_only=False) + digits)
            if any(run.column("batch").null_count < run.num_rows for run in kept):
                _count_units(counted, pa.Table.from_batches(kept), rules)
            elif rules.with_sizes:
                counted.sizes = np.concatenate(sizes).astype(np.int32) if sizes else np.zeros(0, np.int32)
            yield pa.RecordBatch.from_pydict({"counted": pa.array([pickle.dumps(counted)], pa.binary())})

    return count


def runs_by_split(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[SplitId, Iterator[pa.RecordBatch]]]:
    """A task's rows by split, each as an iterator of batches, which must be read before the next split is taken."""
    pending: list[tuple[SplitId, pa.RecordBatch]] = []

    def cut() -> Iterator[tuple[SplitId, pa.RecordBatch]]:
        for batch in batches:
            for start, end, split in split_runs(batch.column(0), batch.column(1)):
                yield split, batch.slice(start, end - start)

    source = cut()

    def runs(split: SplitId, first: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield first
        for next_split, run in source:
            if next_split != split:
                pending.append((next_split, run))
                return
            yield run

    while True:
        if not pending:
            try:
                pending.append(next(source))
            except StopIteration:
                return
        split, first = pending.pop()
        yield split, runs(split, first)


def split_runs(file_hash: pa.Array, block_start: pa.Array) -> Iterator[tuple[int, int, SplitId]]:
    """(first row, end row, split) wherever consecutive rows of a batch are of one split."""
    rows = len(file_hash)
    if rows == 0:
        return
    hashes, starts = file_hash.to_numpy(zero_copy_only=False), block_start.to_numpy(zero_copy_only=False)
    changes = np.flatnonzero((hashes[1:] != hashes[:-1]) | (starts[1:] != starts[:-1])) + 1
    edges = [0, *changes.tolist(), rows]
    for start, end in pairwise(edges):
        yield start, end, (int(hashes[start]), int(starts[start]))


def _count_rows(counted: CountedSplit, run: pa.RecordBatch) -> pa.Array | None:
    """The mask of good rows, None when all are good; counts rows, bad rows and the order of arrival."""
    first_row = counted.rows
    counted.rows += run.num_rows
    good = None
    reasons = run.column("reason") if "reason" in run.schema.names else None
    if reasons is not None and reasons.null_count < len(reasons):
        good = pc.is_null(reasons)
        bad = np.flatnonzero(~good.to_numpy(zero_copy_only=False))
        counted.bad_rows += len(bad)
        for row in bad[: BAD_ROWS_SHOWN - len(counted.bad)].tolist():
            counted.bad.append((first_row + row, reasons[row].as_py()))
    counted.good_rows = counted.rows - counted.bad_rows
    if "arrival" in run.schema.names:
        _count_arrival(counted, run.column("arrival"), first_row, good)
    sizes = run.column("size_bytes")
    counted.size_bytes += pc.sum(sizes.filter(good) if good is not None else sizes).as_py() or 0
    return good


def _count_arrival(
    counted: CountedSplit, column: pa.Array, first_row: int, good: pa.BooleanArray | None
) -> None:
    """Count the order of arrival of the good rows: a bad row may be a line that nothing can be read of."""
    given = column.fill_null(ARRIVAL_OF_NONE).to_numpy(zero_copy_only=False)
    counted.arrivals.append(given[-first_row % ROWS_OF_A_SAMPLE :: ROWS_OF_A_SAMPLE].copy())
    if good is not None:
        column = column.filter(good)
    counted.without_arrival += column.null_count
    arrival = column.drop_null().to_numpy(zero_copy_only=False)
    if not len(arrival):
        return
    in_order = bool(np.all(arrival[1:] >= arrival[:-1]))
    first, last = int(arrival[0]), int(arrival[-1])
    if counted.arrival is not None:
        in_order = in_order and counted.arrival[2] and counted.arrival[1] <= first
        first = counted.arrival[0]
    counted.arrival = (first, last, in_order)


def _count_queues(
    counted: CountedSplit, run: pa.RecordBatch, rules: CountRules, first_row: int
) -> np.ndarray | int:
    """The bytes that REAL_QID takes beyond its first digit, where the queue is known; counts rows by queue."""
    codes, topics = topic_codes(run.column("topic"))
    queue = chosen_queues(run, codes, topics, rules.queue_nums.of)
    parked = is_parked(run)
    if queue is None and parked is None:
        for code, rows in enumerate(np.bincount(codes, minlength=len(topics)).tolist()):
            counted.turns[topics[code]] += rows
        return 0
    queue = np.full(len(codes), -1, np.int64) if queue is None else queue
    turning = queue < 0
    if parked is not None:
        said = parked & ~turning
        counted.parked_for.update(rows_by_queue(codes[said], queue[said], topics))
        _count_parked(counted, run, codes, topics, turning, parked, rules, first_row)
    for code, rows in enumerate(np.bincount(codes[turning], minlength=len(topics)).tolist()):
        if rows:
            counted.turns[topics[code]] += rows
    own = ~turning if parked is None else ~turning & ~parked
    counted.rows_by_queue.update(rows_by_queue(codes[own], queue[own], topics))
    return 0 if parked is None else np.where(parked, further_digits(queue), 0)


def _count_parked(
    counted: CountedSplit,
    run: pa.RecordBatch,
    codes: np.ndarray,
    topics: list[str],
    turning: np.ndarray,
    parked: np.ndarray,
    rules: CountRules,
    first_row: int,
) -> None:
    parked_codes, parked_topics = topic_codes(run.column("parked_topic").filter(pa.array(parked)))
    parked_queues = run.column("parked_queue").to_numpy(zero_copy_only=False)[parked].astype(np.int64)
    counted.parked.update(rows_by_queue(parked_codes, parked_queues, parked_topics))
    for code, topic in enumerate(topics):
        takes_turn = turning & (codes == code)
        turns = counted.turns[topic] + np.arange(int(takes_turn.sum()))
        parked_turns = turns[parked[takes_turn]]
        if not len(parked_turns):
            continue
        queues = rules.queue_nums.of(topic)
        counted.parked_turns.update(
            {(topic, r): n for r, n in Counter((parked_turns % queues).tolist()).items()}
        )
        if queues > 10:
            rows = first_row + np.flatnonzero(takes_turn & parked)
            before = counted.wide.get(topic, (np.zeros(0, np.int64), np.zeros(0, np.int64)))
            counted.wide[topic] = (np.r_[before[0], rows], np.r_[before[1], parked_turns])


def is_parked(run: pa.RecordBatch) -> np.ndarray | None:
    """Which rows are parked; None when none is."""
    if "parked_topic" not in run.schema.names or run.column("parked_topic").null_count == run.num_rows:
        return None
    return pc.is_valid(run.column("parked_topic")).to_numpy(zero_copy_only=False)


def rows_by_queue(codes: np.ndarray, queue: np.ndarray, topics: list[str]) -> dict[Queue, int]:
    """Rows of each (topic, queue), the topics given by their codes."""
    pairs, counts = np.unique(codes.astype(np.int64) << 32 | queue, return_counts=True)
    return {
        (topics[pair >> 32], pair & 0xFFFFFFFF): rows
        for pair, rows in zip(pairs.tolist(), counts.tolist(), strict=True)
    }


def further_digits(queue: np.ndarray) -> np.ndarray:
    """Decimal digits of queue numbers beyond the first; 0 for a queue that is not known, -1."""
    return (np.floor(np.log10(np.maximum(queue, 1)) + 1e-9)).astype(np.int64)


def _count_units(counted: CountedSplit, rows: pa.Table, rules: CountRules) -> None:
    """Count units instead of rows, from the slim columns of a whole file: a batch needs its rows together."""
    counted.turns.clear()
    for queues in (counted.rows_by_queue, counted.parked, counted.parked_for, counted.parked_turns):
        queues.clear()
    counted.units, bad = units_of(
        rows, rules.queue_nums.of, rules.max_message_bytes, rules.split_batches, rules.max_unit_bytes
    )
    counted.bad_rows += sum(end - start for start, end, _ in bad)
    for start, end, reason in bad:
        counted.bad.extend((row, reason) for row in range(start, end))
    counted.bad = sorted(counted.bad)[:BAD_ROWS_SHOWN]
    counted.good_rows = sum(unit.rows for unit in counted.units)
    counted.size_bytes = sum(unit.size_bytes for unit in counted.units)
    for unit in counted.units:
        if unit.queue_id is None:
            counted.turns[unit.topic] += 1
        else:
            said = counted.rows_by_queue if unit.parked is None else counted.parked_for
            said[unit.topic, unit.queue_id] += unit.rows


def topic_codes(topics: pa.Array) -> tuple[np.ndarray, list[str]]:
    """Each row's topic as a number, and the topics by number."""
    encoded = pc.dictionary_encode(topics)
    return encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()


def chosen_queues(
    run: pa.RecordBatch, codes: np.ndarray, topics: list[str], queues: Callable[[str], int]
) -> np.ndarray | None:
    """Queue of each row where the row gives it; -1 where its turn decides; None when that is so for all rows.

    A sharding key's queue is RocketMQ's SelectMessageQueueByHash: remainder first, then absolute value
    (docs/rocketmq/consume-filter-ha.md 1.4).
    """
    queue = None
    if "queue_id" in run.schema.names and run.column("queue_id").null_count < run.num_rows:
        queue = run.column("queue_id").fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    if "shard" in run.schema.names and run.column("shard").null_count < run.num_rows:
        shard = run.column("shard")
        sharded = pc.is_valid(shard).to_numpy(zero_copy_only=False)
        nums = np.array([queues(topic) for topic in topics], np.int64)[codes]
        by_hash = np.abs(np.fmod(shard.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64), nums))
        queue = (
            np.where(sharded & (queue < 0), by_hash, queue)
            if queue is not None
            else np.where(sharded, by_hash, -1)
        )
    return queue
