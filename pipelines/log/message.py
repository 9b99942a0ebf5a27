"""A message as Python code sees it: selectors now, listeners and checkers of a group's own."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Message:
    """The names of the commit log's columns, and `tags`, `keys`, `properties` (a dict), `message_id`, `unique_key`.

    What a message does not have yet is None: before it is put it has no offsets.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    unique_key: str | None = None
    message_id: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None
    size_bytes: int | None = None
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int | None = None
    born_host: str | None = None
    store_timestamp: int | None = None
    store_host: str | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
