"""Sentences for the operator about what an import leaves out, skips or sets back."""

from collections.abc import Iterator, Sequence

from pipelines.broker_files.broker_log import BrokerLog
from pipelines.broker_files.import_log import BrokerStore
from pipelines.rocketmq.names import (
    LIGHT_PREFIX,
    REVIVE_GROUP,
    REVIVE_PREFIX,
    is_system_topic,
    topic_name_complaint,
)
from pipelines.rocketmq.settings import Settings

# Sentences of one kind at most: damaged parts, offsets that are set back, names that are refused.
LISTED = 20


def damage_stepped_over(log: BrokerLog) -> Iterator[str]:
    """Sentences about parts of the log without a record, and about records that are not as they were written."""
    damaged = log.damage()
    for damage in damaged[:LISTED]:
        hold = "hold no record" if damage.parts == 1 else f"have {damage.parts} parts that hold no record"
        yield (
            f"bytes {damage.from_at} to {damage.to_at} {hold} ({damage.reason}) and were stepped over; they lie before the "
            "part of the log a broker recovers"
        )
    if len(damaged) > LISTED:
        rest = sum(damage.parts for damage in damaged[LISTED:])
        yield f"{rest} more parts like these were stepped over, the last before byte {damaged[-1].to_at}"
    if log.displaced():
        yield (
            f"{log.displaced()} records say another physical offset than where they lie; they are imported where they lie"
        )
    if (torn := log.torn()) is not None:
        count, first = torn
        yield (
            f"{count} records end in zeros, the first at {first}: they had not reached the disk whole when the broker went "
            "down. Its own recovery keeps them, and so does the import; properties they had are lost"
        )


def offsets_set_back(broker: BrokerStore) -> Iterator[str]:
    """Sentences about groups' offsets that are after the end of their queue."""
    ahead = [
        (*queue, offset, broker.consumer_offsets[queue])
        for queue, offset in sorted(broker.config.consumer_offsets.items())
        if broker.consumer_offsets[queue] < offset
    ]
    for group, topic, queue_id, offset, end in ahead[:LISTED]:
        yield f"group {group} has read queue {topic}:{queue_id} up to {offset}, which ends at {end}; it goes on there"
    if len(ahead) > LISTED:
        yield f"{len(ahead) - LISTED} more offsets of groups are set back to the ends of their queues"


def queues_begun_again(log: BrokerLog) -> Iterator[str]:
    """A sentence about queues in which messages of before a deletion of their topic lie beside those of after it."""
    found = log.begun_again()
    if found:
        yield (
            f"{_listed(found)}: the topic was deleted and made again, or its records are damaged. The broker's queue has "
            "what came after that; here it has what came before it too, at the same offsets, and groups read both. Once the "
            "older messages have expired at the broker, import into a new store"
        )


def light_queues(log: BrokerLog) -> Iterator[str]:
    """A sentence about light queues with messages: the messages are in the queues of their own topics alone (3.3)."""
    light = sorted(
        (queue.topic, queue.queue_id)
        for queue in log.queues
        if queue.topic.startswith(LIGHT_PREFIX) and not queue.is_empty
    )
    if light:
        yield (
            f"{_listed(light)} are light queues, which have bounds here and no entries: their messages are read from the "
            "topics that they were sent to"
        )


def popped(broker: BrokerStore) -> Iterator[str]:
    """A sentence where POP consumers may hold messages: a broker commits the group's offset when it hands messages over, and
    has them revived later from these queues (docs/rocketmq/delay-retry-transaction.md)."""
    offsets = broker.config.consumer_offsets
    waiting = {
        queue.topic
        for queue in broker.log.queues
        # The offset is that of the last entry that was worked through, not of the one after it.
        if queue.topic.startswith(REVIVE_PREFIX)
        and queue.next_offset > offsets.get((REVIVE_GROUP, queue.topic, queue.queue_id), queue.min_offset) + 1
    }
    for topic in sorted(waiting):
        yield (
            f"{topic} has entries that the broker had not worked through: groups that receive by POP may have been given "
            "messages that they did not acknowledge, and those count as consumed here. `commitlake reset_offsets` takes a "
            "group back"
        )


def _listed(queues: Sequence[tuple[str, int]]) -> str:
    names = ", ".join(f"{topic}:{queue_id}" for topic, queue_id in queues[:LISTED])
    return f"queues {names}" + (f" and {len(queues) - LISTED} more" if len(queues) > LISTED else "")


def names_refused(complaints: Sequence[str], consequence: str) -> Iterator[str]:
    """Each complaint about a name with its consequence; those after the first LISTED as a number."""
    for complaint in complaints[:LISTED]:
        yield f"{complaint}; {consequence}"
    if len(complaints) > LISTED:
        yield f"{len(complaints) - LISTED} more names are refused like these"


def topic_complaints(log: BrokerLog, settings: Settings, known: Sequence[str]) -> list[str]:
    """Complaints about topic names in records, without those that are `known` from the config."""
    names = {topic for topic, _ in log.queue_ends() if not is_system_topic(topic, settings)}
    complaints = [topic_name_complaint(name) for name in sorted(names) if not name.startswith(LIGHT_PREFIX)]
    return [complaint for complaint in complaints if complaint is not None and complaint not in known]
