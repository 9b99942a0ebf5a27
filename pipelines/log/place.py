"""Place messages: where each counted piece, and each message in it, lies in the log and in its queue.

The driver turns counts into starts; a narrow pass over the input adds them up row by row. No row is moved.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.log.arrow import over_task
from pipelines.log.count import (
    PIECE_COLUMNS,
    CountedPiece,
    Piece,
    Queue,
    chosen_queues,
    further_digits,
    is_parked,
    piece_runs,
    topic_codes,
)
from pipelines.log.encode import BLANK_BYTES
from pipelines.store.head import LogHead


@dataclass(frozen=True)
class PiecePlaces:
    """Where a piece's messages start.

    first_place  place of its first row in the input, bad rows counted
    roll_rows    numbers of the good rows (int64, ascending, the first is 0) from which on the log offset starts anew
    roll_offsets the offsets they start at
    turn_starts  topic -> the turn its first turning row takes
    queue_starts (topic, queue) -> queue offset of its first row there
    units        for an input with batches: per unit its rows and its three starts, instead of the others
    """

    first_place: int
    roll_rows: np.ndarray
    roll_offsets: np.ndarray
    turn_starts: Mapping[str, int] = field(default_factory=dict)
    queue_starts: Mapping[Queue, int] = field(default_factory=dict)
    units: "UnitPlaces | None" = None


@dataclass(frozen=True)
class UnitPlaces:
    """Arrays of one number a unit; `chosen_queue_ids` of its own topic, `queue_ids` where it is stored."""

    first_rows: np.ndarray
    end_rows: np.ndarray
    queue_ids: np.ndarray
    queue_offsets: np.ndarray
    physical_offsets: np.ndarray
    chosen_queue_ids: np.ndarray


@dataclass(frozen=True)
class Placement:
    """Where all messages of some pieces go, and the head after them.

    from_place, to_place  their rows in the input, half-open
    first_offset          where the first message lies; None when there is none
    """

    pieces: Mapping[Piece, PiecePlaces]
    queue_nums: Mapping[str, int]
    from_place: int
    to_place: int
    rows: int
    first_offset: int | None
    head: LogHead


def place(
    pieces: Sequence[CountedPiece],
    from_place: int,
    head: LogHead,
    segment_bytes: int,
    queue_nums: Mapping[str, int],
    store_timestamp: int,
) -> Placement:
    """Place counted pieces, in the order of the input, after `head`.

    Round robin starts at (sum of the topic's next offsets) mod queues. Records roll to the next segment where RocketMQ's
    do (docs/rocketmq/store.md 1.5).
    """
    next_offsets = Counter(head.next_queue_offsets)
    turns: dict[str, int] = {}
    for topic in {topic for piece in pieces for topic in piece.topics}:
        turns[topic] = sum(offset for (other, _), offset in head.next_queue_offsets.items() if other == topic)

    places: dict[Piece, PiecePlaces] = {}
    place_of_next, log_offset, first_offset = from_place, head.next_offset, None
    for piece in pieces:
        chosen = _unit_queues(piece, turns, queue_nums)
        sizes = _unit_sizes(piece, chosen, turns, queue_nums)
        roll_units, roll_offsets, log_offset = rolls(sizes, log_offset, segment_bytes)
        if first_offset is None and len(sizes):
            first_offset = int(roll_offsets[0])
        if chosen is not None:
            units = _place_units(piece, sizes, chosen, roll_units, roll_offsets, next_offsets)
            places[piece.piece] = PiecePlaces(place_of_next, roll_units, roll_offsets, units=units)
        else:
            starts = _turn_queues(piece, turns, next_offsets, queue_nums)
            places[piece.piece] = PiecePlaces(place_of_next, roll_units, roll_offsets, *starts)
        place_of_next += piece.rows

    rows = sum(piece.good_rows for piece in pieces)
    least = dict(head.min_queue_offsets)
    for queue in next_offsets:
        least.setdefault(queue, 0)
    head_after = LogHead(
        head.append_seq + 1,
        head.min_offset,
        log_offset,
        store_timestamp,
        dict(next_offsets),
        least,
        head.bounds_append_seq,
    )
    return Placement(places, queue_nums, from_place, place_of_next, rows, first_offset, head_after)


def _unit_queues(
    piece: CountedPiece, turns: dict[str, int], queue_nums: Mapping[str, int]
) -> np.ndarray | None:
    """The queue of each unit's own topic, for an input with batches; moves `turns` past them."""
    if piece.units is None:
        return None
    queue_ids = []
    for unit in piece.units:
        queue_id = unit.queue_id
        if queue_id is None:
            queue_id = turns[unit.topic] % queue_nums[unit.topic]
            turns[unit.topic] += 1
        queue_ids.append(queue_id)
    return np.array(queue_ids, np.int64)


def _unit_sizes(
    piece: CountedPiece, chosen: np.ndarray | None, turns: Mapping[str, int], queue_nums: Mapping[str, int]
) -> np.ndarray:
    """Sizes with all digits of the queue that a parked message keeps as REAL_QID."""
    if piece.units is not None and chosen is not None:
        sizes = np.array([unit.size_bytes for unit in piece.units], np.int64)
        parked = np.array([unit.parked is not None for unit in piece.units], bool)
        return sizes + np.where(parked, further_digits(chosen), 0)
    assert piece.sizes is not None, "pieces are placed from counts with sizes"
    sizes = piece.sizes.astype(np.int64)
    for topic, (rows, taken) in piece.wide.items():
        sizes[rows] += further_digits((turns[topic] + taken) % queue_nums[topic])
    return sizes


def rolls(sizes: np.ndarray, log_offset: int, segment_bytes: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Where the running offset starts anew: (numbers of units, their offsets, the offset after the last)."""
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
            assert fitting > unit, "a unit larger than a segment is refused when it is accepted"
        roll_units.append(unit)
        roll_offsets.append(log_offset)
        log_offset += int(ends[fitting - 1]) - before
        unit = fitting
    return np.array(roll_units, np.int64), np.array(roll_offsets, np.int64), log_offset


def _turn_queues(
    piece: CountedPiece, turns: dict[str, int], next_offsets: Counter[Queue], queue_nums: Mapping[str, int]
) -> tuple[Mapping[str, int], Mapping[Queue, int]]:
    """Starts of a piece of single messages; moves `turns` and `next_offsets` past it."""
    turn_starts = {topic: turns[topic] for topic in piece.turns}
    rows = Counter(piece.rows_by_queue) + piece.parked
    for (topic, turn), parked in piece.parked_turns.items():
        rows[topic, (turns[topic] + turn) % queue_nums[topic]] -= parked
    for topic, taken in piece.turns.items():
        queues = queue_nums[topic]
        whole_rounds, rest = divmod(taken, queues)
        for queue_id in range(queues):
            rows[topic, queue_id] += whole_rounds
        for turn in range(turns[topic], turns[topic] + rest):
            rows[topic, turn % queues] += 1
        turns[topic] += taken
    queue_starts = {queue: next_offsets[queue] for queue, count in rows.items() if count}
    next_offsets.update({queue: count for queue, count in rows.items() if count})
    return turn_starts, queue_starts


def _place_units(
    piece: CountedPiece,
    sizes: np.ndarray,
    chosen: np.ndarray,
    roll_units: np.ndarray,
    roll_offsets: np.ndarray,
    next_offsets: Counter[Queue],
) -> UnitPlaces:
    units = piece.units or []
    queue_ids, queue_offsets = [], []
    for unit, chosen_queue in zip(units, chosen.tolist(), strict=True):
        queue = unit.parked or (unit.topic, chosen_queue)
        queue_ids.append(queue[1])
        queue_offsets.append(next_offsets[queue])
        next_offsets[queue] += unit.rows
    first_rows = np.array([unit.first_row for unit in units], np.int64)
    end_rows = np.array([unit.first_row + unit.rows for unit in units], np.int64)
    offsets = running_offsets(sizes, 0, roll_units, roll_offsets)
    return UnitPlaces(
        first_rows,
        end_rows,
        np.array(queue_ids, np.int64),
        np.array(queue_offsets, np.int64),
        offsets,
        chosen,
    )


def running_offsets(
    sizes: np.ndarray, first: int, roll_units: np.ndarray, roll_offsets: np.ndarray, carried: int = 0
) -> np.ndarray:
    """Offset of each of `sizes`, the first being unit number `first`, `carried` the offset the unit before ended at."""
    offsets = np.empty(len(sizes), np.int64)
    end = first + len(sizes)
    roll = int(np.searchsorted(roll_units, first, side="left"))
    unit = first
    while unit < end:
        if roll < len(roll_units) and roll_units[roll] == unit:
            carried = int(roll_offsets[roll])
            roll += 1
        until = min(end, int(roll_units[roll])) if roll < len(roll_units) else end
        part = sizes[unit - first : until - first]
        ends = np.cumsum(part) + carried
        offsets[unit - first : until - first] = ends - part
        carried = int(ends[-1])
        unit = until
    return offsets


PLACED = "place long, physical_offset long, queue_id int, queue_offset long, chosen_queue_id int"


def with_places(messages: DataFrame, placement: Placement, columns: Sequence[str]) -> DataFrame:
    """Add each message's place; bad rows and rows of bad batches get no `physical_offset`.

    messages  the input, read as it was counted
    columns   the slim columns that were counted, `file_hash` and `block_start` first: only these cross to Python
    adds      `place` (long, row of the input), `physical_offset` (long), `queue_id` (int), `queue_offset` (long),
              `chosen_queue_id` (int): the queue of the message's own topic, another one where it is parked
    """
    placed = over_task(_placer(placement, list(columns)), PLACED, *[F.col(name) for name in columns])
    with_placed = messages.withColumn("placed", placed).drop("queue_id")
    return with_placed.select("*", "placed.*").drop("placed")


def _placer(
    placement: Placement, names: list[str]
) -> Callable[[Iterator[tuple[pa.Array, ...]]], Iterator[pa.Array]]:
    assert tuple(names[:2]) == PIECE_COLUMNS

    def place_rows(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        walkers: dict[Piece, _Walker] = {}
        for columns in batches:
            batch = pa.RecordBatch.from_arrays(list(columns), names=names)
            parts = []
            for start, end, piece in piece_runs(columns[0], columns[1]):
                if piece not in walkers:
                    walkers.clear()  # the rows of a piece come one after the other
                    walkers[piece] = _Walker(placement.pieces[piece], placement.queue_nums)
                parts.append(walkers[piece].step(batch.slice(start, end - start)))
            yield _struct(
                [np.concatenate(part) for part in zip(*parts, strict=True)] if parts else [np.zeros(0)] * 6
            )

    return place_rows


def _struct(arrays: list[np.ndarray]) -> pa.Array:
    places, offsets, queue_ids, queue_offsets, chosen, good = arrays
    bad = ~good.astype(bool)
    return pa.StructArray.from_arrays(
        [
            pa.array(places.astype(np.int64)),
            pa.array(offsets.astype(np.int64), mask=bad),
            pa.array(queue_ids.astype(np.int32), mask=bad),
            pa.array(queue_offsets.astype(np.int64), mask=bad),
            pa.array(chosen.astype(np.int32), mask=bad),
        ],
        names=["place", "physical_offset", "queue_id", "queue_offset", "chosen_queue_id"],
    )


class _Walker:
    """Walks the rows of one piece in order and knows where each goes."""

    def __init__(self, places: PiecePlaces, queue_nums: Mapping[str, int]) -> None:
        self.places = places
        self.queue_nums = queue_nums
        self.row = 0
        self.good_row = 0
        self.log_offset = 0
        self.turns = dict(places.turn_starts)
        self.next_offsets = dict(places.queue_starts)
        self.unit_offset = (-1, 0)

    def step(self, run: pa.RecordBatch) -> list[np.ndarray]:
        """Place, physical offset, queue, queue offset, queue of its own topic and whether it is good, for each row."""
        count = run.num_rows
        row_places = np.arange(count, dtype=np.int64) + (self.places.first_place + self.row)
        units = self.places.units
        placed = self._step_rows(run) if units is None else self._step_units(run, units)
        self.row += count
        return [row_places, *placed]

    def _step_rows(self, run: pa.RecordBatch) -> list[np.ndarray]:
        count = run.num_rows
        reasons = run.column("reason") if "reason" in run.schema.names else None
        if reasons is None or reasons.null_count == count:
            return [*self._good_rows(run), np.ones(count, bool)]
        good = reasons.is_null().to_numpy(zero_copy_only=False)
        result = [np.zeros(count, np.int64) for _ in range(4)]
        for whole, part in zip(result, self._good_rows(run.filter(pa.array(good))), strict=True):
            whole[good] = part
        return [*result, good]

    def _good_rows(self, run: pa.RecordBatch) -> list[np.ndarray]:
        sizes = run.column("size_bytes").to_numpy(zero_copy_only=False).astype(np.int64)
        codes, topics = topic_codes(run.column("topic"))
        chosen = chosen_queues(run, codes, topics, self.queue_nums.__getitem__)
        turning = np.ones(len(codes), bool) if chosen is None else chosen < 0
        chosen = np.empty(len(codes), np.int64) if chosen is None else chosen.copy()
        chosen[turning] = self._take_turns(codes[turning], topics)
        queue, parked = chosen, is_parked(run)
        if parked is not None:
            sizes = sizes + np.where(parked, further_digits(chosen), 0)
            stored = pc.coalesce(run.column("parked_topic"), run.column("topic"))
            codes, topics = topic_codes(stored)
            queue = np.where(parked, run.column("parked_queue").to_numpy(zero_copy_only=False), chosen)
        offsets = running_offsets(
            sizes, self.good_row, self.places.roll_rows, self.places.roll_offsets, self.log_offset
        )
        if len(sizes):
            self.log_offset = int(offsets[-1] + sizes[-1])
            self.good_row += len(sizes)
        return [offsets, queue, self._take_offsets(codes, queue.astype(np.int64), topics), chosen]

    def _take_turns(self, codes: np.ndarray, topics: list[str]) -> np.ndarray:
        counts, before = count_before(codes)
        queues = np.empty(len(codes), np.int64)
        starts = np.zeros(len(topics), np.int64)
        nums = np.ones(len(topics), np.int64)
        for code, taken in counts.items():
            starts[code], nums[code] = self.turns[topics[code]], self.queue_nums[topics[code]]
            self.turns[topics[code]] += taken
        queues[:] = (starts[codes] + before) % nums[codes]
        return queues

    def _take_offsets(self, codes: np.ndarray, queue: np.ndarray, topics: list[str]) -> np.ndarray:
        pairs, index = np.unique(codes.astype(np.int64) << 32 | queue, return_inverse=True)
        counts, before = count_before(index)
        starts = np.empty(len(pairs), np.int64)
        for number, pair in enumerate(pairs.tolist()):
            key = (topics[pair >> 32], pair & 0xFFFFFFFF)
            starts[number] = self.next_offsets[key]
            self.next_offsets[key] += counts[number]
        return starts[index] + before

    def _step_units(self, run: pa.RecordBatch, units: UnitPlaces) -> list[np.ndarray]:
        sizes = run.column("size_bytes").to_numpy(zero_copy_only=False).astype(np.int64)
        rows = np.arange(self.row, self.row + run.num_rows)
        unit = np.searchsorted(units.first_rows, rows, side="right") - 1
        good = (
            (unit >= 0) & (rows < units.end_rows[np.maximum(unit, 0)]) if len(units.first_rows) else unit >= 0
        )
        offsets, queue, queue_offsets, chosen = (np.zeros(len(rows), np.int64) for _ in range(4))
        for number in np.flatnonzero(good).tolist():
            which = int(unit[number])
            carried = (
                self.unit_offset[1] if self.unit_offset[0] == which else int(units.physical_offsets[which])
            )
            offsets[number] = carried
            self.unit_offset = (which, carried + int(sizes[number]))
        queue[good] = units.queue_ids[unit[good]]
        queue_offsets[good] = units.queue_offsets[unit[good]] + rows[good] - units.first_rows[unit[good]]
        chosen[good] = units.chosen_queue_ids[unit[good]]
        return [offsets, queue, queue_offsets, chosen, good]


def count_before(codes: np.ndarray) -> tuple[dict[int, int], np.ndarray]:
    """How often each code occurs, and for each row how often its code came before it."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(codes) else np.zeros(0, np.int64)
    counts = np.diff(np.r_[starts, len(codes)])
    before = np.empty(len(codes), np.int64)
    before[order] = np.arange(len(codes)) - np.repeat(starts, counts)
    return dict(zip(ordered[starts].tolist(), counts.tolist(), strict=True)), before


def segment_of(physical_offset: Column, segment_bytes: int) -> Column:
    """The segment a record lies in: the start of its file."""
    return physical_offset - physical_offset % F.lit(segment_bytes)
