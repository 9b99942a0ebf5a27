"""The offset of a queue for a store time, found as a broker finds it (docs/rocketmq/store.md 4.4).

A broker first chooses one file of the queue by the times at the files' ends, then bisects inside it, so its result
depends on where its files begin. Files are computed from their size; only the entries at their ends and those of one
file are read. There may be far more files than entries: an imported record may have any offset.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import functions as F

from pipelines.reports.answer import Answer
from pipelines.reports.lookup import messages_of
from pipelines.reports.queues import Queue, read_queue
from pipelines.rocketmq.settings import CONSUME_QUEUE_UNIT_BYTES
from pipelines.store.snapshot import Snapshot

Boundary = Literal["lower", "upper"]

UNKNOWN_TIME = -1


@dataclass(frozen=True)
class QueueFile:
    """One file of a queue: offsets [first_offset, end_offset)."""

    first_offset: int
    end_offset: int


def messages_from_time(
    at: Snapshot,
    topic: str,
    queue_id: int,
    timestamp: int,
    boundary: Boundary = "lower",
    limit: int | None = None,
) -> Answer:
    """`offset` of the time, and the queue's rows from there on, at most one more than `limit`."""
    queue = read_queue(at, topic, queue_id)
    offset = offset_by_time(at, queue, timestamp, boundary)
    end = queue.max_offset if limit is None else min(offset + limit + 1, queue.max_offset)
    rows = messages_of(at, queue.entries(at, offset, end)).orderBy("queue_offset")
    return Answer(rows, queue.is_up_to_date, {"offset": offset})


