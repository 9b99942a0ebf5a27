"""Rows of the commit log from pieces of segment files, parsed on the executors."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from pipelines.broker_files.chain import RecordChain
from pipelines.broker_files.columns import SCHEMA, LogColumns
from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.due import DueTimes, Waits
from pipelines.broker_files.segments import Segment
from pipelines.store.errors import StoreError
from schemas import COMMITLOG


@dataclass(frozen=True)
class Piece:
    """Records of one segment that start in [from_offset, to_offset); a record starts at `from_offset`.

    skip_damage  step over what is not a record; without, the piece is known to be sound and must be
    """

    segment: Segment
    from_offset: int
    to_offset: int
    skip_damage: bool


def read_rows(
    spark: SparkSession, directory: BrokerDirectory, pieces: Sequence[Piece], waits: Waits
) -> DataFrame:
    """One row per record, with the columns of the commit log that the record decides; a task a piece.

    A task holds a few megabytes of its segment at a time. Columns that are the same for a whole append are null.
    """

    def parse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        columns = LogColumns(DueTimes(directory, waits))
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from parsed(directory, pieces[number], columns)

    numbers = spark.range(0, len(pieces), 1, max(len(pieces), 1))
    records = numbers.mapInArrow(parse, from_arrow_schema(SCHEMA))
    segment_bytes = pieces[0].segment.size_bytes if pieces else 1
    segment = F.col("physical_offset") - F.col("physical_offset") % segment_bytes
    absent = {
        field.name: F.lit(None).cast(field.dataType)
        for field in COMMITLOG.columns
        if field.name not in {*SCHEMA.names, "segment"}
    }
    return records.withColumns({"segment": segment, **absent}).select(*COMMITLOG.names)


def parsed(directory: BrokerDirectory, piece: Piece, columns: LogColumns) -> Iterator[pa.RecordBatch]:
    segment = piece.segment
    with directory.open(segment.path) as file:
        chain = RecordChain(
            file,
            segment.start_offset,
            piece.from_offset - segment.start_offset,
            piece.to_offset - segment.start_offset,
            segment.size_bytes,
            piece.skip_damage,
        )
        for piece_at, fields in chain.pieces():
            yield columns.of(fields, segment.start_offset + piece_at)
    if chain.stopped == "broken" or segment.start_offset + chain.ended_at != piece.to_offset:
        found_at = segment.start_offset + chain.ended_at
        raise StoreError(
            f"{segment.path} changed while it was read: {chain.reason or 'a blank'} at {found_at}, "
            f"expected records up to {piece.to_offset}; nothing of this append was written, import again"
        )
