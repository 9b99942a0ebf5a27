"""A page of a queue, with the status a consumer's pull would get (docs/rocketmq/store.md 6.1)."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.errors import BadInput
from pipelines.reports.answer import Answer
from pipelines.reports.lookup import few_rows, messages_at_offsets, messages_of
from pipelines.reports.queues import Queue, expect_topic, read_queue
from pipelines.rocketmq.settings import CONSUME_QUEUE_UNIT_BYTES
from pipelines.store.holes import lost_in_queue
from pipelines.store.permissions import reading_complaint
from pipelines.store.snapshot import Snapshot
from pipelines.views.read import read_view

DEFAULT_MESSAGES = 32
# RocketMQ's answer where permissions forbid to read: no status of its store, but a code of its response.
NO_PERMISSION, NO_PERMISSION_CODE = "NO_PERMISSION", 16


def pull(at: Snapshot, topic: str, queue_id: int, offset: int, max_messages: int) -> Answer:
    """At most `max_messages` rows of the queue from `offset` on; `pull_status` and `next_offset` as a broker's.

    A broker also ends a page at the end of a queue file and after some bytes; here only `max_messages` limits it. Where
    permissions forbid to read, the status is NO_PERMISSION, with `response_code` and `remark`; where messages of the page
    are lost, `remark` says which and why.
    """
    if max_messages < 1:
        raise BadInput(f"--max is {max_messages}; expected at least 1")
    expect_topic(at, topic)
    nothing = read_view(at, "messages").where(F.lit(False))
    forbidden = reading_complaint(at, topic)
    if forbidden is not None:
        said = {"response_code": NO_PERMISSION_CODE, "remark": forbidden}
        return Answer(nothing, result={"pull_status": NO_PERMISSION, "next_offset": offset, **said})
    queue = read_queue(at, topic, queue_id)
    outside = status_outside(queue, offset)
    if outside is not None:
        status, next_offset = outside
        return _answer(nothing, queue, status, next_offset)
    end = min(offset + max_messages, queue.max_offset)
    units = queue.entries(at, offset, end)
    page, rows = _page(at, units, queue.log_start)
    rows = rows.orderBy("queue_offset")
    if page.last is None:
        units_in_a_file = at.store.settings.queue_file_bytes // CONSUME_QUEUE_UNIT_BYTES
        next_file = offset + units_in_a_file - offset % units_in_a_file
        # An inner batch takes several offsets and has an entry at the first alone: the next entry must not be skipped.
        following = queue.entries(at, end).agg(F.min("queue_offset").alias("first")).first()
        assert following is not None
        next_offset = min(next_file, queue.max_offset) if following["first"] is None else following["first"]
        lost = lost_in_queue(at, topic, queue_id, offset, next_offset)
        return _answer(rows, queue, "OFFSET_FOUND_NULL", next_offset, lost)
    next_offset = page.last + 1
    # An inner batch leaves offsets without an entry too.
    has_gaps = page.found < next_offset - offset
    lost = lost_in_queue(at, topic, queue_id, offset, next_offset) if has_gaps else None
    return _answer(rows, queue, "FOUND" if page.kept else "MESSAGE_WAS_REMOVING", next_offset, lost)


@dataclass(frozen=True)
class _Page:
    """What the queue has in a range: `found` entries, of which the log still has `kept`; `last` is the last one's offset."""

    last: int | None
    found: int
    kept: int


def _page(at: Snapshot, units: DataFrame, log_start: int) -> tuple[_Page, DataFrame]:
    """What there is of these entries of a queue, and the rows of the view messages that they point at."""
    few = few_rows(units)
    if few is not None:
        kept = [unit.physical_offset for unit in few if unit.physical_offset >= log_start]
        last = max((unit.queue_offset for unit in few), default=None)
        return _Page(last, len(few), len(kept)), messages_at_offsets(at, kept)
    is_kept = F.col("physical_offset") >= log_start
    (page,) = units.agg(F.max("queue_offset"), F.count("*"), F.count_if(is_kept)).collect()
    return _Page(*page), messages_of(at, units.where(is_kept))


def status_outside(queue: Queue, offset: int) -> tuple[str, int] | None:
    """Status and next offset for an offset outside the queue's bounds, checked in a broker's order; None inside.

    >>> queue = Queue("t", 0, min_offset=10, max_offset=20, log_start=0, is_up_to_date=True)
    >>> [status_outside(queue, offset) for offset in (9, 10, 20, 21)]
    [('OFFSET_TOO_SMALL', 10), None, ('OFFSET_OVERFLOW_ONE', 20), ('OFFSET_OVERFLOW_BADLY', 20)]
    """
    if queue.max_offset == 0:
        return "NO_MESSAGE_IN_QUEUE", 0
    if offset < queue.min_offset:
        return "OFFSET_TOO_SMALL", queue.min_offset
    if offset == queue.max_offset:
        return "OFFSET_OVERFLOW_ONE", offset
    if offset > queue.max_offset:
        return "OFFSET_OVERFLOW_BADLY", queue.max_offset
    return None


def _answer(
    rows: DataFrame, queue: Queue, status: str, next_offset: int, remark: str | None = None
) -> Answer:
    said: dict[str, Any] = {"pull_status": status, "next_offset": next_offset}
    if remark is not None:
        said["remark"] = remark
    return Answer(rows, complete=queue.is_up_to_date, result=said)
