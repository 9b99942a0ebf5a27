"""Read as a consumer group: hand messages to a listener, send failures back, record progress."""

from functools import partial
from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.options import ReplicaOption
from jobs.launch.run import Run
from pipelines.consume.group_run import read_as_group
from pipelines.consume.options import From, Model, Options, ReadFrom, configured_queues, rooms_of
from pipelines.consume.source import copies_for
from pipelines.produce.put_traces import expect_trace_topic, put_traces


@job
def consume(
    run: Run,
    group: Annotated[str, typer.Option(help="The consumer group.")],
    listener: Annotated[
        str,
        typer.Option(metavar="MODULE:NAME", help="def listen(message) -> ConsumeStatus, called for each."),
    ],
    topic: Annotated[
        str | None, typer.Option(help="What to read; else all the group has subscribed.")
    ] = None,
    filter_type: Annotated[str | None, typer.Option(help="TAG, SQL92 or CLASS; default TAG.")] = None,
    filter_: Annotated[
        str | None,
        typer.Option("--filter", help="Which messages; else what the group has subscribed, else all."),
    ] = None,
    model: Annotated[
        Model, typer.Option(help="clustering: the group reads once. broadcasting: each client reads all.")
    ] = Model.clustering,
    client_id: Annotated[str | None, typer.Option(help="Read as this client.")] = None,
    clients: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="The clients that share the queues.")
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            help="How they share: AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, MACHINE_ROOM, MACHINE_ROOM_NEARBY, CONFIG."
        ),
    ] = "AVG",
    rooms: Annotated[
        str | None,
        typer.Option(
            metavar="ROOMS",
            help="MACHINE_ROOM: A,B to read from. MACHINE_ROOM_NEARBY: NAME=ROOM,… of brokers and clients.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="FILE", help='CONFIG: {"client": ["broker:queue", …], …} of the topic, JSON.'),
    ] = None,
    from_: Annotated[
        From | None,
        typer.Option(
            "--from",
            help="Where to begin a queue the group has not read yet [first; last of a group without --from-min-enable].",
        ),
    ] = None,
    timestamp: Annotated[
        int | None, typer.Option(metavar="MS", help="--from timestamp: stored then or later.")
    ] = None,
    max_messages: Annotated[int | None, typer.Option(min=1, help="Hand over at most N messages.")] = None,
    max_bytes: Annotated[
        int | None, typer.Option(min=1, help="Hand over messages of at most N bytes, one at least.")
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(min=0, help="Begin no further page after N seconds.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="More than 1: the listener takes lists.")] = 1,
    orderly: Annotated[
        bool | None,
        typer.Option(
            help="Each queue in order; a failure makes it wait and come again [as the group is configured]."
        ),
    ] = None,
    consume_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            min=0,
            help="A call that takes longer has failed [the group's, 15 unless configured].",
        ),
    ] = None,
    max_reconsume_times: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Failures until a dead letter; else as the group is configured, or without end with --orderly.",
        ),
    ] = None,
    hook: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME", help="An object with consume_message_before and consume_message_after."
        ),
    ] = None,
    offsets_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="broadcasting: the client's own offsets, RocketMQ's JSON."),
    ] = None,
    read_from: Annotated[
        ReadFrom, typer.Option(help="memory: begin at --from, whatever is recorded.")
    ] = ReadFrom.both,
    replica: ReplicaOption = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Put a message about each call into RMQ_SYS_TRACE_TOPIC.")
    ] = False,
) -> dict[str, Any]:
    """Hand messages to a listener as a consumer group."""
    options = Options(
        group=group,
        topic=topic,
        listener=listener,
        filter_type=filter_type,
        filter=filter_,
        model=model,
        client_id=client_id,
        clients=tuple(name.strip() for name in (clients or "").split(",") if name.strip()),
        strategy=strategy,
        rooms=rooms_of(rooms),
        config=configured_queues(config),
        from_=from_,
        timestamp=timestamp,
        max_messages=max_messages,
        max_bytes=max_bytes,
        max_seconds=max_seconds,
        batch_size=batch_size,
        orderly=orderly,
        consume_timeout=consume_timeout,
        max_reconsume_times=max_reconsume_times,
        hook=hook,
        offsets_file=offsets_file,
        read_from=read_from,
        trace=trace,
    )
    return consume_as(run, options, replica)


def consume_as(run: Run, options: Options, replica: str | None = None) -> dict[str, Any]:
    """Read as a group; the counts of consume."""
    copies = copies_for(run.store, replica, options.group, options.topic)
    run.store = copies.home
    if copies.source is not copies.home:
        run.say(f"reading messages from the copy at {copies.source.uri}")
    if options.trace:
        expect_trace_topic(run.store.snapshot())
    counts, queues_left = read_as_group(run, options, partial(put_traces, run), copies.source)
    result = {"group": options.group, **counts.result(), "queues_left": queues_left}
    for error, times in result["errors"].items():
        run.say(f"{times:,} failed: {error}")
    return result


if __name__ == "__main__":
    main(consume)
