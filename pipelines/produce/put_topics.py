"""The topics of a put: those of the store, and those that are made on the fly."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from pipelines.log.count import QueueNums
from pipelines.rocketmq.settings import Settings
from pipelines.store.topics import TopicConfig, default_topic, no_queues_complaint, topic_made_on_the_fly


@dataclass(frozen=True)
class PutTopics:
    """Topics as of one snapshot, and the settings that decide about new ones."""

    there: Mapping[str, TopicConfig]
    settings: Settings

    def config(self, topic: str) -> TopicConfig:
        """The topic's config, or the one it would get when it is made on the fly."""
        return self.there.get(topic) or topic_made_on_the_fly(topic, self._default)

    @cached_property
    def _default(self) -> TopicConfig:
        return default_topic(self.there, self.settings)

    @property
    def queue_nums(self) -> QueueNums:
        """Queues that are written, by topic: at least one, so that rows can be counted.

        What is for a topic without any is refused once it is known to come (`complaints`).
        """
        by_topic = {topic: max(config.write_queue_nums, 1) for topic, config in self.there.items()}
        return QueueNums(by_topic, max(self.config("").write_queue_nums, 1))

    def missing(self, topics: Iterable[str]) -> list[TopicConfig]:
        """Those of the topics that a put makes."""
        return [self.config(topic) for topic in sorted(set(topics) - set(self.there))]

    def complaints(self, topics: Iterable[str]) -> dict[str, str]:
        """Why some topics cannot be put to: not there and not made on the fly, not writable, or without queues."""
        complaints = {}
        for topic in topics:
            config = self.config(topic)
            if topic not in self.there and not self.settings["autoCreateTopicEnable"]:
                complaints[topic] = (
                    f"topic {topic} does not exist and autoCreateTopicEnable is false; create it first"
                )
            elif not config.is_writable:
                complaints[topic] = f"topic {topic} is not writable (perm {config.perm})"
            elif config.write_queue_nums < 1:
                complaints[topic] = no_queues_complaint(config)
        return complaints

    def overrun(self, queues: Iterable[tuple[str, int]]) -> dict[str, int]:
        """Topics that do not have one of the queues: topic -> queues it has, the greater of read and write."""
        overrun = {}
        for topic, queue_id in queues:
            config = self.config(topic)
            there = max(config.read_queue_nums, config.write_queue_nums)
            if queue_id >= there:
                overrun[topic] = there
        return overrun
