"""The topics of a put: those of the store, and those that the put makes on the fly."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from pipelines.log.count import QueueNums
from pipelines.rocketmq.names import group_name_complaint, group_of_retry_topic
from pipelines.rocketmq.settings import Settings
from pipelines.store.topics import TopicConfig, default_topic, no_queues_complaint, topic_made_on_the_fly


@dataclass(frozen=True)
class PutTopics:
    """Topics as of one snapshot, and the settings that decide about new ones.

    groups  names of the groups that are there: whose retries may be put to (delay-retry-transaction.md 4.4)
    """

    there: Mapping[str, TopicConfig]
    settings: Settings
    groups: Collection[str] = ()

    def config(self, topic: str) -> TopicConfig:
        """The topic's config, or the one that it gets when it is made on the fly."""
        return self.there.get(topic) or topic_made_on_the_fly(topic, self._default)

    @cached_property
    def _default(self) -> TopicConfig:
        return default_topic(self.there, self.settings)

    @property
    def queue_nums(self) -> QueueNums:
        """Write queues by topic: at least one, so that rows can be counted.

        Rows for a topic without write queues are refused after counting has found them (`complaints`).
        """
        by_topic = {topic: max(config.write_queue_nums, 1) for topic, config in self.there.items()}
        return QueueNums(by_topic, max(self.config("").write_queue_nums, 1))

    @property
    def multi_tag(self) -> list[str]:
        """Topics of the store whose messages may have several tags."""
        return sorted(topic for topic, config in self.there.items() if config.is_multi_tag)

    @property
    def new_are_multi_tag(self) -> bool:
        """Whether a topic that is made on the fly is one of these."""
        return self.config("").is_multi_tag

    def missing(self, topics: Iterable[str]) -> list[TopicConfig]:
        """Configs of those of the topics that the store does not have: the put makes them."""
        return [self.config(topic) for topic in sorted(set(topics) - set(self.there))]

    def missing_groups(self, topics: Iterable[str]) -> list[str]:
        """Groups that a put makes, because one of the topics holds their retries."""
        groups = {group for topic in topics if (group := group_of_retry_topic(topic)) is not None}
        return sorted(groups - set(self.groups))

    def _group_complaint(self, topic: str) -> str | None:
        """Why a topic of retries belongs to no group and to none that may be made; None where it does, and for others."""
        (group,) = self.missing_groups([topic]) or (None,)
        if group is None:
            return None
        if not self.settings["autoCreateSubscriptionGroup"]:
            return (
                f"topic {topic} holds retries of group {group}, which does not exist, and autoCreateSubscriptionGroup is "
                "false; create it with `topics create-group`"
            )
        return group_name_complaint(group)

    def complaints(self, topics: Iterable[str]) -> dict[str, str]:
        """Topic -> why nothing can be put to it: it does not exist and is not made on the fly, is not writable, or has no
        queues or no group.
        """
        complaints = {}
        for topic in topics:
            config = self.config(topic)
            if topic not in self.there and not self.settings["autoCreateTopicEnable"]:
                complaints[topic] = (
                    f"topic {topic} does not exist and autoCreateTopicEnable is false; create it first"
                )
            elif not config.is_writable:
                complaints[topic] = (
                    f"topic {topic} is not writable (perm {config.perm}); `topics update {topic} --perm RW` allows it"
                )
            elif config.write_queue_nums < 1:
                complaints[topic] = no_queues_complaint(config)
            elif (complaint := self._group_complaint(topic)) is not None:
                complaints[topic] = complaint
        return complaints

    def overrun(self, queues: Iterable[tuple[str, int]]) -> dict[str, int]:
        """Topics without one of the given queues: topic -> number of its queues, the greater of read and write."""
        overrun = {}
        for topic, queue_id in queues:
            config = self.config(topic)
            there = max(config.read_queue_nums, config.write_queue_nums)
            if queue_id >= there:
                overrun[topic] = there
        return overrun
