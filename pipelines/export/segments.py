"""Segment files of the log, written by executors: a task reads the Parquet files of a segment and writes its file.

No body goes through the JVM or a shuffle. What is counted is written: each record must begin where the one before it ends.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.broker_files.directory import resolved
from pipelines.errors import StoreError
from pipelines.export.directory import ExportDirectory
from pipelines.export.record_bytes import COLUMNS, blank_record, record_bytes
from pipelines.rocketmq.record import ENTRY_HEADER_BYTES
from pipelines.store.head import LogHead
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG

# Decoded at once in a task.
BATCH_BYTES = 16 * 1024 * 1024
MOST_ROWS_OF_A_BATCH = 64 * 1024

SUMMARY = "segment long, messages long, bytes long"


@dataclass(frozen=True)
class SegmentFiles:
    """What a task needs to write the file of any segment of a log: small enough to be sent to executors.

    log_uri        the commit log's directory
    segment_bytes  what each file has
    log_end        where the log ends: a segment that ends before it is closed by a blank record
    """

    to: ExportDirectory
    log_uri: str
    segment_bytes: int
    log_end: int

    def write(self, segment: int, paths: Sequence[str]) -> tuple[int, int]:
        """Write one segment's file from the Parquet files that hold its rows; (messages, bytes of records)."""
        records = _Records(self, segment, paths)
        written = self.to.write(segment_path(segment), records.parts(), self.segment_bytes)
        return records.messages, written


def segment_path(segment: int) -> str:
    return f"commitlog/{segment:020d}"


def write_segments(at: Snapshot, to: ExportDirectory, head: LogHead, from_segment: int) -> DataFrame:
    """Write the log's segments from one on, a task each; a row a segment: SUMMARY.

    The frame writes when it is read.
    """
    files = SegmentFiles(to, at.store.path(COMMITLOG), at.store.settings.segment_bytes, head.next_offset)
    segment = F.col("partitionValues")["segment"].cast("long")
    by_segment = (
        at.files(COMMITLOG)
        .select(segment.alias("segment"), "path")
        .where(F.col("segment") >= from_segment)
        .groupBy("segment")
        .agg(F.sort_array(F.collect_list("path")).alias("paths"))
    )

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                messages, written = files.write(row["segment"], row["paths"])
                yield pa.RecordBatch.from_pylist(
                    [{"segment": row["segment"], "messages": messages, "bytes": written}],
                    pa.schema([(name, pa.int64()) for name in ("segment", "messages", "bytes")]),
                )

    # As many tasks as segments, so that no core waits for another's.
    return by_segment.repartitionByRange(task_count(at), "segment").mapInArrow(write, SUMMARY)


def task_count(at: Snapshot) -> int:
    """How many tasks write files side by side."""
    return 4 * at.store.spark.sparkContext.defaultParallelism


class RowGroup(NamedTuple):
    """A row group of a Parquet file, by the offsets of the first and last record in it."""

    first_offset: int
    last_offset: int
    path: str
    number: int


