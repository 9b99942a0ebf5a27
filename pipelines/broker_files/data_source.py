"""A broker's directory as a Spark data source: its log, read where it lies, without a store.

    spark.dataSource.register(RocketmqStore)
    spark.read.format("rocketmq_store").load("broker/store").where("physical_offset >= 65536")

A partition is a segment file. A condition on physical_offset skips whole segments, where Spark may push it down
(`spark.sql.python.filterPushdown.enabled`, on in spark-conf/). The log is read as it is: damage is skipped, and the reading
of a segment ends after its last record.

Only an import (import_store) knows where the log ends after the broker's own recovery, what is parked and until when, and
what became of it. It reads splits of its own (import_log.py).
"""

from collections.abc import Iterable, Iterator, Mapping
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

from pipelines.broker_files.columns import SCHEMA, LogColumns
from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.rows import Piece, piece_rows
from pipelines.broker_files.segments import read_segments
from pipelines.errors import BadInput

LAST_OFFSET = 2**63 - 1
SEGMENT_SIZE = "mappedFileSizeCommitLog"


class RocketmqStore(DataSource):
    """The commit log below storePathRootDir, the path in load(): one row per record, with the log's columns.

    Its option `mappedFileSizeCommitLog` is the size of a segment in bytes, where it is not that of the files.
    """

    @classmethod
    def name(cls) -> str:
        return "rocketmq_store"

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> "RocketmqStoreReader":
        if not self.options.get("path"):
            raise BadInput('no path; expected .load("DIR"), a broker\'s storePathRootDir')
        return RocketmqStoreReader(self.options)


@dataclass(frozen=True)
class Range:
    """Physical offsets [from_offset, to_offset) that a query needs."""

    from_offset: int = 0
    to_offset: int = LAST_OFFSET

    def narrowed(self, condition: Filter) -> "Range":
        """The part of the range that meets a condition on physical_offset; all of it for any other condition."""
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

    def meets(self, piece: Piece) -> bool:
        return self.from_offset < piece.to_offset and piece.from_offset < self.to_offset


class RocketmqStoreReader(DataSourceReader):
    """Plans a task for each split, which parses it a few megabytes at a time."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._directory = BrokerDirectory(options["path"])
        self._options = options
        self._range = Range()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for condition in filters:
            self._range = self._range.narrowed(condition)
            yield condition  # only whole splits are skipped; Spark filters the rows of the others

    def partitions(self) -> list[InputPartition]:
        return [
            replace(piece, to_offset=min(piece.to_offset, self._range.to_offset))
            for piece in self._pieces()
            if self._range.meets(piece)
        ]

    def _pieces(self) -> list[Piece]:
        conf = {SEGMENT_SIZE: self._options[SEGMENT_SIZE]} if SEGMENT_SIZE in self._options else {}
        segments, _ = read_segments(self._directory, conf)
        return [
            Piece(one, one.start_offset, one.end_offset, skip_damage=True, is_surveyed=False)
            for one in segments
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Piece):  # without partitions Spark reads None
            yield from piece_rows(self._directory, partition, LogColumns())
