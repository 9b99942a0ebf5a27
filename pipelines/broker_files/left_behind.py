"""What an import does not take along from a broker's directory, in words."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.export_note import UNDER_WAY
from pipelines.broker_files.queue_bounds import queue_names
from pipelines.broker_files.queue_files import CONSUME_QUEUE
from pipelines.broker_files.segments import (
    COMMITLOG,
    LOG_PATHS,
    READ_ONLY_PATHS,
    counted_as_copied,
    read_only_left_out,
)

CONFIG = "config"
# File → what is in it, and what follows from its not being here.
BESIDE = {
    "topicQueueMapping.json": "static topics, whose queues lie on several brokers: a queue has the messages of this one",
    "messageRequestMode.json": "which groups receive by POP: here every group reads queues",
    "consumerOrderInfo.json": "which orderly messages POP consumers had not acknowledged: they may be read again",
}
# A directory of RocksDB → the file that the same broker writes without it.
ROCKSDB = {
    "topics": "topics.json",
    "subscriptionGroups": "subscriptionGroup.json",
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
    if directory.exists(f"{CONSUME_QUEUE}/{_CURRENT}") and not queue_names(directory):
        yield (
            f"{CONSUME_QUEUE} is a RocksDB database (storeType), which is not read here: queues are as the log has them, "
            "and one of which the log has no message any more begins at offset 0"
        )
    for name, content in BESIDE.items():
        if _has_something(directory.read(f"{CONFIG}/{name}")):
            yield f"{CONFIG}/{name} is left out: it has {content}"
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


def _has_something(content: bytes | None) -> bool:
    if content is None:
        return False
    try:
        return _is_filled(json.loads(content))
    except ValueError:
        return True  # something that cannot be read


def _is_filled(value: Any) -> bool:
    """Whether a JSON value has more than empty objects and lists, and the version that every file of a broker has."""
    if isinstance(value, dict):
        return any(_is_filled(each) for name, each in value.items() if name != "dataVersion")
    return bool(value)