class _Records:
    """The records of one segment in the order of the log, as pieces of bytes; counts the messages in them."""

    def __init__(self, files: SegmentFiles, segment: int, paths: Sequence[str]) -> None:
        self._segment_end = segment + files.segment_bytes
        self._is_closed = files.log_end >= self._segment_end
        self._log_end = files.log_end
        self._next_offset = segment
        self._log, self._base = resolved(files.log_uri)
        self._paths = [unquote(path) for path in paths]
        self._open: dict[str, pq.ParquetFile] = {}
        self.messages = 0

    def parts(self) -> Iterator[memoryview | bytes]:
        """Records, and the blank that closes the segment. Raises StoreError where a record is missing between two others."""
        for group in _overlapping(self._row_groups()):
            for batch in self._batches(group):
                yield from self._encoded(batch)
        if self._is_closed:
            yield blank_record(self._segment_end - self._next_offset)
        elif self._next_offset != self._log_end:
            raise gap(self._next_offset, self._log_end)

    def _encoded(self, batch: pa.RecordBatch) -> Iterator[memoryview]:
        jump = self._jump_in(batch)
        if jump is not None:
            raise gap(*jump)
        last = batch.num_rows - 1
        self._next_offset = (
            batch.column("physical_offset")[last].as_py() + batch.column("size_bytes")[last].as_py()
        )
        self.messages += batch.num_rows
        records = record_bytes(batch)
        begin, end = (pa_offset.as_py() for pa_offset in _ends_of(records))
        yield memoryview(records.buffers()[2])[begin:end]

    def _jump_in(self, batch: pa.RecordBatch) -> tuple[int, int] | None:
        """The first record of a batch that does not begin where the one before it ends: (that end, its offset)."""
        offsets = batch.column("physical_offset").to_numpy()
        ends = offsets + batch.column("size_bytes").to_numpy()
        expected = np.r_[self._next_offset, ends[:-1]]
        broken = np.flatnonzero(offsets != expected)
        return (int(expected[broken[0]]), int(offsets[broken[0]])) if len(broken) else None

    def _row_groups(self) -> list[RowGroup]:
        return [
            group
            for path in self._paths
            for group in _row_groups_of(path, self._file(path).metadata)
            if group.last_offset >= self._next_offset
        ]

    def _batches(self, groups: Sequence[RowGroup]) -> Iterator[pa.RecordBatch]:
        """Rows of row groups that lie among each other, in order; of a single one a few megabytes at a time."""
        if len(groups) == 1:
            file = self._file(groups[0].path)
            for batch in file.iter_batches(
                _rows_at_once(file, groups[0]), [groups[0].number], columns=list(COLUMNS)
            ):
                if self._jump_in(batch) is not None:
                    break
                yield batch
            else:
                return
            # Delta's OPTIMIZE puts files together by size, not in the log's order: a batch of such a file may ascend and
            # still begin later than the log goes on. Only what is missing from the sorted rows is missing from the log.
        rows = pa.concat_tables(
            self._file(group.path).read_row_group(group.number, columns=list(COLUMNS)) for group in groups
        ).combine_chunks()
        offsets = rows.column("physical_offset").to_numpy()
        order = np.argsort(offsets, kind="stable")
        order = order[np.searchsorted(offsets, self._next_offset, sorter=order) :]
        # In order a few megabytes at a time: a copy of all of them would need the memory twice.
        at_once = _rows_of_a_batch(rows.num_rows, pc.sum(rows.column("size_bytes")).as_py())
        for first in range(0, len(order), at_once):
            yield from rows.take(order[first : first + at_once]).combine_chunks().to_batches()

    def _file(self, path: str) -> pq.ParquetFile:
        if path not in self._open:
            self._open[path] = pq.ParquetFile(self._log.open_input_file(f"{self._base}/{path}"))
        return self._open[path]


def _row_groups_of(path: str, metadata: Any) -> Iterator[RowGroup]:
    column = metadata.schema.to_arrow_schema().names.index("physical_offset")
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(column).statistics
        if statistics is None or not statistics.has_min_max:
            raise StoreError(
                f"{path} of the log has no statistics of physical_offset: it was not written by commitlake. Restore the file"
            )
        yield RowGroup(statistics.min, statistics.max, path, number)


def _overlapping(groups: Iterable[RowGroup]) -> Iterator[list[RowGroup]]:
    """Row groups in the log's order, those together whose rows lie among each other."""
    together: list[RowGroup] = []
    last_offset = -1
    for group in sorted(groups):
        if together and group.first_offset > last_offset:
            yield together
            together = []
        together.append(group)
        last_offset = max(last_offset, group.last_offset)
    if together:
        yield together


def _rows_at_once(file: pq.ParquetFile, group: RowGroup) -> int:
    known = file.metadata.row_group(group.number)
    # Bodies that are the same are once in the file, and as often in a batch as in the log.
    group_bytes = max(known.total_byte_size, group.last_offset - group.first_offset)
    return _rows_of_a_batch(known.num_rows, group_bytes)


def _rows_of_a_batch(rows: int, rows_bytes: int) -> int:
    return max(1, min(MOST_ROWS_OF_A_BATCH, BATCH_BYTES * rows // max(rows_bytes, 1)))


def _ends_of(records: pa.BinaryArray) -> tuple[pa.Scalar, pa.Scalar]:
    offsets = pa.Array.from_buffers(
        pa.int32(), len(records) + 1, [None, records.buffers()[1]], offset=records.offset
    )
    return offsets[0], offsets[len(records)]


def gap(expected: int, found: int) -> StoreError:
    """The error for a log without a record between two physical offsets."""
    if found - expected == ENTRY_HEADER_BYTES:
        return StoreError(
            f"the record at byte {found} has the header of a DLedger entry before it: the log was imported from a broker "
            "with DLedger, and one without it does not read past such a header. Export it with --format jsonl or parquet, "
            "and put that into a store of its own: its records get other physical offsets there"
        )
    return StoreError(
        f"the log has no record from byte {expected} to {found}: a broker stops reading there. Damage of an imported log is "
        "stepped over and leaves such a gap; export what lies around it with --format jsonl or parquet"
    )
