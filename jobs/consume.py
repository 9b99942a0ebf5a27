"""Read as a consumer group: hand messages to a listener, send failures back, record progress."""

import dataclasses
import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.run import Run
from jobs.put_messages import put_traces
from pipelines.consume import allocate
from pipelines.consume.class_pages import find_class_filter
from pipelines.consume.held_queues import HeldQueues
from pipelines.consume.listening import Listener, takes_a_dataframe
from pipelines.consume.offsets import Queue
from pipelines.consume.reader import Counts, From, Model, Options, Reader, ReadFrom
from pipelines.consume.subscriptions import (
    CLASS,
    TAG,
    Selection,
    Subscription,
    expect_subscription,
    plan_subscribe,
    read_subscriptions,
)
from pipelines.errors import BadInput
from pipelines.filter.class_filters import ClassFilter
from pipelines.log.python_code import load_function, load_hook
from pipelines.produce.trace import TRACE_TOPIC
from pipelines.reports.queues import expect_topic
from pipelines.retry.send_back import plan_group
from pipelines.store.groups import SubscriptionGroupConfig, read_groups
from pipelines.store.head import read_head
from pipelines.store.topics import RETRY_PREFIX, read_topics


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
    filter_type: Annotated[str | None, typer.Option(help="TAG, SQL92 or CLASS; TAG unless said.")] = None,
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
        From, typer.Option("--from", help="Where to begin a queue the group has not read yet.")
    ] = From.first,
    timestamp: Annotated[
        int | None, typer.Option(metavar="MS", help="--from timestamp: stored then or later.")
    ] = None,
    max_messages: Annotated[int | None, typer.Option(min=1, help="Hand over at most so many.")] = None,
    max_bytes: Annotated[
        int | None, typer.Option(min=1, help="Hand over messages of at most so many bytes, one at least.")
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(min=0, help="Begin no further page after so long.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="More than 1: the listener takes lists.")] = 1,
    orderly: Annotated[
        bool, typer.Option("--orderly", help="Each queue in order; a failure makes it wait and come again.")
    ] = False,
    consume_timeout: Annotated[
        float, typer.Option(metavar="MINUTES", min=0, help="One call may take so long; then it has failed.")
    ] = 15.0,
    max_reconsume_times: Annotated[
        int | None, typer.Option(min=0, help="Then a dead letter; else as the group is configured.")
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
        ReadFrom, typer.Option(help="memory: begin where --from says, whatever is recorded.")
    ] = ReadFrom.both,
    trace: Annotated[
        bool, typer.Option("--trace", help="Put a message about each call into RMQ_SYS_TRACE_TOPIC.")
    ] = False,
) -> dict[str, Any]:
    """Hand messages to a listener as a consumer group."""
    named = [name.strip() for name in (clients or "").split(",") if name.strip()]
    return consume_as(
        run,
        Options(
            group, topic, listener, filter_type, filter_, model, client_id, named, strategy, _rooms(rooms),
            _config(config), from_, timestamp, max_messages, max_bytes, max_seconds, batch_size, orderly,
            consume_timeout, max_reconsume_times, hook, offsets_file, read_from, trace,
        ),
    )  # fmt: skip


def consume_as(run: Run, asked: Options) -> dict[str, Any]:
    """Read as a group; the counts of consume."""
    _expect_sense(asked)
    listener = Listener(
        load_function("--listener", asked.listener),
        asked.group,
        asked.batch_size,
        asked.consume_timeout * 60,
        load_hook(asked.hook),
    )
    if takes_a_dataframe(listener.call) and (asked.orderly or asked.batch_size > 1 or asked.hook is not None):
        raise BadInput(
            "a listener for DataFrames gets a page at once; --orderly, --batch-size and --hook are not for it"
        )
    group = _group(run, asked)
    counts = Counts()
    began = time.monotonic()
    readers = []
    for subscription in _subscriptions(run, asked):
        selection = Selection(subscription, f"{RETRY_PREFIX}{asked.group}")
        class_filter = _class_filter(run, subscription)
        for client_id, queues in _shares(run, asked, subscription.topic):
            readers.append(
                Reader(
                    run,
                    asked,
                    group,
                    listener,
                    selection,
                    class_filter,
                    client_id,
                    queues,
                    counts,
                    began,
                    partial(put_traces, run),
                )
            )
    left = 0
    if asked.reads_alone:
        left = _read_alone(run, asked.group, readers)
    else:
        for reader in readers:
            reader.read()
    result = {"group": asked.group, **counts.result(), "queues_left": left}
    for error, times in result["errors"].items():
        run.say(f"{times:,} failed: {error}")
    return result


def _read_alone(run: Run, group: str, readers: Sequence[Reader]) -> int:
    """Read queues that no other run of the group reads meanwhile; how many are left to such runs."""
    held = HeldQueues(run, group)
    waiting = {queue for reader in readers for queue in reader.stand(run.store.snapshot()).waiting}
    if waiting:
        held.lock(waiting)
    try:
        for reader in readers:
            reader.read(held)
    except BaseException as failure:
        if run.is_interruption(failure):
            held.keep()  # Spark may still be ending what reads
        else:
            held.unlock()
        raise
    held.unlock()
    return len(held.left)


def _expect_sense(asked: Options) -> None:
    """Raises BadInput for options that do not go together."""
    if asked.is_broadcasting and asked.client_id is None:
        raise BadInput("--model broadcasting needs --client-id: each client has offsets of its own")
    if asked.offsets_file is not None and not asked.is_broadcasting:
        raise BadInput(
            "--offsets-file is a broadcasting client's; a clustering group's offsets are the store's"
        )
    if (asked.from_ == From.timestamp) != (asked.timestamp is not None):
        raise BadInput("--from timestamp and --timestamp MS go together; give both or neither")
    if asked.is_broadcasting and asked.orderly:
        raise BadInput("--orderly is for clustering; a broadcasting client reads its queues on its own")
    if asked.clients and asked.client_id is not None and asked.client_id not in asked.clients:
        raise BadInput(
            f"--client-id {asked.client_id} is none of --clients {', '.join(asked.clients)}; it would own no queue"
        )
    if asked.trace and asked.topic == TRACE_TOPIC:
        raise BadInput(f"--trace of {TRACE_TOPIC} would trace itself; read it without")
    if asked.filter_type is not None and asked.filter is None:
        raise BadInput(f"--filter-type {asked.filter_type} needs --filter")


def _rooms(text: str | None) -> list[str] | dict[str, str] | None:
    """--rooms: names, or the room of each name."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not any("=" in word for word in words):
        return words
    pairs = [word.partition("=") for word in words]
    wrong = next((name for name, equals, room in pairs if not (name and equals and room)), None)
    if wrong is not None:
        raise BadInput(
            f"--rooms is {text!r}; expected rooms A,B or the room of each name, NAME=ROOM,NAME=ROOM"
        )
    return {name: room for name, _, room in pairs}


def _config(path: str | None) -> dict[str, list[str]] | None:
    """--config: the queues of each client."""
    if path is None:
        return None
    try:
        given = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as failure:
        raise BadInput(f"--config {path} cannot be read: {failure}") from failure
    is_config = isinstance(given, dict) and all(
        isinstance(queues, list) and all(isinstance(queue, str) for queue in queues)
        for queues in given.values()
    )
    if not is_config:
        raise BadInput(f'--config {path}: expected the queues of each client, {{"client": ["broker:0", …]}}')
    return dict(given)


def _class_filter(run: Run, one: Subscription) -> ClassFilter | None:
    if one.expression_type != CLASS:
        return None
    return find_class_filter(run.store.snapshot(), one.group, one.topic, one.expression)


def _group(run: Run, asked: Options) -> SubscriptionGroupConfig:
    groups = read_groups(run.store.snapshot())
    if asked.group not in groups:
        run.commit(lambda at: plan_group(at, asked.group))
        groups = read_groups(run.store.snapshot())
    group = groups[asked.group]
    if not group.consume_enable:
        raise BadInput(
            f"group {asked.group} may not consume; `topics update-group {asked.group} --consume-enable` allows it"
        )
    if asked.is_broadcasting and not group.consume_broadcast_enable:
        raise BadInput(
            f"group {asked.group} may not broadcast; `topics update-group {asked.group} --broadcast-enable` allows it"
        )
    limit = asked.max_reconsume_times
    return group if limit is None else dataclasses.replace(group, retry_max_times=limit)


def _subscriptions(run: Run, asked: Options) -> list[Subscription]:
    """What the run reads: what the command says, recorded as the group's, or what is recorded."""
    at = run.store.snapshot()
    known = [one for one in read_subscriptions(at) if one.group == asked.group]
    if asked.topic is None:
        if asked.filter is not None:
            raise BadInput("--filter needs --topic: what it selects from")
        if not known:
            raise BadInput(
                f"group {asked.group} has subscribed nothing; give --topic, or run `subscribe` first"
            )
        return known
    expect_topic(at, asked.topic)
    found = next((one for one in known if one.topic == asked.topic), None)
    if asked.filter is None and found is not None:
        return [found]
    filter_type = (asked.filter_type or TAG).upper()
    expression = "*" if asked.filter is None else asked.filter
    made = Subscription(asked.group, asked.topic, filter_type, expression, run.now_ms)
    expect_subscription(made, run.store.settings)
    _class_filter(run, made)  # refused before it is recorded
    run.commit(lambda at: plan_subscribe(at, made))
    return [made]


def _shares(run: Run, asked: Options, topic: str) -> list[tuple[str, list[Queue]]]:
    """Whose turn it is, and with which queues: (client id of the offsets, queues)."""
    at = run.store.snapshot()
    topics = read_topics(at)
    if topic not in topics:
        run.say(
            f"topic {topic} has no configuration (it was deleted, or imported without topics.json), so nothing of it is "
            f"read; `commitlake topics create {topic}` makes its queues readable again"
        )
    queues = [
        (topic, queue_id) for queue_id in range(topics[topic].read_queue_nums if topic in topics else 0)
    ]
    retry = f"{RETRY_PREFIX}{asked.group}"
    if asked.is_broadcasting:
        assert asked.client_id is not None, "expected by _expect_sense"
        return [(asked.client_id, queues)]
    # Retries may lie in more queues than the topic is configured to have: of an imported broker, or of a group whose
    # retry queues were raised while its retry topic kept the old number.
    used = [queue_id for name, queue_id in read_head(at).next_queue_offsets if name == retry]
    configured = topics[retry].read_queue_nums if retry in topics else 0
    retries = [(retry, queue_id) for queue_id in range(max([configured, *(used_id + 1 for used_id in used)]))]
    if not asked.clients:
        return [("", queues + retries)]
    broker = run.store.settings["brokerName"]
    shares: dict[str, list[Queue]] = {client: [] for client in sorted(asked.clients)}
    for name, of_topic in ((topic, queues), (retry, retries)):
        if of_topic:
            texts = [f"{broker}:{queue_id}" for _, queue_id in of_topic]
            # Configured queues are the topic's; how a configured client shares retries is not said anywhere.
            is_retry = name == retry
            strategy = "AVG" if is_retry and asked.strategy == "CONFIG" else asked.strategy
            allocation = allocate(strategy, texts, list(asked.clients), name, asked.rooms, asked.config)
            for client, owned in allocation.items():
                _expect_queues(client, owned, texts)
                shares[client] += [(name, int(text.rpartition(":")[2])) for text in owned]
    reading = shares if asked.client_id is None else {asked.client_id: shares[asked.client_id]}
    return [("", owned) for owned in reading.values() if owned]


def _expect_queues(client: str, owned: Sequence[str], queues: Sequence[str]) -> None:
    other = next((queue for queue in owned if queue not in queues), None)
    if other is not None:
        raise BadInput(
            f"--config gives {client} the queue {other}; the topic has {queues[0]} to {queues[-1]}"
        )


if __name__ == "__main__":
    main(consume)
