"""Rows of the commit log from splits of segment files, parsed on the executors."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pipelines.broker_files.chain import RecordChain
from pipelines.broker_files.columns import LogColumns
from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.segments import Segment
from pipelines.errors import StoreError


@dataclass(frozen=True)
class Piece(InputPartition):
    """A split: records of one segment that start in [from_offset, to_offset), the first at `from_offset`; one task reads it.

    skip_damage  skip what is not a record; False: the split was found sound, and must still be
    is_surveyed  records were found up to `to_offset`, and must still be there; False: the split ends where they end
    """

    segment: Segment
    from_offset: int
    to_offset: int
    skip_damage: bool
    is_surveyed: bool


def piece_rows(directory: BrokerDirectory, piece: Piece, columns: LogColumns) -> Iterator[pa.RecordBatch]:
    """One row per record, a batch for a few megabytes. Raises StoreError where the split is not as it was surveyed."""
    segment = piece.segment
    with directory.open(segment.path) as file:
        chain = RecordChain(
            file,
            segment,
            piece.from_offset - segment.start_offset,
            piece.to_offset - segment.start_offset,
            piece.skip_damage,
        )
        for piece_at, fields in chain.pieces():
            yield columns.of(fields, segment.start_offset, piece_at)
    found_at = segment.start_offset + chain.ended_at
    if piece.is_surveyed and (chain.stopped == "broken" or found_at != piece.to_offset):
        raise StoreError(
            f"{segment.path} changed while it was read: {chain.reason or 'a blank'} at {found_at}, "
            f"expected records up to {piece.to_offset}; nothing of this append was written, import again"
        )
