"""How one client of a consumer group reads its queues, page by page."""

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.consume.beginning import begun_together, first_offset, only_looks_at
from pipelines.consume.class_pages import FilteredPage, filtered_by_class
from pipelines.consume.failures import plan_failures
from pipelines.consume.held_queues import HeldQueues
from pipelines.consume.known_cuts import KnownCuts
from pipelines.consume.listening import (
    Listener,
    handed_over,
    handed_over_as_dataframe,
    handed_over_in_order,
    takes_a_dataframe,
)
from pipelines.consume.offset_files import read_offsets as read_offsets_file
from pipelines.consume.offset_files import write_offsets as write_offsets_file
from pipelines.consume.offsets import (
    Offset,
    Queue,
    Reached,
    Waits,
    plan_commit,
    plan_in_flight,
    read_in_flight,
    read_offsets,
)
from pipelines.consume.options import From, Options, ReadFrom
from pipelines.consume.pages import (
    ENTRIES_OF_A_PAGE,
    MESSAGES_OF_A_PAGE,
    Page,
    Part,
    cut_to,
    next_parts,
    read_page,
    size_after,
)
from pipelines.consume.queue_locks import CLOCKS_APART_MS
from pipelines.consume.subscriptions import Selection
from pipelines.errors import BadInput, in_words
from pipelines.filter.class_filters import ClassFilter
from pipelines.log.append_ids import TRACE_PREFIX
from pipelines.produce.trace import traces_of_consumption
from pipelines.reports.copies import expect_follows
from pipelines.reports.queues import Queue as Bounds
from pipelines.reports.queues import read_queues
from pipelines.retry.send_back import SENT_BACK_COUNTS, plan_group_topics, warn_of_given_up
from pipelines.spark_internals.arrow import unweighed
from pipelines.store.commit import Committed
from pipelines.store.commit_in_parts import commit_in_parts
from pipelines.store.floors import read_floors
from pipelines.store.groups import SubscriptionGroupConfig
from pipelines.store.head import read_head
from pipelines.store.holes import lost_in_queue
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from pipelines.store.work import Work
from pipelines.views.read import as_messages
from schemas import CONSUMER_OFFSETS

# How long an orderly queue waits before it hands over a failed message again.
SUSPEND_MS = 1_000
# How many different errors the result of a run names, the most frequent first.
ERRORS_TOLD = 20
# What a message takes on its way to the listener in addition to its record: numbers, and hosts as text.
BESIDE_THE_RECORD_BYTES = 256
_POSITION = ("queue", "queue_offset")


@dataclasses.dataclass
class Counts:
    """How many messages of a run had which outcome, and its errors, by how often each occurred."""

    handed: int = 0
    bytes: int = 0  # of the records handed over; counted only in a run with a limit
    failed: int = 0
    sent_back: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    filtered: int = 0
    unfiltered: int = 0  # a class filter raised
    errors: dict[str, int] = dataclasses.field(default_factory=dict)

    def note(self, error: str, times: int = 1) -> None:
        self.errors[error] = self.errors.get(error, 0) + times

    def result(self) -> dict[str, Any]:
        return {
            "consumed": self.handed - self.failed,
            "failed": self.failed + self.unfiltered,
            "sent_back": self.sent_back,
            "dead_lettered": self.dead_lettered,
            "dropped": self.dropped,
            "filtered": self.filtered,
            "errors": self.most_errors(),
        }

    def most_errors(self) -> dict[str, int]:
        """The most frequent errors, and how often each occurred."""
        by_times = sorted(self.errors.items(), key=lambda error: -error[1])
        return dict(by_times[:ERRORS_TOLD])


