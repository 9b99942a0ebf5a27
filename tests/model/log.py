"""RocketMQ's log, its queues and its index in plain loops: the reference for every append to a store.

It is written from docs/rocketmq/store.md alone and imports nothing of the project: the two can only agree by
being right, or by reading the specification wrong in the same way.
"""

import re
import zlib
from dataclasses import dataclass, field

END_OF_FILE_BYTES = 8  # 1.5: this much always stays free after a record

# 1.6: bits of sys_flag
TRANSACTION, PREPARED, ROLLBACK = 0xC, 0x4, 0xC
BORN_HOST_V6, STORE_HOST_V6, INNER_BATCH = 0x10, 0x20, 0x80

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


class DoesNotFit(Exception):
    """A record, or a batch, is larger than an empty segment."""


@dataclass(frozen=True)
class Message:
    """A message as it is given to the store; `properties` is the stored string (see `properties_string`)."""

    topic: str
    body: bytes = b""
    properties: str = ""
    queue_id: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: str = "127.0.0.1:0"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


@dataclass(frozen=True)
class Record:
    """A message in the log."""

    message: Message
    segment: int
    physical_offset: int
    size_bytes: int
    queue_offset: int
    body_crc: int
    store_timestamp: int


@dataclass(frozen=True)
class Blank:
    """The rest of a segment into which the next record, or batch, did not fit."""

    physical_offset: int
    size_bytes: int


@dataclass(frozen=True)
class QueueEntry:
    queue_offset: int
    physical_offset: int
    size_bytes: int
    tags_code: int
    store_timestamp: int


@dataclass(frozen=True)
class IndexEntry:
    key_hash: int
    physical_offset: int
    store_timestamp: int


@dataclass
class Log:
    """Segments of one size, filled from byte 0 on."""

    segment_bytes: int
    delay_levels: str = DELAY_LEVELS
    next_offset: int = 0
    last_store_timestamp: int = 0
    records: list[Record] = field(default_factory=list)
    blanks: list[Blank] = field(default_factory=list)
    next_queue_offsets: dict[tuple[str, int], int] = field(default_factory=dict)

    def append(self, message: Message, now: int) -> Record:
        return self.append_batch([message], now)[0]

    def append_batch(self, batch: list[Message], now: int) -> list[Record]:
        """One append: its records lie side by side in one segment and share their time (1.5, 1.13, 1.14)."""
        self._make_room(sum(record_size(message) for message in batch))
        self.last_store_timestamp = max(now, self.last_store_timestamp)
        appended = []
        for message in batch:
            record = Record(
                message=message,
                segment=self.next_offset - self.next_offset % self.segment_bytes,
                physical_offset=self.next_offset,
                size_bytes=record_size(message),
                queue_offset=self._take_queue_offset(message),
                body_crc=body_crc(message.body),
                store_timestamp=self.last_store_timestamp,
            )
            self.next_offset += record.size_bytes
            appended.append(record)
        self.records += appended
        return appended

    def _make_room(self, size_bytes: int) -> None:
        if size_bytes + END_OF_FILE_BYTES > self.segment_bytes:
            raise DoesNotFit(f"{size_bytes} bytes in segments of {self.segment_bytes}")
        room = self.segment_bytes - self.next_offset % self.segment_bytes
        if size_bytes + END_OF_FILE_BYTES > room:
            self.blanks.append(Blank(self.next_offset, room))
            self.next_offset += room

    def _take_queue_offset(self, message: Message) -> int:
        if message.sys_flag & TRANSACTION in (PREPARED, ROLLBACK):
            return 0
        queue = (message.topic, message.queue_id)
        taken = self.next_queue_offsets.get(queue, 0)
        self.next_queue_offsets[queue] = taken + slots_taken(message.sys_flag, message.properties)
        return taken

    def queues(self) -> dict[tuple[str, int], list[QueueEntry]]:
        """The consume queue: for each queue its entries in order (3.1, 3.2)."""
        queues: dict[tuple[str, int], list[QueueEntry]] = {}
        for record in self.records:
            message = record.message
            if message.sys_flag & TRANSACTION in (PREPARED, ROLLBACK):
                continue
            entry = QueueEntry(
                record.queue_offset,
                record.physical_offset,
                record.size_bytes,
                self._tags_code(record),
                record.store_timestamp,
            )
            queues.setdefault((message.topic, message.queue_id), []).append(entry)
        return queues

    def _tags_code(self, record: Record) -> int:
        properties = read_properties(record.message.properties)
        levels = [int(level[:-1]) * UNITS_MS[level[-1]] for level in self.delay_levels.split(" ")]
        if record.message.topic == SCHEDULE_TOPIC and "DELAY" in properties:
            level = min(int(properties["DELAY"]), len(levels))
            if level > 0:
                return record.store_timestamp + levels[level - 1]
        return java_hash(properties.get("TAGS", ""))

    def index(self) -> dict[tuple[str, str], list[IndexEntry]]:
        """The key index: for each topic and key its entries in order (3.1, 5.2)."""
        index: dict[tuple[str, str], list[IndexEntry]] = {}
        for record in self.records:
            if record.message.sys_flag & TRANSACTION == ROLLBACK:
                continue
            for key in keys(record.message.properties):
                entry = IndexEntry(
                    key_hash(record.message.topic, key), record.physical_offset, record.store_timestamp
                )
                index.setdefault((record.message.topic, key), []).append(entry)
        return index


