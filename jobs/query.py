"""Query messages, queues and groups: by id, key, offset or time; pages, status, progress, copies."""

from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.options import ReplicaOption
from jobs.launch.output import Output, Shown, readable_messages, show
from jobs.launch.run import Run
from pipelines.errors import BadInput
from pipelines.reports.answer import Answer, cut
from pipelines.reports.copies import copy_to_query
from pipelines.reports.questions import NOT_MESSAGES, BoundaryOption, Kind, Question
from pipelines.store.past import epoch_ms
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store


@job
def query(
    run: Run,
    kind: Annotated[Kind, typer.Argument(help="The kind of query.", show_default=False)],
    value: Annotated[
        str | None,
        typer.Argument(metavar="[ID|KEY]", help="The id or key, in place of --key.", show_default=False),
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Topic of the query.")] = None,
    queue_id: Annotated[int | None, typer.Option(help="Queue of the topic.")] = None,
    offset: Annotated[
        int | None, typer.Option(help="Queue offset; by-offset without a topic: byte offset in the log.")
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max", help="pull: messages of the page; default 32.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "--id", help="Message id, unique key or a word of KEYS.")
    ] = None,
    keys_from: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="by-key, by-unique-key: the keys of a text file, one a line."),
    ] = None,
    group: Annotated[str | None, typer.Option(help="consumer-progress, consumer-status: this group.")] = None,
    timestamp: Annotated[int | None, typer.Option(metavar="MS", help="by-time: a store time.")] = None,
    boundary: Annotated[
        BoundaryOption | None, typer.Option(help="by-time: first message not older, or last not newer.")
    ] = None,
    begin: Annotated[int | None, typer.Option(metavar="MS", help="by-key: stored then or later.")] = None,
    end: Annotated[int | None, typer.Option(metavar="MS", help="by-key: stored then or before.")] = None,
    limit: Annotated[int | None, typer.Option(help="Show at most N rows.")] = None,
    as_broker: Annotated[
        bool,
        typer.Option("--as-broker", help="by-key: what a broker would return, hash collisions included."),
    ] = False,
    as_of: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="topic-status, consumer-progress: as it was then (a timestamp, or epoch ms)."
        ),
    ] = None,
    replica: ReplicaOption = None,
    output: Annotated[Output, typer.Option(help="A table to read, or a JSON object a row.")] = Output.table,
) -> dict[str, Any]:
    """Query messages, queues and groups: by id, key, offset or time; pages, status, progress, copies."""
    _expect_counts(limit=limit, max=max_messages)
    _expect_longs(queue_id=queue_id, offset=offset, timestamp=timestamp, begin=begin, end=end)
    store = copy_to_query(run.store, replica, run.say)
    question = Question(
        kind,
        topic=topic,
        queue_id=queue_id,
        offset=offset,
        max=max_messages,
        key=_key(value, key),
        keys_from=keys_from,
        group=group,
        timestamp=timestamp,
        boundary=boundary,
        begin=begin,
        end=end,
        limit=limit,
        as_broker=as_broker,
        as_of=None if as_of is None else _past(run, store, as_of),
    )
    question.expect_its_own_options()
    answer = question.answered(store.snapshot())
    # A broker's maxNum bounds what it returns by key.
    shown = _show(answer, kind, output, max_messages if limit is None and kind == Kind.by_key else limit)
    return {"found": shown.rows, "complete": answer.complete and not shown.was_cut, **answer.result}


def _expect_counts(**options: int | None) -> None:
    for name, number in options.items():
        if number is not None and number < 0:
            raise BadInput(f"--{name} is {number}; expected how many rows to show")


def _expect_longs(**options: int | None) -> None:
    for name, number in options.items():
        if number is not None and not -(2**63) <= number < 2**63:
            raise BadInput(f"--{name.replace('_', '-')} is {number}; expected a number of at most 64 bits")


def _key(value: str | None, key: str | None) -> str | None:
    if value is not None and key is not None:
        raise BadInput(f"the key is given twice: {value!r} and --key {key!r}")
    return key if value is None else value


def _show(answer: Answer, kind: Kind, output: Output, limit: int | None) -> Shown:
    rows = cut(answer.rows, limit)
    if output == Output.table and kind not in NOT_MESSAGES:
        rows = readable_messages(rows)
    return show(rows, output, limit)


def _past(run: Run, store: Store, as_of: str) -> Snapshot:
    """The tables as they were at a time."""
    return Store(run.spark, store.uri, epoch_ms(run.spark, "--as-of", as_of)).snapshot()


if __name__ == "__main__":
    main(query)