@dataclasses.dataclass(frozen=True)
class Standing:
    """How far a client has read its queues, and how far it can read them now.

    at         the snapshot that this was read from
    source     a snapshot of the copy that messages are read from, as old or newer
    positions  the next offset to read of each queue
    ends       the offset after the last that can be read now; the position, where an orderly queue waits at a message
    known      the recorded offsets, of queues that have one
    in_flight  the messages that orderly queues wait at
    """

    at: Snapshot
    source: Snapshot
    positions: dict[Queue, int]
    ends: dict[Queue, int]
    known: Mapping[Queue, Offset]
    in_flight: Mapping[Queue, Waits]

    @property
    def waiting(self) -> list[Queue]:
        """Queues with messages to read."""
        return [queue for queue, position in self.positions.items() if position < self.ends[queue]]

    def generation(self, queue: Queue) -> int:
        """How often the queue has been reset."""
        return self.known[queue].generation if queue in self.known else 0


@dataclasses.dataclass
class Reader:
    """One client that reads its queues of one subscription, page by page.

    client_id   of the offsets: '' for those of the whole group
    began       when the run began, by time.monotonic()
    put_traces  puts trace messages once under a batch id
    source      the copy of the store that messages are read from; the run's store has the offsets
    held        the locks of the run; None where no locks are needed
    begun       offsets to record with the next commit: of queues without one, set back, or expired
    recorded    the recorded offset of each queue as this run knows it; of a queue without one, where the run begins it
    set_back    queues whose recorded offset lay beyond their end
    known_cuts  the cuts from before the log was read
    """

    run: Work
    options: Options
    group: SubscriptionGroupConfig
    listener: Listener
    selection: Selection
    class_filter: ClassFilter | None
    client_id: str
    queues: Sequence[Queue]
    counts: Counts
    began: float
    put_traces: Callable[[DataFrame, str], None]
    source: Store
    held: HeldQueues | None = None
    begun: dict[Queue, Reached] = dataclasses.field(default_factory=dict)
    recorded: dict[Queue, int] = dataclasses.field(default_factory=dict)
    set_back: set[Queue] = dataclasses.field(default_factory=set)
    known_cuts: KnownCuts | None = None

    def stand(self, at: Snapshot) -> Standing:
        """How far the queues have been read, and where they end, as of a snapshot."""
        bounds = read_queues(at, self.queues)
        known = self._known(at)
        positions, ends = {}, {queue: each.max_offset for queue, each in bounds.items()}
        for queue, each in bounds.items():
            offset = None if self.options.read_from == ReadFrom.memory else known.get(queue)
            start = (
                first_offset(at, self.options, self.selection, each, known)
                if offset is None
                else self._at_most_end(at, queue, offset)
            )
            positions[queue] = max(start, each.min_offset)
        source = at
        if self.source.uri != at.store.uri:
            source = self.source.snapshot()
            ends = self._ends_at(source, positions, bounds)
            # Read after the queues: a copy that is promoted while the run lasts gets messages of its own after that.
            expect_follows(self.source.snapshot(), at.store.uri)
        in_flight = read_in_flight(at, self.options.group) if self.options.orderly else {}
        for queue, ((_, _, due_ms), *_) in in_flight.items():
            # A due time further ahead was written by a wrong clock, and no queue waits for it.
            if queue in positions and 0 < due_ms - self.run.now_ms <= SUSPEND_MS + CLOCKS_APART_MS:
                ends[queue] = positions[queue]  # the message it waits at is not due yet
        return Standing(at, source, positions, ends, known, in_flight)

    def _ends_at(
        self, source: Snapshot, positions: Mapping[Queue, int], bounds: Mapping[Queue, Bounds]
    ) -> dict[Queue, int]:
        """Where queues end in another copy, at most where they end in the store itself.

        Raises BadInput where the copy lacks messages that are to be read: it began its log later.
        """
        ends = {}
        for queue, there in read_queues(source, self.queues).items():
            ends[queue] = min(there.max_offset, bounds[queue].max_offset)
            if positions[queue] < min(there.min_offset, bounds[queue].max_offset):
                topic, queue_id = queue
                raise BadInput(
                    f"the copy at {source.store.uri} begins queue {queue_id} of {topic} at {there.min_offset}, and group "
                    f"{self.options.group} reads on at {positions[queue]}: read from the master (--replica master)"
                )
        return ends

    def read(self, held: HeldQueues | None = None) -> None:
        """Hand over what the queues hold now, send back what failed, and record how far the queues have been read.

        held  the locks of this run; None: its queues need none
        """
        self.held = held
        if self.options.from_ != From.first:
            self._begin_together(self.run.store.snapshot())
        at = self.run.store.snapshot()
        if self.options.offsets_file is None:
            at.preload(CONSUMER_OFFSETS)
        self.known_cuts = KnownCuts.before(at)
        here = self.stand(at)
        mine = [queue for queue in here.positions if held is None or queue not in held.left]
        self.recorded = {
            queue: here.known[queue].next_offset if queue in here.known else here.positions[queue]
            for queue in mine
        }
        self._report_moved(here, mine)
        self._report_holes(here, mine)
        # Recorded even if nothing is read: a group that begins at the end begins there once (2.2).
        self.begun = {
            queue: self._reached(queue, here.positions[queue], here.generation(queue), is_alone=True)
            for queue in mine
            if (queue not in here.known and not only_looks_at(self.options, queue, here.known))
            or queue in self.set_back
            or here.positions[queue] > self.recorded[queue]
        }
        # Recorded at once, unless it is the first offset: after a run that is killed the end may be another offset.
        if self.options.from_ != From.first:
            self._record_begun()
        read = mine if held is None else [queue for queue in mine if held.holds(queue)]
        self._read_pages(here, {queue: here.positions[queue] for queue in read})
        self._record_begun()

    def _begin_together(self, at: Snapshot) -> None:
        """Record in one commit where a group begins that has read nothing yet, all queues of a kind together.

        Also those that other clients or later subscriptions read: a queue without an offset is a new one afterwards.
        """
        self.known_cuts = KnownCuts.before(at)
        known = self._known(at)
        queues = begun_together(at, self.options, self.selection, known)
        begun = []
        for queue, each in read_queues(at, queues).items() if queues else ():
            first = max(first_offset(at, self.options, self.selection, each, known), each.min_offset)
            begun.append(Reached(queue, first, was=first, is_alone=True))
        if begun:
            self.record(begun)

    def _report_moved(self, here: Standing, mine: Sequence[Queue]) -> None:
        """Warn of recorded offsets outside the bounds of their queue, from which the group cannot read on."""
        for queue in mine:
            known = here.known.get(queue)
            if known is None or self.options.read_from == ReadFrom.memory:
                continue
            position, (topic, queue_id) = here.positions[queue], queue
            where = (
                f"group {self.options.group} is at offset {known.next_offset} of queue {queue_id} of {topic}"
            )
            if position < known.next_offset:
                self.set_back.add(queue)
                self.run.warn(f"{where}, which ends at {position}; it goes on from there")
            elif position > known.next_offset:
                expired = position - known.next_offset
                self.run.warn(
                    f"{where}, which begins at {position}: {expired:,} messages are gone that it has not read"
                )

    def _report_holes(self, here: Standing, mine: Sequence[Queue]) -> None:
        """Warn of messages that the log has lost among those that are read now: the group goes on after them."""
        for queue in mine:
            if here.positions[queue] < here.ends[queue]:
                lost = lost_in_queue(here.at, *queue, here.positions[queue], here.ends[queue])
                if lost is not None:
                    self.run.warn(lost)

    def _at_most_end(self, at: Snapshot, queue: Queue, known: Offset) -> int:
        """The offset at which a queue is read on: the recorded one, at most its end (docs/rocketmq/store.md 6.1).

        The end is that of the log, which may be further on than dispatch. While an import that brought the offset is still
        bringing the messages, the recorded offset stays.
        """
        head = read_head(at)
        end = head.next_of(*queue)
        is_beyond = known.next_offset > end and read_floors(at).get("dispatch", 0) <= head.next_offset
        return end if is_beyond else known.next_offset

    def _reached(self, queue: Queue, next_offset: int, generation: int, is_alone: bool) -> Reached:
        goes_back = self.options.orderly or queue in self.set_back
        return Reached(queue, next_offset, generation, self.recorded[queue], is_alone, goes_back)

    def _record_begun(self) -> None:
        if self.begun:
            self.record(())

    def _read_pages(self, here: Standing, positions: dict[Queue, int]) -> None:
        """Read page after page from `positions` to the ends of the queues, within the limits of the run."""
        ends = here.ends
        generations = {queue: offset.generation for queue, offset in here.known.items()}
        # Each broadcasting client gets every message: a group that also reads in clustering may have sent some back.
        sends_back = None if self.options.is_broadcasting else self.options.group
        first = size = ENTRIES_OF_A_PAGE if self.selection.has_codes else MESSAGES_OF_A_PAGE
        while not self._is_out_of_time:
            left, left_bytes = self._left
            if left == 0 or (left_bytes is not None and left_bytes <= 0):
                return
            if left is not None and self.selection.is_all:
                size = min(left, size)  # with a filter, how many must be read for `left` is not known
            lost = [queue for queue in positions if not self._is_still_mine(queue)]
            self._report_lost(lost)
            positions = {queue: start for queue, start in positions.items() if queue not in lost}
            parts = next_parts(positions, ends, generations, size)
            if not parts:
                return
            began = time.monotonic()
            page = read_page(here.source, parts, sends_back, self.selection, here.at)
            if left is not None or left_bytes is not None:
                cut, size_bytes = cut_to(page, left, left_bytes)
                self.counts.bytes += size_bytes
                if cut != parts:
                    page = read_page(here.source, cut, sends_back, self.selection, here.at)
            reached, stopped = self._hand_over(self._filtered(page), here.in_flight)
            for queue in stopped:
                ends[queue] = reached[queue]
            positions |= reached
            size = size_after(first, sum(part.messages for part in parts), time.monotonic() - began)

    def _is_still_mine(self, queue: Queue) -> bool:
        return self.held is None or self.held.holds(queue)

    @property
    def _is_out_of_time(self) -> bool:
        limit = self.options.max_seconds
        return limit is not None and time.monotonic() - self.began >= limit

    @property
    def _left(self) -> tuple[int | None, int | None]:
        """Messages and bytes that may still be handed over; None without a limit."""
        messages, size_bytes = self.options.max_messages, self.options.max_bytes
        return (
            None if messages is None else messages - self.counts.handed,
            None if size_bytes is None else size_bytes - self.counts.bytes,
        )

    def _filtered(self, page: Page) -> FilteredPage:
        """The messages of the page that the class filter lets through; all without one."""
        if self.class_filter is None:
            return FilteredPage(page)
        return filtered_by_class(
            page,
            self.class_filter,
            self.options.group,
            self.selection.retry_topic,
            self.run.store.settings["maxUnpackedBytes"],
        )

    def _hand_over(
        self, filtered: FilteredPage, waiting: Mapping[Queue, Waits]
    ) -> tuple[dict[Queue, int], list[Queue]]:
        """Hand a page over, send back what failed and record the offsets.

        Returns the next offset of each queue, and the queues that this run reads no further.
        """
        page, parts = filtered.page, filtered.page.parts
        for error in filtered.errors:
            self.counts.unfiltered += 1
            self.counts.note(f"class filter: {error}")
        began = time.monotonic()
        outcomes = self._call_listener(page, waiting)
        took_ms = (time.monotonic() - began) * 1_000
        failed = outcomes.filter(outcomes.column("source_offset").is_valid())
        is_suspended = pc.fill_null(failed.column("is_suspended"), False)
        suspended, given_back = failed.filter(is_suspended), failed.filter(pc.invert(is_suspended))
        for error in failed.column("error").drop_null().value_counts().to_pylist():
            self.counts.note(error["values"], error["counts"])
        reached = {part.queue: part.to_offset for part in parts}
        for row in suspended.group_by("queue").aggregate([("queue_offset", "min")]).to_pylist():
            reached[parts[row["queue"]].queue] = row["queue_offset_min"]
        suspending = [parts[index].queue for index in suspended.column("queue").unique().to_pylist()]
        handed = pc.sum(outcomes.column("handed")).as_py() or 0
        # Messages that lie where their queue waits, or after it, are examined again: they are counted then.
        examined = sum(reached[part.queue] - part.from_offset for part in parts)
        next_offsets = pa.array([reached[part.queue] for part in parts], pa.int64())
        handed_before = handed - _lie_from(failed, next_offsets)
        already_before = page.already.num_rows - _lie_from(page.already, next_offsets)
        self.counts.handed += handed
        self.counts.failed += failed.num_rows
        self.counts.filtered += examined - handed_before - already_before
        if self.options.trace and handed:
            self._trace(page, failed, reached, round(took_ms / handed))
        if given_back.num_rows and not self.options.is_broadcasting:
            self.send_back(given_back, parts)
        is_alone = self.held is not None
        come = [
            self._reached(part.queue, reached[part.queue], part.generation, is_alone)
            for part in parts
            if self._is_still_mine(part.queue)
        ]
        if self.options.orderly:
            self._record_waiting(parts, suspended, waiting, come)
        lost = {part.queue for part in parts} - self.record(come)
        self._report_lost(lost)
        return reached, [*suspending, *lost, *(part.queue for part in filtered.stopped)]

    def _report_lost(self, queues: Collection[Queue]) -> None:
        for topic, queue_id in sorted(queues):
            self.run.say(
                f"queue {queue_id} of {topic} was reset while it was read, or its lock ended; what has been read of it "
                "since is not recorded"
            )

    def _call_listener(self, page: Page, waiting: Mapping[Queue, Waits]) -> pa.Table:
        """The outcomes of a page: the columns of OUTCOMES."""
        retry_topic = self.selection.retry_topic
        if takes_a_dataframe(self.listener.call):
            return handed_over_as_dataframe(page.rows, self.listener, retry_topic)
        if self.options.orderly:
            tries = {
                index: {offset: tries for offset, tries, _ in waiting[part.queue]}
                for index, part in enumerate(page.parts)
                if part.queue in waiting
            }
            limit = self.group.retry_max_times
            outcomes = handed_over_in_order(page, self.listener, retry_topic, tries, limit)
        else:
            outcomes = handed_over(page, self.listener, retry_topic)
        with unweighed(self.run.spark, page.largest_size + BESIDE_THE_RECORD_BYTES):
            return outcomes.toArrow()

    def _trace(self, page: Page, failed: pa.Table, reached: Mapping[Queue, int], cost_time_ms: int) -> None:
        """Put a trace message for each message of a page that was handed over."""
        # The count of messages names the page: it grows with each page of the run, of any client and subscription.
        call = f"{self.run.run_id}:{self.counts.handed}"
        failures = pa.table(
            {"physical_offset": failed.column("source_offset"), "return_type": failed.column("return_type")}
        )
        returned = F.broadcast(self.run.spark.createDataFrame(failures))
        ends = F.array(*[F.lit(reached[part.queue]) for part in page.parts])
        # Messages after one that their queue waits at were not handed over.
        is_handed = (F.col("queue_offset") < F.get(ends, F.col("queue"))) | F.col("return_type").isNotNull()
        handed = page.rows.join(returned, "physical_offset", "left").where(is_handed)
        messages = as_messages(handed).join(returned, "physical_offset", "left")
        traces = traces_of_consumption(messages, self.options.group, call, self.run.now_ms, cost_time_ms)
        try:
            self.put_traces(traces, f"{TRACE_PREFIX}{call}")
        except Exception as failure:
            if self.run.is_interruption(failure):
                raise
            # Only a warning: if the page failed for this, it would be handed over again and again.
            self.run.warn(f"what was handed over is not traced: {in_words(failure)}")

    def send_back(self, failed: pa.Table, parts: Sequence[Part]) -> None:
        """Commit the copies of failed messages, and make the group's retry and dead letter topics before."""
        if self.group.retry_queue_nums > 0:
            self.run.commit(lambda at: plan_group_topics(at, self.group))
        result = commit_in_parts(
            self.run.commit,
            lambda at, after: plan_failures(
                at, failed, parts, self.group, self.run.now_ms, self.run.run_id, after
            ),
            SENT_BACK_COUNTS,
            after_each=partial(warn_of_given_up, self.run, self.options.group),
        )
        self.counts.sent_back += result["sent_back"]
        self.counts.dead_lettered += result["dead_lettered"]
        self.counts.dropped += result["dropped"]

    def _record_waiting(
        self,
        parts: Sequence[Part],
        suspended: pa.Table,
        waiting: Mapping[Queue, Waits],
        come: Sequence[Reached],
    ) -> None:
        """Record the messages that queues wait at from now on, and remove those they wait at no more."""
        due_ms = self.run.now_ms + SUSPEND_MS
        offsets: dict[Queue, list[int]] = {part.queue: [] for part in parts}
        for index, offset in zip(*(suspended.column(name).to_pylist() for name in _POSITION), strict=True):
            offsets[parts[index].queue].append(offset)
        changes: dict[Queue, Waits] = {}
        for queue in (each.queue for each in come):
            tries = {offset: tried for offset, tried, _ in waiting.get(queue, ())}
            changes[queue] = tuple(
                (offset, tries.get(offset, 0) + 1, due_ms) for offset in sorted(offsets[queue])
            )
        self._commit_unless_cut(lambda at: plan_in_flight(at, self.options.group, changes, come))

    def record(self, reached: Sequence[Reached]) -> set[Queue]:
        """Record how far some queues have been read, and the offsets of `begun`; returns the queues that were recorded."""
        reached = list((self.begun | {each.queue: each for each in reached}).values())
        self.begun = {}
        if self.options.offsets_file is not None:
            self._expect_not_cut(self.run.store.snapshot())
            broker = self.run.store.settings["brokerName"]
            write_offsets_file(
                self.options.offsets_file,
                {(each.queue[0], broker, each.queue[1]): each.next_offset for each in reached},
            )
            return {each.queue for each in reached}
        recorded: dict[Queue, int] = self._commit_unless_cut(
            lambda at: plan_commit(at, self.options.group, self.client_id, reached, self.run.now_ms)
        ).result["recorded"]
        self.recorded |= recorded
        return set(recorded)

    def _commit_unless_cut(self, planner: Callable[[Snapshot], Plan]) -> Committed:
        """Commit what is known of messages that were read. Raises StoreError where the log was cut since it was read."""

        def plan(at: Snapshot) -> Plan:
            self._expect_not_cut(at)
            return planner(at)

        return self.run.commit(plan)

    def _expect_not_cut(self, now: Snapshot) -> None:
        if self.known_cuts is not None:  # None: nothing has been read yet
            self.known_cuts.expect_no_other(now, self.options.group)

    def _known(self, at: Snapshot) -> dict[Queue, Offset]:
        """The recorded offsets: those of the offsets file if there is one, else the store's."""
        if self.options.offsets_file is None:
            return read_offsets(at, self.options.group, self.client_id)
        broker = self.run.store.settings["brokerName"]
        return {
            (topic, queue_id): Offset(offset)
            for (topic, name, queue_id), offset in read_offsets_file(self.options.offsets_file).items()
            if name == broker
        }


def _lie_from(messages: pa.Table, next_offsets: pa.Array) -> int:
    """How many of some messages lie at the next offset of their queue or after it.

    messages      `queue` (index in next_offsets), `queue_offset`
    """
    index, offset = (messages.column(name) for name in _POSITION)
    limit = next_offsets.take(index.combine_chunks())
    return pc.sum(pc.greater_equal(offset, limit)).as_py() or 0
