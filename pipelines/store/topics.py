"""Topics: RocketMQ's TopicConfig, its permissions and attributes (docs/rocketmq/store.md 7.2 to 7.4)."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from pipelines.errors import BadInput
from pipelines.rocketmq.names import (
    BENCHMARK_TOPIC,
    DEFAULT_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_PREFIX,
    TIMER_TOPIC,
    belongs_to_group,
    dead_letter_topic,
    is_system_topic,
    reply_topic,
    retry_topic,
    topic_name_complaint,
)
from pipelines.rocketmq.settings import LONG_MAX, Settings
from pipelines.store.plan import Plan
from pipelines.store.small_tables import write_if_changed
from pipelines.store.snapshot import Snapshot
from schemas import TOPICS

PERM_READ, PERM_WRITE, PERM_INHERIT = 4, 2, 1
READ_WRITE = PERM_READ | PERM_WRITE

# A producer requests this many queues for a topic made on the fly; the topic has as many unless TBW102 has fewer.
QUEUES_MADE_ON_THE_FLY = 4
# The default table has this many delay levels; the schedule topic has as many queues whatever table is set.
SCHEDULE_QUEUES = 18

MULTI_TAG = "MULTI_TAG"
FILTER_TYPES = ("SINGLE_TAG", MULTI_TAG)

# Attributes and the values they take; a fixed one is chosen when the topic is made.
ATTRIBUTE_WORDS = {
    "queue.type": ("SimpleCQ", "BatchCQ"),
    "cleanup.policy": ("DELETE", "COMPACTION"),
    "message.type": ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"),
}
FIXED_ATTRIBUTES = ("queue.type", "cleanup.policy")
DONE_ANYWAY = {"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"}


@dataclass(frozen=True)
class TopicConfig:
    """A topic as the table keeps it; the defaults are RocketMQ's."""

    topic: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = READ_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "TopicConfig":
        """The config of a row of the table; what an older writer left null has its default."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in row.items() if name in known and value is not None})

    @property
    def is_multi_tag(self) -> bool:
        return self.topic_filter_type == MULTI_TAG

    @property
    def is_readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def is_writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)

    @property
    def without_effect(self) -> list[str]:
        """What it has that no job reads, but for values that say what happens anyway."""
        columns = ["order"] if self.order else []
        columns += ["topic_sys_flag"] if self.topic_sys_flag else []
        return columns + sorted(
            name for name, value in self.attributes.items() if DONE_ANYWAY.get(name) != value
        )


Topics = Mapping[str, TopicConfig]
OWN = "is the store's own; it cannot be created, updated or deleted"


def first_topics(settings: Settings) -> list[TopicConfig]:
    """The topics a broker makes when it first starts."""
    cluster, broker = settings["brokerClusterName"], settings["brokerName"]
    all_bits = READ_WRITE | PERM_INHERIT
    made = [
        _system(SELF_TEST_TOPIC, 1),
        _system(BENCHMARK_TOPIC, 1024),
        _system(cluster, 16, all_bits),
        _system(broker, 1, all_bits),
        _system(OFFSET_MOVED_TOPIC, 1),
        _system(SCHEDULE_TOPIC, SCHEDULE_QUEUES),
        _system(reply_topic(settings), 1),
        _system(f"{SYSTEM_PREFIX}REVIVE_LOG_{cluster}", 8),
        _system(f"{SYSTEM_PREFIX}SYNC_BROKER_MEMBER_{broker}", 1, PERM_INHERIT),
        _system(HALF_TOPIC, 1),
        _system(OP_TOPIC, 1),
        _system(TIMER_TOPIC, 1),
    ]
    if settings["autoCreateTopicEnable"]:
        made.append(_system(DEFAULT_TOPIC, settings["defaultTopicQueueNums"], all_bits))
    by_name = {config.topic: config for config in made}  # a cluster may be called like its broker
    return sorted(by_name.values(), key=lambda config: config.topic)


def _system(name: str, queues: int, perm: int = READ_WRITE) -> TopicConfig:
    return TopicConfig(name, queues, queues, perm)


def default_topic(topics: Topics, settings: Settings) -> TopicConfig:
    """TBW102 as it is, or as autoCreateTopicEnable would make it: what topics made on the fly copy."""
    queues = settings["defaultTopicQueueNums"]
    return topics.get(DEFAULT_TOPIC) or TopicConfig(DEFAULT_TOPIC, queues, queues, 7)


def topic_made_on_the_fly(name: str, default_topic: TopicConfig) -> TopicConfig:
    """The topic that a put makes where nobody created it: a copy of TBW102, or one queue for a group's own topic."""
    if belongs_to_group(name):
        return TopicConfig(name, 1, 1)
    queues = min(QUEUES_MADE_ON_THE_FLY, default_topic.write_queue_nums)
    return TopicConfig(
        name, queues, queues, default_topic.perm & ~PERM_INHERIT, default_topic.topic_filter_type
    )


