"""Sentences for the operator about what an import leaves out, skips or sets back."""

from collections.abc import Iterator, Sequence

from pipelines.broker_files.broker_log import BrokerLog
from pipelines.broker_files.import_log import BrokerStore
from pipelines.rocketmq.names import LIGHT_PREFIX, is_system_topic, topic_name_complaint
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
