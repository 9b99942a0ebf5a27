"""Consume queue files: 20 bytes a message, in files of a fixed number of entries (docs/rocketmq/store.md 4.1, 4.2)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.broker_files.queue_files import CONSUME_QUEUE as QUEUES
from pipelines.broker_files.queue_files import UNIT, UNIT_BYTES
from pipelines.delay.deliver import is_too_far, log_time_ms
from pipelines.dispatch.entries import consume_queue_entries
from pipelines.errors import BadInput
from pipelines.export.directory import ExportDirectory
from pipelines.rocketmq.names import LIGHT_PREFIX
from pipelines.rocketmq.record import FIXED_BYTES
from pipelines.rocketmq.settings import INT_MAX, LONG_MAX
from pipelines.rocketmq.times import within_reach
from pipelines.spark_internals.arrow import frame_of
from pipelines.store.floors import read_floors
from pipelines.store.head import LogHead
from pipelines.store.progress import covered, followed_rows
from pipelines.store.snapshot import Snapshot
from pipelines.store.topics import read_topics
from schemas import COMMITLOG, CONSUME_QUEUE
from schemas.queue_bounds import LOG_TOPIC

# What a broker puts where a queue has no entry: before the first of a queue that does not begin at 0 (4.2).
FILLER = np.array([(0, INT_MAX, 0)], UNIT)
# The last unit of a queue whose messages have all expired. A broker leaves out messages that lie before the end of a
# queue's last unit, as already in it; a filler's end would be that of the first 2 GiB of the log.
LAST_FILLER = np.array([(0, 1, 0)], UNIT)

FILE_KEY = ["topic", "queue_id", "file"]
SUMMARY = "topic string, queue_id int, file long, is_there boolean"
_SUMMARY = pa.schema(
    [("topic", pa.string()), ("queue_id", pa.int32()), ("file", pa.int64()), ("is_there", pa.bool_())]
)


@dataclass(frozen=True)
class QueueFiles:
    """What a task needs to write one file of any queue.

    file_bytes   what each file has, a multiple of an entry's 20
    from_offset  entries of records from this physical offset on are given, a file has those before; None: all are given
    """

    to: ExportDirectory
    file_bytes: int
    from_offset: int | None = None

    def write(self, rows: pa.Table) -> pa.Table:
        """Write one file of a queue, unless the directory lacks what came before: a row of SUMMARY.

        rows  `topic`, `queue_id`, `file` (its number), `next_offset` of the queue, and of each entry in the
              file `queue_offset`, `physical_offset`, `size_bytes`, `tags_code`; one row has nulls instead
        """
        topic, queue_id, file, next_offset = (
            rows.column(name)[0].as_py() for name in ("topic", "queue_id", "file", "next_offset")
        )
        first = file * (self.file_bytes // UNIT_BYTES)
        # Of two entries at one offset, which only damage makes, a broker keeps the first.
        entries = rows.filter(rows.column("queue_offset").is_valid()).sort_by(
            [("physical_offset", "descending")]
        )
        number = entries.column("queue_offset").to_numpy() - first
        path = f"{QUEUES}/{topic}/{queue_id}/{first * UNIT_BYTES:020d}"
        count = min(next_offset - first, self.file_bytes // UNIT_BYTES)
        units = np.repeat(FILLER, count)
        if first + count == next_offset:
            units[-1:] = LAST_FILLER
        for name in UNIT.names or ():
            units[name][number] = entries.column(name).to_numpy()
        is_there = self.from_offset is None or self._add_earlier(units, path, int(number.min()))
        if is_there:
            self.to.write(path, [units.tobytes()], self.file_bytes)
        done = {"topic": topic, "queue_id": queue_id, "file": file, "is_there": is_there}
        return pa.Table.from_pylist([done], _SUMMARY)

    def _add_earlier(self, units: npt.NDArray[Any], path: str, first_new: int) -> bool:
        """Take over the earlier units of a file; whether it has them all, up to the first new one."""
        found = self.to.found.read(path, units.nbytes) or b""
        earlier = np.frombuffer(found[: len(found) - len(found) % UNIT_BYTES], UNIT)
        if len(earlier) < first_new or (earlier["size_bytes"][:first_new] == 0).any():
            return False
        # A run that was killed has left later ones too, perhaps of a log that was put back since.
        is_entry = (earlier["size_bytes"] != 0) & (earlier["physical_offset"] < self.from_offset)
        is_entry &= ~np.isin(earlier, (FILLER, LAST_FILLER))
        units[: len(earlier)][is_entry] = earlier[is_entry]
        return True


def write_queues(at: Snapshot, to: ExportDirectory, head: LogHead, from_offset: int, now_ms: int) -> int:
    """Write the files of all queues that have entries from a physical offset on; how many.

    What a file has already is taken from itself; a file without that is written from all entries. These come from the log
    where dispatch has not followed it.
    """
    file_bytes = at.store.settings.queue_file_bytes
    units = file_bytes // UNIT_BYTES
    in_file = F.floor(F.col("queue_offset") / F.lit(units)).cast("long")
    entries = queue_entries(at, now_ms).withColumn("file", in_file)
    bounds = _bounds(at, head, units)
    if from_offset <= head.min_offset:
        return _write_files(QueueFiles(to, file_bytes), entries, bounds)[0]
    new = entries.where(F.col("physical_offset") >= from_offset)
    changed = new.select(*FILE_KEY).distinct()
    files = QueueFiles(to, file_bytes, from_offset)
    written, left = _write_files(files, new, bounds.join(F.broadcast(changed), FILE_KEY, "left_semi"))
    if not left:
        return written
    whole = frame_of(at.store.spark, left, "topic string, queue_id int, file long")
    entries, bounds = (rows.join(F.broadcast(whole), FILE_KEY, "left_semi") for rows in (entries, bounds))
    return written + _write_files(QueueFiles(to, file_bytes), entries, bounds)[0]


def _write_files(
    files: QueueFiles, entries: DataFrame, bounds: DataFrame
) -> tuple[int, list[tuple[str, int, int]]]:
    """Write files; how many, and those that were not."""
    names = (*FILE_KEY, "next_offset")
    values = ("queue_offset", "physical_offset", "size_bytes", "tags_code")
    # A row a file besides its entries: a queue may have files without any.
    rows = entries.join(F.broadcast(bounds), FILE_KEY).select(*names, *values)
    whole = rows.unionByName(bounds.select(*names), allowMissingColumns=True)
    summary = whole.groupBy(*FILE_KEY).applyInArrow(lambda rows: files.write(rows), SUMMARY)
    # A row a file. Only files that lack what they had come to the driver.
    found = summary.agg(
        F.count_if("is_there").alias("files"),
        F.collect_list(F.when(~F.col("is_there"), F.struct(*FILE_KEY))).alias("left"),
    ).collect()[0]
    return found.files, [tuple(file) for file in found.left]


def queue_entries(at: Snapshot, now_ms: int) -> DataFrame:
    """Every entry of the consume queues up to the log's end, with the columns of `consume_queue`.

    What is due at once because its time is too far away is due there when it was stored: a reader of the export
    cannot know which of its rows were a broker's.
    """
    followed, entries = covered(at, CONSUME_QUEUE), followed_rows(at, CONSUME_QUEUE)
    if followed < at.number(COMMITLOG):
        waiting = at.read_after(COMMITLOG, followed)
        entries = entries.unionByName(consume_queue_entries(waiting, at.store.settings.delay_levels_ms))
    if not read_floors(at):
        return entries
    is_far = is_too_far(at, log_time_ms(at, now_ms))
    stored_ms = within_reach(F.col("store_timestamp")).alias("stored_ms")
    far = at.read(COMMITLOG).where(is_far).select("physical_offset", stored_ms)
    due_ms = F.coalesce("stored_ms", "tags_code")
    return (
        entries.join(far, "physical_offset", "left").withColumn("tags_code", due_ms).select(*entries.columns)
    )


def topics_without_files(at: Snapshot, head: LogHead) -> list[str]:
    """Topics that get no queue files: no directory can have the name, or queues are of RocketMQ's other kinds (3.3, 4.6)."""
    batched = {
        name for name, topic in read_topics(at).items() if topic.attributes.get("queue.type") == "BatchCQ"
    }
    topics = {topic for topic, _ in head.next_queue_offsets if topic != LOG_TOPIC}
    return sorted(
        topic
        for topic in topics
        if topic in batched or topic.startswith(LIGHT_PREFIX) or not is_directory_name(topic)
    )


