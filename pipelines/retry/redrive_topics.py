"""The topics that redriven rows go to."""

from collections.abc import Set

from pipelines.errors import BadInput
from pipelines.rocketmq.names import SEND_FORBIDDEN, topic_name_complaint
from pipelines.store.permissions import expect_store_writable
from pipelines.store.snapshot import Snapshot
from pipelines.store.topics import (
    TopicConfig,
    default_topic,
    no_queues_complaint,
    read_topics,
    topic_made_on_the_fly,
)


def expect_no_own_topic(names: Set[str]) -> None:
    """Raises BadInput where rows would go to a topic of the store's own, in which they would wait for ever."""
    own = sorted(names & SEND_FORBIDDEN)
    if own:
        raise BadInput(
            f"rows would go to {own[0]}, which is the store's own: no message may be sent to it. Say where they are to go "
            "with --to-topic, or leave them out of --where"
        )


def topics_of(at: Snapshot, names: Set[str]) -> tuple[dict[str, TopicConfig], list[TopicConfig]]:
    """The topics by name, and those of them that are missing: they are made on the fly where a put would make them.

    Raises BadInput for a topic that may not be made or written to, and where the store may not be written to.
    """
    settings = at.store.settings
    expect_store_writable(settings)
    topics = read_topics(at)
    missing = sorted(names - set(topics))
    if missing and not settings["autoCreateTopicEnable"]:
        raise BadInput(
            f"topic {missing[0]} does not exist and autoCreateTopicEnable is false; create it first"
        )
    for name in missing:
        complaint = topic_name_complaint(name)
        if complaint is not None:
            raise BadInput(
                f"{complaint}. Say where the rows are to go with --to-topic, or leave them out of --where"
            )
    default = default_topic(topics, settings)
    made = [topic_made_on_the_fly(name, default) for name in missing]
    targets = {name: topics[name] for name in names & set(topics)} | {config.topic: config for config in made}
    for config in targets.values():
        if not config.is_writable:
            raise BadInput(
                f"topic {config.topic} is not writable (perm {config.perm}); `topics update {config.topic} --perm RW` "
                "allows it, or name another with --to-topic"
            )
        if config.write_queue_nums < 1:
            raise BadInput(no_queues_complaint(config))
    return targets, made
