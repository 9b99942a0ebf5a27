"""The kinds of queries of the job `query`: the options each needs, and the function that answers it."""

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.errors import BadInput
from pipelines.reports.answer import Answer
from pipelines.reports.broker_index import MAX_TIMESTAMP, MOST_MESSAGES, broker_messages_by_key
from pipelines.reports.consumers import consumer_status
from pipelines.reports.copies import election
from pipelines.reports.lineage import copies_of, with_brokers_copies
from pipelines.reports.lookup import (
    message_at,
    message_by_id,
    messages_at_offset,
    messages_by_key,
    messages_by_keys,
    messages_by_unique_key,
    messages_by_unique_keys,
    read_keys,
    rows_with_key,
)
from pipelines.reports.offset_by_time import Boundary, messages_from_time
from pipelines.reports.pull import DEFAULT_MESSAGES, pull
from pipelines.reports.queues import expect_topic, is_up_to_date, was_up_to_date
from pipelines.rocketmq.message_ids import is_message_id
from pipelines.store.holes import lost_at, lost_in_queue
from pipelines.store.snapshot import Snapshot
from pipelines.views.read import read_view


class Kind(StrEnum):
    """The kinds of queries."""

    by_id = "by-id"
    by_key = "by-key"
    by_unique_key = "by-unique-key"
    by_offset = "by-offset"
    by_time = "by-time"
    pull = "pull"
    topic_status = "topic-status"
    consumer_progress = "consumer-progress"
    consumer_status = "consumer-status"
    trace = "trace"
    election = "election"


# Kinds whose rows are not messages.
NOT_MESSAGES = (Kind.topic_status, Kind.consumer_progress, Kind.consumer_status, Kind.election)


class BoundaryOption(StrEnum):
    """Which message next to a time: the first not older or the last not newer."""

    first_not_older = "lower"
    last_not_newer = "upper"


class Question:
    """A query with its options; each is an attribute, None where it was not given."""

    def __init__(self, kind: Kind, **given: Any) -> None:
        self.kind = kind
        self._given = given

    def __getattr__(self, name: str) -> Any:
        return self._given[name]

    def expect_its_own_options(self) -> None:
        """Raises BadInput for an option that this kind of query does not take."""
        _, options = _QUESTIONS[self.kind]
        self._expect_only("limit", *options)

    def answered(self, at: Snapshot) -> Answer:
        """The answer as of a snapshot. Raises BadInput for an option that is missing."""
        answer, _ = _QUESTIONS[self.kind]
        return answer(at, self)

    def need(self, *names: str) -> list[Any]:
        """The values of these options. Raises BadInput for those that are missing."""
        missing = [_flag(name) for name in names if self._given[name] is None]
        if missing:
            raise BadInput(f"query {self.kind} needs {' and '.join(missing)}")
        return [self._given[name] for name in names]

    def expect_alone(self, name: str, *others: str) -> None:
        """Raises BadInput for an option that is given beside the option `name`."""
        beside = [_flag(other) for other in others if self._is_given(other)]
        if beside:
            raise BadInput(f"query {self.kind} takes {_flag(name)} or {beside[0]}, not both")

    def _expect_only(self, *names: str) -> None:
        useless = [_flag(name) for name in self._given if self._is_given(name) and name not in names]
        if useless:
            raise BadInput(f"query {self.kind} does not take {', '.join(useless)}")

    def _is_given(self, name: str) -> bool:
        return self._given[name] is not None and self._given[name] is not False


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _by_id(at: Snapshot, question: Question) -> Answer:
    (message_id,) = question.need("key")
    answer = message_by_id(at, message_id)
    return answer if question.topic is None else Answer(answer.rows.where(F.col("topic") == question.topic))


def _by_key(at: Snapshot, question: Question) -> Answer:
    if question.keys_from is not None:
        (topic,) = question.need("topic")
        question.expect_alone("keys_from", "key", "as_broker", "max")
        return messages_by_keys(at, topic, _keys(at, question), question.begin, question.end)
    topic, key = question.need("topic", "key")
    if not question.as_broker:
        return messages_by_key(at, topic, key, question.begin, question.end)
    begin = 0 if question.begin is None else question.begin
    end = MAX_TIMESTAMP if question.end is None else question.end
    most = _first(question.limit, question.max, MOST_MESSAGES)
    return broker_messages_by_key(at, topic, key, begin, end, most)


def _by_unique_key(at: Snapshot, question: Question) -> Answer:
    if question.keys_from is not None:
        question.expect_alone("keys_from", "key")
        return messages_by_unique_keys(at, _keys(at, question), question.topic)
    (key,) = question.need("key")
    return messages_by_unique_key(at, key, question.topic)