def no_queues_complaint(config: TopicConfig) -> str:
    """Why nothing can be put to a topic without queues that are written; an imported one may have none."""
    return (
        f"topic {config.topic} has no queue that is written (write_queue_nums {config.write_queue_nums}); give it some with "
        "`topics update --write-queues`, or create it with some"
    )


def permission(text: str) -> int:
    """The bits of a permission given as letters or as a number. Raises BadInput for any other text.

    >>> permission("RW"), permission("6"), permission("R")
    (6, 6, 4)
    """
    if re.fullmatch(r"[0-7]", text):
        return int(text)
    letters = text.upper().replace("-", "")
    if not letters or set(letters) - set("RWX") or len(set(letters)) != len(letters):
        raise BadInput(f'permission is "{text}"; expected letters of RWX or a number from 0 to 7')
    return sum({"R": PERM_READ, "W": PERM_WRITE, "X": PERM_INHERIT}[letter] for letter in letters)


def permission_letters(perm: int) -> str:
    """The letters of a permission's bits, a dash for each that is not set.

    >>> permission_letters(6), permission_letters(1)
    ('RW-', '--X')
    """
    bits = ((PERM_READ, "R"), (PERM_WRITE, "W"), (PERM_INHERIT, "X"))
    return "".join(letter if perm & bit else "-" for bit, letter in bits)


def altered_attributes(old: Mapping[str, str] | None, changes: Iterable[str]) -> dict[str, str]:
    """The attributes after changes, which are written as in RocketMQ; `old` is None for a topic that is being made.

    Raises BadInput for a change that cannot be read or made.

    >>> altered_attributes({"message.type": "FIFO"}, ["+reserve.time=5,-message.type"])
    {'reserve.time': '5'}
    """
    attributes = dict(old or {})
    seen: set[str] = set()
    for change in (one.strip() for given in changes for one in given.split(",") if one.strip()):
        sign, (name, _, value) = change[0], change[1:].partition("=")
        if sign not in "+-" or (sign == "+") != ("=" in change):
            raise BadInput(f'attribute "{change}" is not understood; expected +name=value or -name')
        if name in seen:
            raise BadInput(f"attribute {name} is changed twice; change it once")
        seen.add(name)
        _check_attribute(name, value if sign == "+" else None)
        if old is not None and name in FIXED_ATTRIBUTES and attributes.get(name) != value:
            raise BadInput(
                f"attribute {name} is fixed when the topic is made; delete and create the topic to change it"
            )
        if sign == "+":
            attributes[name] = value
        elif name not in attributes:
            raise BadInput(f"attribute {name} is not set, so it cannot be removed")
        else:
            del attributes[name]
    return attributes


def _check_attribute(name: str, value: str | None) -> None:
    if name not in ATTRIBUTE_WORDS and name != "reserve.time":
        known = ", ".join([*ATTRIBUTE_WORDS, "reserve.time"])
        raise BadInput(f'attribute "{name}" is not known; known are {known}')
    if value is None:
        return
    if name in ATTRIBUTE_WORDS and value not in ATTRIBUTE_WORDS[name]:
        raise BadInput(f'attribute {name} is "{value}"; expected one of {", ".join(ATTRIBUTE_WORDS[name])}')
    if name == "reserve.time" and not (re.fullmatch(r"-?[0-9]+", value) and -1 <= int(value) <= LONG_MAX):
        raise BadInput(f'attribute {name} is "{value}"; expected a whole number, -1 or more')


def read_topics(at: Snapshot) -> Topics:
    """All topics by name. A broker has thousands at most, so they fit the driver."""
    return {row.topic: TopicConfig.of_row(row.asDict()) for row in at.rows(TOPICS)}


def plan_create_topic(at: Snapshot, config: TopicConfig) -> Plan:
    """The plan that adds a topic; the same topic again changes nothing. Its queues go on where an earlier one's ended."""
    return _plan_topics(at, lambda topics: with_topic_created(topics, config, at.store.settings))


def plan_update_topic(
    at: Snapshot, name: str, changes: Mapping[str, Any], attributes: Iterable[str] = ()
) -> Plan:
    """The plan that changes the columns named in `changes`, and attributes as altered_attributes takes them."""
    return _plan_topics(
        at, lambda topics: with_topic_updated(topics, name, changes, attributes, at.store.settings)
    )


def plan_delete_topic(at: Snapshot, name: str) -> Plan:
    """The plan that removes a topic's config. Its messages stay in the log and its queues keep their bounds."""
    return _plan_topics(at, lambda topics: with_topic_deleted(topics, name, at.store.settings))


