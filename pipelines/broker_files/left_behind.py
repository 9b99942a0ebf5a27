"""What an import does not take along from a broker's directory, in words."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.export_note import UNDER_WAY
from pipelines.broker_files.queue_bounds import names_of_kind
from pipelines.broker_files.queue_files import CONSUME_QUEUE
from pipelines.broker_files.segments import (
    COMMITLOG,
    LOG_PATHS,
    READ_ONLY_PATHS,
    counted_as_copied,
    read_only_left_out,
)

CONFIG = "config"
GROUPS = "subscriptionGroup.json"
# File → what is in it, and what follows from its not being here.
BESIDE = {
    "topicQueueMapping.json": "static topics, whose queues lie on several brokers: a queue has the messages of this one",
    "messageRequestMode.json": "which groups receive by POP: here every group reads queues",
    "consumerOrderInfo.json": "which orderly messages POP consumers had not acknowledged: they may be read again",
}
# Where a broker keeps the newest message of each key of a topic with cleanup.policy=COMPACTION.
COMPACTION = "compaction/compactionLog"
# A directory of RocksDB → the file that the same broker writes without it.
ROCKSDB = {
    "topics": "topics.json",
    "subscriptionGroups": GROUPS,
    "consumerOffsets": "consumerOffset.json",
}
# The directory of the one database with all three (configManagerVersion=v2).
ROCKSDB_OF_ALL = "rdb"
# RocksDB's own name of the file that says which of its files are the newest.
_CURRENT = "CURRENT"


def left_behind(directory: BrokerDirectory, conf: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each part of a broker's directory that has something and is not imported.

    conf  the broker's settings
    """
    if directory.exists(UNDER_WAY):
        yield (
            f"{directory.uri} is an export that was cut short: it may lack messages, and what waits and is overdue counts "
            "as delivered. Run `commitlake export_store` again, then import into an empty store"
        )
    for path in read_only_left_out(directory, conf):
        yield (
            f"{path} is left out, as the broker leaves it out: {READ_ONLY_PATHS} has effect where {LOG_PATHS} names several "
            "directories"
        )
    for path in counted_as_copied(directory, conf):
        yield (
            f"{path}, where the broker has files of its log, is not there: they count as copied to {COMMITLOG}. Where some "
            "were not, copy them there and import again into an empty store"
        )
    if directory.exists(f"{CONSUME_QUEUE}/{_CURRENT}") and not names_of_kind(directory, CONSUME_QUEUE):
        yield (
            f"{CONSUME_QUEUE} is a RocksDB database (storeType), which is not read here: queues are as the log has them, "
            "and one of which the log has no message any more begins at offset 0"
        )
    for name, content in BESIDE.items():
        if _is_filled(_parsed(directory.read(f"{CONFIG}/{name}"))):
            yield f"{CONFIG}/{name} is left out: it has {content}"
    yield from _of_groups(_parsed(directory.read(f"{CONFIG}/{GROUPS}")))
    compacted = [topic.name for topic in directory.entries(COMPACTION) if _has_files(directory, topic.name)]
    if compacted:
        yield (
            f"{COMPACTION} is left out: it has the newest message of each key of {', '.join(compacted)} "
            "(cleanup.policy=COMPACTION), also of those that have expired from the log"
        )
    if directory.exists(f"{CONFIG}/{ROCKSDB_OF_ALL}/{_CURRENT}"):
        beside = [file for file in ROCKSDB.values() if directory.exists(f"{CONFIG}/{file}")]
        instead = (
            f"{', '.join(beside)} beside it are read, which may be older" if beside else "it is left out"
        )
        yield (
            f"{CONFIG}/{ROCKSDB_OF_ALL} is a RocksDB database with topics, groups and their offsets "
            f"(configManagerVersion=v2), which is not read here: {instead}. Put them there as "
            f"{', '.join(ROCKSDB.values())}, then import again into an empty store"
        )
    for name, file in ROCKSDB.items():
        if directory.exists(f"{CONFIG}/{name}/{_CURRENT}"):
            is_beside = directory.exists(f"{CONFIG}/{file}")
            instead = (
                f"{CONFIG}/{file} beside it is read, which may be older" if is_beside else "it is left out"
            )
            yield (
                f"{CONFIG}/{name} is a RocksDB database, which is not read here: {instead}. `mqadmin rocksDBConfigToJson` "
                f"makes {file} of it; then import again into an empty store"
            )


def _of_groups(content: Any) -> Iterator[str]:
    """What subscriptionGroup.json has that no table has a place for."""
    if not isinstance(content, dict):
        return  # the import itself says what is wrong
    if _is_filled(content.get("forbiddenTable")):
        yield f"forbiddenTable of {CONFIG}/{GROUPS} is left out: it says which topics a group must not read"
    groups = content.get("subscriptionGroupTable") or {}
    subscribed = [name for name, group in groups.items() if (group or {}).get("subscriptionDataSet")]
    if subscribed:
        yield (
            f"subscriptionDataSet of {CONFIG}/{GROUPS} is left out, of groups {', '.join(subscribed)}: "
            "`commitlake subscribe` records what a group subscribes to"
        )


def _has_files(directory: BrokerDirectory, topic: str) -> bool:
    queues = directory.entries(f"{COMPACTION}/{topic}")
    return any(directory.entries(f"{COMPACTION}/{topic}/{queue.name}") for queue in queues)


def _parsed(content: bytes | None) -> Any:
    """The value of a JSON file; None without the file, and its bytes where they are no JSON."""
    if content is None:
        return None
    try:
        return json.loads(content)
    except ValueError:
        return content


def _is_filled(value: Any) -> bool:
    """Whether a JSON value has more than empty objects and lists, and the version that every file of a broker has."""
    if isinstance(value, dict):
        return any(_is_filled(each) for name, each in value.items() if name != "dataVersion")
    return bool(value)
