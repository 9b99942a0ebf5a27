"""When an imported parked row is due (docs/rocketmq/delay-retry-transaction.md 2.3).

A row of the schedule topic is due at the delivery time in its consume queue entry; without one, at the store time plus its
level's delay. A timed row is due at the slot after TIMER_OUT_MS, never early. A half message is due at its born time plus
its immunity, else plus transactionTimeOut.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.queue_files import EXT_ADDRESS_BELOW, QueueEntries
from pipelines.broker_files.records import Fields
from pipelines.log.park import UNKNOWN_LEVEL_MS
from pipelines.rocketmq.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pipelines.rocketmq.queue_slots import whole_numbers
from pipelines.rocketmq.times import LAST_MS

Longs = npt.NDArray[np.int64]
# (due times, epoch milliseconds; whether the row has one)
Due = tuple[Longs, npt.NDArray[np.bool_]]


@dataclass(frozen=True)
class Waits:
    """The settings that decide when a parked row is due, milliseconds."""

    delay_levels_ms: tuple[int, ...]
    timer_precision_ms: int
    transaction_timeout_ms: int


class DueTimes:
    """Due times of the rows of one task; the lists of the schedule topic's queue files are kept between its pieces."""

    def __init__(self, directory: BrokerDirectory, waits: Waits) -> None:
        self._entries = QueueEntries(directory, SCHEDULE_TOPIC)
        self._waits = waits

    def of(self, fields: Fields, physical_offset: Longs, topic: pa.Array, properties: pa.Array) -> pa.Array:
        """due_ms of each row, null for one that is not parked."""
        due = np.zeros(len(physical_offset), np.int64)
        is_parked = np.zeros(len(physical_offset), bool)
        for name, due_of in (
            (SCHEDULE_TOPIC, self._scheduled),
            (TIMER_TOPIC, self._timed),
            (HALF_TOPIC, self._half),
        ):
            rows = np.flatnonzero(pc.equal(topic, name).to_numpy(zero_copy_only=False))
            if len(rows):
                due[rows], is_parked[rows] = due_of(
                    fields, physical_offset, rows, properties.take(pa.array(rows))
                )
        return pa.array(due, mask=~is_parked)

    def _scheduled(self, fields: Fields, physical: Longs, rows: Longs, properties: pa.Array) -> Due:
        levels = self._waits.delay_levels_ms
        level = np.minimum(_number(properties, "DELAY", 0), len(levels))
        delays = np.array([0, *levels], np.int64)
        stored = fields.store_timestamp[rows]
        delay = np.where(level > 0, delays[np.maximum(level, 0)] if levels else UNKNOWN_LEVEL_MS, 0)
        tags_code, is_there = self._entries.tags_codes(
            fields.queue_id[rows], fields.queue_offset[rows], physical[rows], fields.sizes[rows]
        )
        is_there &= tags_code >= EXT_ADDRESS_BELOW
        return np.where(is_there, _later(tags_code, 0), _later(stored, delay)), np.ones(len(rows), bool)

    def _timed(self, fields: Fields, physical: Longs, rows: Longs, properties: pa.Array) -> Due:
        slot = _number(properties, "TIMER_OUT_MS", -1)
        # A broker's timer stops for ever at a row without its slot (TIMER_OUT_MS); here such a row is never due.
        return _later(slot, self._waits.timer_precision_ms), slot >= 0

    def _half(self, fields: Fields, physical: Longs, rows: Longs, properties: pa.Array) -> Due:
        immunity = _number(properties, "CHECK_IMMUNITY_TIME_IN_SECONDS", -1)
        seconds = np.clip(immunity, -LAST_MS, LAST_MS)
        wait = np.where(immunity == -1, self._waits.transaction_timeout_ms, seconds * 1_000)
        return _later(fields.born_timestamp[rows], wait), np.ones(len(rows), bool)


def _later(times: Longs, wait_ms: Longs | int) -> Longs:
    """Times plus waits, epoch milliseconds, clipped to [0, LAST_MS]: a damaged record may have any time."""
    furthest = 2 * LAST_MS
    return np.clip(np.clip(times, -furthest, furthest) + np.clip(wait_ms, -furthest, furthest), 0, LAST_MS)


def _number(properties: pa.Array, name: str, otherwise: int) -> Longs:
    """A property as a whole number, else `otherwise`; of several of this name the last counts, as RocketMQ decodes them."""
    pattern = f"(?s)^(?:.*\x02)?{name}\x01(?P<value>[^\x02]+)"
    return whole_numbers(pc.struct_field(pc.extract_regex(properties, pattern), "value"), otherwise)
