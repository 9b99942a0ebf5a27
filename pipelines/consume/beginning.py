"""Where a group begins a queue that it has no offset of (docs/rocketmq/consume-filter-ha.md 2.2).

`last` and the retries of `timestamp` begin at a queue's end in the group's first run alone. A queue that was made after that
is read from its first message, as a broker has it, and so are retries of messages that failed in an earlier run.

A group whose offsets are lost, or whose failures were sent back before it has read, begins its retries by time too: their
sources are not handed over again.
"""

from collections.abc import Mapping, Sequence

from pipelines.consume.offsets import Offset, Queue, claimed_generation
from pipelines.consume.options import From, Options, ReadFrom
from pipelines.consume.shares import queues_of, retries_of
from pipelines.consume.subscriptions import Selection
from pipelines.reports.offset_by_time import offset_by_time
from pipelines.reports.queues import Queue as Bounds
from pipelines.store.snapshot import Snapshot
from schemas import CLAIMS, COMMITLOG, PROGRESS


def first_offset(
    at: Snapshot, options: Options, selection: Selection, bounds: Bounds, known: Mapping[Queue, Offset]
) -> int:
    """The offset at which a run begins a queue whose recorded offset it lacks, or leaves aside.

    known  the offsets that are recorded of the group
    """
    is_retry = bounds.topic == selection.retry_topic
    is_memory = options.read_from == ReadFrom.memory
    if options.from_ == From.timestamp:
        if is_retry and known and not is_memory:
            return 0
        if is_retry and not is_memory and not _has_sent_back(at, options.group):
            return bounds.max_offset
        assert options.timestamp is not None, "expected by expect_sense"
        return offset_by_time(at, bounds, options.timestamp, "lower")
    is_first = is_memory or not _has_read(bounds.topic, known)
    return bounds.max_offset if options.from_ == From.last and is_first and not is_retry else 0


def begun_together(
    at: Snapshot, options: Options, selection: Selection, known: Mapping[Queue, Offset]
) -> Sequence[Queue]:
    """The queues that the group's first run begins all at once, also those that other clients read; else none."""
    topic = selection.subscription.topic
    if options.from_ == From.last and not _has_read(topic, known):
        return queues_of(at, topic)
    if options.from_ == From.timestamp and not known and not options.is_broadcasting:
        return retries_of(at, selection.retry_topic)
    return ()


def only_looks_at(options: Options, queue: Queue, known: Mapping[Queue, Offset]) -> bool:
    """Whether where a run begins a queue without an offset says nothing about where the group does: from memory."""
    return options.read_from == ReadFrom.memory and _has_read(queue[0], known)


def _has_sent_back(at: Snapshot, group: str) -> bool:
    tables = (
        PROGRESS,
        CLAIMS,
        COMMITLOG,
    )  # in this order: a follower may be older than the log, and is never newer
    return at.cached(f"claimed by {group}", tables, lambda: claimed_generation(at, group)) is not None


def _has_read(topic: str, known: Mapping[Queue, Offset]) -> bool:
    return any(name == topic for name, _ in known)