def plan_first_topics(at: Snapshot, settings: Settings) -> Plan:
    """The plan that adds the topics of a new store; empty where topics have been written before."""
    if at.number(TOPICS) >= 0:
        return Plan()
    return _plan_topics(at, lambda _: {config.topic: config for config in first_topics(settings)})


def plan_make_topics(at: Snapshot, configs: Iterable[TopicConfig]) -> Plan:
    """The plan that adds those of the topics that do not exist: another put may have made one since."""
    made = {config.topic: config for config in configs}
    return _plan_topics(at, lambda topics: {**made, **topics})


def plan_retry_topics(at: Snapshot, group: str, retry_queues: int) -> Plan:
    """The plan for a group's retry topic with at least `retry_queues` queues, and its topic of dead letters.

    docs/rocketmq/delay-retry-transaction.md 4.3-5 and 11. The retry topic never loses a queue: messages may lie in it.
    """
    retry, dead_letters = retry_topic(group), dead_letter_topic(group)

    expect_few_retry_queues(group, retry_queues, at.store.settings)

    def change(topics: Topics) -> Topics:
        known = topics.get(retry, TopicConfig(retry, retry_queues, retry_queues))
        raised = replace(
            known,
            read_queue_nums=max(known.read_queue_nums, retry_queues),
            write_queue_nums=max(known.write_queue_nums, retry_queues),
        )
        return {dead_letters: TopicConfig(dead_letters, 1, 1), **topics, retry: raised}

    return _plan_topics(at, change)


def _plan_topics(at: Snapshot, change: Callable[[Topics], Topics]) -> Plan:
    """The plan of a change; no write where it changes nothing. Its result `topics` is the number of writes."""
    before = read_topics(at)
    writes = write_if_changed(at, TOPICS, before, change(before))
    return Plan(writes, {"topics": len(writes)})


def with_topic_created(topics: Topics, config: TopicConfig, settings: Settings) -> Topics:
    _check_topic(config, settings)
    old = topics.get(config.topic, config)
    if old != config:
        raise BadInput(f"topic {config.topic} exists with {difference(old, config)}; use update to change it")
    return {**topics, config.topic: config}


def with_topic_updated(
    topics: Topics, name: str, changes: Mapping[str, Any], attributes: Iterable[str], settings: Settings
) -> Topics:
    if name not in topics:
        raise BadInput(f"there is no topic {name}{nearest(name, topics)}; create it first")
    old = topics[name]
    new = replace(old, **changes, attributes=altered_attributes(old.attributes, attributes))
    _check_topic(new, settings)
    return {**topics, name: new}


def with_topic_deleted(topics: Topics, name: str, settings: Settings) -> Topics:
    if is_system_topic(name, settings):
        raise BadInput(f"topic {name} {OWN}")
    return {other: config for other, config in topics.items() if other != name}


def _check_topic(config: TopicConfig, settings: Settings) -> None:
    complaint = topic_name_complaint(config.topic)
    if complaint is None and is_system_topic(config.topic, settings):
        complaint = f"topic {config.topic} {OWN}"
    for kind, queues in (("read", config.read_queue_nums), ("write", config.write_queue_nums)):
        if complaint is None and queues < 1:
            complaint = f"topic {config.topic} has {queues} {kind} queues; expected 1 or more"
        complaint = complaint or queue_count_complaint(f"topic {config.topic}", queues, settings)
    if complaint is None and not 0 <= config.perm <= 7:
        complaint = f"topic {config.topic} has permission {config.perm}; expected a number from 0 to 7"
    if complaint is None and config.topic_filter_type not in FILTER_TYPES:
        complaint = (
            f'topic {config.topic} has filter type "{config.topic_filter_type}"; '
            f"expected one of {', '.join(FILTER_TYPES)}"
        )
    if complaint is not None:
        raise BadInput(complaint)


def queue_count_complaint(what: str, queues: int, settings: Settings) -> str | None:
    """Why a topic may not have N queues, None where it may: readers of a topic list all its queues, so N is limited."""
    most = settings["maxTopicQueueNums"]
    return (
        f"{what} has {queues} queues; at most {most} (setting maxTopicQueueNums)" if queues > most else None
    )


def expect_few_retry_queues(group: str, queues: int, settings: Settings) -> None:
    """Raises BadInput where a group's retry topic would have more queues than a topic may have."""
    complaint = queue_count_complaint(f"the retry topic of group {group}", queues, settings)
    if complaint is not None:
        raise BadInput(f"{complaint}; `topics update-group {group} --retry-queues N` sets fewer")


def difference(old: Any, new: Any) -> str:
    """The fields in which two values differ, in words."""
    was, wanted = asdict(old), asdict(new)
    return ", ".join(f"{name} {was[name]}, not {wanted[name]}" for name in was if was[name] != wanted[name])


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or nothing when no known name comes near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
