"""A message as Python code sees it: selectors, filters, checkers, and the listeners of a group's own."""

import ipaddress
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.log.encode import COMPRESSED


@dataclass(frozen=True)
class Message:
    """The names of the commit log's columns, and `tags`, `keys`, `properties` (a dict), `message_id`, `unique_key`.

    What a message does not have yet is None: before it is put it has no offsets.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
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


# Columns of the log a stored message is made of, in the order they are given to it.
STORED = (
    "topic", "queue_id", "queue_offset", "physical_offset", "size_bytes", "flag", "sys_flag", "born_timestamp",
    "born_host", "store_timestamp", "store_host", "reconsume_times", "prepared_transaction_offset",
)  # fmt: skip


class StoredMessage(Message):
    """A message of the log, as a client gets it: a compressed body is unpacked.

    What has to be taken apart is taken apart when it is asked for: most code looks at a body or a key, not at all.
    """

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "StoredMessage":
        """
        values  STORED, `stored_body`, `stored_properties` (as they lie in the log)
        """
        message = cls.__new__(cls)
        message.__dict__.update(values)
        return message

    def placed(self, topic: str, queue_id: int) -> "StoredMessage":
        """The same message in another place: the one it was sent to, or failed in."""
        return self.of({**self.__dict__, "topic": topic, "queue_id": queue_id})

    def tried(self, times: int) -> "StoredMessage":
        """The same message after so many more tries."""
        return self.of({**self.__dict__, "reconsume_times": self.reconsume_times + times})

    @cached_property
    def properties(self) -> Mapping[str, str]:
        return read_properties(self.__dict__["stored_properties"])

    @cached_property
    def body(self) -> bytes:
        return unpacked(self.__dict__["stored_body"], self.sys_flag)

    @cached_property
    def tags(self) -> str | None:
        return self.properties.get("TAGS")

    @cached_property
    def keys(self) -> str | None:
        return self.properties.get("KEYS")

    @cached_property
    def unique_key(self) -> str | None:
        return self.properties.get("UNIQ_KEY")

    @cached_property
    def message_id(self) -> str | None:
        return message_id_of(self.__dict__["store_host"], self.__dict__["physical_offset"])


def message_columns() -> list[Column]:
    """Of rows of the log: what messages_of makes messages from."""
    return [
        *[F.col(name) for name in STORED],
        F.col("body").alias("stored_body"),
        F.col("properties").alias("stored_properties"),
    ]


def messages_of(batch: pa.RecordBatch) -> Iterator[StoredMessage]:
    """A message for each row of a batch that has message_columns()."""
    names = (*STORED, "stored_body", "stored_properties")
    columns = [batch.column(name).to_pylist() for name in names]
    for row in zip(*columns, strict=True):
        yield StoredMessage.of(dict(zip(names, row, strict=True)))


def read_properties(text: str) -> dict[str, str]:
    """The properties of a properties string; of a name that comes twice the last (docs/rocketmq/store.md 1.8).

    >>> read_properties("TAGS\x01a=b\x02KEYS\x01\x02\x01x\x02k\x011\x012")
    {'TAGS': 'a=b', 'k': '1\x012'}
    """
    found = {}
    for piece in text.split("\x02"):
        name, _, value = piece.partition("\x01")
        if name and value:
            found[name] = value
    return found


def unpacked(body: bytes, sys_flag: int) -> bytes:
    """The body a producer sent: unpacked if the flag says it was compressed (docs/rocketmq/consume-filter-ha.md 1.6)."""
    if not sys_flag & COMPRESSED:
        return body
    codec = {1: "lz4", 2: "zstd"}.get(sys_flag >> 8 & 7)
    if codec is None:
        return zlib.decompress(body)
    return bytes(pa.input_stream(pa.py_buffer(body), compression=codec).read())


def message_id_of(host: str, physical_offset: int) -> str:
    """Id of the record at an offset of a store: 32 hex digits, 56 of an IPv6 host (docs/rocketmq/store.md 2).

    >>> message_id_of("127.0.0.1:10911", 256)
    '7F00000100002A9F0000000000000100'
    """
    address, _, port = host.rpartition(":")
    packed = ipaddress.ip_address(address.strip("[]")).packed
    return (packed + int(port).to_bytes(4, "big") + physical_offset.to_bytes(8, "big")).hex().upper()
