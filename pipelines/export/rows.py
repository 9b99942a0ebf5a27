"""A part of a store as rows that `put_messages` takes back: JSON lines or Parquet (docs/messages.md)."""

import re
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.broker_files.directory import FileEntry
from pipelines.broker_files.export_note import UNDER_WAY
from pipelines.errors import BadInput
from pipelines.export.directory import ExportDirectory, expect_apart, held
from pipelines.retry.redrive import DROPPED
from pipelines.rocketmq.flags import TRANSACTION_BITS
from pipelines.rocketmq.names import SEND_FORBIDDEN
from pipelines.rocketmq.properties import without
from pipelines.rocketmq.settings import LONG_MAX
from pipelines.store.snapshot import Snapshot
from pipelines.uris import literal_path
from pipelines.views.text import base64_text
from schemas import COMMITLOG

# There while rows are written: a directory without it is somebody else's.
BEGUN = "_commitlake-rows"
# Locked while rows are written; what reads them leaves out names with _.
ROWS_LOCK = "_lock"
# What a run writes besides, and may have left: Spark's files, the checksum files that Hadoop puts beside them, and
# directories of files under way.
FILES_OF_A_RUN = re.compile(r"part-[0-9]{5,}-.+|\.part-[0-9]{5,}-.+\.crc|_SUCCESS|\._SUCCESS\.crc")
DIRECTORIES_OF_A_RUN = (UNDER_WAY, "_temporary")
FORMATS = {"jsonl": "json", "parquet": "parquet"}


@dataclass(frozen=True)
class Part:
    """Which messages of a store: all that meet everything that is given.

    topics                  names; empty for all
    from_offset, to_offset  physical offsets, half-open
    begin, end              store times, epoch milliseconds, both included
    """

    topics: tuple[str, ...] = ()
    from_offset: int | None = None
    to_offset: int | None = None
    begin: int | None = None
    end: int | None = None

    @property
    def condition(self) -> Column:
        """Whether a row of the log is of the part and in a topic that messages can be put to.

        Rows that wait for their topic and marks of transactions are the store's own, and no put takes them.
        """
        chosen = ~F.col("topic").isin(*SEND_FORBIDDEN)
        if self.topics:
            chosen = chosen & F.col("topic").isin(*self.topics)
        offset, stored = F.col("physical_offset"), F.col("store_timestamp")
        for bound, condition in (
            (self.from_offset, offset >= _long(self.from_offset)),
            (self.to_offset, offset < _long(self.to_offset)),
            (self.begin, stored >= _long(self.begin)),
            (self.end, stored <= _long(self.end)),
        ):
            if bound is not None:
                chosen = chosen & condition
        return chosen


def _long(bound: int | None) -> int:
    """A bound as a long: those beyond are as good as the last one."""
    return max(-LONG_MAX - 1, min(bound or 0, LONG_MAX))


def write_rows(at: Snapshot, part: Part, to: str, format: str) -> tuple[int, int]:
    """Write a part's messages in the order of the log; (messages, files).

    Raises BadInput for a directory that holds anything but what a run that was cut short has left, and StoreError for one
    that another run is writing to.
    """
    expect_apart(at, to)
    directory = ExportDirectory(to)
    _names_of_a_run(directory)  # before anything is made there
    with held(at.store.spark, directory.uri, ROWS_LOCK):
        return _write_rows(at, part, directory, format)


def _names_of_a_run(directory: ExportDirectory) -> list[str]:
    """What a run that was cut short has left. Raises BadInput for a directory that holds anything else."""
    entries = [entry for entry in directory.found.entries("") if entry.name != ROWS_LOCK]
    names = [entry.name for entry in entries]
    if names and BEGUN not in names:
        raise BadInput(
            f"{directory.uri} is not empty (found {', '.join(names[:5])}); name an empty directory"
        )
    for entry in entries:
        if not _is_of_a_run(entry):
            raise BadInput(
                f"{directory.uri} has {entry.name} beside what an export that was cut short has left, and only that is "
                f"deleted. Move {entry.name} elsewhere and run this again, or name an empty directory"
            )
    return names


def _is_of_a_run(entry: FileEntry) -> bool:
    if entry.is_directory:
        return entry.name in DIRECTORIES_OF_A_RUN
    return entry.name == BEGUN or FILES_OF_A_RUN.fullmatch(entry.name) is not None


def _write_rows(at: Snapshot, part: Part, directory: ExportDirectory, format: str) -> tuple[int, int]:
    names = _names_of_a_run(directory)
    directory.write(BEGUN, [])
    for name in names:
        if name != BEGUN:
            directory.delete(name)
    rows = at.read(COMMITLOG).where(part.condition)
    ordered = rows.repartitionByRange("physical_offset").sortWithinPartitions("physical_offset")
    as_input(ordered, format).write.mode("append").format(FORMATS[format]).save(directory.for_spark)
    files, found = part_files(directory.uri), at.store.spark.read.format(FORMATS[format])
    written = found.load(literal_path(directory.for_spark)).count() if files else 0
    directory.delete(UNDER_WAY)
    directory.delete(BEGUN)
    return written, len(files)


def part_files(to: str) -> list[str]:
    return [entry.name for entry in ExportDirectory(to).found.entries("") if entry.name.startswith("part-")]


def as_input(rows: DataFrame, format: str) -> DataFrame:
    """Rows of the log as rows of an input: what a store adds at a put, or keeps about a wait that is over, is left out."""
    body = F.col("body") if format == "parquet" else base64_text(F.col("body"))
    return rows.select(
        "topic",
        body.alias("body" if format == "parquet" else "body_base64"),
        without(F.col("properties"), *DROPPED).alias("properties_raw"),
        "queue_id",
        "flag",
        F.col("sys_flag").bitwiseAND(~TRANSACTION_BITS).alias("sys_flag"),
        "born_timestamp",
        "born_host",
        F.col("physical_offset").alias("arrival"),
    )