def slots_taken(sys_flag: int, stored: str) -> int:
    """How many queue offsets a message takes (1.13): an inner batch the number in its INNER_NUM, if a Java short above 0."""
    if not sys_flag & INNER_BATCH:
        return 1
    held = read_properties(stored).get("INNER_NUM", "")
    return int(held) if re.fullmatch(r"[+]?[0-9]{1,18}", held) and 1 <= int(held) <= 32_767 else 1


def record_size(message: Message) -> int:
    """Bytes of a message's record (1.3); a topic of more than 127 characters has the longer length field (1.4)."""
    born_host_bytes = 20 if message.sys_flag & BORN_HOST_V6 else 8
    store_host_bytes = 20 if message.sys_flag & STORE_HOST_V6 else 8
    topic_length_bytes = 2 if java_length(message.topic) > 127 else 1
    return (
        4 + 4 + 4 + 4 + 4 + 8 + 8 + 4 + 8
        + born_host_bytes + 8 + store_host_bytes + 4 + 8
        + 4 + len(message.body)
        + topic_length_bytes + len(message.topic.encode())
        + 2 + len(message.properties.encode())
    )  # fmt: skip


def body_crc(body: bytes) -> int:
    return zlib.crc32(body) & 0x7FFFFFFF if body else 0


def properties_string(properties: dict[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def read_properties(stored: str) -> dict[str, str]:
    """The properties of a stored string (1.8): pairs without a name or value are dropped, the last of a name counts."""
    properties = {}
    for pair in stored.split("\x02"):
        name, found, value = pair.partition("\x01")
        if name and found and value:
            properties[name] = value
    return properties


def keys(stored: str) -> list[str]:
    """The index keys of a message: its UNIQ_KEY, then each word of KEYS; twice where they are equal."""
    properties = read_properties(stored)
    words = [word for word in properties.get("KEYS", "").split(" ") if word]
    return [properties["UNIQ_KEY"], *words] if "UNIQ_KEY" in properties else words


def key_hash(topic: str, key: str) -> int:
    hashed = java_hash(f"{topic}#{key}")
    return 0 if hashed == -(2**31) else abs(hashed)


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, as a signed 32-bit number."""
    hashed = 0
    for unit in _utf16_units(text):
        hashed = (31 * hashed + unit) % 2**32
    return hashed - 2**32 if hashed >= 2**31 else hashed


def java_length(text: str) -> int:
    return len(_utf16_units(text))


def _utf16_units(text: str) -> list[int]:
    encoded = text.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(encoded[place : place + 2]) for place in range(0, len(encoded), 2)]
