"""Bounds of the queues from a broker's consume queue files (docs/rocketmq/store.md 3.5 and 4.3)."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession

from pipelines.broker_files.directory import BrokerDirectory, FileEntry
from pipelines.broker_files.queue_files import (
    BATCH_CONSUME_QUEUE,
    BATCH_UNIT,
    CONSUME_QUEUE,
    UNIT_BYTES,
    file_units,
    queue_files,
)
from pipelines.rocketmq.settings import INT_MAX, LONG_MAX

_QUEUE = re.compile(r"[0-9]{1,10}")
# A broker that starts reads at most this many of a queue's last files.
RECOVERED_FILES = 3
UNITS_AT_ONCE = 64 * 1024
# At most this many queues are read on the driver: a Spark job would cost more.
QUEUES_ON_THE_DRIVER = 64


@dataclass(frozen=True)
class QueueBounds:
    """The bounds of a queue's entries as a restarted broker has them.

    min_offset, next_offset  queue offsets: [min_offset, next_offset)
    last_end                 physical offset at which the row of its last entry ends; -1 without entries
    """

    topic: str
    queue_id: int
    min_offset: int
    next_offset: int
    last_end: int

    @property
    def is_empty(self) -> bool:
        return self.min_offset >= self.next_offset


def queue_names(directory: BrokerDirectory) -> list[tuple[str, int]]:
    """(topic, queue_id) of every queue that has a directory, of either kind, each once."""
    return sorted({*names_of_kind(directory, CONSUME_QUEUE), *names_of_kind(directory, BATCH_CONSUME_QUEUE)})


def names_of_kind(directory: BrokerDirectory, kind: str) -> list[tuple[str, int]]:
    """(topic, queue_id) of every queue that has a directory below CONSUME_QUEUE or BATCH_CONSUME_QUEUE."""
    return [
        (topic.name, int(queue.name))
        for topic in directory.entries(kind)
        if topic.is_directory
        for queue in directory.entries(f"{kind}/{topic.name}")
        if queue.is_directory and _QUEUE.fullmatch(queue.name) and int(queue.name) <= INT_MAX
    ]


def read_queue_bounds(
    spark: SparkSession,
    directory: BrokerDirectory,
    queues: list[tuple[str, int]],
    log_start: int,
    log_end: int | None,
) -> list[QueueBounds]:
    """Bounds of queues, a few numbers each; entries of rows at or after `log_end` do not count."""
    if len(queues) <= QUEUES_ON_THE_DRIVER:
        return [_bounds(directory, topic, queue_id, log_start, log_end) for topic, queue_id in queues]

    def read_bounds(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = [
                _bounds(directory, topic, queue_id, log_start, log_end)
                for topic, queue_id in (queues[number] for number in batch.column(0).to_pylist())
            ]
            yield pa.RecordBatch.from_pylist(
                [vars(one) for one in found],
                schema=pa.schema(
                    [("topic", pa.string()), ("queue_id", pa.int32())]
                    + [(name, pa.int64()) for name in ("min_offset", "next_offset", "last_end")]
                ),
            )

    rows = spark.range(len(queues)).mapInArrow(
        read_bounds, "topic string, queue_id int, min_offset long, next_offset long, last_end long"
    )
    # Collects one row a queue.
    return [QueueBounds(*row) for row in rows.collect()]


def _bounds(
    directory: BrokerDirectory, topic: str, queue_id: int, log_start: int, log_end: int | None
) -> QueueBounds:
    path = f"{CONSUME_QUEUE}/{topic}/{queue_id}"
    files = queue_files(directory, path)
    if files and files[-1].size_bytes == 0:
        files.pop()
    if not files:
        return _batch_bounds(directory, topic, queue_id, log_start, log_end)
    last_file, units = _last_written(directory, path, files)
    while log_end is not None:
        units = _before(directory, f"{path}/{files[last_file].name}", units, log_end)
        if units or last_file == 0:
            break
        last_file -= 1
        units = files[last_file].size_bytes // UNIT_BYTES
    next_offset = int(files[last_file].name) // UNIT_BYTES + units
    first_unit = int(files[0].name) // UNIT_BYTES
    if not units:
        return QueueBounds(topic, queue_id, next_offset, next_offset, -1)
    with directory.open(f"{path}/{files[last_file].name}") as file:
        last = file_units(file, units - 1, 1)[0]
    last_end = int(last["physical_offset"]) + int(last["size_bytes"])
    if last["physical_offset"] < log_start:
        return QueueBounds(topic, queue_id, next_offset, next_offset, last_end)
    in_first = units if last_file == 0 else files[0].size_bytes // UNIT_BYTES
    with directory.open(f"{path}/{files[0].name}") as file:
        skipped = _first_at_or_after(file, in_first, log_start)
    return QueueBounds(topic, queue_id, first_unit + skipped, next_offset, last_end)


def _batch_bounds(
    directory: BrokerDirectory, topic: str, queue_id: int, log_start: int, log_end: int | None
) -> QueueBounds:
    """Bounds by the files of a queue of batches; a file, of at most some 300,000 batches, is read whole (4.6)."""
    path = f"{BATCH_CONSUME_QUEUE}/{topic}/{queue_id}"
    min_offset, last = None, None
    for file in queue_files(directory, path):
        content = directory.read(f"{path}/{file.name}") or b""
        units = np.frombuffer(content[: len(content) - len(content) % BATCH_UNIT.itemsize], BATCH_UNIT)
        counts = _is_entry(units) & (units["physical_offset"] < (LONG_MAX if log_end is None else log_end))
        written = units[: len(units) if counts.all() else int(counts.argmin())]
        kept = written[written["physical_offset"] >= log_start]
        if min_offset is None and len(kept):
            min_offset = int(kept["queue_offset"][0])
        if len(written):
            last = written[-1]
    if last is None:
        return QueueBounds(topic, queue_id, 0, 0, -1)
    next_offset = int(last["queue_offset"]) + max(int(last["batch_size"]), 1)
    last_end = int(last["physical_offset"]) + int(last["size_bytes"])
    first = next_offset if min_offset is None else min_offset
    return QueueBounds(topic, queue_id, first, next_offset, last_end)


def _last_written(directory: BrokerDirectory, path: str, files: list[FileEntry]) -> tuple[int, int]:
    """(index of the last file with entries, number of its entries): those before the first unit that is not a valid one."""
    for index in range(max(len(files) - RECOVERED_FILES, 0), len(files)):
        units = files[index].size_bytes // UNIT_BYTES
        with directory.open(f"{path}/{files[index].name}") as file:
            valid = 0
            for from_unit in range(0, units, UNITS_AT_ONCE):
                found = file_units(file, from_unit, UNITS_AT_ONCE)
                bad = np.flatnonzero(~_is_entry(found))
                valid = from_unit + (int(bad[0]) if len(bad) else len(found))
                if len(bad):
                    break
        if valid < units:
            return index, valid
    return len(files) - 1, units


def _is_entry(units: npt.NDArray) -> npt.NDArray[np.bool_]:
    return (units["physical_offset"] >= 0) & (units["size_bytes"] > 0)


def _before(directory: BrokerDirectory, path: str, units: int, log_end: int) -> int:
    """The number of a file's entries before the first whose row starts at or after the log's end."""
    with directory.open(path) as file:
        for from_unit in range(0, units, UNITS_AT_ONCE):
            found = file_units(file, from_unit, min(UNITS_AT_ONCE, units - from_unit))
            cut = np.flatnonzero((found["physical_offset"] >= log_end) | ~_is_entry(found))
            if len(cut):
                return from_unit + int(cut[0])
    return units


def _first_at_or_after(file: pa.NativeFile, units: int, log_start: int) -> int:
    """The number of a first file's entries that point before the log's start, by bisection: entries are in log order."""
    least, most = 0, units - 1
    while least < most:
        middle = (least + most) // 2
        if int(file_units(file, middle, 1)["physical_offset"][0]) >= log_start:
            most = middle
        else:
            least = middle + 1
    return least
