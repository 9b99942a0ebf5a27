"""Which queues of a subscription each client of a run reads."""

from collections.abc import Sequence

from pipelines.consume.allocation import allocate
from pipelines.consume.offsets import Queue
from pipelines.consume.options import Options
from pipelines.errors import BadInput
from pipelines.rocketmq.names import retry_topic
from pipelines.store.head import read_head
from pipelines.store.snapshot import Snapshot
from pipelines.store.topics import read_topics
from pipelines.store.work import Work


def shares(run: Work, options: Options, topic: str) -> list[tuple[str, list[Queue]]]:
    """The clients that read in this run, in turn: (client id of their offsets, '' for the group's; their queues).

    Raises BadInput where `allocate` does, and for configured queues that the topic does not have.
    """
    at = run.store.snapshot()
    if topic not in read_topics(at):
        run.say(
            f"topic {topic} has no configuration (it was deleted, or imported without topics.json), so nothing of it is "
            f"read; `commitlake topics create {topic}` makes its queues readable again"
        )
    queues = queues_of(at, topic)
    if options.is_broadcasting:
        assert options.client_id is not None, "expected by expect_sense"
        return [(options.client_id, queues)]
    retry = retry_topic(options.group)
    retries = retries_of(at, retry)
    if not options.clients:
        return [("", queues + retries)]
    broker = run.store.settings["brokerName"]
    owned_by: dict[str, list[Queue]] = {client: [] for client in sorted(options.clients)}
    for name, of_topic in ((topic, queues), (retry, retries)):
        if of_topic:
            texts = [f"{broker}:{queue_id}" for _, queue_id in of_topic]
            # --config names queues of the topic; RocketMQ does not define how its clients share retries.
            is_retry = name == retry
            strategy = "AVG" if is_retry and options.strategy == "CONFIG" else options.strategy
            allocation = allocate(strategy, texts, list(options.clients), name, options.rooms, options.config)
            for client, owned in allocation.items():
                _expect_queues(client, owned, texts)
                owned_by[client] += [(name, int(text.rpartition(":")[2])) for text in owned]
    reading = owned_by if options.client_id is None else {options.client_id: owned_by[options.client_id]}
    return [("", owned) for owned in reading.values() if owned]


def queues_of(at: Snapshot, topic: str) -> list[Queue]:
    """The queues of a topic that may be read, as it is configured."""
    topics = read_topics(at)
    return [(topic, queue_id) for queue_id in range(topics[topic].read_queue_nums if topic in topics else 0)]


def retries_of(at: Snapshot, retry: str) -> list[Queue]:
    """The queues of a retry topic, which may be more than it is configured to have.

    An imported broker had them, or the group's number of retry queues was raised while its retry topic kept the old one.
    """
    used = [queue_id for name, queue_id in read_head(at).next_queue_offsets if name == retry]
    topics = read_topics(at)
    configured = topics[retry].read_queue_nums if retry in topics else 0
    return [(retry, queue_id) for queue_id in range(max([configured, *(used_id + 1 for used_id in used)]))]


def _expect_queues(client: str, owned: Sequence[str], queues: Sequence[str]) -> None:
    other = next((queue for queue in owned if queue not in queues), None)
    if other is not None:
        raise BadInput(
            f"--config gives {client} the queue {other}; the topic has {queues[0]} to {queues[-1]}"
        )
