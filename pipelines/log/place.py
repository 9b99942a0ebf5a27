"""Place messages: the offsets of each counted split, and of each message in it, in the log and in its queue.

The driver turns counts into starts; running counters in a narrow pass over the input go on from them. No row is moved.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.errors import StoreError
from pipelines.log.append import head_after
from pipelines.log.count import CountedSplit, Queue, SplitId, further_digits
from pipelines.rocketmq.record import BLANK_BYTES
from pipelines.spark_internals.catalyst import number_at, number_of, off_counter, running_counter, search
from pipelines.store.head import LogHead
from pipelines.store.plan import Planned


class Counted(NamedTuple):
    """Where a running counter starts in a split, and the end that the split was counted to: [start, end)."""

    start: int
    end: int


@dataclass(frozen=True)
class SplitStarts:
    """The ranges of numbers that a split's messages take, as it was counted.

    rows     numbers of its rows in the input, bad rows included
    bytes    of its good rows, added up from the placement's first good row, without the blanks at segments' ends
    turns    topic -> turns of its rows that take turns
    queues   (topic, queue) -> queue offsets of its rows there
    units    for an input with batches: the queues and offsets of its units, instead of turns and queues
    """

    rows: Counted
    bytes: Counted
    turns: Mapping[str, Counted] = field(default_factory=dict)
    queues: Mapping[Queue, Counted] = field(default_factory=dict)
    units: "UnitPlaces | None" = None


class UnitPlaces(NamedTuple):
    """Arrays (int64), a number a unit: `chosen_queue_ids` are of its own topic, `queue_ids` of the topic it is stored in."""

    first_rows: np.ndarray
    end_rows: np.ndarray
    queue_ids: np.ndarray
    queue_offsets: np.ndarray
    chosen_queue_ids: np.ndarray


NO_TURNS = Counted(0, 0)
NO_UNITS = UnitPlaces(*[np.zeros(0, np.int64)] * 5)


@dataclass(frozen=True)
class Placement:
    """The offsets of all messages of some splits, and the head after them.

    roll_bytes        bytes of good rows before each row at which a split or a segment begins, ascending from 0
    roll_gaps         by how much log offsets from there on are greater than bytes of good rows before
    from_row, to_row  their rows in the input, half-open
    first_offset      log offset of the first message; None when there is none
    last_offset       log offset of the last message; None when it is of a batch, of which only the total size is known
    """

    splits: Mapping[SplitId, SplitStarts]
    queue_nums: Mapping[str, int]
    roll_bytes: np.ndarray
    roll_gaps: np.ndarray
    from_row: int
    to_row: int
    rows: int
    first_offset: int | None
    last_offset: int | None
    head: LogHead

    @property
    def planned(self) -> Planned:
        """The number of rows and the offsets that the append of these messages has."""
        return Planned(self.rows, self.first_offset, self.last_offset, self.head.next_offset)


def place(
    splits: Sequence[CountedSplit],
    from_row: int,
    head: LogHead,
    segment_bytes: int,
    queue_nums: Mapping[str, int],
    store_timestamp: int,
) -> Placement:
    """The placement of counted splits after `head`, in the order of the input.

    Round robin starts at (sum of the topic's next offsets) mod queues. Records roll to the next segment where RocketMQ's
    do (docs/rocketmq/store.md 1.5).
    """
    next_offsets = Counter(head.next_queue_offsets)
    turns: dict[str, int] = {}
    for topic in {topic for split in splits for topic in split.topics}:
        turns[topic] = sum(offset for (other, _), offset in head.next_queue_offsets.items() if other == topic)

    starts: dict[SplitId, SplitStarts] = {}
    row_of_next, byte_of_next, log_offset = from_row, 0, head.next_offset
    roll_bytes, roll_gaps = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    last_offset = None
    for split in splits:
        chosen = _unit_queues(split, turns, queue_nums)
        sizes = _unit_sizes(split, chosen, turns, queue_nums)
        roll_units, roll_offsets, log_offset = rolls(sizes, log_offset, segment_bytes)
        bytes_before = byte_of_next + np.r_[0, np.cumsum(sizes)]
        roll_bytes.append(bytes_before[roll_units])
        roll_gaps.append(roll_offsets - bytes_before[roll_units])
        if len(sizes):
            last_offset = log_offset - int(sizes[-1]) if chosen is None else None
        taken = SplitStarts(
            Counted(row_of_next, row_of_next + split.rows),
            Counted(byte_of_next, int(bytes_before[-1])),
        )
        if chosen is not None:
            starts[split.id] = replace(taken, units=_place_units(split, row_of_next, chosen, next_offsets))
        else:
            turns_taken, queues_taken = _turn_queues(split, turns, next_offsets, queue_nums)
            starts[split.id] = replace(taken, turns=turns_taken, queues=queues_taken)
        row_of_next, byte_of_next = taken.rows.end, taken.bytes.end

    rows = sum(split.good_rows for split in splits)
    all_bytes, gaps = np.concatenate(roll_bytes), np.concatenate(roll_gaps)
    first_offset = int(gaps[0]) if len(gaps) else None
    return Placement(
        starts,
        queue_nums,
        all_bytes,
        gaps,
        from_row,
        row_of_next,
        rows,
        first_offset,
        last_offset,
        head_after(head, log_offset, store_timestamp, next_offsets),
    )


def _unit_queues(
    split: CountedSplit, turns: dict[str, int], queue_nums: Mapping[str, int]
) -> np.ndarray | None:
    """The queue of each unit in its own topic, None for an input without batches; moves `turns` past them."""
    if split.units is None:
        return None
    queue_ids = []
    for unit in split.units:
        queue_id = unit.queue_id
        if queue_id is None:
            queue_id = turns[unit.topic] % queue_nums[unit.topic]
            turns[unit.topic] += 1
        queue_ids.append(queue_id)
    return np.array(queue_ids, np.int64)


def _unit_sizes(
    split: CountedSplit, chosen: np.ndarray | None, turns: Mapping[str, int], queue_nums: Mapping[str, int]
) -> np.ndarray:
    """Bytes of each unit or good row, with all digits of the queue that a parked message keeps as REAL_QID."""
    if split.units is not None and chosen is not None:
        sizes = np.array([unit.size_bytes for unit in split.units], np.int64)
        parked = np.array([unit.parked is not None for unit in split.units], bool)
        return sizes + np.where(parked, further_digits(chosen), 0)
    assert split.sizes is not None, "splits are placed from counts with sizes"
    sizes = split.sizes.astype(np.int64)
    for topic, (rows, taken) in split.wide.items():
        sizes[rows] += further_digits((turns[topic] + taken) % queue_nums[topic])
    return sizes


def rolls(sizes: np.ndarray, log_offset: int, segment_bytes: int) -> tuple[np.ndarray, np.ndarray, int]:
    """The first unit and each that opens a segment: (numbers of units, their offsets, the offset after the last unit).

    Raises StoreError for a unit larger than a segment.
    """
    ends = np.cumsum(sizes)
    roll_units, roll_offsets = [], []
    unit = 0
    while unit < len(sizes):
        room = segment_bytes - log_offset % segment_bytes - BLANK_BYTES
        before = int(ends[unit - 1]) if unit else 0
        fitting = int(np.searchsorted(ends, before + room, side="right"))
        if fitting == unit:  # not even this one: a blank fills the segment, the unit opens the next
            log_offset += segment_bytes - log_offset % segment_bytes
            room = segment_bytes - BLANK_BYTES
            fitting = int(np.searchsorted(ends, before + room, side="right"))
            if fitting == unit:
                size = int(ends[unit]) - before
                raise StoreError(
                    f"a record of {size} bytes does not fit a segment of {segment_bytes} bytes "
                    f"(mappedFileSizeCommitLog), of which it may take {room}. Nothing was written. A message that is put is "
                    "refused for this; here it is the copy of a message that did fit"
                )
        roll_units.append(unit)
        roll_offsets.append(log_offset)
        log_offset += int(ends[fitting - 1]) - before
        unit = fitting
    return np.array(roll_units, np.int64), np.array(roll_offsets, np.int64), log_offset


def _turn_queues(
    split: CountedSplit, turns: dict[str, int], next_offsets: Counter[Queue], queue_nums: Mapping[str, int]
) -> tuple[Mapping[str, Counted], Mapping[Queue, Counted]]:
    """The turns and queue offsets that a split of single messages takes; moves `turns` and `next_offsets` past it."""
    turns_taken = {topic: Counted(turns[topic], turns[topic] + taken) for topic, taken in split.turns.items()}
    rows = Counter(split.rows_by_queue) + split.parked
    for (topic, turn), parked in split.parked_turns.items():
        rows[topic, (turns[topic] + turn) % queue_nums[topic]] -= parked
    for topic, taken in split.turns.items():
        queues = queue_nums[topic]
        whole_rounds, rest = divmod(taken, queues)
        for queue_id in range(queues):
            rows[topic, queue_id] += whole_rounds
        for turn in range(turns[topic], turns[topic] + rest):
            rows[topic, turn % queues] += 1
        turns[topic] += taken
    counts = {queue: count for queue, count in rows.items() if count}
    queues_taken = {
        queue: Counted(next_offsets[queue], next_offsets[queue] + count) for queue, count in counts.items()
    }
    next_offsets.update(counts)
    return turns_taken, queues_taken


def _place_units(
    split: CountedSplit, first_row: int, chosen: np.ndarray, next_offsets: Counter[Queue]
) -> UnitPlaces:
    """The rows, queues and queue offsets of a split's units; moves `next_offsets` past them."""
    units = split.units or []
    queue_ids, queue_offsets = [], []
    for unit, chosen_queue in zip(units, chosen.tolist(), strict=True):
        queue = unit.parked or (unit.topic, chosen_queue)
        queue_ids.append(queue[1])
        queue_offsets.append(next_offsets[queue])
        next_offsets[queue] += unit.rows
    first_rows = np.array([first_row + unit.first_row for unit in units], np.int64)
    return UnitPlaces(
        first_rows,
        first_rows + np.array([unit.rows for unit in units], np.int64),
        np.array(queue_ids, np.int64),
        np.array(queue_offsets, np.int64),
        chosen,
    )


def running_offsets(sizes: np.ndarray, roll_units: np.ndarray, roll_offsets: np.ndarray) -> np.ndarray:
    """Offset of each of `sizes`, from the rolls that `rolls` returns for them."""
    bytes_before = np.cumsum(sizes) - sizes
    gaps = roll_offsets - bytes_before[roll_units]
    return bytes_before + np.repeat(gaps, np.diff(np.r_[roll_units, len(sizes)]))


# Factors that join two numbers in one long, so that one search finds both: a file and where a split starts in it, bytes;
# a split and a topic, which is a pair; a pair and a queue.
_FILE_BYTES, _NUMBERS = 2**44, 2**32

_FEWER_BYTES = "a split's rows take fewer bytes than were counted"


def off_count(failure: BaseException) -> str | None:
    """How rows differed from what was counted, where that made `with_places` fail; None for another failure."""
    return _FEWER_BYTES if _FEWER_BYTES in str(failure) else off_counter(failure)


def is_placed(placement: Placement) -> Column:
    """Whether a row of the input is in one of a placement's splits."""
    return _Starts(placement.splits, {}).split >= 0


def input_row(splits: Sequence[CountedSplit]) -> Column:
    """A row's number in the input, bad rows included, from `file_hash` and `block_start` (read as it was counted)."""
    first, taken = 0, {}
    for split in splits:
        taken[split.id] = SplitStarts(Counted(first, first + split.rows), Counted(0, 0))
        first += split.rows
    starts = _Starts(taken, {})
    return running_counter(*starts.rows, starts.split, F.lit(1).cast("long"))


def with_places(messages: DataFrame, placement: Placement) -> DataFrame:
    """Messages with their queues and offsets; bad rows and rows of bad batches get no `physical_offset`.

    messages  the rows of the placement's splits, read as they were counted
    adds      `input_row` (long), `physical_offset` (long), `queue_id` (int), `queue_offset` (long),
              `chosen_queue_id` (int): the queue of the message's own topic, another one where it is parked; `size_bytes`
              grows by the further digits of the queue that a parked message keeps as REAL_QID

    Running counters begin where their split does and move row by row, in the JVM, in the pass that writes the rows. A row
    that moves one beyond the end its split was counted to fails the pass: the input has changed. With no row beyond an end,
    and as many rows in all as were counted, every counter has come to its end, and every queue is without a gap.
    """
    starts, units = _Starts(placement.splits, placement.queue_nums), _units(placement)
    names = messages.columns
    one, split, pair, unit = F.lit(1).cast("long"), *map(F.col, ("split", "pair", "unit"))
    row = F.col("input_row")
    is_good = F.col("reason").isNull() if "reason" in names else F.lit(True)
    rows = messages.withColumn("split", starts.split)
    rows = rows.withColumn("input_row", running_counter(*starts.rows, split, one))
    rows = rows.withColumn("unit", _unit_of(row, units))
    rows = rows.withColumn("pair", F.when(is_good & starts.is_without_units, starts.pair(F.col("topic"))))

    # A message's queue in its own topic is its unit's, the one the row gives, or its turn's.
    is_alone, queue_nums = pair.isNotNull(), number_at(starts.queue_nums, pair)
    # As in count.chosen_queues, a hash gives its remainder first, then the absolute value of that.
    ways = {"queue_id": F.col("queue_id"), "shard": F.abs(F.col("shard") % queue_nums)}
    said = [F.when(is_alone, way) for name, way in ways.items() if name in names]
    turning = F.when(F.coalesce(*said, F.lit(None)).isNull(), pair)
    turn = running_counter(*starts.turns, turning, one) % queue_nums
    chosen = F.coalesce(number_at(units.chosen_queue_ids, unit), *said, turn)
    rows = rows.withColumn("chosen_queue_id", chosen.cast("int"))

    # The queue it is stored in is another one where it is parked.
    queue_id = F.col("chosen_queue_id")
    if "parked_topic" in names:
        is_parked = F.col("parked_topic").isNotNull()
        further_digits = F.when(is_parked, F.length(queue_id.cast("string")) - 1).otherwise(0)
        parked_pair = F.when(is_alone & is_parked, starts.pair(F.col("parked_topic"))).otherwise(pair)
        rows = rows.withColumns({"size_bytes": F.col("size_bytes") + further_digits, "pair": parked_pair})
        queue_id = F.when(is_parked, F.col("parked_queue")).otherwise(queue_id)
    rows = rows.withColumn("queue_id", F.coalesce(number_at(units.queue_ids, unit), queue_id).cast("int"))

    # Its offsets follow from its unit, or from running counters.
    in_unit = number_at(units.queue_offsets, unit) + row - number_at(units.first_rows, unit)
    in_queue = running_counter(*starts.queues, starts.queue(pair, F.col("queue_id")), one)
    sized_split = F.when(F.col("chosen_queue_id").isNotNull(), split)
    bytes_before = running_counter(*starts.bytes, sized_split, F.col("size_bytes").cast("long"))
    rows = rows.withColumns({"queue_offset": F.coalesce(in_unit, in_queue), "bytes_before": bytes_before})
    gap = number_at(placement.roll_gaps, last_not_above(placement.roll_bytes, F.col("bytes_before")))
    # The last row of a split must come to the split's end: less would be a hole in the log.
    is_last = row + 1 == number_at(starts.rows[1], split)
    is_short = is_last & (F.col("bytes_before") + F.col("size_bytes") < number_at(starts.bytes[1], split))
    offset = F.when(is_short, F.raise_error(F.lit(_FEWER_BYTES))).otherwise(F.col("bytes_before") + gap)
    rows = rows.withColumn("physical_offset", offset)
    return rows.drop("split", "unit", "pair", "bytes_before")


class _Starts:
    """Starts and ends of a placement's splits as arrays, by split, by pair (split and topic), by pair and queue."""

    def __init__(self, splits: Mapping[SplitId, SplitStarts], queue_nums: Mapping[str, int]) -> None:
        keys = sorted(splits)
        starts = [splits[key] for key in keys]
        self._files, files = np.unique([file_hash for file_hash, _ in keys], return_inverse=True)
        self._splits = files * _FILE_BYTES + np.array([block_start for _, block_start in keys])
        self._has_units = _longs(split.units is not None for split in starts)
        self.rows = _starts_and_ends(split.rows for split in starts)
        self.bytes = _starts_and_ends(split.bytes for split in starts)

        topics_of = [{*split.turns, *(topic for topic, _ in split.queues)} for split in starts]
        self._topics = sorted(set().union(*topics_of))
        numbers = {topic: number for number, topic in enumerate(self._topics)}
        pairs = [(number, topic) for number, topics in enumerate(topics_of) for topic in sorted(topics)]
        pair_of = {pair: number for number, pair in enumerate(pairs)}
        self._pairs = _longs(number * _NUMBERS + numbers[topic] for number, topic in pairs)
        self.queue_nums = _longs(queue_nums.get(topic, 1) for _, topic in pairs)
        self.turns = _starts_and_ends(starts[number].turns.get(topic, NO_TURNS) for number, topic in pairs)
        queues = sorted(
            (pair_of[number, topic], queue_id, offsets)
            for number, split in enumerate(starts)
            for (topic, queue_id), offsets in split.queues.items()
        )
        self._queues = _longs(pair * _NUMBERS + queue_id for pair, queue_id, _ in queues)
        self.queues = _starts_and_ends(offsets for _, _, offsets in queues)

    @property
    def split(self) -> Column:
        file = search(self._files, F.col("file_hash")).cast("long")
        return search(self._splits, file * _FILE_BYTES + F.col("block_start"))

    @property
    def is_without_units(self) -> Column:
        return number_at(self._has_units, F.col("split")) == 0 if self._has_units.any() else F.lit(True)

    def pair(self, topic: Column) -> Column:
        return search(self._pairs, F.col("split").cast("long") * _NUMBERS + number_of(self._topics, topic))

    def queue(self, pair: Column, queue_id: Column) -> Column:
        return search(self._queues, pair.cast("long") * _NUMBERS + queue_id)


def _longs(numbers: Iterable[int]) -> np.ndarray:
    return np.fromiter(numbers, np.int64)


def _starts_and_ends(counted: Iterable[Counted]) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends, as `running_counter` takes them."""
    both = np.array(list(counted), np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _units(placement: Placement) -> UnitPlaces:
    """The units of all splits, in the order of the input."""
    splits = [split.units for split in placement.splits.values() if split.units is not None]
    return UnitPlaces(*map(np.concatenate, zip(NO_UNITS, *splits, strict=True)))


def _unit_of(row: Column, units: UnitPlaces) -> Column:
    """Number of the unit a row is in, int; null where it is in none."""
    if not len(units.first_rows):
        return F.lit(None).cast("int")
    begun = last_not_above(units.first_rows, row)
    return F.when(row < number_at(units.end_rows, begun), begun)


def last_not_above(ascending: np.ndarray, number: Column) -> Column:
    """The index of the last of some ascending numbers that is not above `number`, int; -1 where all are above it."""
    found = search(ascending, number)
    return F.when(found < 0, -found - 2).otherwise(found)


def taken_before(codes: np.ndarray, places: np.ndarray) -> tuple[dict[int, int], np.ndarray]:
    """How many slots (`places` of a row) the rows of each code take, and for each row the slots of its code before it.

    >>> taken, before = taken_before(np.array([7, 8, 7, 7]), np.array([1, 1, 3, 1]))
    >>> taken, before.tolist()
    ({7: 5, 8: 1}, [0, 0, 1, 4])
    """
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(codes) else np.zeros(0, np.int64)
    ends = np.cumsum(places[order], dtype=np.int64)
    before_code = (ends - places[order])[starts]
    taken = np.diff(np.r_[before_code, ends[-1:]])
    before = np.empty(len(codes), np.int64)
    before[order] = ends - places[order] - np.repeat(before_code, np.diff(np.r_[starts, len(codes)]))
    return dict(zip(ordered[starts].tolist(), taken.tolist(), strict=True)), before