def offset_by_time(at: Snapshot, queue: Queue, timestamp: int, boundary: Boundary) -> int:
    """The offset of the first message not older than the time (LOWER), or of the last one not newer (UPPER).

    It is always inside the queue's bounds.
    """
    chosen, found = None, 0
    if queue.max_offset:
        files = queue_files(queue, at.store.settings.queue_file_bytes // CONSUME_QUEUE_UNIT_BYTES)
        chosen = choose_file(files, _times_at_ends(at, queue, files), timestamp, boundary)
    if chosen is not None:
        found = bisect(chosen, queue, _units(at, queue, chosen), timestamp, boundary)
    return min(max(found, queue.min_offset), queue.max_offset)


@dataclass(frozen=True)
class QueueFiles:
    """The files that hold a queue, at least one, each full but the last.

    starts      the first offsets of the files
    end_offset  of the last
    """

    starts: range
    end_offset: int

    def __getitem__(self, index: int) -> QueueFile:
        start = self.starts[index]
        return QueueFile(start, min(start + self.starts.step, self.end_offset))


def queue_files(queue: Queue, units_in_a_file: int) -> QueueFiles:
    """The files of a queue that has had a message.

    >>> files = queue_files(Queue("t", 0, 5, 9, 0, True), 4)
    >>> files[0], files[-1]
    (QueueFile(first_offset=4, end_offset=8), QueueFile(first_offset=8, end_offset=9))
    """
    # The last file is never deleted, also when all its messages have expired.
    first = min(queue.min_offset, queue.max_offset - 1)
    return QueueFiles(
        range(first - first % units_in_a_file, queue.max_offset, units_in_a_file), queue.max_offset
    )


def choose_file(
    files: QueueFiles, times: Mapping[int, int], timestamp: int, boundary: Boundary
) -> QueueFile | None:
    """The file to bisect: chosen by the times of last entries (lower) or of first entries (upper).

    times  store times of the first and last entries of files, by offset; a missing entry has UNKNOWN_TIME
    """
    is_lower = boundary == "lower"
    # The position of the deciding entry in its file; lower takes the last file when no other qualifies.
    at = files.starts.step - 1 if is_lower else 0
    starts = files.starts[:-1] if is_lower else files.starts[::-1]

    def is_chosen(time: int) -> bool:
        return time >= timestamp if is_lower else time <= timestamp

    chosen: Sequence[int] = starts
    if not is_chosen(UNKNOWN_TIME):  # then no file without the entry is chosen, however many there are
        with_entry = sorted(place - at for place in times if place - at in starts)
        chosen = with_entry if is_lower else with_entry[::-1]
    found = next((start for start in chosen if is_chosen(times.get(start + at, UNKNOWN_TIME))), None)
    if found is None:
        return files[-1] if is_lower else None
    return files[files.starts.index(found)]


@dataclass(frozen=True)
class Units:
    """The entries of one file, by offset from `low`; an offset without an entry has physical offset 0 and no time."""

    low: int
    physical_offsets: Sequence[int]
    times: Sequence[int]

    def time(self, place: int) -> int:
        return self.times[place - self.low]

    def physical_offset(self, place: int) -> int:
        return self.physical_offsets[place - self.low]


def bisect(file: QueueFile, queue: Queue, units: Units, timestamp: int, boundary: Boundary) -> int:
    """A broker's search inside one file, step by step: times of an old log need not ascend, and then its path
    decides.
    """
    floor = max(file.first_offset, min(queue.min_offset, file.end_offset - 1))
    ceiling = file.end_offset - 1
    is_lower = boundary == "lower"
    if units.time(ceiling) < timestamp:
        return ceiling + 1 if is_lower else ceiling
    if units.time(floor) > timestamp:
        return file.first_offset if is_lower else 0
    low, high = floor, ceiling
    before = after = file.first_offset - 1
    while low <= high:
        # Halved by positions in the file, as a broker counts them.
        middle = file.first_offset + (low + high - 2 * file.first_offset) // 2
        if units.physical_offset(middle) < queue.log_start:
            low, before = middle + 1, middle
        elif units.time(middle) < 0:
            return 0
        elif units.time(middle) == timestamp:
            return _end_of_run(units, middle, floor, ceiling, is_lower)
        elif units.time(middle) > timestamp:
            high, after = middle - 1, middle
        else:
            low, before = middle + 1, middle
    return after if is_lower else before


def _end_of_run(units: Units, place: int, floor: int, ceiling: int, is_lower: bool) -> int:
    """The first (lower) or last (upper) of neighbours with the same time."""
    step, end = (-1, floor) if is_lower else (1, ceiling)
    while place != end and units.time(place + step) == units.time(place):
        place += step
    return place


def _times_at_ends(at: Snapshot, queue: Queue, files: QueueFiles) -> dict[int, int]:
    """Store times of the first and last entries of the files, by queue offset."""
    if len(files.starts) == 1:
        # Lower takes the last file anyway; upper takes it unless its first message is newer.
        ends = queue.entries(at, files[0].first_offset, files[0].first_offset + 1)
    else:
        size = files.starts.step
        place = F.col("queue_offset") % size
        ends = queue.entries(at, files[0].first_offset, queue.max_offset).where(place.isin(0, size - 1))
    is_kept = F.col("physical_offset") >= queue.log_start
    # Two entries of a queue file of 300,000.
    return {row.queue_offset: row.store_timestamp for row in ends.where(is_kept).collect()}


def _units(at: Snapshot, queue: Queue, file: QueueFile) -> Units:
    """The entries of one file: 300,000 by default, two numbers each."""
    places = file.end_offset - file.first_offset
    physical_offsets, times = [0] * places, [UNKNOWN_TIME] * places
    entries = queue.entries(at, file.first_offset, file.end_offset).toArrow().to_pydict()
    for place, physical_offset, time in zip(
        entries["queue_offset"], entries["physical_offset"], entries["store_timestamp"], strict=True
    ):
        physical_offsets[place - file.first_offset] = physical_offset
        if physical_offset >= queue.log_start:
            times[place - file.first_offset] = time
    return Units(file.first_offset, physical_offsets, times)
