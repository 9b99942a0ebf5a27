"""A broker's `config/` files and its checkpoint, from the store's tables (docs/rocketmq/store.md 0, 3.6)."""

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import functions as F

from pipelines.broker_files.broker_config import CONFIG, parse_fastjson
from pipelines.export.settled import Settled
from pipelines.rocketmq.names import HALF_TOPIC, LIGHT_PREFIX, OP_TOPIC, TRANSACTION_GROUP
from pipelines.rocketmq.settings import OF_AN_IMPORT, OF_ANOTHER_STORE
from pipelines.store.groups import SubscriptionGroupConfig, read_groups
from pipelines.store.head import LogHead
from pipelines.store.role import settings_now, without_role
from pipelines.store.snapshot import Snapshot
from pipelines.store.topics import TopicConfig, first_topics, read_topics
from schemas import CONSUMER_OFFSETS, SUBSCRIPTIONS

CHECKPOINT, CHECKPOINT_BYTES = "checkpoint", 4_096
OFFSET_FILES = (f"{CONFIG}/consumerOffset.json", f"{CONFIG}/lmqConsumerOffset.json")


def config_files(at: Snapshot, head: LogHead, settled: Settled, now_ms: int) -> Iterator[tuple[str, bytes]]:
    """Path and content of each of a broker's JSON files."""
    version = {"counter": 1, "stateVersion": 0, "timestamp": now_ms}
    topics = {topic.topic: topic for topic in first_topics(at.store.settings)} | dict(read_topics(at))
    offsets = _consumer_offsets(at, head, settled)
    # A broker with light queues looks for all offsets in a file of its own, and there for those of their groups apart.
    light_groups = [name for name in offsets if f"@{LIGHT_PREFIX}" in name and [*offsets[name]] == ["0"]]
    light = {name: offsets.pop(name)["0"] for name in light_groups}
    has_light = bool(light) or settings_now(at).given.get("enableLmq", "").lower() == "true"
    files: dict[str, dict[str, Any]] = {
        "topics.json": {
            "dataVersion": version,
            "topicConfigTable": {name: _topic(topic) for name, topic in sorted(topics.items())},
        },
        "subscriptionGroup.json": {
            "dataVersion": version,
            "forbiddenTable": {},
            "subscriptionGroupTable": {
                name: _group(group) for name, group in sorted(read_groups(at).items())
            },
        },
        "consumerOffset.json": {"dataVersion": version, "offsetTable": offsets},
        "delayOffset.json": {
            "dataVersion": version,
            "offsetTable": {str(level): offset for level, offset in sorted(settled.levels.items())},
        },
        "consumerFilter.json": {"filterDataByTopic": _filters(at, now_ms)},
    }
    if has_light:
        files["lmqConsumerOffset.json"] = {**files["consumerOffset.json"], "lmqOffsetTable": light}
    for name, content in files.items():
        yield f"{CONFIG}/{name}", json.dumps(content, ensure_ascii=False, indent="\t").encode()


def offsets_digest(files: Mapping[str, bytes | None]) -> str:
    """What tells whether groups have read on: of the offsets in a broker's files alone, which it writes again as it runs.

    files  content by path; of OFFSET_FILES those that are there count
    """
    try:
        found = {
            path: parse_fastjson(content.decode()) for path in OFFSET_FILES if (content := files.get(path))
        }
        tables = [(path, one.get("offsetTable"), one.get("lmqOffsetTable")) for path, one in found.items()]
    except (ValueError, AttributeError):
        return "not readable"
    return hashlib.sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()


def checkpoint(head: LogHead, index_timestamp: int) -> bytes:
    """The checkpoint of a broker that has stopped in order, all of whose files are on the disk.

    index_timestamp  store time of the last message of the last full index file; 0 without one
    """
    stored = head.last_store_timestamp
    return struct.pack(">qqq", stored, stored, index_timestamp).ljust(CHECKPOINT_BYTES, b"\0")


def broker_conf(at: Snapshot) -> bytes:
    """The settings of the store, but for its role and for which files an imported broker had where, as Java's Properties."""
    left_out = {*OF_AN_IMPORT, *OF_ANOTHER_STORE} - {"messageIndexEnable"}
    given = {
        name: value for name, value in without_role(settings_now(at).given).items() if name not in left_out
    }
    return "".join(f"{name}={_escaped(given[name])}\n" for name in sorted(given)).encode("ascii")


