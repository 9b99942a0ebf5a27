"""Records, blanks and queue entries as RocketMQ writes them, byte for byte and one at a time (docs/rocketmq/store.md).

It shares no code with what it tests: it uses only struct and zlib.
"""

import ipaddress
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

MAGIC_V1, MAGIC_V2, BLANK_MAGIC = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
END_FILE_MIN_BLANK_BYTES = 8
ENTRY_HEADER_BYTES = 48


@dataclass(frozen=True)
class Record:
    """One record of the log; `properties` are pairs in order, or the stored bytes."""

    topic: str = "orders"
    body: bytes = b"hello"
    properties: Mapping[str, str] | bytes = field(default_factory=dict)
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 1_700_000_000_000
    born_host: str = "10.0.0.1:50000"
    store_timestamp: int = 1_700_000_000_123
    store_host: str = "10.0.0.2:10911"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    is_v2: bool = False
    body_crc: int | None = None

    def at(self, physical_offset: int) -> "Record":
        return replace(self, physical_offset=physical_offset)

    @property
    def property_bytes(self) -> bytes:
        if isinstance(self.properties, bytes):
            return self.properties
        return encode_properties(self.properties)

    @property
    def size_bytes(self) -> int:
        return len(encode(self))


def encode_properties(properties: Mapping[str, str], final_separator: bool = True) -> bytes:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return (text if final_separator else text[:-1]).encode()


def encode_host(host: str) -> bytes:
    address, _, port = host.rpartition(":")
    return ipaddress.ip_address(address.strip("[]")).packed + struct.pack(">i", int(port))


def crc(body: bytes) -> int:
    return zlib.crc32(body) & 0x7FFF_FFFF if body else 0


def encode(record: Record) -> bytes:
    """The record's bytes (1.2); the IPv6 bits of sys_flag follow from its hosts."""
    born, stored = encode_host(record.born_host), encode_host(record.store_host)
    sys_flag = record.sys_flag | (0x10 if len(born) == 20 else 0) | (0x20 if len(stored) == 20 else 0)
    topic, properties = record.topic.encode(), record.property_bytes
    parts = [
        struct.pack(">I", MAGIC_V2 if record.is_v2 else MAGIC_V1),
        struct.pack(">i", crc(record.body) if record.body_crc is None else record.body_crc),
        struct.pack(">ii", record.queue_id, record.flag),
        struct.pack(">qq", record.queue_offset, record.physical_offset),
        struct.pack(">iq", sys_flag, record.born_timestamp),
        born,
        struct.pack(">q", record.store_timestamp),
        stored,
        struct.pack(">iq", record.reconsume_times, record.prepared_transaction_offset),
        struct.pack(">i", len(record.body)),
        record.body,
        struct.pack(">h" if record.is_v2 else ">b", len(topic)),
        topic,
        struct.pack(">h", len(properties)),
        properties,
    ]
    content = b"".join(parts)
    return struct.pack(">i", 4 + len(content)) + content


def encode_blank(room: int) -> bytes:
    """The blank record of a segment with `room` bytes left (1.5): eight bytes; the rest stays as it was."""
    return struct.pack(">iI", room, BLANK_MAGIC)


def encode_queue_entry(physical_offset: int, size_bytes: int, tags_code: int) -> bytes:
    """A consume queue unit (4.1)."""
    return struct.pack(">qiq", physical_offset, size_bytes, tags_code)


def place(records: Sequence[Record], segment_bytes: int, from_offset: int = 0) -> list[Record]:
    """The records at the offsets a broker gives them (1.5), each after the other, none over the end of a segment."""
    placed, at = [], from_offset
    for record in records:
        size = record.size_bytes
        room = segment_bytes - at % segment_bytes
        if size + END_FILE_MIN_BLANK_BYTES > room:
            at += room
        placed.append(record.at(at))
        at += size
    return placed


def encode_segments(placed: Sequence[Record], segment_bytes: int) -> dict[int, bytes]:
    """Full-size segment files by start offset, a blank in each but the last."""
    files: dict[int, bytearray] = {}
    last = None
    for record in placed:
        start = record.physical_offset - record.physical_offset % segment_bytes
        if start not in files:
            if last is not None:
                _close(files[max(files)], last.physical_offset % segment_bytes + last.size_bytes)
            files[start] = bytearray(segment_bytes)
        content = encode(record)
        files[start][record.physical_offset - start : record.physical_offset - start + len(content)] = content
        last = record
    return {start: bytes(content) for start, content in files.items()}


def place_entries(records: Sequence[Record], segment_bytes: int, from_offset: int = 0) -> list[Record]:
    """The records at the offsets that DLedger gives them (1.16): each 48 bytes after the one before."""
    placed, at = [], from_offset
    for record in records:
        size = ENTRY_HEADER_BYTES + record.size_bytes
        room = segment_bytes - at % segment_bytes
        if size + END_FILE_MIN_BLANK_BYTES > room:
            at += room
        placed.append(record.at(at + ENTRY_HEADER_BYTES))
        at += size
    return placed


def encode_entry_files(placed: Sequence[Record], segment_bytes: int, term: int = 1) -> dict[int, bytearray]:
    """Full-size files of a DLedger log by start offset, entries with the indexes 0, 1, …, a blank in each but the last."""
    files: dict[int, bytearray] = {}
    end = 0
    for index, record in enumerate(placed):
        body, position = encode(record), record.physical_offset - ENTRY_HEADER_BYTES
        start = position - position % segment_bytes
        if start not in files:
            if files:
                file, at = files[max(files)], end - max(files)
                file[at : at + 8] = struct.pack(">ii", -1, segment_bytes - at)
            files[start] = bytearray(segment_bytes)
        size = ENTRY_HEADER_BYTES + len(body)
        header = struct.pack(">iiqqqiiii", 1, size, index, term, position, 0, 0, 0, len(body))
        files[start][position - start : position - start + size] = header + body
        end = position + size
    return files


def _close(segment: bytearray, at: int) -> None:
    segment[at : at + END_FILE_MIN_BLANK_BYTES] = encode_blank(len(segment) - at)


def write_commitlog(root: Path, placed: Sequence[Record], segment_bytes: int) -> None:
    """Write the segment files of a log below `root`, storePathRootDir."""
    directory = root / "commitlog"
    directory.mkdir(parents=True, exist_ok=True)
    for start, content in encode_segments(placed, segment_bytes).items():
        (directory / f"{start:020d}").write_bytes(content)


def write_queue(
    root: Path,
    topic: str,
    queue_id: int,
    entries: Sequence[tuple[int, int, int]],
    first: int = 0,
    file_bytes: int = 6_000,
) -> None:
    """Write a queue's files, from offset `first` on; entries are (physical_offset, size_bytes, tags_code)."""
    directory = root / "consumequeue" / topic / str(queue_id)
    directory.mkdir(parents=True, exist_ok=True)
    per_file = file_bytes // 20
    filler = encode_queue_entry(0, 0x7FFF_FFFF, 0) * (first % per_file)
    content = filler + b"".join(encode_queue_entry(*entry) for entry in entries)
    start = (first - first % per_file) * 20
    for at in range(0, max(len(content), 1), file_bytes):
        (directory / f"{start + at:020d}").write_bytes(content[at : at + file_bytes].ljust(file_bytes, b"\0"))
