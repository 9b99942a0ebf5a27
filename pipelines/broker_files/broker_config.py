"""A broker's `config/` directory: topics, groups, consumer offsets, filters, and the progress of its own followers.

An import writes it to these tables:

- `topics.json`, `subscriptionGroup.json`: tables topics and subscription_groups
- `consumerOffset.json`, `lmqConsumerOffset.json`: table consumer_offsets (client_id '', clustering)
- `consumerFilter.json`: table subscriptions
- table floors: one row per follower; everything below `position` is settled:

      schedule:LEVEL       next queue offset of that delay level, from 1 (`delayOffset.json`)
      timer:read_time_ms   the slot the timer reads next, epoch milliseconds (`timercheck`)
      timer:log_position   bytes of the timer log that had reached the disk
      timer:queue_offset   next queue offset of rmq_sys_wheel_timer
      half, op             next queue offset of the transaction check in the half and op topics (group CID_RMQ_SYS_TRANS)
      dispatch             physical offset up to which the consume queues cover the log
      export               physical offset up to which an export wrote the log: due times before it are a store's own
"""

import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pyspark.sql.types import BooleanType, DataType, IntegerType, LongType, MapType

from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.export_note import read_export_note
from pipelines.errors import BadInput, in_words
from pipelines.rocketmq.names import (
    HALF_TOPIC,
    LIGHT_PREFIX,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_GROUP,
    group_name_complaint,
    is_system_topic,
    topic_name_complaint,
)
from pipelines.rocketmq.settings import INT_MAX, LONG_MAX, Settings
from pipelines.store.floors import OF_AN_EXPORT
from pipelines.store.groups import SubscriptionGroupConfig
from pipelines.store.topics import TopicConfig, queue_count_complaint
from schemas import SUBSCRIPTION_GROUPS, TOPICS, Table

CONFIG = "config"

Parsed = TypeVar("Parsed")
Named = TypeVar("Named")
QueueOfGroup = tuple[str, str, int]

# Strings match first, so that a comma and a number inside one are never taken for a key.
_STRING_OR_NUMBER_KEY = re.compile(r'("(?:[^"\\]|\\.)*")|([{,]\s*)(-?[0-9]+)(\s*:)', re.DOTALL)


def parse_fastjson(text: str) -> Any:
    """The value of JSON as RocketMQ writes it: integer keys have no quotes.

    >>> parse_fastjson('{"offsetTable":{1:14,-2:10},"a":["x,3:4"]}')
    {'offsetTable': {'1': 14, '-2': 10}, 'a': ['x,3:4']}
    """

    def quoted(found: re.Match[str]) -> str:
        return found[1] if found[1] is not None else f'{found[2]}"{found[3]}"{found[4]}'

    return json.loads(_STRING_OR_NUMBER_KEY.sub(quoted, text))


# Types of a subscription's expression that a broker writes, and that are data, not code.
EXPRESSION_TYPES = ("TAG", "SQL92")


