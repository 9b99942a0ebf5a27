"""Pages: the parts of a group's queues that a run reads at once, and the rows of the log that lie in them.

docs/rocketmq/consume-filter-ha.md 6, C1 to C4. A page is defined by offsets, a few bytes a queue. Its rows are looked up in
the consume queue first: so only the parts of the log that hold some are opened, and bodies are read once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.consume.offsets import Queue
from pipelines.consume.subscriptions import Selection
from pipelines.dispatch.entries import has_queue_entry
from pipelines.log.claims import Span, claims_taken, joined_spans, lies_in, spans_of_offsets
from pipelines.reports.answer import cut
from pipelines.retry.send_back import claim_of, claim_prefix
from pipelines.spark_internals.catalyst import number_at, search
from pipelines.store.progress import followed_rows
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG, CONSUME_QUEUE

# Messages of a run's first page. Progress is recorded after each page, so a run after a killed one hands over at most a
# page again.
MESSAGES_OF_A_PAGE = 500_000
# Queue entries of a first page that is filtered by tags. Tags leave most entries out, and the driver gets about 20 bytes
# for each that is selected.
ENTRIES_OF_A_PAGE = 2_000_000
# How long a later page should take: a slow listener gets small pages; with a fast one, recording takes little of the time.
PAGE_SECONDS = 15.0


@dataclass(frozen=True)
class Part:
    """Offsets [from_offset, to_offset) of one queue, read in a generation of the group."""

    queue: Queue
    from_offset: int
    to_offset: int
    generation: int = 0

    @property
    def messages(self) -> int:
        return self.to_offset - self.from_offset


def next_parts(
    starts: Mapping[Queue, int], ends: Mapping[Queue, int], generations: Mapping[Queue, int], messages: int
) -> list[Part]:
    """The next part of each queue: together at most `messages`, shared evenly; what short queues leave goes to longer ones.

    >>> [part.messages for part in next_parts({("T", 0): 5, ("T", 1): 0}, {("T", 0): 7, ("T", 1): 100}, {}, 10)]
    [2, 8]
    """
    waiting = sorted((ends[queue] - start, queue) for queue, start in starts.items() if ends[queue] > start)
    parts = []
    for position, (length, queue) in enumerate(waiting):
        share = min(length, max(messages // (len(waiting) - position), 1 if messages > 0 else 0))
        messages -= share
        if share:
            start = starts[queue]
            parts.append(Part(queue, start, start + share, generations.get(queue, 0)))
    return parts


def size_after(first: int, examined: int, seconds: float) -> int:
    """How many messages the next page takes, after `examined` took `seconds`; from a hundredth to four times of `first`.

    >>> size_after(500_000, 500_000, 3.0), size_after(500_000, 500_000, 150.0), size_after(500_000, 1, 900.0)
    (2000000, 50000, 5000)
    """
    return round(min(max(examined * PAGE_SECONDS / max(seconds, 0.001), first / 100), first * 4))


_ALREADY = pa.schema([("queue", pa.int32()), ("queue_offset", pa.int64())])


@dataclass(frozen=True)
class Page:
    """Rows of the log that are to be handed over.

    parts         the parts of queues that the rows are read from
    rows          the log's columns, `queue` (int, index of the row's part in `parts`) and `generation`
    largest_size  bytes of the largest record among the rows; an upper bound
    already       `queue` and `queue_offset` of other rows that are selected, but were sent back by an earlier run
    """

    parts: Sequence[Part]
    rows: DataFrame
    largest_size: int
    already: pa.Table


def read_page(
    at: Snapshot, parts: Sequence[Part], group: str | None, selection: Selection, home: Snapshot | None = None
) -> Page:
    """The page of some parts: the rows that are selected and that a group has not sent back before.

    So a message that a run sent back before it was killed, its progress unrecorded, is not handed over again.

    group  None: also what was sent back. It is for a broadcasting client, which reads no retries
    home   the store that failures go to, where `at` is another copy: it knows what was sent back
    """
    entries = _in_ranges(followed_rows(at, CONSUME_QUEUE), parts)
    if selection.has_codes:
        columns = ("physical_offset", "size_bytes", "queue")
        selected = entries.where(selection.of_entry()).select(*columns).toArrow().sort_by("physical_offset")
        offsets, queues = (
            selected.column(name).to_numpy().astype(np.int64) for name in ("physical_offset", "queue")
        )
        spans: Sequence[Span] = spans_of_offsets(offsets)
        largest_size = pc.max(selected.column("size_bytes")).as_py() or 0
        place = search(offsets, F.col("physical_offset"))
        within = at.read_in_tasks(COMMITLOG).where(lies_in("physical_offset", spans))
        # Rows look themselves up: to join them to the offsets takes half as long again. Tags are read of those found alone.
        found = within.where(F.when(place >= 0, selection.of_row()))
        rows = found.withColumn("queue", number_at(queues, place).cast("int"))
        rows = rows.withColumn("generation", _generation(parts))
    else:
        offset = F.col("physical_offset")
        extents = entries.groupBy("segment").agg(
            F.min(offset).alias("first"), F.max(offset).alias("last"), F.max("size_bytes").alias("largest")
        )
        by_segment = extents.collect()  # a row a segment
        spans = joined_spans([(row["first"], row["last"]) for row in by_segment])
        largest_size = max((row["largest"] for row in by_segment), default=0)
        rows = _in_ranges(
            at.read_in_tasks(COMMITLOG).where(lies_in("physical_offset", spans) & has_queue_entry()), parts
        ).where(selection.of_row())
    if group is None or not (taken := _sent_back(home or at, group, spans)).num_rows:
        return Page(parts, rows, largest_size, pa.Table.from_batches([], _ALREADY))
    claim = claim_of(group, F.col("generation"))
    mine = F.broadcast(at.store.spark.createDataFrame(taken))
    is_taken = (F.col("physical_offset") == mine["taken_offset"]) & (claim == mine["taken_claim"])
    # 12 bytes a message come to the driver, which has its claim already.
    already = rows.join(mine, is_taken, "left_semi").select(*_ALREADY.names).toArrow()
    return Page(parts, rows.join(mine, is_taken, "left_anti"), largest_size, already)


def cut_to(page: Page, messages: int | None, size_bytes: int | None) -> tuple[Sequence[Part], int]:
    """The page's parts, cut to at most `messages` and `size_bytes` (but to one message at least), and the bytes in them.

    All queues are cut at about the same distance from their start. None: no limit.
    """
    starts = F.array(*[F.lit(part.from_offset) for part in page.parts])
    distance = F.col("queue_offset") - F.get(starts, F.col("queue"))
    # 16 bytes a message of the page come to the driver, of at most `messages` and one more.
    slim = page.rows.select(distance.alias("distance"), "queue", "size_bytes").orderBy("distance", "queue")
    first = cut(slim, messages).toArrow()
    bytes_up_to = np.cumsum(first.column("size_bytes").to_numpy().astype(np.int64))
    kept = first.num_rows if messages is None else min(messages, first.num_rows)
    if size_bytes is not None:
        kept = min(kept, max(1, int(np.searchsorted(bytes_up_to, size_bytes, "right"))))
    left = int(bytes_up_to[kept - 1]) if kept else 0
    if kept == first.num_rows:
        return page.parts, left
    # The first message that is left out.
    from_start, queue = first.column("distance")[kept].as_py(), first.column("queue")[kept].as_py()
    parts = [
        replace(part, to_offset=min(part.to_offset, part.from_offset + from_start + (index < queue)))
        for index, part in enumerate(page.parts)
    ]
    return parts, left


def _sent_back(at: Snapshot, group: str, spans: Sequence[Span]) -> pa.Table:
    """`taken_offset` and `taken_claim` of the rows in `spans` that the group has sent back."""
    is_the_groups = F.col("claim").startswith(claim_prefix(group))
    claims = claims_taken(at).where(lies_in("source_offset", spans) & is_the_groups)
    return claims.select(
        F.col("source_offset").alias("taken_offset"), F.col("claim").alias("taken_claim")
    ).toArrow()


def _in_ranges(rows: DataFrame, parts: Sequence[Part]) -> DataFrame:
    """Rows of the log or of the consume queue that lie in the parts, with `queue` and `generation`."""
    offset = F.col("queue_offset")
    topics = sorted({part.queue[0] for part in parts})
    queues = []
    for topic in topics:
        indexes = {part.queue[1]: index for index, part in enumerate(parts) if part.queue[0] == topic}
        by_queue_id = _looked_up([indexes.get(queue_id) for queue_id in range(max(indexes) + 1)], "queue_id")
        queues.append(by_queue_id.cast("int"))
    queue = queues[0]  # `somewhere` leaves no row of another topic
    for topic, of_topic in zip(topics[1:], queues[1:], strict=True):
        queue = F.when(F.col("topic") == topic, of_topic).otherwise(queue)
    # A condition on plain columns, by which Delta skips files and Parquet skips pages.
    somewhere = (
        F.col("topic").isin(*topics)
        & (offset >= min(part.from_offset for part in parts))
        & (offset < max(part.to_offset for part in parts))
    )
    inside = (offset >= _looked_up([part.from_offset for part in parts], "queue")) & (
        offset < _looked_up([part.to_offset for part in parts], "queue")
    )
    return (
        rows.where(somewhere)
        .withColumn("queue", queue)
        .where(inside)
        .withColumn("generation", _generation(parts))
    )


def _generation(parts: Sequence[Part]) -> Column:
    return _looked_up([part.generation for part in parts], "queue")


def _looked_up(values: Sequence[int | None], column: str) -> Column:
    """The value (long) at the index that a column holds. One literal: a join would cost more than reading the rows."""
    listed = ", ".join("null" if value is None else f"{value}L" for value in values)
    return F.get(F.expr(f"array({listed})"), F.col(column))
