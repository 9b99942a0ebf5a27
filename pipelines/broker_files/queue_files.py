"""Consume queue files of a broker: entries are units of 20 bytes (docs/rocketmq/store.md 4.1)."""

import re

import numpy as np
import numpy.typing as npt

from pipelines.broker_files.directory import BrokerDirectory, FileEntry
from pipelines.rocketmq.settings import LONG_MAX

CONSUME_QUEUE = "consumequeue"
UNIT = np.dtype([("physical_offset", ">i8"), ("size_bytes", ">i4"), ("tags_code", ">i8")])
UNIT_BYTES = UNIT.itemsize
# Queues of topics with queue.type=BatchCQ: a unit an inner batch, found by the first of its queue offsets (4.6).
BATCH_CONSUME_QUEUE = "batchconsumequeue"
BATCH_UNIT = np.dtype(
    [*UNIT.descr, ("store_time", ">i8"), ("queue_offset", ">i8"), ("batch_size", ">i2"), ("unused", ">i8")]
)
_NAME = re.compile(r"[0-9]{20}")
# A tags code below this value is an address in a consumequeue_ext file (4.5).
EXT_ADDRESS_BELOW = -2_147_483_648

Longs = npt.NDArray[np.int64]


def read_units(directory: BrokerDirectory, path: str, from_unit: int, count: int) -> npt.NDArray:
    """At most `count` units of one queue file from its `from_unit`-th on; fewer where the file ends."""
    with directory.open(path) as file:
        return file_units(file, from_unit, count)


def file_units(file: object, from_unit: int, count: int) -> npt.NDArray:
    size = file.size() // UNIT_BYTES  # type: ignore[attr-defined]
    count = max(min(count, size - from_unit), 0)
    file.seek(from_unit * UNIT_BYTES)  # type: ignore[attr-defined]
    return np.frombuffer(file.read(count * UNIT_BYTES), UNIT)  # type: ignore[attr-defined]


def queue_files(directory: BrokerDirectory, path: str) -> list[FileEntry]:
    """The files of a queue, each named by the byte at which it starts; files with other names are left out."""
    return [
        file
        for file in directory.entries(path)
        if not file.is_directory
        and _NAME.fullmatch(file.name)
        and int(file.name) + file.size_bytes <= LONG_MAX
    ]


class QueueEntries:
    """Reads entries of one topic's queues by queue offset."""

    def __init__(self, directory: BrokerDirectory, topic: str) -> None:
        self._directory = directory
        self._path = f"{CONSUME_QUEUE}/{topic}"
        self._files: dict[int, list[tuple[int, str, int]]] = {}

    def tags_codes(
        self, queue_id: Longs, queue_offset: Longs, physical_offset: Longs, size_bytes: Longs
    ) -> tuple[Longs, npt.NDArray[np.bool_]]:
        """(the tags code of each row's entry, whether the entry exists and points at the row)."""
        tags_code = np.zeros(len(queue_id), np.int64)
        is_there = np.zeros(len(queue_id), bool)
        for queue in np.unique(queue_id):
            for start_unit, path, units in self._files_of(int(queue)):
                in_file = (
                    (queue_id == queue) & (queue_offset >= start_unit) & (queue_offset < start_unit + units)
                )
                rows = np.flatnonzero(in_file)
                if not len(rows):
                    continue
                first = int(queue_offset[rows].min())
                found = read_units(
                    self._directory, path, first - start_unit, int(queue_offset[rows].max()) - first + 1
                )
                rows = rows[queue_offset[rows] - first < len(found)]
                entries = found[queue_offset[rows] - first]
                tags_code[rows] = entries["tags_code"]
                is_there[rows] = (entries["physical_offset"] == physical_offset[rows]) & (
                    entries["size_bytes"] == size_bytes[rows]
                )
        return tags_code, is_there

    def _files_of(self, queue_id: int) -> list[tuple[int, str, int]]:
        """(first unit, path, units) of each file of a queue."""
        if queue_id not in self._files:
            path = f"{self._path}/{queue_id}"
            self._files[queue_id] = [
                (int(file.name) // UNIT_BYTES, f"{path}/{file.name}", file.size_bytes // UNIT_BYTES)
                for file in queue_files(self._directory, path)
            ]
        return self._files[queue_id]