@dataclass(frozen=True)
class BrokerConfig:
    """The content of a broker's config files; None for topics or groups without a file.

    topics, groups      by name
    consumer_offsets    next offset by (group, topic, queue)
    subscriptions       (group, topic, expression_type, expression, sub_version)
    floors              position by follower, without `dispatch`
    """

    topics: Mapping[str, TopicConfig] | None
    groups: Mapping[str, SubscriptionGroupConfig] | None
    consumer_offsets: Mapping[QueueOfGroup, int]
    subscriptions: list[tuple[str, str, str, str, int]]
    floors: Mapping[str, int]

    def with_valid_names(self, settings: Settings) -> tuple["BrokerConfig", list[str]]:
        """(the config without topics and groups whose names RocketMQ's own validator refuses, a sentence about each).

        It has no subscriptions of other types than EXPRESSION_TYPES either: see `refused_subscriptions`.

        Not checked are topics that a broker makes for itself, named after its host or cluster, and light queues, which have
        any name.
        """

        def topic_complaint(name: str) -> str | None:
            is_exempt = name.startswith(LIGHT_PREFIX) or is_system_topic(name, settings)
            return None if is_exempt else topic_name_complaint(name)

        def group_complaint(name: str) -> str | None:
            return None if name.startswith(LIGHT_PREFIX) else group_name_complaint(name)

        def kept(
            found: Mapping[str, Named] | None, complaint: Callable[[str], str | None]
        ) -> dict[str, Named] | None:
            return (
                None
                if found is None
                else {name: one for name, one in found.items() if complaint(name) is None}
            )

        pairs = {(group, topic) for group, topic, _ in self.consumer_offsets}
        pairs |= {(one[0], one[1]) for one in self.subscriptions}
        topics = {*(self.topics or {}), *(topic for _, topic in pairs)}
        groups = {*(self.groups or {}), *(group for group, _ in pairs)}
        refused_topics = {name: topic_complaint(name) for name in sorted(topics) if topic_complaint(name)}
        refused_groups = {name: group_complaint(name) for name in sorted(groups) if group_complaint(name)}

        def are_valid(group: str, topic: str) -> bool:
            return group not in refused_groups and topic not in refused_topics

        valid = replace(
            self,
            topics=kept(self.topics, topic_complaint),
            groups=kept(self.groups, group_complaint),
            consumer_offsets={
                (group, topic, queue_id): offset
                for (group, topic, queue_id), offset in self.consumer_offsets.items()
                if are_valid(group, topic)
            },
            subscriptions=[
                one for one in self.subscriptions if are_valid(one[0], one[1]) and one[2] in EXPRESSION_TYPES
            ],
        )
        return valid, [
            complaint for complaint in (*refused_topics.values(), *refused_groups.values()) if complaint
        ]

    def expect_few_queues(self, settings: Settings) -> None:
        """Raises BadInput for a topic or a group with more queues than the setting maxTopicQueueNums allows."""
        queues = {
            f"topic {one.topic} (topics.json)": max(one.read_queue_nums, one.write_queue_nums)
            for one in (self.topics or {}).values()
        } | {
            f"the retry topic of group {one.group} (subscriptionGroup.json)": one.retry_queue_nums
            for one in (self.groups or {}).values()
        }
        for what, count in queues.items():
            complaint = queue_count_complaint(what, count, settings)
            if complaint is not None:
                raise BadInput(
                    f"{complaint}. Nothing was imported: correct the broker's file, or set it higher in a file that "
                    "--broker-conf names"
                )

    def refused_subscriptions(self) -> list[str]:
        """A sentence about each subscription that is left out for its type: a class filter would be code from the broker."""
        return [
            f"the subscription of group {group} to topic {topic} has type {kind!r}; expected {' or '.join(EXPRESSION_TYPES)}"
            for group, topic, kind, _, _ in self.subscriptions
            if kind not in EXPRESSION_TYPES
        ]

    @classmethod
    def read(cls, directory: BrokerDirectory) -> "BrokerConfig":
        """The config from the files, read as a broker reads them: where one is missing, empty or damaged, its .bak."""
        offsets = dict(_load(directory, "consumerOffset.json", _consumer_offsets) or {})
        # A broker with enableLmq has all groups in this one; the other may be of before.
        for queue, offset in (_load(directory, "lmqConsumerOffset.json", _lmq_offsets) or {}).items():
            offsets[queue] = max(offset, offsets.get(queue, offset))
        floors = dict(_load(directory, "delayOffset.json", _delay_floors) or {})
        note = read_export_note(directory)
        floors.update(_timer_floors(directory, note.get("timer") or []))
        if note:
            # A run that was cut short has written more than what the one before it had.
            floors[OF_AN_EXPORT] = max(note.get("end_offset", 0), note.get("under_way_to", 0))
        # What consumers of the exported directory have subscribed to since is in the broker's own file.
        filters = _load(directory, "consumerFilter.json", _subscriptions) or []
        noted = [(group, topic, "TAG", tags, 0) for group, topic, tags in note.get("subscriptions") or []]
        for follower, topic in (("half", HALF_TOPIC), ("op", OP_TOPIC)):
            if (TRANSACTION_GROUP, topic, 0) in offsets:
                floors[follower] = offsets[TRANSACTION_GROUP, topic, 0]
        return cls(
            _load(directory, "topics.json", _topics),
            _load(directory, "subscriptionGroup.json", _groups),
            offsets,
            [*filters, *(one for one in noted if one[:2] not in {one[:2] for one in filters})],
            floors,
        )


def floor_queue(follower: str) -> tuple[str, int] | None:
    """The queue of a floor that is a queue offset; None for one that is a time or a position in a file.

    >>> floor_queue("schedule:3")
    ('SCHEDULE_TOPIC_XXXX', 2)
    """
    kind, _, level = follower.partition(":")
    if kind == "schedule":
        return SCHEDULE_TOPIC, int(level) - 1
    return {"half": (HALF_TOPIC, 0), "op": (OP_TOPIC, 0), "timer:queue_offset": (TIMER_TOPIC, 0)}.get(
        follower
    )


def _load(directory: BrokerDirectory, name: str, parse: Callable[[Any], Parsed]) -> Parsed | None:
    """A parsed config file, else its backup; None where neither exists. Raises BadInput where none can be parsed."""
    failures = []
    for path in (f"{CONFIG}/{name}", f"{CONFIG}/{name}.bak"):
        content = directory.read(path)
        if not content:
            continue
        try:
            return parse(parse_fastjson(content.decode()))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as failure:
            failures.append(f"{path} ({in_words(failure)})")
    if failures:
        raise BadInput(
            f"cannot read {' nor '.join(failures)}; expected RocketMQ's JSON. Restore one of them, or move both away "
            "to import without"
        )
    return None


def _fitting(config: Named, table: Table) -> Named:
    """The config, with values that the table can hold. Raises ValueError where one does not have its column's type."""
    for column in table.columns:
        value = getattr(config, column.name)
        if not _fits(value, column.dataType):
            raise ValueError(f"{column.name} is {value!r}, expected {column.dataType.simpleString()}")
    return config


