"""What an import does not take along from a broker's directory, in words."""

import json
from collections.abc import Iterator
from typing import Any

from pipelines.broker_files.directory import BrokerDirectory

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
# RocksDB's own name of the file that says which of its files are the newest.
_CURRENT = "CURRENT"


def left_behind(directory: BrokerDirectory) -> Iterator[str]:
    """A sentence for each part of a broker's config that has something and is not imported."""
    for name, content in BESIDE.items():
        if _has_something(directory.read(f"{CONFIG}/{name}")):
            yield f"{CONFIG}/{name} is left out: it has {content}"
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
