"""A message as the user's Python code gets it: selectors, filters, checkers, and the listeners of a group."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.rocketmq.compression import unpacked
from pipelines.rocketmq.message_ids import message_id_of
from pipelines.rocketmq.settings import INT_MAX, MAX_UNPACKED_BYTES


@dataclass(frozen=True)
class Message:
    """Fields named as the commit log's columns, and `tags`, `keys`, `properties` (a dict), `message_id`, `unique_key`.

    A field that a message does not have yet is None: before it is put it has no offsets.
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
    segment: int | None = None
    body_crc: int | None = None
    append_seq: int | None = None
    append_id: str | None = None
    due_ms: int | None = None
    source_offset: int | None = None
    origin_offset: int | None = None
    purpose: str | None = None
    claim: str | None = None


# Columns of the log that a stored message is made of, in the order of `message_columns`.
STORED = (
    "topic", "queue_id", "queue_offset", "physical_offset", "size_bytes", "flag", "sys_flag", "born_timestamp",
    "born_host", "store_timestamp", "store_host", "reconsume_times", "prepared_transaction_offset", "segment",
    "body_crc", "append_seq", "append_id", "due_ms", "source_offset", "origin_offset", "purpose", "claim",
)  # fmt: skip


class _Column:
    """A value of a row, looked up when the message's attribute is first read, and kept."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, message: "StoredMessage", _: type) -> Any:
        values = message.__dict__
        value = values[self._name] = values["columns"][self._name][values["row"]]
        return value


class StoredMessage(Message):
    """A message of the log, as a client gets it: a compressed body is unpacked.

    Attributes are looked up and parsed when they are first read: most code reads a body or a key, not all of them.
    """

    stored_body: bytes
    stored_properties: str
    max_unpacked_bytes: int

    @classmethod
    def of(cls, columns: Mapping[str, Sequence[Any]], row: int) -> "StoredMessage":
        """The message at `row` of columns by name: STORED, `stored_body`, `stored_properties` (as they lie in the log).

        The column `max_unpacked_bytes` is a limit: `body` raises BodyTooLarge for a compressed body with more bytes.
        """
        message = cls.__new__(cls)
        values = message.__dict__
        values["columns"], values["row"] = columns, row
        return message

    def __reduce__(self) -> tuple[Any, ...]:
        """It is pickled as a plain Message: its columns are those of a whole batch."""
        return Message, tuple(getattr(self, each.name) for each in fields(Message))

    def _with(self, **changes: Any) -> "StoredMessage":
        changed = type(self).__new__(type(self))
        changed.__dict__.update(self.__dict__, **changes)
        return changed

    def placed(self, topic: str, queue_id: int) -> "StoredMessage":
        """The same message in another topic and queue: those it was sent to, or failed in."""
        return self._with(topic=topic, queue_id=queue_id)

    def tried(self, times: int) -> "StoredMessage":
        """The same message after `times` more tries."""
        return self._with(reconsume_times=min(self.reconsume_times + times, INT_MAX))

    def start_consuming(self, now_ms: int) -> None:
        """Note when a listener gets it, as RocketMQ's client does: it is the property CONSUME_START_TIME from now on."""
        values = self.__dict__
        values["consume_start_ms"] = now_ms
        values.pop("properties", None)

    @cached_property
    def properties(self) -> Mapping[str, str]:
        properties = read_properties(self.stored_properties)
        if "consume_start_ms" in self.__dict__:
            properties["CONSUME_START_TIME"] = str(self.__dict__["consume_start_ms"])
        return properties

    @cached_property
    def body(self) -> bytes:
        return unpacked(self.stored_body, self.sys_flag, self.max_unpacked_bytes)

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
        return message_id_of(self.store_host or "", self.physical_offset or 0)


for _name in (*STORED, "stored_body", "stored_properties", "max_unpacked_bytes"):
    setattr(StoredMessage, _name, _Column(_name))


class Columns(dict[str, list[Any]]):
    """Columns of a batch as lists, each made when it is first read."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __missing__(self, name: str) -> list[Any]:
        values: list[Any] = self._batch.column(name).to_pylist()
        self[name] = values
        return values


def message_columns(max_unpacked_bytes: int = MAX_UNPACKED_BYTES) -> list[Column]:
    """The columns of log rows from which `messages_of` makes messages."""
    return [
        *[F.col(name) for name in STORED],
        F.col("body").alias("stored_body"),
        F.col("properties").alias("stored_properties"),
        F.lit(max_unpacked_bytes).cast("long").alias("max_unpacked_bytes"),
    ]


def messages_of(batch: pa.RecordBatch) -> Iterator[StoredMessage]:
    """A message for each row of a batch that has message_columns()."""
    columns = Columns(batch)
    for row in range(batch.num_rows):
        yield StoredMessage.of(columns, row)


def read_properties(text: str) -> dict[str, str]:
    r"""The properties of a properties string; of a name that comes twice, the last (docs/rocketmq/store.md 1.8).

    >>> read_properties("TAGS\x01a=b\x02KEYS\x01\x02\x01x\x02k\x011\x012")
    {'TAGS': 'a=b', 'k': '1\x012'}
    """
    found = {}
    for pair in text.split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            found[name] = value
    return found