def _fits(value: Any, kind: DataType) -> bool:
    if isinstance(kind, IntegerType | LongType):
        most = INT_MAX if isinstance(kind, IntegerType) else LONG_MAX
        return type(value) is int and -most - 1 <= value <= most
    if isinstance(kind, MapType):
        return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    return isinstance(value, bool if isinstance(kind, BooleanType) else str)


def _number(value: Any, most: int = LONG_MAX) -> int:
    """A whole number, from a number or from its text, as a key in JSON is. Raises ValueError for another value."""
    number = int(value) if isinstance(value, str) else value
    if not _fits(number, IntegerType() if most == INT_MAX else LongType()):
        raise ValueError(f"{value!r} where a whole number of at most {most} is expected")
    return int(number)


def _topics(content: Any) -> dict[str, TopicConfig]:
    table = content["topicConfigTable"] or {}
    return {name: _fitting(_topic(name, one), TOPICS) for name, one in table.items()}


def _topic(name: str, one: Mapping[str, Any]) -> TopicConfig:
    return TopicConfig.of_row(
        {
            "topic": name,
            "read_queue_nums": one.get("readQueueNums"),
            "write_queue_nums": one.get("writeQueueNums"),
            "perm": one.get("perm"),
            "topic_filter_type": one.get("topicFilterType"),
            "topic_sys_flag": one.get("topicSysFlag"),
            "order": one.get("order"),
            "attributes": one.get("attributes"),
        }
    )


def _groups(content: Any) -> dict[str, SubscriptionGroupConfig]:
    table = content["subscriptionGroupTable"] or {}
    return {name: _fitting(_group(name, one), SUBSCRIPTION_GROUPS) for name, one in table.items()}


def _group(name: str, one: Mapping[str, Any]) -> SubscriptionGroupConfig:
    policy = one.get("groupRetryPolicy")
    return SubscriptionGroupConfig.of_row(
        {
            "group": name,
            "retry_queue_nums": one.get("retryQueueNums"),
            "retry_max_times": one.get("retryMaxTimes"),
            "consume_enable": one.get("consumeEnable"),
            "consume_from_min_enable": one.get("consumeFromMinEnable"),
            "consume_broadcast_enable": one.get("consumeBroadcastEnable"),
            "consume_message_orderly": one.get("consumeMessageOrderly"),
            "group_retry_policy": json.dumps(policy, separators=(",", ":")) if policy else None,
            "broker_id": one.get("brokerId"),
            "which_broker_when_consume_slowly": one.get("whichBrokerWhenConsumeSlowly"),
            "notify_consumer_ids_changed_enable": one.get("notifyConsumerIdsChangedEnable"),
            "group_sys_flag": one.get("groupSysFlag"),
            "consume_timeout_minute": one.get("consumeTimeoutMinute"),
            "attributes": one.get("attributes"),
        }
    )


def _consumer_offsets(content: Any) -> dict[QueueOfGroup, int]:
    """Offsets by (group, topic, queue), from `{"TOPIC@GROUP": {queue: offset}}`."""
    return {
        (group, topic, _number(queue, INT_MAX)): _number(offset)
        for topic_at_group, queues in (content["offsetTable"] or {}).items()
        for topic, _, group in [topic_at_group.partition("@")]
        for queue, offset in queues.items()
    }


def _lmq_offsets(content: Any) -> dict[QueueOfGroup, int]:
    """Offsets by (group, topic, queue), of groups of light queues from `{"TOPIC@GROUP": offset}`: their queue is 0."""
    return _consumer_offsets({"offsetTable": content.get("offsetTable")}) | {
        (group, topic, 0): _number(offset)
        for topic_at_group, offset in (content.get("lmqOffsetTable") or {}).items()
        for topic, _, group in [topic_at_group.partition("@")]
    }


def _subscriptions(content: Any) -> list[tuple[str, str, str, str, int]]:
    return [
        (
            group,
            topic,
            _text(one.get("expressionType") or "TAG"),
            _text(one.get("expression") or ""),
            _number(one.get("clientVersion") or 0),
        )
        for topic, by_group in (content["filterDataByTopic"] or {}).items()
        for group, one in (by_group["groupFilterData"] or {}).items()
    ]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} where a text is expected")
    return value


def _delay_floors(content: Any) -> dict[str, int]:
    return {
        f"schedule:{_number(level, INT_MAX)}": _number(offset)
        for level, offset in (content["offsetTable"] or {}).items()
    }


def _timer_floors(directory: BrokerDirectory, exported: Sequence[int]) -> dict[str, int]:
    """How far the timer had come.

    exported  of an export: where its timer read next, and the slot of the first message that waits there or before. While
              no broker has run on it, what waits since then is overdue and not delivered.
    """
    content = directory.read(f"{CONFIG}/timercheck")
    if content is None:
        return {}
    if len(content) < 24:
        raise BadInput(
            f"{CONFIG}/timercheck has {len(content)} bytes; expected 24 or more. Restore the file, or move it away"
        )
    names = ("timer:read_time_ms", "timer:log_position", "timer:queue_offset")
    floors = dict(zip(names, struct.unpack_from(">qqq", content), strict=True))
    if len(exported) == 2 and floors[names[0]] == exported[0]:
        floors[names[0]] = exported[1]
    return floors