def _keys(at: Snapshot, question: Question) -> DataFrame:
    return read_keys(at.store.spark, question.keys_from)


def _by_offset(at: Snapshot, question: Question) -> Answer:
    (offset,) = question.need("offset")
    if question.topic is None and question.queue_id is None:
        return _or_why_not(Answer(messages_at_offset(at, offset)), lost_at(at, offset))
    topic, queue_id = question.need("topic", "queue_id")
    answer = message_at(at, topic, queue_id, offset)
    return _or_why_not(answer, lost_in_queue(at, topic, queue_id, offset, offset + 1))


def _or_why_not(answer: Answer, lost: str | None) -> Answer:
    """The answer; its `remark` says why a message is not there, where that is known."""
    return answer if lost is None else replace(answer, result={**answer.result, "remark": lost})


def _by_time(at: Snapshot, question: Question) -> Answer:
    topic, queue_id, timestamp = question.need("topic", "queue_id", "timestamp")
    boundary: Boundary = "upper" if question.boundary == BoundaryOption.last_not_newer else "lower"
    return messages_from_time(at, topic, queue_id, timestamp, boundary, question.limit)


def _pull(at: Snapshot, question: Question) -> Answer:
    topic, queue_id, offset = question.need("topic", "queue_id", "offset")
    # The shorter of both: what is not shown is not passed over by `next_offset` either.
    given = [most for most in (question.max, question.limit) if most is not None]
    most = min(given, default=DEFAULT_MESSAGES)
    return pull(at, topic, queue_id, offset, most)


def _of_queues(at: Snapshot, question: Question, view: str) -> tuple[DataFrame, bool]:
    """A view of queues, now or at --as-of, and whether dispatch had followed the whole log."""
    if question.as_of is None:
        return read_view(at, view), is_up_to_date(at)
    return read_view(question.as_of, view), was_up_to_date(question.as_of)


def _of_topic(at: Snapshot, question: Question, rows: DataFrame) -> DataFrame:
    if question.topic is None:
        return rows
    expect_topic(at, question.topic)
    return rows.where(F.col("topic") == question.topic)


def _topic_status(at: Snapshot, question: Question) -> Answer:
    rows, complete = _of_queues(at, question, "topic_status")
    rows = _of_topic(at, question, rows).orderBy("topic", "queue_id")
    if question.queue_id is not None:
        rows = rows.where(F.col("queue_id") == question.queue_id)
    return Answer(rows, complete)


def _consumer_progress(at: Snapshot, question: Question) -> Answer:
    rows, complete = _of_queues(at, question, "consumer_progress")
    rows = _of_topic(at, question, rows).orderBy("group", "topic", "queue_id")
    if question.group is not None:
        rows = rows.where(F.col("group") == question.group)
    return Answer(rows, complete)


def _consumer_status(at: Snapshot, question: Question) -> Answer:
    (group,) = question.need("group")
    return Answer(_of_topic(at, question, consumer_status(at, group)), is_up_to_date(at))


def _trace(at: Snapshot, question: Question) -> Answer:
    (key,) = question.need("key")
    if question.topic is not None:
        expect_topic(at, question.topic)
    if is_message_id(key):
        by_id = message_by_id(at, key).rows
        if not by_id.isEmpty():
            return copies_of(at, with_brokers_copies(at, by_id))
    return copies_of(at, rows_with_key(at, key, question.topic))


def _first(*given: int | None) -> int:
    return next(value for value in given if value is not None)


# The function that answers each kind, and the options it takes besides --limit.
_QUESTIONS: dict[Kind, tuple[Callable[[Snapshot, Question], Answer], tuple[str, ...]]] = {
    Kind.by_id: (_by_id, ("key", "topic")),
    Kind.by_key: (_by_key, ("topic", "key", "keys_from", "begin", "end", "max", "as_broker")),
    Kind.by_unique_key: (_by_unique_key, ("key", "keys_from", "topic")),
    Kind.by_offset: (_by_offset, ("topic", "queue_id", "offset")),
    Kind.by_time: (_by_time, ("topic", "queue_id", "timestamp", "boundary")),
    Kind.pull: (_pull, ("topic", "queue_id", "offset", "max")),
    Kind.topic_status: (_topic_status, ("topic", "queue_id", "as_of")),
    Kind.consumer_progress: (_consumer_progress, ("topic", "group", "as_of")),
    Kind.consumer_status: (_consumer_status, ("topic", "group")),
    Kind.trace: (_trace, ("key", "topic")),
    Kind.election: (lambda at, _: election(at), ()),
}
