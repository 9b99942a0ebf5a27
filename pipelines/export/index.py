"""Index files: hash slots and chains of items, in files of a fixed number of items (docs/rocketmq/store.md 5.1 to 5.3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipelines.dispatch.entries import numbered_index_entries
from pipelines.export.directory import ExportDirectory
from pipelines.rocketmq.settings import INT_MAX
from pipelines.rocketmq.times import LAST_MS
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
SLOT_BYTES = 4
# A damaged record may say any store time, and a name has a year of four digits.
LATEST_NAME_MS = LAST_MS - 10**9

# A file's name and its items.
KnownFile = tuple[str, int]

SUMMARY = "file long, items long"
_WRITTEN = pa.schema([("file", pa.int64()), ("items", pa.int64())])


@dataclass(frozen=True)
class FileEnd:
    """A file's last message: where the file after it begins to count."""

    store_timestamp: int
    physical_offset: int


@dataclass(frozen=True)
class IndexFiles:
    """What a task needs to write any of the index files.

    slots   hash slots of a file (maxHashSlotNum)
    items   items of a file, of which the first is never used (maxIndexNum)
    names   a file's name by its number
    ends    its last message by its number
    """

    to: ExportDirectory
    slots: int
    items: int
    names: Mapping[int, str]
    ends: Mapping[int, FileEnd]

    def write(self, rows: pa.Table) -> pa.Table:
        """Write one file from its items: `file`, `item` (its number in the file, from 1), `key_hash`, `physical_offset`,
        `store_timestamp`.
        """
        file = rows.column("file")[0].as_py()
        rows = rows.sort_by("item")
        header, slots, items = file_content(
            rows.column("key_hash").to_numpy(),
            rows.column("physical_offset").to_numpy(),
            rows.column("store_timestamp").to_numpy(),
            self.slots,
            self.ends.get(file - 1),
        )
        size = HEADER.itemsize + SLOT_BYTES * self.slots + ITEM.itemsize * self.items
        self.to.write(index_path(self.names[file]), [header, slots, items], size)
        return pa.Table.from_pylist([{"file": file, "items": rows.num_rows}], _WRITTEN)


def index_path(name: str) -> str:
    return f"index/{name}"


def file_content(
    key_hash: npt.NDArray[np.int64],
    physical_offset: npt.NDArray[np.int64],
    store_timestamp: npt.NDArray[np.int64],
    slots: int,
    before: FileEnd | None,
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


def numbered_items(at: Snapshot, items_of_a_file: int) -> DataFrame:
    """Every item of the index in a broker's order: `file` and `item`, its number in it, and what the item holds.

    Items are counted for each segment first, so that they are numbered segment by segment beside each other.
    """
    keys = numbered_index_entries(at.read(COMMITLOG)).select(
        "segment", "physical_offset", "key_number", "key_hash", "store_timestamp"
    )
    counts = keys.groupBy("segment").count().orderBy("segment")
    before, starts = 0, []
    # A row a segment.
    for row in counts.collect():
        starts.append((row["segment"], before))
        before += row["count"]
    first = at.store.spark.createDataFrame(starts, "segment long, items_before long")
    in_order = Window.partitionBy("segment").orderBy("physical_offset", "key_number")
    number = F.col("items_before") + F.row_number().over(in_order) - 1
    size = F.lit(items_of_a_file - 1)
    return (
        keys.join(F.broadcast(first), "segment")
        .withColumn("number", number)
        .withColumns(
            {"file": F.floor(F.col("number") / size).cast("long"), "item": F.col("number") % size + 1}
        )
        .select("file", "item", "key_hash", "physical_offset", "store_timestamp")
    )


def write_index(
    at: Snapshot, to: ExportDirectory, known: Mapping[int, KnownFile]
) -> tuple[DataFrame, dict[int, KnownFile], int]:
    """Write the index files that are not known yet. A row a file (SUMMARY); the name and items of all files by
    number; and the store time of the last message of the last full file, 0 without one.

    known  name and items by number, of files that are there already: those that have as many items as before stay

    The frame writes when it is read.
    """
    settings = at.store.settings
    items_of_a_file = int(settings["maxIndexNum"])
    items = numbered_items(at, items_of_a_file)
    last = F.max_by(F.struct("store_timestamp", "physical_offset"), "item")
    files = items.groupBy("file").agg(
        F.count("*").alias("items"), F.min_by("store_timestamp", "item").alias("begins"), last.alias("last")
    )
    # A row a file.
    found = files.orderBy("file").collect()
    names = file_names([row.begins for row in found], [known.get(row.file, ("", 0))[0] for row in found])
    whole = {row.file: (name, row["items"]) for row, name in zip(found, names, strict=True)}
    changed = [number for number, file in whole.items() if known.get(number) != file]
    writer = IndexFiles(
        to,
        int(settings["maxHashSlotNum"]),
        items_of_a_file,
        {number: name for number, (name, _) in whole.items()},
        {row.file: FileEnd(row.last.store_timestamp, row.last.physical_offset) for row in found},
    )
    written = items.where(F.col("file").isin(changed)) if known else items
    full = [row.last.store_timestamp for row in found if row["items"] == items_of_a_file - 1]
    return (
        written.groupBy("file").applyInArrow(lambda rows: writer.write(rows), SUMMARY),
        whole,
        full[-1] if full else 0,
    )


def file_names(begins: Sequence[int], known: Sequence[str]) -> list[str]:
    """Names of index files, in the order of the files: the time of the first message, as `yyyyMMddHHmmssSSS`.

    known  the name a file has already; '' for a new one

    A broker reads its files in the order of their names, so each is later than the one before.

    >>> file_names([0, 0, 1_000], ["", "", ""])
    ['19700101000000000', '19700101000000001', '19700101000001000']
    """
    names, last = [], -1
    for begin, name in zip(begins, known, strict=True):
        at = last = max(min(begin, LATEST_NAME_MS), last + 1)
        moment = datetime.fromtimestamp(at // 1_000, UTC)
        names.append(name or f"{moment:%Y%m%d%H%M%S}{at % 1_000:03d}")
    return names