def _escaped(value: str) -> str:
    """A value in the text of a Java Properties file.

    >>> print(_escaped(" a\\\\b é"))
    \\ a\\\\b \\u00e9
    """
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if escaped.startswith(" "):
        escaped = f"\\{escaped}"
    units = struct.unpack(f">{len(escaped.encode('utf-16-be')) // 2}H", escaped.encode("utf-16-be"))
    return "".join(chr(unit) if 32 <= unit < 127 else f"\\u{unit:04x}" for unit in units)


def subscriptions_by_tag(at: Snapshot) -> list[list[str]]:
    """The subscriptions that a broker's own files have no place for: (group, topic, expression)."""
    rows = sorted(at.rows(SUBSCRIPTIONS), key=lambda row: (row.group, row.topic))
    return [[row.group, row.topic, row.expression] for row in rows if row.expression_type == "TAG"]


def _topic(topic: TopicConfig) -> dict[str, Any]:
    return {
        # RocketMQ writes a change of an attribute with a sign before its name, and its value without.
        "attributes": dict(topic.attributes or {}),
        "order": topic.order,
        "perm": topic.perm,
        "readQueueNums": topic.read_queue_nums,
        "topicFilterType": topic.topic_filter_type,
        "topicName": topic.topic,
        "topicSysFlag": topic.topic_sys_flag,
        "writeQueueNums": topic.write_queue_nums,
    }


def _group(group: SubscriptionGroupConfig) -> dict[str, Any]:
    return {
        "attributes": dict(group.attributes or {}),
        "brokerId": group.broker_id,
        "consumeBroadcastEnable": group.consume_broadcast_enable,
        "consumeEnable": group.consume_enable,
        "consumeFromMinEnable": group.consume_from_min_enable,
        "consumeMessageOrderly": group.consume_message_orderly,
        "consumeTimeoutMinute": group.consume_timeout_minute,
        "groupName": group.group,
        "groupRetryPolicy": json.loads(group.group_retry_policy),
        "groupSysFlag": group.group_sys_flag,
        "notifyConsumerIdsChangedEnable": group.notify_consumer_ids_changed_enable,
        "retryMaxTimes": group.retry_max_times,
        "retryQueueNums": group.retry_queue_nums,
        "whichBrokerWhenConsumeSlowly": group.which_broker_when_consume_slowly,
    }


def _consumer_offsets(at: Snapshot, head: LogHead, settled: Settled) -> dict[str, dict[str, int]]:
    """`{"TOPIC@GROUP": {queue: offset}}`, with those of the transaction check; none after its queue's end.

    A group may have read meanwhile what came after the exported log.
    """
    offsets: dict[str, dict[str, int]] = {}
    # A row a group and queue, as in the broker's own file.
    rows = at.read(CONSUMER_OFFSETS).where(F.col("client_id") == "")
    for row in (
        rows.select("group", "topic", "queue_id", "next_offset")
        .orderBy("group", "topic", "queue_id")
        .collect()
    ):
        offsets.setdefault(f"{row.topic}@{row.group}", {})[str(row.queue_id)] = min(
            row.next_offset, head.next_of(row.topic, row.queue_id)
        )
    for topic, position in ((HALF_TOPIC, settled.half), (OP_TOPIC, settled.op)):
        if position is not None:
            offsets[f"{topic}@{TRANSACTION_GROUP}"] = {"0": position}
    return offsets


def _filters(at: Snapshot, now_ms: int) -> Mapping[str, Any]:
    """Subscriptions by SQL92; a broker keeps none by tag, and a consumer brings its own when it comes."""
    by_topic: dict[str, Any] = {}
    for row in sorted(at.rows(SUBSCRIPTIONS), key=lambda row: (row.topic, row.group)):
        if row.expression_type != "SQL92":
            continue
        of_topic = by_topic.setdefault(row.topic, {"groupFilterData": {}, "topic": row.topic})
        of_topic["groupFilterData"][row.group] = {
            "bornTime": now_ms,
            "clientVersion": row.sub_version,
            "consumerGroup": row.group,
            "dead": True,
            "deadTime": now_ms,
            "expression": row.expression,
            "expressionType": row.expression_type,
            "topic": row.topic,
        }
    return by_topic
