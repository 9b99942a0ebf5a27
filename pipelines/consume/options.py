"""How a group reads in one run: the options of `consume`, as one value."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from pipelines.errors import BadInput
from pipelines.rocketmq.names import TRACE_TOPIC
from pipelines.store.groups import SubscriptionGroupConfig


class Model(StrEnum):
    clustering = "clustering"
    broadcasting = "broadcasting"


class From(StrEnum):
    first = "first"
    last = "last"
    timestamp = "timestamp"


class ReadFrom(StrEnum):
    memory = "memory"
    store = "store"
    both = "both"


@dataclass(frozen=True)
class Options:
    """How a group reads: the arguments of the command line.

    listener, hook     MODULE:NAME
    clients, strategy  the clients that share the queues, and how; rooms and config are arguments of some strategies
    from_              where a queue begins that the group has not read; None: at the first message, where the group may
    timestamp          the store time at which `from_` begins, epoch milliseconds
    max_seconds        no further page begins after this long
    batch_size         messages of one call to the listener, at most
    orderly            None: as the group is configured
    consume_timeout    limit of one call, minutes; None: as the group is configured
    """

    group: str
    topic: str | None = None
    listener: str = ""
    filter_type: str | None = None
    filter: str | None = None
    model: Model = Model.clustering
    client_id: str | None = None
    clients: Sequence[str] = ()
    strategy: str = "AVG"
    rooms: Sequence[str] | Mapping[str, str] | None = None
    config: Mapping[str, Sequence[str]] | None = None
    from_: From | None = None
    timestamp: int | None = None
    max_messages: int | None = None
    max_bytes: int | None = None
    max_seconds: float | None = None
    batch_size: int = 1
    orderly: bool | None = None
    consume_timeout: float | None = None
    max_reconsume_times: int | None = None
    hook: str | None = None
    offsets_file: str | None = None
    read_from: ReadFrom = ReadFrom.both
    trace: bool = False

    def of_group(self, group: SubscriptionGroupConfig) -> "Options":
        """The same with what the group's config says where a command says nothing.

        A broadcasting client is never orderly. Raises BadInput for a group that may not begin at the first message.
        """
        if self.from_ == From.first and not group.consume_from_min_enable:
            raise BadInput(
                f"group {group.group} may not begin at the first message; say --from last, or `topics update-group "
                f"{group.group} --from-min-enable` allows it"
            )
        is_orderly = group.consume_message_orderly and not self.is_broadcasting
        return replace(
            self,
            from_=self.from_ or (From.first if group.consume_from_min_enable else From.last),
            orderly=is_orderly if self.orderly is None else self.orderly,
            consume_timeout=group.consume_timeout_minute
            if self.consume_timeout is None
            else self.consume_timeout,
        )

    @property
    def is_broadcasting(self) -> bool:
        return self.model == Model.broadcasting

    @property
    def reads_alone(self) -> bool:
        """Whether no other run of the group may read a queue meanwhile.

        A client among --clients already has queues of its own. With --orderly a queue is locked, as it is in RocketMQ.
        """
        is_one_of_clients = bool(self.clients) and self.client_id is not None
        return not self.is_broadcasting and (bool(self.orderly) or not is_one_of_clients)

    def expect_sense(self) -> None:
        """Raises BadInput for options that contradict each other."""
        if self.is_broadcasting and self.client_id is None:
            raise BadInput("--model broadcasting needs --client-id: each client has offsets of its own")
        if self.client_id is not None and not self.client_id.strip():
            raise BadInput("--client-id is empty; expected the name of a client")
        if self.offsets_file is not None and not self.is_broadcasting:
            raise BadInput(
                "--offsets-file is a broadcasting client's; a clustering group's offsets are the store's: leave it out, or "
                "give --model broadcasting"
            )
        if (self.from_ == From.timestamp) != (self.timestamp is not None):
            raise BadInput("--from timestamp and --timestamp MS go together; give both or neither")
        if self.is_broadcasting and self.orderly:
            raise BadInput(
                "--orderly is for clustering; a broadcasting client reads its queues on its own: leave out one of the two"
            )
        if self.clients and self.client_id is not None and self.client_id not in self.clients:
            raise BadInput(
                f"--client-id {self.client_id} is none of --clients {', '.join(self.clients)}; it would own no "
                "queue: name one of them"
            )
        if self.trace and self.topic == TRACE_TOPIC:
            raise BadInput(f"--trace of {TRACE_TOPIC} would trace itself; read it without")
        if self.filter_type is not None and self.filter is None:
            raise BadInput(f"--filter-type {self.filter_type} needs --filter")


def rooms_of(text: str | None) -> list[str] | dict[str, str] | None:
    """The value of --rooms: names of rooms, or the room of each name. Raises BadInput where it is neither."""
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


def configured_queues(path: str | None) -> dict[str, list[str]] | None:
    """The queues of each client, from the file of --config. Raises BadInput where it cannot be read."""
    if path is None:
        return None
    try:
        given = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as failure:
        raise BadInput(f"--config {path} cannot be read: {failure}") from failure
    is_config = isinstance(given, dict) and all(
        isinstance(queues, list) and all(isinstance(queue, str) for queue in queues)
        for queues in given.values()
    )
    if not is_config:
        raise BadInput(f'--config {path}: expected the queues of each client, {{"client": ["broker:0", …]}}')
    return dict(given)
