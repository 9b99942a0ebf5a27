"""Handing messages to a listener, on the executors (docs/rocketmq/consume-filter-ha.md 2.6 and 2.7).

Concurrently: the tasks that read the log's files hand the rows over, in groups of one queue, ascending; there is no
shuffle, so a hot queue keeps every core busy. Orderly: each queue is read by one task, in order, and stops at its first
failure.

Only counts come back, and a few bytes for each message that failed.
"""

import inspect
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.consume.offsets import Queue
from pipelines.consume.pages import Page
from pipelines.consume.status import ALL, ConsumeContext, ConsumeMessageContext, ConsumeStatus
from pipelines.errors import BadInput, StoreError
from pipelines.log.message import Columns, StoredMessage, message_columns
from pipelines.log.python_code import expect_no_control_c, text_of
from pipelines.rocketmq.settings import INT_MAX, MAX_UNPACKED_BYTES
from pipelines.views.read import as_messages

# A row a batch, with only `handed`: how many messages were handed over; and a row a failed message, with the other columns.
OUTCOMES = (
    "queue int, handed long, source_offset long, segment long, queue_offset long, reconsume_times int, "
    "delay_level int, is_suspended boolean, return_type string, error string"
)
_SCHEMA = pa.schema(
    [
        ("queue", pa.int32()),
        ("handed", pa.int64()),
        ("source_offset", pa.int64()),
        ("segment", pa.int64()),
        ("queue_offset", pa.int64()),
        ("reconsume_times", pa.int32()),
        ("delay_level", pa.int32()),
        ("is_suspended", pa.bool_()),
        ("return_type", pa.string()),
        ("error", pa.string()),
    ]
)
_WHOLE_NUMBERS = ("bigint", "int", "smallint", "tinyint")
# The columns that a listener for DataFrames may return, and their types by Spark's names.
_TYPES_OF_STATUSES = {
    "physical_offset": _WHOLE_NUMBERS,
    "status": ("string",),
    "delay_level": _WHOLE_NUMBERS,
}
# The delay level of a message whose call timed out: that of RocketMQ's sweep of expired messages (2.6).
LEVEL_AFTER_TIMEOUT = 3
# Characters of an exception's text that are kept.
ERROR_CHARS = 300
# How often the timer checks a call within its timeout: a call ends at most a 20th of the timeout, or 1 s, late.
LOOKS_AT_THE_CLOCK = 20


class TimedOut(BaseException):
    """Raised inside a listener at its timeout; a BaseException, so that its `except Exception` does not swallow it."""


@dataclass(frozen=True)
class Listener:
    """A listener and how it is called.

    batch_size       N; 1: it takes a message; more: it takes a list of at most N
    timeout_seconds  how long one call may take
    hook             an object with consume_message_before, consume_message_after or both
    fixed_now_ms     the job's clock where it is fixed; None: the machine's
    max_unpacked_bytes  a compressed body with more raises in the listener that reads it
    """

    call: Callable[..., Any]
    group: str
    batch_size: int = 1
    timeout_seconds: float = 900.0
    hook: Any = None
    max_unpacked_bytes: int = MAX_UNPACKED_BYTES
    fixed_now_ms: int | None = None

    @property
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 if self.fixed_now_ms is None else self.fixed_now_ms

    @property
    def takes_context(self) -> bool:
        """Whether the listener has a second parameter, for the context."""
        try:
            parameters = inspect.signature(self.call).parameters.values()
        except (TypeError, ValueError):
            return False
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        return len(positional) > 1 or any(p.kind == p.VAR_POSITIONAL for p in parameters)


@dataclass(frozen=True)
class Answer:
    """The outcome of one call of a listener: the messages after `ack_index` failed.

    return_type  how the call ended: SUCCESS, TIME_OUT, EXCEPTION, RETURNNULL or FAILED
    """

    ack_index: int
    delay_level: int = 0
    is_suspended: bool = False
    return_type: str = "SUCCESS"
    error: str | None = None


_ALL_SUCCEEDED = Answer(ALL)


def takes_a_dataframe(call: Callable[..., Any]) -> bool:
    """Whether a listener is one for DataFrames, by the annotation of its first parameter."""
    try:
        parameters = list(inspect.signature(call).parameters.values())
    except (TypeError, ValueError):
        return False
    return bool(parameters) and parameters[0].annotation in (DataFrame, "DataFrame", "pyspark.sql.DataFrame")


