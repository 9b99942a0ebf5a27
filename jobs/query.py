"""Ask about messages, queues and groups: by id, key, place or time; pages, status, progress, copies."""

from enum import StrEnum
from typing import Annotated, Any

import typer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.launch.job import job, main
from jobs.launch.output import Output, readable_messages, show
from jobs.launch.run import Run
from pipelines.errors import BadInput
from pipelines.reports.answer import Answer, cut
from pipelines.reports.broker_index import MAX_TIMESTAMP, MOST_MESSAGES, broker_messages_by_key
from pipelines.reports.consumers import consumer_status
from pipelines.reports.lineage import copies_of
from pipelines.reports.lookup import (
    is_message_id,
    message_at,
    message_by_id,
    messages_at_offset,
    messages_by_key,
    messages_by_unique_key,
    rows_with_key,
)
from pipelines.reports.offset_by_time import Boundary, messages_from_time
from pipelines.reports.pull import DEFAULT_MESSAGES, pull
from pipelines.reports.queues import expect_topic, is_up_to_date, was_up_to_date
from pipelines.store.past import PastTables, epoch_ms
from pipelines.store.snapshot import Snapshot
from pipelines.store.views import read_view


class Kind(StrEnum):
    """What is asked."""

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


ABOUT_QUEUES = (Kind.topic_status, Kind.consumer_progress, Kind.consumer_status)


class BoundaryOption(StrEnum):
    """Which neighbour of a time is meant."""

    first_not_older = "lower"
    last_not_newer = "upper"


class Asked:
    """The options of a question; a missing one is named in a sentence when it is needed."""

    def __init__(self, kind: Kind, **given: Any) -> None:
        self.kind = kind
        self._given = given

    def __getattr__(self, name: str) -> Any:
        return self._given[name]

    def need(self, *names: str) -> list[Any]:
        missing = [f"--{name.replace('_', '-')}" for name in names if self._given[name] is None]
        if missing:
            raise BadInput(f"query {self.kind} needs {' and '.join(missing)}")
        return [self._given[name] for name in names]

    def expect_only(self, *names: str) -> None:
        given = (name for name, value in self._given.items() if value is not None and value is not False)
        useless = [f"--{name.replace('_', '-')}" for name in given if name not in names]
        if useless:
            raise BadInput(f"query {self.kind} does not take {', '.join(useless)}")


@job
def query(
    run: Run,
    kind: Annotated[Kind, typer.Argument(help="What is asked.", show_default=False)],
    value: Annotated[
        str | None,
        typer.Argument(metavar="[ID|KEY]", help="The id or key, in place of --key.", show_default=False),
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Topic the question is about.")] = None,
    queue_id: Annotated[int | None, typer.Option(help="Queue of the topic.")] = None,
    offset: Annotated[
        int | None, typer.Option(help="Queue offset; by-offset without a topic: byte offset in the log.")
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max", help="pull: the page's length, 32 unless said.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "--id", help="Message id, unique key or a word of KEYS.")
    ] = None,
    group: Annotated[str | None, typer.Option(help="consumer-progress, consumer-status: this group.")] = None,
    timestamp: Annotated[int | None, typer.Option(metavar="MS", help="by-time: a store time.")] = None,
    boundary: Annotated[
        BoundaryOption | None, typer.Option(help="by-time: first message not older, or last not newer.")
    ] = None,
    begin: Annotated[int | None, typer.Option(metavar="MS", help="by-key: stored then or later.")] = None,
    end: Annotated[int | None, typer.Option(metavar="MS", help="by-key: stored then or before.")] = None,
    limit: Annotated[int | None, typer.Option(help="Show no more rows than this.")] = None,
    as_broker: Annotated[
        bool, typer.Option("--as-broker", help="by-key: what a broker would answer, hash collisions and all.")
    ] = False,
    as_of: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="topic-status, consumer-progress: as it was then (a timestamp, or epoch ms)."
        ),
    ] = None,
    output: Annotated[Output, typer.Option(help="A table to read, or a JSON object a row.")] = Output.table,
) -> dict[str, Any]:
    """Ask about messages, queues and groups: by id, key, place or time; pages, status, progress, copies."""
    if value is not None and key is not None:
        raise BadInput(f"the key is given twice: {value!r} and --key {key!r}")
    for option, number in (("--limit", limit), ("--max", max_messages)):
        if number is not None and number < 0:
            raise BadInput(f"{option} is {number}; expected how many rows to show")
    asked = Asked(
        kind,
        topic=topic,
        queue_id=queue_id,
        offset=offset,
        max=max_messages,
        key=key if value is None else value,
        group=group,
        timestamp=timestamp,
        boundary=boundary,
        begin=begin,
        end=end,
        limit=limit,
        as_broker=as_broker,
        as_of=None if as_of is None else PastTables(run.store, epoch_ms(run.spark, "--as-of", as_of)),
    )
    ask, options = QUESTIONS[kind]
    asked.expect_only("limit", *options)
    if limit is None and kind == Kind.by_key:
        limit = max_messages  # a broker's maxNum
    answer = ask(run.store.snapshot(), asked)
    rows = cut(answer.rows, limit)
    if output == Output.table and kind not in ABOUT_QUEUES:
        rows = readable_messages(rows)
    shown = show(rows, output, limit)
    return {"found": shown.rows, "complete": answer.complete and not shown.was_cut, **answer.result}


