"""Permissions: what may be read from and written to a store and its topics.

A broker asks for brokerPermission first, then for the topic's own (docs/rocketmq/store.md 6.3 and 7.2,
delay-retry-transaction.md 4.3). A topic without a config has no permissions to ask for.
"""

from collections.abc import Iterable

from pipelines.errors import BadInput
from pipelines.rocketmq.settings import Settings
from pipelines.store.snapshot import Snapshot
from pipelines.store.topics import PERM_READ, PERM_WRITE, TopicConfig, read_topics


def reading_complaint(at: Snapshot, topic: str) -> str | None:
    """Why consumers may not read a topic; None when they may."""
    permission = at.store.settings["brokerPermission"]
    if not permission & PERM_READ:
        return _store_complaint("read", permission)
    config = read_topics(at).get(topic)
    if config is None or config.is_readable:
        return None
    return f"topic {topic} may not be read (perm {config.perm}, without R); {_remedy(config)}"


def expect_readable(at: Snapshot, topics: Iterable[str]) -> None:
    """Raises BadInput where consumers may not read one of the topics."""
    for topic in topics:
        complaint = reading_complaint(at, topic)
        if complaint is not None:
            raise BadInput(f"{complaint}. Nothing was read or written")


def store_writing_complaint(settings: Settings) -> str | None:
    """Why clients may not write to a store at all; None when they may."""
    permission = settings["brokerPermission"]
    return None if permission & PERM_WRITE else _store_complaint("written to", permission)


def expect_store_writable(settings: Settings) -> None:
    """Raises BadInput where clients may not write to the store."""
    complaint = store_writing_complaint(settings)
    if complaint is not None:
        raise BadInput(f"{complaint}. Nothing was written")


def topic_writing_complaint(at: Snapshot, topic: str) -> str | None:
    """Why a topic may not be written to; None when it may, or when it is not there yet."""
    config = read_topics(at).get(topic)
    if config is None or config.is_writable:
        return None
    return f"topic {topic} may not be written to (perm {config.perm}, without W); {_remedy(config)}"


def _store_complaint(what: str, permission: int) -> str:
    return (
        f"this store may not be {what}: its setting brokerPermission is {permission}; expected 6 (4 to read, 2 to write), "
        "which is the default"
    )


def _remedy(config: TopicConfig) -> str:
    return f"`topics update '{config.topic}' --perm RW` allows it"
