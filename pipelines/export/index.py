"""Index files: hash slots and chains of items, in files of a fixed number of items (docs/rocketmq/store.md 5.1 to 5.3)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.broker_files.export_note import UNDER_WAY
from pipelines.dispatch.entries import numbered_index_entries
from pipelines.export.directory import ExportDirectory
from pipelines.export.segments import task_count
from pipelines.rocketmq.settings import INT_MAX, Settings
from pipelines.rocketmq.times import LAST_MS
from pipelines.spark_internals.arrow import frame_of
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG

HEADER = np.dtype(
    [
        ("begin_timestamp", ">i8"),
        ("end_timestamp", ">i8"),
        ("begin_offset", ">i8"),
        ("end_offset", ">i8"),
        ("slots_used", ">i4"),
        ("next_item", ">i4"),
    ]
)
ITEM = np.dtype([("key_hash", ">i4"), ("physical_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
# An item before it has its place in a file.
SORTED_ITEM = np.dtype([("key_hash", "<i4"), ("physical_offset", "<i8"), ("store_timestamp", "<i8")])
SLOT_BYTES = 4
# A damaged record may say any store time, and a name has a year of four digits.
LATEST_NAME_MS = LAST_MS - 10**9

# A file's name and its items.
KnownFile = tuple[str, int]


SUMMARY = "file long, items long"
_WRITTEN = pa.schema([("file", pa.int64()), ("items", pa.int64())])
_COUNTED = pa.schema([("segment", pa.int64()), ("items", pa.int64())])


@dataclass(frozen=True)
class KnownIndex:
    """What an export holds of the index.

    files     name and items of each file, by its number
    segments  items of each segment of the log that has some; empty where that is not known
    last_full_timestamp  store time of the last message of the last full file; 0 without one
    slots     hash slots of each file; 0 where that is not known
    """

    files: Mapping[int, KnownFile] = field(default_factory=dict)
    segments: Mapping[int, int] = field(default_factory=dict)
    last_full_timestamp: int = 0
    slots: int = 0

    def is_of(self, size: int, slots: int) -> bool:
        """Whether each of its files but the last has `size` items, and all have `slots`, as with these settings."""
        items = [self.files[file][1] for file in sorted(self.files)]
        is_of_size = all(count == size for count in items[:-1]) and max(items, default=0) <= size
        return is_of_size and self.slots in (0, slots)

    def holds(self, to: ExportDirectory, settings: Settings) -> bool:
        """Whether its files are in a directory and as with these settings (maxIndexNum, maxHashSlotNum)."""
        return self._is_in(to) and self.is_of(
            int(settings["maxIndexNum"]) - 1, int(settings["maxHashSlotNum"])
        )

    def _is_in(self, to: ExportDirectory) -> bool:
        return {name for name, _ in self.files.values()} <= {
            entry.name for entry in to.found.entries("index")
        }

    def before(self, segment: int) -> list[tuple[int, int]]:
        """The segments before one, and their items, in order."""
        return sorted(found for found in self.segments.items() if found[0] < segment)


@dataclass(frozen=True)
class Message:
    """A message of the index: where the file after it begins to count, if it is the last of its file."""

    store_timestamp: int
    physical_offset: int


@dataclass(frozen=True)
class SortedItems:
    """Items of the index in a broker's order, in a file a segment: small enough to be sent to executors.

    counts  (segment, how many items) of each segment with items, in order; those of the first ones may have no file
    """

    to: ExportDirectory
    counts: Sequence[tuple[int, int]]

    @property
    def count(self) -> int:
        return sum(count for _, count in self.counts)

    def read(self, first: int, last: int) -> npt.NDArray[Any]:
        """Items [first, last), counted over all segments: SORTED_ITEM."""
        parts, start = [], 0
        for segment, count in self.counts:
            begin, end = max(first - start, 0), min(last - start, count)
            if begin < end:
                with self.to.found.open(_items_path(segment)) as file:
                    file.seek(begin * SORTED_ITEM.itemsize)
                    parts.append(np.frombuffer(file.read((end - begin) * SORTED_ITEM.itemsize), SORTED_ITEM))
            start += count
        return np.concatenate([np.zeros(0, SORTED_ITEM), *parts])

    def message(self, number: int) -> "Message":
        """The message of an item."""
        item = self.read(number, number + 1)[0]
        return Message(int(item["store_timestamp"]), int(item["physical_offset"]))


@dataclass(frozen=True)
class IndexFiles:
    """What a task needs to write any of the index files.

    slots   hash slots of a file (maxHashSlotNum)
    size    items of a full file; it has room for one more, which is never used (maxIndexNum)
    names   a file's name by its number
    ends    its last message by its number
    """

    to: ExportDirectory
    slots: int
    size: int
    names: Mapping[int, str]
    ends: Mapping[int, Message]
    items: SortedItems

    def write(self, file: int) -> int:
        """Write one file; how many items it has."""
        found = self.items.read(file * self.size, (file + 1) * self.size)
        header, slots, items = file_content(
            found["key_hash"],
            found["physical_offset"],
            found["store_timestamp"],
            self.slots,
            self.ends.get(file - 1),
        )
        size = HEADER.itemsize + SLOT_BYTES * self.slots + ITEM.itemsize * (self.size + 1)
        self.to.write(index_path(self.names[file]), [header, slots, items], size)
        return len(found)


def index_path(name: str) -> str:
    return f"index/{name}"


def file_content(
    key_hash: npt.NDArray[np.int64],
    physical_offset: npt.NDArray[np.int64],
    store_timestamp: npt.NDArray[np.int64],
    slots: int,
    before: Message | None,
) -> tuple[bytes, bytes, bytes]:
    """Header, slots and items of a file, as a broker writes them item by item (5.3).

    key_hash, …  of its items in order
    before       the last message of the file before; None for the first file

    A slot holds the number of its newest item, and each item the number of the one before it in the same slot. Times are
    seconds after the file's first message, but the first item's are after the last message of the file before.
    """
    count = len(key_hash)
    slot = key_hash.astype(np.int64) % slots
    order = np.argsort(slot, kind="stable")
    number = order + 1
    is_first = np.r_[True, slot[order][1:] != slot[order][:-1]] if count else np.zeros(0, bool)
    previous = np.zeros(count, np.int64)
    previous[order] = np.where(is_first, 0, np.r_[0, number[:-1]]) if count else 0
    slot_values = np.zeros(slots, ">i4")
    slot_values[slot[order]] = number  # of several the last one stays, which is the newest

    since = np.full(count, int(store_timestamp[0]) if count else 0, np.int64)
    if count:
        since[0] = before.store_timestamp if before is not None else since[0]
    seconds = np.where(since > 0, np.clip(_whole_seconds(store_timestamp - since), 0, INT_MAX), 0)

    items = np.zeros(count + 1, ITEM)
    for name, values in (
        ("key_hash", key_hash),
        ("physical_offset", physical_offset),
        ("seconds", seconds),
        ("previous", previous),
    ):
        items[name][1:] = values
    header = np.zeros(1, HEADER)
    if count:
        header[0] = (
            store_timestamp[0],
            store_timestamp[-1],
            physical_offset[0],
            physical_offset[-1],
            int(is_first.sum()),
            count + 1,
        )
    return header.tobytes(), slot_values.tobytes(), items.tobytes()


def _whole_seconds(milliseconds: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """As Java divides: towards zero."""
    return np.sign(milliseconds) * (np.abs(milliseconds) // 1_000)


def _sorted_items(at: Snapshot, to: ExportDirectory, segment: int) -> list[tuple[int, int]]:
    """Write every item of the segments from one on, a file a segment; (segment, how many items) of each that has some."""
    keys = numbered_index_entries(at.read(COMMITLOG).where(F.col("segment") >= segment)).select(
        "segment", "physical_offset", "key_number", "key_hash", "store_timestamp"
    )
    in_order = keys.repartition("segment").sortWithinPartitions("segment", "physical_offset", "key_number")

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pieces = (piece for batch in batches for piece in _by_segment(batch))
        for segment, mine in groupby(pieces, key=itemgetter(0)):
            written = to.write(_items_path(segment), (content for _, content in mine))
            yield pa.RecordBatch.from_pylist(
                [{"segment": segment, "items": written // SORTED_ITEM.itemsize}], _COUNTED
            )

    written = in_order.drop("key_number").mapInArrow(write, "segment long, items long")
    # A row a segment.
    return sorted((row.segment, row["items"]) for row in written.collect())


def _last_whole(before: Sequence[tuple[int, int]], size: int) -> tuple[int, int]:
    """(how many files are full of the items of some segments, the first segment that another file needs items of).

    A file needs the last item of the file before it too.

    >>> _last_whole([(0, 3), (100, 4), (200, 4)], 5), _last_whole([(0, 3), (100, 4)], 8), _last_whole([], 5)
    ((2, 200), (0, 0), (0, 0))
    """
    full = sum(items for _, items in before) // size
    start = 0
    for segment, items in before:
        start += items
        if start >= full * size and full:
            return full, segment
    return 0, 0


def _by_segment(batch: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
    """Items of each segment in a batch that is in their order."""
    segments = batch.column("segment").to_numpy()
    items = np.empty(len(segments), SORTED_ITEM)
    for name in SORTED_ITEM.names or ():
        items[name] = batch.column(name).to_numpy()
    for segment in np.unique(segments):
        first, last = np.searchsorted(segments, [segment, segment + 1])
        yield int(segment), items[first:last].tobytes()


def _items_path(segment: int) -> str:
    return f"{UNDER_WAY}/items/{segment:020d}"


def write_index(
    at: Snapshot, to: ExportDirectory, known: KnownIndex, from_offset: int
) -> tuple[DataFrame, KnownIndex]:
    """Write the index files that are not known yet: a row a file (SUMMARY), and what the export holds after it.

    known        what it holds: files that have as many items as before stay
    from_offset  where the rows begin that are not in it, bytes

    Only keys are read of which a file is written. The frame writes when it is read.
    """
    settings = at.store.settings
    size = int(settings["maxIndexNum"]) - 1
    slots = int(settings["maxHashSlotNum"])
    if not known.holds(to, settings):
        to.delete("index")
        known = KnownIndex()
    first_new = from_offset - from_offset % settings.segment_bytes
    kept, segment = _last_whole(known.before(first_new), size)
    items = SortedItems(to, (*known.before(segment), *_sorted_items(at, to, segment)))
    spans = {
        begin // size: (begin, min(begin + size, items.count))
        for begin in range(kept * size, items.count, size)
    }
    # Two items a file.
    begins = [items.message(begin).store_timestamp for begin, _ in spans.values()]
    ends = {file: items.message(end - 1) for file, (_, end) in spans.items()}
    if kept:
        ends[kept - 1] = items.message(kept * size - 1)
    stay = {file: known.files[file] for file in range(kept)}
    named = [known.files.get(file, ("", 0))[0] for file in spans]
    names = dict(zip(spans, file_names(begins, named, stay[kept - 1][0] if kept else ""), strict=True))
    written = {file: (names[file], end - begin) for file, (begin, end) in spans.items()}
    changed = [file for file, found in written.items() if known.files.get(file) != found]
    writer = IndexFiles(to, slots, size, names, ends, items)

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for file in batch.column("file").to_pylist():
                yield pa.RecordBatch.from_pylist([{"file": file, "items": writer.write(file)}], _WRITTEN)

    spark = at.store.spark
    files = frame_of(spark, [(file,) for file in changed], "file long").repartitionByRange(
        min(max(1, len(changed)), task_count(at)), "file"
    )
    whole = stay | written
    full = [ends[file].store_timestamp for file in sorted(ends) if whole[file][1] == size]
    after = KnownIndex(whole, dict(items.counts), full[-1] if full else 0, slots)
    return files.mapInArrow(write, SUMMARY), after


def file_names(begins: Sequence[int], known: Sequence[str], before: str = "") -> list[str]:
    """Names of index files, in the order of the files: the time of the first message, as `yyyyMMddHHmmssSSS`.

    known   the name a file has already; '' for a new one
    before  the name of the file before them; '' where there is none

    A broker reads its files in the order of their names, so each is later than the one before.

    >>> file_names([0, 0, 1_000], ["", "", ""])
    ['19700101000000000', '19700101000000001', '19700101000001000']
    """
    names, last = [], _named_moment(before) if before else -1
    for begin, name in zip(begins, known, strict=True):
        at = last = max(min(begin, LATEST_NAME_MS), last + 1)
        moment = datetime.fromtimestamp(at // 1_000, UTC)
        names.append(name or f"{moment:%Y%m%d%H%M%S}{at % 1_000:03d}")
    return names


def _named_moment(name: str) -> int:
    """The epoch milliseconds that a file's name says."""
    seconds = datetime.strptime(name[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
    return int(seconds) * 1_000 + int(name[14:])