def _by_id(at: Snapshot, asked: Asked) -> Answer:
    (message_id,) = asked.need("key")
    answer = message_by_id(at, message_id)
    return answer if asked.topic is None else Answer(answer.rows.where(F.col("topic") == asked.topic))


def _by_key(at: Snapshot, asked: Asked) -> Answer:
    topic, key = asked.need("topic", "key")
    if not asked.as_broker:
        return messages_by_key(at, topic, key, asked.begin, asked.end)
    begin = 0 if asked.begin is None else asked.begin
    end = MAX_TIMESTAMP if asked.end is None else asked.end
    most = _first(asked.limit, asked.max, MOST_MESSAGES)
    return broker_messages_by_key(at, topic, key, begin, end, most)


def _by_unique_key(at: Snapshot, asked: Asked) -> Answer:
    (key,) = asked.need("key")
    return messages_by_unique_key(at, key, asked.topic)


def _by_offset(at: Snapshot, asked: Asked) -> Answer:
    (offset,) = asked.need("offset")
    if asked.topic is None and asked.queue_id is None:
        return Answer(messages_at_offset(at, offset))
    topic, queue_id = asked.need("topic", "queue_id")
    return message_at(at, topic, queue_id, offset)


def _by_time(at: Snapshot, asked: Asked) -> Answer:
    topic, queue_id, timestamp = asked.need("topic", "queue_id", "timestamp")
    boundary: Boundary = "upper" if asked.boundary == BoundaryOption.last_not_newer else "lower"
    return messages_from_time(at, topic, queue_id, timestamp, boundary, asked.limit)


def _pull(at: Snapshot, asked: Asked) -> Answer:
    topic, queue_id, offset = asked.need("topic", "queue_id", "offset")
    return pull(at, topic, queue_id, offset, _first(asked.max, asked.limit, DEFAULT_MESSAGES))


def _of_queues(at: Snapshot, asked: Asked, view: str) -> tuple[DataFrame, bool]:
    """A view of queues, now or then, and whether dispatch had followed the whole log."""
    if asked.as_of is None:
        return read_view(at, view), is_up_to_date(at)
    return read_view(asked.as_of, view), was_up_to_date(asked.as_of)


def _of_topic(at: Snapshot, asked: Asked, rows: DataFrame) -> DataFrame:
    if asked.topic is None:
        return rows
    expect_topic(at, asked.topic)
    return rows.where(F.col("topic") == asked.topic)


def _topic_status(at: Snapshot, asked: Asked) -> Answer:
    rows, complete = _of_queues(at, asked, "topic_status")
    rows = _of_topic(at, asked, rows).orderBy("topic", "queue_id")
    if asked.queue_id is not None:
        rows = rows.where(F.col("queue_id") == asked.queue_id)
    return Answer(rows, complete)


def _consumer_progress(at: Snapshot, asked: Asked) -> Answer:
    rows, complete = _of_queues(at, asked, "consumer_progress")
    rows = _of_topic(at, asked, rows).orderBy("group", "topic", "queue_id")
    if asked.group is not None:
        rows = rows.where(F.col("group") == asked.group)
    return Answer(rows, complete)


def _consumer_status(at: Snapshot, asked: Asked) -> Answer:
    (group,) = asked.need("group")
    return Answer(_of_topic(at, asked, consumer_status(at, group)), is_up_to_date(at))


def _trace(at: Snapshot, asked: Asked) -> Answer:
    (key,) = asked.need("key")
    if asked.topic is not None:
        expect_topic(at, asked.topic)
    if is_message_id(key):
        by_id = message_by_id(at, key).rows
        if not by_id.isEmpty():
            return copies_of(at, by_id)
    return copies_of(at, rows_with_key(at, key, asked.topic))


def _first(*given: int | None) -> int:
    return next(value for value in given if value is not None)


# What answers each kind, and the options it takes beside --limit.
QUESTIONS: dict[Kind, tuple[Any, tuple[str, ...]]] = {
    Kind.by_id: (_by_id, ("key", "topic")),
    Kind.by_key: (_by_key, ("topic", "key", "begin", "end", "max", "as_broker")),
    Kind.by_unique_key: (_by_unique_key, ("key", "topic")),
    Kind.by_offset: (_by_offset, ("topic", "queue_id", "offset")),
    Kind.by_time: (_by_time, ("topic", "queue_id", "timestamp", "boundary")),
    Kind.pull: (_pull, ("topic", "queue_id", "offset", "max")),
    Kind.topic_status: (_topic_status, ("topic", "queue_id", "as_of")),
    Kind.consumer_progress: (_consumer_progress, ("topic", "group", "as_of")),
    Kind.consumer_status: (_consumer_status, ("topic", "group")),
    Kind.trace: (_trace, ("key", "topic")),
}


if __name__ == "__main__":
    main(query)
