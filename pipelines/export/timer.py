"""The files of a broker's timer: the log of waiting messages, the wheel of time slots over it, and where the timer reads
(docs/rocketmq/delay-retry-transaction.md 2.5).

Only messages that still wait are in them. The timer goes on after the last unit of its log that names a row of its queue, so
where that row is settled a unit without effect names it: one of a slot that the timer has passed.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.broker_files.broker_config import CONFIG
from pipelines.export.directory import ExportDirectory
from pipelines.export.record_bytes import BLANK_MAGIC
from pipelines.rocketmq.hashing import java_hash
from pipelines.rocketmq.names import TIMER_TOPIC
from pipelines.rocketmq.settings import LONG_MAX
from pipelines.store.head import LogHead
from pipelines.store.snapshot import Snapshot
from pipelines.views.read import Reading
from schemas import COMMITLOG

UNIT = np.dtype(
    [
        ("size", ">i4"),
        ("previous", ">i8"),
        ("magic", ">i4"),
        ("write_time", ">i8"),
        ("delay", ">i4"),
        ("physical_offset", ">i8"),
        ("size_bytes", ">i4"),
        ("topic_hash", ">i4"),
        ("reserved", ">i8"),
    ]
)
SLOT = np.dtype([("time", ">i8"), ("first", ">i8"), ("last", ">i8"), ("count", ">i4"), ("magic", ">i4")])
WAITS, ROLLS = 1, 2
LOG_FILE_BYTES = 100 * 1024 * 1024
# What is left of a log file is closed by its length, eight zeros and the magic of a blank record.
_BLANK_BYTES = 16
WHEEL_SLOTS = 2 * 7 * 24 * 3600
# Who waits longer is put back into the timer on the way.
ROLL_WINDOW_SLOTS = 2 * 24 * 3600
CHECKPOINT_BYTES = 4_096
TIMER_CHECK = f"{CONFIG}/timercheck"
# Of the unit without effect, which comes last; `write` gives it a slot that is past.
LAST_SLOT = LONG_MAX

_SUMMARY = "units long, first_slot long"


@dataclass(frozen=True)
class Timer:
    """What was written of a timer.

    files  how many
    times  the slot that it reads next, and that of the first message that waits there or before, ms; empty without any
    """

    files: int = 0
    times: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class TimerFiles:
    """What the task that writes the timer's log and wheel needs.

    precision_ms  milliseconds of a slot
    read_time_ms  the slot that the timer reads next
    """

    to: ExportDirectory
    precision_ms: int
    read_time_ms: int

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the log's files and the wheel; a row with the number of units, and the first slot that they had themselves.

        batches  rows in the order of their slots: `slot` (ms), `magic`, `physical_offset`, `size_bytes`, `topic_hash`,
                 `own_slot` (ms; that of a message that is overdue has passed)
        """
        wheel = np.zeros(WHEEL_SLOTS, SLOT)
        log = _TimerLog(self.to)
        chain, first_slot = _Chain(-1, -1), LAST_SLOT
        for batch in batches:
            if batch.num_rows:
                first_slot = min(first_slot, int(batch.column("own_slot").to_numpy().min()))
                chain = self._append(log, wheel, batch, chain)
        log.close()
        self.to.write("timerwheel", [wheel.tobytes()])
        yield pa.RecordBatch.from_pydict({"units": [log.units], "first_slot": [first_slot]})

    def _append(
        self, log: "_TimerLog", wheel: npt.NDArray, batch: pa.RecordBatch, chain: "_Chain"
    ) -> "_Chain":
        slot, magic, physical_offset, size_bytes, topic_hash, _ = (
            column.to_numpy() for column in batch.columns
        )
        waits = slot != LAST_SLOT
        slot = np.where(waits, slot, self.read_time_ms - self.precision_ms)
        positions = log.positions(len(slot))
        units = np.zeros(len(slot), UNIT)
        units["size"] = UNIT.itemsize
        begins = np.r_[slot[0] != chain.slot, slot[1:] != slot[:-1]]
        units["previous"] = np.where(begins, -1, np.r_[chain.position, positions[:-1]])
        units["write_time"], units["delay"] = self.read_time_ms, slot - self.read_time_ms
        units["magic"], units["topic_hash"] = magic, topic_hash
        units["physical_offset"], units["size_bytes"] = physical_offset, size_bytes
        log.append(units, positions)

        numbers, at, counts = np.unique(
            slot[waits] // self.precision_ms, return_index=True, return_counts=True
        )
        index = numbers % WHEEL_SLOTS
        is_new = wheel["time"][index] != numbers
        wheel["first"][index[is_new]] = positions[at[is_new]]
        wheel["count"][index[is_new]] = 0
        wheel["time"][index], wheel["last"][index] = numbers, positions[at + counts - 1]
        wheel["count"][index] += counts
        return _Chain(int(slot[-1]), int(positions[-1]))


@dataclass(frozen=True)
class _Chain:
    """The last unit: its slot, and where it lies in the timer's log."""

    slot: int
    position: int


