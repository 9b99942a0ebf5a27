"""A broker's directory as a Spark data source: its log, read where it lies, without a store.

    spark.dataSource.register(RocketmqStore)
    spark.read.format("rocketmq_store").load("broker/store").where("physical_offset >= 65536")

A partition is a segment file. A condition on physical_offset leaves out whole segments, where Spark may push it down
(`spark.sql.python.filterPushdown.enabled`, on in spark-conf/). A log is read as it lies there: damage is stepped over and
the reading of a segment ends behind its last record. Where the log would end after the broker's own recovery, what is
parked and until when, and what came of it, only an import knows (import_store).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from pipelines.broker_files.chain import RecordChain
from pipelines.broker_files.columns import SCHEMA, LogColumns
from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.segments import Segment, read_segments
from pipelines.store.errors import BadInput

# What stands in a record; due_ms is worked out by an import.
COLUMNS = pa.schema([("segment", pa.int64()), *[field for field in SCHEMA if field.name != "due_ms"]])
LAST_OFFSET = 2**63 - 1


class RocketmqStore(DataSource):
    """The commit log of storePathRootDir, the path given to load(); a row a record, the log's own columns.

    Options: mappedFileSizeCommitLog, where the broker's is not the size of its files.
    """

    @classmethod
    def name(cls) -> str:
        return "rocketmq_store"

    def schema(self) -> StructType:
        return from_arrow_schema(COLUMNS)

    def reader(self, schema: StructType) -> "RocketmqStoreReader":
        path = self.options.get("path")
        if not path:
            raise BadInput('no path; expected .load("DIR"), a broker\'s storePathRootDir')
        size = self.options.get(SEGMENT_SIZE)
        return RocketmqStoreReader(path, {} if size is None else {SEGMENT_SIZE: size})


SEGMENT_SIZE = "mappedFileSizeCommitLog"


@dataclass(frozen=True)
class Range:
    """Physical offsets [from_offset, to_offset) that are asked for."""

    from_offset: int = 0
    to_offset: int = LAST_OFFSET

    def narrowed(self, condition: Filter) -> "Range":
        """The part of it that a condition on the physical offset leaves; all of it for any other condition."""
        if getattr(condition, "attribute", None) != ("physical_offset",):
            return self
        match condition:
            case EqualTo(value=value):
                return replace(
                    self, from_offset=max(self.from_offset, value), to_offset=min(self.to_offset, value + 1)
                )
            case GreaterThan(value=value):
                return replace(self, from_offset=max(self.from_offset, value + 1))
            case GreaterThanOrEqual(value=value):
                return replace(self, from_offset=max(self.from_offset, value))
            case LessThan(value=value):
                return replace(self, to_offset=min(self.to_offset, value))
            case LessThanOrEqual(value=value):
                return replace(self, to_offset=min(self.to_offset, value + 1))
        return self

    def meets(self, segment: Segment) -> bool:
        return self.from_offset < segment.end_offset and segment.start_offset < self.to_offset


@dataclass
class SegmentPartition(InputPartition):
    """One segment file, to be read up to an offset."""

    segment: Segment
    to_offset: int


class RocketmqStoreReader(DataSourceReader):
    """Plans a partition a segment and parses it, a few megabytes at a time."""

    def __init__(self, path: str, conf: dict[str, str]) -> None:
        self._directory = BrokerDirectory(path)
        self._conf = conf
        self._range = Range()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for condition in filters:
            self._range = self._range.narrowed(condition)
            yield condition  # whole segments are left out; Spark looks at the rows of the others

    def partitions(self) -> list[InputPartition]:
        if not self._directory.exists("commitlog"):
            raise BadInput(
                f"no broker at {self._directory.uri}: expected storePathRootDir, a directory with a folder commitlog"
            )
        segments, _ = read_segments(self._directory, self._conf)
        return [
            SegmentPartition(segment, min(segment.end_offset, self._range.to_offset))
            for segment in segments
            if self._range.meets(segment)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SegmentPartition)
        segment = partition.segment
        columns = LogColumns(None)
        with self._directory.open(segment.path) as file:
            chain = RecordChain(
                file,
                segment.start_offset,
                0,
                partition.to_offset - segment.start_offset,
                segment.size_bytes,
                skip_damage=True,
            )
            for piece_at, fields in chain.pieces():
                batch = columns.of(fields, segment.start_offset + piece_at)
                starts = pa.array([segment.start_offset] * batch.num_rows, pa.int64())
                named = [starts if name == "segment" else batch.column(name) for name in COLUMNS.names]
                yield pa.RecordBatch.from_arrays(named, schema=COLUMNS)