def handed_over(page: Page, listener: Listener, retry_topic: str) -> DataFrame:
    """The columns of OUTCOMES, from handing a page to a listener concurrently.

    retry_topic  the listener sees rows of it with the topic they failed in
    """
    queues = [part.queue for part in page.parts]

    def hand_over(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with _calling(listener, notes_start=True) as call:
            for batch in batches:
                handed = _HandedBatch(batch, queues, listener, retry_topic)
                # The rows' numbers are put in order, not the rows: bodies stay where they are.
                order = [("queue", "ascending"), ("queue_offset", "ascending")]
                for rows, group in handed.groups(pc.sort_indices(batch, order).to_pylist()):
                    handed.note(rows, group, call(group))
                yield handed.outcomes()

    return _handed_to_python(page).mapInArrow(hand_over, OUTCOMES)


def handed_over_in_order(
    page: Page, listener: Listener, retry_topic: str, tries: Mapping[int, Mapping[int, int]], limit: int
) -> DataFrame:
    """The columns of OUTCOMES, from handing a page to an orderly listener.

    Of a group that fails, messages that have used up their tries are given up: they go to the dead letters. A queue stops
    at the others, which are `is_suspended`; nothing after them is handed over.

    tries  of queues that wait: how often each message that failed has been tried, by its offset
    limit  a message that fails after N earlier tries is given up
    """
    queues = [part.queue for part in page.parts]

    def hand_over(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stopped: set[int] = set()
        with _calling(listener) as call:
            for batch in batches:
                handed = _HandedBatch(batch, queues, listener, retry_topic)
                for rows, group in handed.groups(range(batch.num_rows)):
                    queue = handed.queues[rows[0]]
                    if queue in stopped:
                        continue
                    if queue in tries:
                        group = [
                            message.tried(tries[queue].get(message.queue_offset or 0, 0)) for message in group
                        ]
                    answer = call(group)
                    if answer.ack_index >= len(group) - 1:
                        handed.note(rows, group, answer)
                        continue
                    failed = list(zip(rows, group, strict=True))
                    # A message that has joined the group since has tries of its own left.
                    given_up = [each for each in failed if each[1].reconsume_times >= limit]
                    kept = [each for each in failed if each[1].reconsume_times < limit]
                    for messages, is_suspended in ((given_up, False), (kept, True)):
                        handed.note(
                            [row for row, _ in messages],
                            [message for _, message in messages],
                            replace(answer, ack_index=-1, delay_level=-1, is_suspended=is_suspended),
                        )
                    if kept:
                        stopped.add(queue)
                yield handed.outcomes()

    return (
        _handed_to_python(page)
        .repartition("queue")
        .sortWithinPartitions("queue", "queue_offset")
        .mapInArrow(hand_over, OUTCOMES)
    )


def handed_over_as_dataframe(page: DataFrame, listener: Listener, retry_topic: str) -> pa.Table:
    """The columns of OUTCOMES, from handing a page to a listener for DataFrames, which is called on the driver.

    It gets the columns of the view `messages`, and returns `physical_offset`, `status` (a ConsumeStatus by name) and
    optionally `delay_level`: at most one row a message. A message without a row has failed.

    Raises StoreError when it returns anything else.
    """
    messages = as_messages(page)
    failed_in = F.coalesce(F.col("properties")["RETRY_TOPIC"], F.col("topic"))
    shown = messages.withColumn(
        "topic", F.when(F.col("topic") == retry_topic, failed_in).otherwise(F.col("topic"))
    )
    returned = listener.call(shown)
    if not isinstance(returned, DataFrame) or not {"physical_offset", "status"} <= set(returned.columns):
        found = returned.columns if isinstance(returned, DataFrame) else type(returned).__name__
        raise StoreError(
            f"the listener returned {found}; expected a DataFrame with physical_offset, status and perhaps delay_level"
        )
    found_types = dict(returned.dtypes)
    for name, types in _TYPES_OF_STATUSES.items():
        if name in found_types and found_types[name] not in types:
            raise StoreError(
                f"the listener returned {name} as {found_types[name]}; expected {' or '.join(types)}"
            )
    level = F.col("delay_level") if "delay_level" in returned.columns else F.lit(0)
    # About 40 bytes a message of the page come to the driver: its offsets and its status.
    offset = F.col("physical_offset").cast("long").alias("physical_offset")
    statuses = returned.select(offset, "status", level.try_cast("int").alias("delay_level")).toArrow()
    unknown = set(statuses.column("status").unique().to_pylist()) - {None, *ConsumeStatus.__members__}
    if unknown:
        raise StoreError(
            f"the listener returned the status {sorted(unknown)[0]!r}; expected one of "
            f"{', '.join(ConsumeStatus.__members__)}"
        )
    handed = page.select(
        "queue", F.col("physical_offset").alias("source_offset"), "segment", "queue_offset", "reconsume_times"
    ).toArrow()
    successes = pa.array([status.name for status in ConsumeStatus if status.is_success])
    _expect_one_status_each(statuses)
    is_done = pc.is_in(statuses.column("status"), successes)
    done = statuses.filter(is_done).column("physical_offset")
    failed = handed.filter(pc.invert(pc.is_in(handed.column("source_offset"), done.combine_chunks())))
    levels = statuses.filter(pc.invert(is_done)).rename_columns(["source_offset", "status", "delay_level"])
    failed = failed.join(levels, "source_offset")
    return_types = pc.if_else(failed.column("status").is_valid(), "FAILED", "RETURNNULL")
    failed = failed.append_column("return_type", return_types)
    rows = [pa.nulls(failed.num_rows, field.type) for field in _SCHEMA]
    named = [
        failed.column(field.name).cast(field.type) if field.name in failed.column_names else empty
        for field, empty in zip(_SCHEMA, rows, strict=True)
    ]
    summary = pa.table({"handed": pa.array([handed.num_rows], pa.int64())})
    return pa.concat_tables([summary, pa.table(named, schema=_SCHEMA)], promote_options="default")


def _expect_one_status_each(statuses: pa.Table) -> None:
    """Raises StoreError where a listener returned several rows for a message."""
    counts = statuses.group_by("physical_offset").aggregate([([], "count_all")])
    is_one = pc.or_(pc.equal(counts.column("count_all"), 1), pc.is_null(counts.column("physical_offset")))
    several = counts.filter(pc.invert(is_one)).sort_by("physical_offset")
    if several.num_rows:
        first = several.slice(0, 1).to_pylist()[0]
        others = f", and several for {several.num_rows - 1:,} others" if several.num_rows > 1 else ""
        raise StoreError(
            f"the listener returned {first['count_all']} rows for the message at {first['physical_offset']}{others}; "
            "expected one row a message (does it join on a key that is not unique?). Nothing of this page is recorded: "
            "fix it and run again"
        )


# Columns of a message that are the same for all rows of a part: a page does not hand them to Python.
_OF_A_PART = ("topic", "queue_id", "max_unpacked_bytes")


def _handed_to_python(page: Page) -> DataFrame:
    return page.rows.select("queue", *message_columns()).drop(*_OF_A_PART)


class _HandedBatch(Columns):
    """One batch of a page: its columns, its messages in groups, and their outcomes as rows of OUTCOMES.

    queues  of the page's parts; from them follow the columns _OF_A_PART
    """

    def __init__(
        self, batch: pa.RecordBatch, queues: Sequence[Queue], listener: Listener, retry_topic: str
    ) -> None:
        super().__init__(batch)
        self.queues: list[int] = batch.column("queue").to_pylist()
        limits = [listener.max_unpacked_bytes] * len(queues)
        self._of_part = dict(zip(_OF_A_PART, (*zip(*queues, strict=True), limits), strict=True))
        self._batch_size, self._retry_topic = listener.batch_size, retry_topic
        self._handed = 0
        self._failed: list[tuple[Any, ...]] = []

    def __missing__(self, name: str) -> list[Any]:
        if name not in self._of_part:
            return super().__missing__(name)
        of_part = self._of_part[name]
        values = self[name] = [of_part[queue] for queue in self.queues]
        return values

    def groups(self, rows: Iterable[int]) -> Iterator[tuple[list[int], list[StoredMessage]]]:
        """Groups of neighbouring messages of one queue, at most the listener's batch size, each with their rows.

        They are made one by one: Python's garbage collector would take as long for thousands of messages as making them
        takes.

        rows  numbers of rows of the batch, in the order in which they are handed over
        """
        size, topics = self._batch_size, self._of_part["topic"]
        for queue, of_queue in groupby(rows, key=self.queues.__getitem__):
            is_retry = topics[queue] == self._retry_topic
            make = self._message_of_retry if is_retry else partial(StoredMessage.of, self)
            numbers = list(of_queue)
            for start in range(0, len(numbers), size):
                group = numbers[start : start + size]
                yield group, [make(row) for row in group]

    def _message_of_retry(self, row: int) -> StoredMessage:
        """A retry, with the topic it failed in (2.1)."""
        message = StoredMessage.of(self, row)
        return message.placed(message.properties.get("RETRY_TOPIC", message.topic), message.queue_id or 0)

    def note(self, rows: Sequence[int], group: Sequence[StoredMessage], answer: Answer) -> None:
        self._handed += len(group)
        for position in range(answer.ack_index + 1, len(group)):
            message = group[position]
            self._failed.append(
                (
                    self.queues[rows[position]],
                    None,
                    message.physical_offset,
                    message.segment,
                    message.queue_offset,
                    message.reconsume_times,
                    answer.delay_level,
                    answer.is_suspended,
                    answer.return_type,
                    answer.error,
                )
            )

    def outcomes(self) -> pa.RecordBatch:
        summary = (None, self._handed, *[None] * (len(_SCHEMA) - 2))
        columns = zip(*[summary, *self._failed], strict=True)
        return pa.RecordBatch.from_arrays(
            [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)],
            schema=_SCHEMA,
        )


@contextmanager
def _calling(
    listener: Listener, notes_start: bool = False
) -> Iterator[Callable[[Sequence[StoredMessage]], Answer]]:
    """A function that calls the listener with a group of messages, and the hook before and after, within the timeout.

    notes_start  whether messages say when they were handed over, as those of RocketMQ's concurrent service do (2.6)
    """
    takes_context, takes_list = listener.takes_context, listener.batch_size > 1
    before = getattr(listener.hook, "consume_message_before", None)
    after = getattr(listener.hook, "consume_message_after", None)
    clock = _Clock(listener.timeout_seconds)
    unchanged = ConsumeContext(listener.group, "", 0)

    def call(group: Sequence[StoredMessage]) -> Answer:
        first = group[0]
        context, hook_context = unchanged, None
        if takes_context or listener.hook is not None:
            context = ConsumeContext(listener.group, first.topic, first.queue_id or 0)
        if listener.hook is not None:
            hook_context = ConsumeMessageContext(listener.group, first.topic, context.queue_id, list(group))
            _call_hook(before, hook_context)
        if notes_start:
            now_ms = listener.now_ms
            for message in group:
                message.start_consuming(now_ms)
        status, error, kind = None, None, None
        try:
            with clock:
                messages = list(group) if takes_list else first
                status = listener.call(messages, context) if takes_context else listener.call(messages)
        except TimedOut:
            kind, error = "TIME_OUT", f"took longer than {listener.timeout_seconds:g} s"
        except BaseException as failure:
            expect_no_control_c(failure)
            kind, error = "EXCEPTION", f"{type(failure).__name__}: {text_of(failure)}"[:ERROR_CHARS]
        if status is not None and not isinstance(status, ConsumeStatus):
            raise BadInput(
                f"the listener returned {status!r}; expected ConsumeStatus.CONSUME_SUCCESS, another "
                "ConsumeStatus or None. Nothing of this page is recorded: fix it and run again"
            )
        if takes_context and (wrong := _wrong_in(context)) is not None:
            context = unchanged  # no field of an invalid context counts
            if kind is None:
                status, kind, error = None, "EXCEPTION", wrong
        is_success = status is not None and status.is_success
        kind = kind or ("RETURNNULL" if status is None else "SUCCESS" if is_success else "FAILED")
        if hook_context is not None:
            hook_context.success, hook_context.status = is_success, None if status is None else status.value
            hook_context.return_type = kind
            _call_hook(after, hook_context)
        if is_success and context.ack_index >= len(group) - 1:
            return _ALL_SUCCEEDED
        if kind == "TIME_OUT":
            return Answer(-1, LEVEL_AFTER_TIMEOUT, return_type=kind, error=error)
        ack_index = max(context.ack_index, -1) if is_success else -1
        return Answer(ack_index, context.delay_level_when_next_consume, return_type=kind, error=error)

    try:
        yield call
    finally:
        clock.stop()


def _wrong_in(context: ConsumeContext) -> str | None:
    """The error of a context in which the listener has set anything but a whole number of 32 bits; None for a valid one."""
    for name in ("ack_index", "delay_level_when_next_consume"):
        value = getattr(context, name)
        if type(value) is not int or abs(value) > INT_MAX:
            return f"context.{name} is {text_of(value)[:100]}; expected a whole number"
    return None


def _call_hook(hook: Callable[[ConsumeMessageContext], Any] | None, context: ConsumeMessageContext) -> None:
    """Call a hook; its exceptions are ignored (2.6)."""
    if hook is not None:
        try:
            hook(context)
        except BaseException as failure:
            expect_no_control_c(failure)


class _Clock:
    """Ends a call at its timeout by raising TimedOut in it: a listener that hangs must not hold its queue.

    One periodic timer checks the time: setting a timer for every call would cost as much as the call.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None
        # Only the main thread gets signals, and Spark's workers call functions in it.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGALRM, self._check)
            interval_seconds = min(max(seconds / LOOKS_AT_THE_CLOCK, 0.01), 1.0)
            signal.setitimer(signal.ITIMER_REAL, interval_seconds, interval_seconds)

    def __enter__(self) -> None:
        self._until = time.monotonic() + self._seconds

    def __exit__(self, *_: object) -> None:
        self._until = None

    def stop(self) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _check(self, *_: object) -> None:
        if self._until is not None and time.monotonic() >= self._until:
            self._until = None
            raise TimedOut