class _TimerLog:
    """The timer's log in the making, a file at a time in memory."""

    def __init__(self, to: ExportDirectory) -> None:
        self._to = to
        self._file = bytearray()
        self._file_number = 0
        self.units = 0

    def positions(self, count: int) -> npt.NDArray[np.int64]:
        """Where the next units go."""
        numbers = np.arange(self.units, self.units + count)
        return (numbers // UNITS_OF_A_FILE) * LOG_FILE_BYTES + (numbers % UNITS_OF_A_FILE) * UNIT.itemsize

    def append(self, units: npt.NDArray, positions: npt.NDArray[np.int64]) -> None:
        for number in np.unique(positions // LOG_FILE_BYTES).tolist():
            if number != self._file_number:
                blank = LOG_FILE_BYTES - len(self._file)
                self._file += struct.pack(">iqI", blank, 0, BLANK_MAGIC)
                self._write()
                self._file, self._file_number = bytearray(), number
            self._file += units[positions // LOG_FILE_BYTES == number].tobytes()
        self.units += len(units)

    def close(self) -> None:
        self._write()

    def _write(self) -> None:
        path = f"timerlog/{self._file_number * LOG_FILE_BYTES:020d}"
        self._to.write(path, [bytes(self._file)], LOG_FILE_BYTES)


UNITS_OF_A_FILE = (LOG_FILE_BYTES - _BLANK_BYTES) // UNIT.itemsize


def log_bytes(units: int) -> int:
    """The length of the timer's log with this number of units, bytes.

    >>> log_bytes(3)
    156
    """
    whole, rest = divmod(units, UNITS_OF_A_FILE)
    return whole * LOG_FILE_BYTES + rest * UNIT.itemsize


def write_timer(at: Snapshot, to: ExportDirectory, head: LogHead, now_ms: int) -> Timer:
    """Write the timer's files where the store has timed messages, in place of those of an earlier export."""
    for path in ("timerlog", "timerwheel", TIMER_CHECK):
        to.delete(path)
    queue_offset = head.next_queue_offsets.get((TIMER_TOPIC, 0), 0)
    if not queue_offset:
        return Timer()
    precision_ms = int(at.store.settings["timerPrecisionMs"])
    read_time_ms = now_ms - now_ms % precision_ms
    units = timer_units(at, precision_ms, read_time_ms, queue_offset)
    in_order = units.repartition(1).sortWithinPartitions("slot", "physical_offset")
    files = TimerFiles(to, precision_ms, read_time_ms)
    written = in_order.mapInArrow(files.write, _SUMMARY).collect()
    count, first_slot = (written[0].units, written[0].first_slot) if written else (0, LAST_SLOT)
    check = struct.pack(">qqqqqqq", read_time_ms, log_bytes(count), queue_offset, queue_offset, 0, now_ms, 1)
    to.write(TIMER_CHECK, [check.ljust(CHECKPOINT_BYTES, b"\0")])
    return Timer(2 + -(-max(count, 1) // UNITS_OF_A_FILE), [read_time_ms, min(first_slot, read_time_ms)])


def timer_units(at: Snapshot, precision_ms: int, read_time_ms: int, queue_offset: int) -> DataFrame:
    """A row a waiting timed message, and one without effect for the queue's last row: `slot`, `magic`, `physical_offset`,
    `size_bytes`, `topic_hash`, `own_slot`.

    What is overdue is put into the slot that the timer reads next, what waits longer than the wheel's window on its way.
    """
    window = ROLL_WINDOW_SLOTS * precision_ms
    own_slot = F.col("due_ms") - precision_ms
    slot = F.greatest(own_slot, F.lit(read_time_ms))
    waits = slot - read_time_ms
    half_way = F.when(waits - window < window // 3, window // 2).otherwise(window)
    rolls = waits >= window
    waiting = (
        Reading(at)
        .frame("scheduled_messages")
        .where((F.col("kind") == "timer") & F.col("due_ms").isNotNull())
    )
    units = waiting.select(
        F.when(rolls, read_time_ms + half_way).otherwise(slot).cast("long").alias("slot"),
        F.when(rolls, WAITS | ROLLS).otherwise(WAITS).cast("long").alias("magic"),
        "physical_offset",
        F.col("size_bytes").cast("long").alias("size_bytes"),
        F.coalesce(java_hash(F.col("real_topic")), F.lit(0)).cast("long").alias("topic_hash"),
        own_slot.alias("own_slot"),
    )
    is_last = (F.col("topic") == TIMER_TOPIC) & (F.col("queue_offset") == queue_offset - 1)
    last = (
        at.read(COMMITLOG)
        .where(is_last)
        .select(
            F.lit(LAST_SLOT).alias("slot"),
            F.lit(WAITS).cast("long").alias("magic"),
            "physical_offset",
            F.col("size_bytes").cast("long").alias("size_bytes"),
            F.lit(0).cast("long").alias("topic_hash"),
            F.lit(LAST_SLOT).alias("own_slot"),
        )
    )
    return units.unionByName(last)
