"""Surveys of segments: how far the chain of records goes, and where it may be cut into splits."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from pipelines.broker_files.chain import Checks, RecordChain, Skipped, is_zero_from
from pipelines.broker_files.columns import text
from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.records import Fields, ends_in_zero, properties, topics
from pipelines.broker_files.rows import Piece
from pipelines.broker_files.segments import Segment
from pipelines.rocketmq.flags import INNER_BATCH
from pipelines.rocketmq.queue_slots import records_with_queue_slot, slots_of_batches
from pipelines.rocketmq.times import LAST_MS

# As much of a log is read on the driver: Python workers of executors take two seconds to start.
BYTES_ON_THE_DRIVER = 4 * 1024 * 1024


@dataclass(frozen=True)
class Survey:
    """What a segment holds, found by a walk that copies nothing. Offsets are physical.

    from_offset    where the walk began
    end_offset     where the last whole record ends; where the blank lies, if `stopped` is `blank`
    stopped        `end`, `blank`, `broken` or `uncommitted`, as RecordChain has it
    reason         why the chain is broken there
    rest_is_zero   whether nothing was ever written after a broken end
    records        number of whole records
    displaced      number of records whose own physical offset is not where they lie
    torn           number of records that end in zeros; `first_torn` is where the first of them lies
    borders        offsets at which a split may start: the first record (or entry), then one every `border_bytes`
    skipped        damage that was skipped; here from_at and to_at are physical offsets
    queues         (topic, queue_id, first, next, taken): the queue offsets of its records, and how many they take
    last_store_timestamp  the greatest store timestamp, epoch milliseconds; 0 without records
    """

    start_offset: int
    from_offset: int
    end_offset: int
    stopped: str
    reason: str
    rest_is_zero: bool
    records: int
    displaced: int
    torn: int = 0
    first_torn: int | None = None
    borders: list[int] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    queues: list[tuple[str, int, int, int, int]] = field(default_factory=list)
    last_store_timestamp: int = 0

    @classmethod
    def of_json(cls, text: str) -> "Survey":
        found = json.loads(text)
        found["skipped"] = [Skipped(**one) for one in found["skipped"]]
        found["queues"] = [tuple(one) for one in found["queues"]]
        return cls(**found)


@dataclass(frozen=True)
class SurveyTask:
    """One segment to survey, from `from_offset` up to `to_offset` or its end."""

    segment: Segment
    from_offset: int
    to_offset: int
    checks: Checks
    skip_damage: bool
    border_bytes: int


def are_short(parts: Iterable[SurveyTask | Piece]) -> bool:
    """Whether parts of a log are read on the driver."""
    return sum(part.to_offset - part.from_offset for part in parts) <= BYTES_ON_THE_DRIVER


def survey_segments(
    spark: SparkSession, directory: BrokerDirectory, tasks: Sequence[SurveyTask]
) -> list[Survey]:
    """Surveys of segments, made in parallel, a task each; they come to the driver as a few numbers a segment."""
    if are_short(tasks):
        return [survey(directory, task) for task in tasks]

    def survey_tasks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                text = json.dumps(asdict(survey(directory, tasks[number])))
                yield pa.RecordBatch.from_pydict({"number": [number], "survey": [text]})

    numbers = spark.range(0, len(tasks), 1, len(tasks))
    # Collects one row a segment.
    found = numbers.mapInArrow(survey_tasks, "number long, survey string").collect()
    return [Survey.of_json(row.survey) for row in sorted(found, key=lambda row: row.number)]


def survey(directory: BrokerDirectory, task: SurveyTask) -> Survey:
    start_offset, size_bytes = task.segment.start_offset, task.segment.size_bytes
    records = displaced = torn = last_store_timestamp = 0
    first_torn: int | None = None
    borders: list[int] = []
    places: list[pa.Table] = []
    with directory.open(task.segment.path) as file:
        chain = RecordChain(
            file,
            task.segment,
            task.from_offset - start_offset,
            task.to_offset - start_offset,
            task.skip_damage,
            task.checks,
        )
        for piece_at, fields in chain.pieces():
            offset = start_offset + piece_at + fields.starts
            records += len(offset)
            displaced += int((fields.physical_offset != offset).sum())
            in_zeros = offset[ends_in_zero(fields)]
            torn += len(in_zeros)
            first_torn = int(in_zeros[0]) if first_torn is None and len(in_zeros) else first_torn
            of_a_calendar = fields.store_timestamp[fields.store_timestamp <= LAST_MS]
            last_store_timestamp = int(of_a_calendar.max(initial=last_store_timestamp))
            places.append(queue_places(fields))
            border = int(offset[0]) - task.segment.header_bytes
            if not borders or border >= borders[-1] + task.border_bytes:
                borders.append(border)
        rest_is_zero = chain.stopped == "broken" and is_zero_from(file, chain.ended_at, size_bytes)
    skipped = [
        replace(part, from_at=start_offset + part.from_at, to_at=start_offset + part.to_at)
        for part in chain.skipped
    ]
    return Survey(
        start_offset,
        task.from_offset,
        start_offset + chain.ended_at,
        chain.stopped,
        chain.reason,
        rest_is_zero,
        records,
        displaced,
        torn,
        first_torn,
        borders,
        skipped,
        _merged(places),
        last_store_timestamp,
    )


def queue_places(fields: Fields) -> pa.Table:
    """Queue offsets of each queue in which records of a piece lie: `topic`, `queue_id`, `first`, `next`, `taken`.

    The log head has the same of rows of the log (rocketmq/queue_slots.py).
    """
    has_queue_slot = records_with_queue_slot(
        fields.sys_flag, fields.queue_offset, fields.topic_end - fields.topic_at
    )
    slots = np.ones(len(fields.starts), np.int64)
    batches = np.flatnonzero(fields.sys_flag & INNER_BATCH)
    if len(batches):
        slots[batches] = slots_of_batches(properties(fields).take(pa.array(batches)))
    table = pa.table(
        {
            "topic": text(topics(fields)),
            "queue_id": fields.queue_id,
            "first": fields.queue_offset,
            "next": fields.queue_offset + slots,
            "taken": slots,
        }
    )
    return _by_queue(table if has_queue_slot.all() else table.filter(pa.array(has_queue_slot)))


def _by_queue(places: pa.Table) -> pa.Table:
    counted = [("first", "min"), ("next", "max"), ("taken", "sum")]
    grouped = places.group_by(["topic", "queue_id"]).aggregate(counted)
    return grouped.rename_columns(["topic", "queue_id", "first", "next", "taken"])


def _merged(places: list[pa.Table]) -> list[tuple[str, int, int, int, int]]:
    if not places:
        return []
    columns = _by_queue(pa.concat_tables(places)).to_pydict()
    return list(zip(*columns.values(), strict=True))