def is_directory_name(topic: str) -> bool:
    """Whether a topic's name is a directory's own, and not a path that leads elsewhere.

    >>> is_directory_name("%RETRY%g"), is_directory_name("../x"), is_directory_name("..")
    (True, False, False)
    """
    return topic not in ("", ".", "..") and not any(character in topic for character in "/\\\0")


def _bounds(at: Snapshot, head: LogHead, units: int) -> DataFrame:
    """A row a queue file: `topic`, `queue_id`, `file`, and the queue's `min_offset` and `next_offset`.

    A queue whose messages have all expired keeps its last file: its name and fillers tell a broker where to go on.
    """

    # Each entry is a record of the log; a damaged one may say any offset, and its queue would get files without end.
    most_entries = (head.next_offset - head.min_offset) // FIXED_BYTES + units

    without_files = set(topics_without_files(at, head))

    def rows() -> Iterator[tuple[str, int, int, int]]:
        for (topic, queue_id), next_offset in head.next_queue_offsets.items():
            if topic == LOG_TOPIC or topic in without_files or next_offset <= 0:
                continue
            min_offset = min(head.min_queue_offsets.get((topic, queue_id), 0), next_offset)
            if next_offset - min_offset > most_entries or next_offset > LONG_MAX // UNIT_BYTES:
                raise BadInput(
                    f"queue {queue_id} of topic {topic} goes from offset {min_offset} to {next_offset}, which is more "
                    "messages than the log has room for: a damaged record was imported. A broker cannot have such a queue; "
                    "export rows with --format jsonl or parquet"
                )
            yield topic, queue_id, min_offset, next_offset

    # A few bytes a queue.
    queues = frame_of(
        at.store.spark, list(rows()), "topic string, queue_id int, min_offset long, next_offset long"
    )
    first = F.least("min_offset", F.col("next_offset") - 1)
    numbers = [F.floor(offset / F.lit(units)).cast("long") for offset in (first, F.col("next_offset") - 1)]
    return queues.withColumn("file", F.explode(F.sequence(*numbers)))
