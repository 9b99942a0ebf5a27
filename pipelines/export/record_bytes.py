"""Records as RocketMQ stores them, made from rows of the commit log (docs/rocketmq/store.md 1.2 to 1.5)."""

import ipaddress
import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.errors import StoreError
from pipelines.rocketmq.properties import LONGEST
from pipelines.rocketmq.record import BLANK_BYTES

V1_MAGIC, V2_MAGIC, BLANK_MAGIC = 0xDAA320A7, 0xDAA320AB, 0xCBD43194

# The log's columns that a record is made of.
COLUMNS = (
    "physical_offset",
    "size_bytes",
    "topic",
    "queue_id",
    "queue_offset",
    "flag",
    "sys_flag",
    "body_crc",
    "born_timestamp",
    "born_host",
    "store_timestamp",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "body",
    "properties",
)
# A record's fields between its variable parts: before the born host, and between the store host and the body.
_BEFORE_HOSTS = np.dtype(
    [
        ("size_bytes", ">i4"),
        ("magic", ">u4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
    ]
)
_AFTER_HOSTS = np.dtype(
    [("reconsume_times", ">i4"), ("prepared_transaction_offset", ">i8"), ("body_bytes", ">i4")]
)


def record_bytes(rows: pa.RecordBatch) -> pa.BinaryArray:
    """The record of each row, binary; their bytes lie beside each other in the array's buffer.

    rows  COLUMNS, as the commit log has them

    A record whose length is a byte more than a V1 record's is a V2 record (1.4). Raises StoreError for a row whose parts do
    not have the length that the row says: text that was not UTF-8 in an imported record was decoded with replacement
    characters, and its own bytes are gone. And for properties that are longer than a broker reads: a copy has more than its
    source.
    """
    topic, properties, body = (
        rows.column(name).cast(pa.binary()) for name in ("topic", "properties", "body")
    )
    sizes = _longs(rows.column("size_bytes"))
    topic_bytes, properties_bytes, body_bytes = (
        _longs(pc.binary_length(part)) for part in (topic, properties, body)
    )
    for row in np.flatnonzero(properties_bytes > LONGEST)[:1]:
        raise StoreError(
            f"the row at byte {rows.column('physical_offset')[row]} of the log has {properties_bytes[row]} bytes of "
            f"properties, and a broker reads at most {LONGEST}: it would cut its log there. A message that comes back "
            "to its group gets some more of them. Export what lies around it with --format jsonl or parquet"
        )
    born_host, store_host = _hosts(rows.column("born_host")), _hosts(rows.column("store_host"))
    host_bytes = _longs(pc.binary_length(born_host)) + _longs(pc.binary_length(store_host))
    fixed = _BEFORE_HOSTS.itemsize + 8 + _AFTER_HOSTS.itemsize + 1 + 2
    is_v2 = sizes - (fixed + host_bytes + body_bytes + topic_bytes + properties_bytes) == 1

    before = np.zeros(len(sizes), _BEFORE_HOSTS)
    after = np.zeros(len(sizes), _AFTER_HOSTS)
    for part in (before, after):
        for name in part.dtype.names or ():
            if name in rows.schema.names:
                part[name] = _longs(rows.column(name))
    before["magic"] = np.where(is_v2, V2_MAGIC, V1_MAGIC)
    after["body_bytes"] = body_bytes
    records = pc.binary_join_element_wise(
        _binary(before),
        born_host,
        _binary(_longs(rows.column("store_timestamp")).astype(">i8")),
        store_host,
        _binary(after),
        body,
        _topic_lengths(topic_bytes, is_v2),
        topic,
        _binary(properties_bytes.astype(">u2")),
        properties,
        pa.scalar(b"", pa.binary()),
    )
    wrong = np.flatnonzero(_longs(pc.binary_length(records)) != sizes)
    if len(wrong):
        offset, size, made = (
            int(_longs(column)[wrong[0]])
            for column in (
                rows.column("physical_offset"),
                rows.column("size_bytes"),
                pc.binary_length(records),
            )
        )
        raise StoreError(
            f"the row at byte {offset} of the log says that its record has {size} bytes, and what is kept of it makes {made}"
            ": a record with text that is not UTF-8 was imported. A broker cannot get it back from here; export what lies "
            "around it with --format jsonl or parquet"
        )
    return records


def blank_record(free_bytes: int) -> bytes:
    """The record that closes a segment with `free_bytes` left, of which it fills 8: its length and magic (1.5)."""
    if free_bytes < BLANK_BYTES:
        raise StoreError(
            f"{free_bytes} bytes are left of a segment; expected {BLANK_BYTES} or more, for the blank record"
        )
    return struct.pack(">iI", free_bytes, BLANK_MAGIC)


def host_bytes(host: str) -> bytes:
    """The address and port of `ip:port` or `[ipv6]:port`, 8 or 20 bytes. A damaged record may have any 32 bits as port.

    >>> host_bytes("10.0.0.1:50000").hex()
    '0a0000010000c350'
    """
    address, _, port = host.rpartition(":")
    return ipaddress.ip_address(address.strip("[]")).packed + struct.pack(">I", int(port))


def _hosts(hosts: pa.Array) -> pa.BinaryArray:
    """Each host's bytes; a host is encoded once, not once a row."""
    encoded = hosts.dictionary_encode()
    distinct = pa.array([host_bytes(host) for host in encoded.dictionary.to_pylist()], pa.binary())
    return distinct.take(encoded.indices)


def _topic_lengths(topic_bytes: npt.NDArray[np.int64], is_v2: npt.NDArray[np.bool_]) -> pa.BinaryArray:
    short = _binary(topic_bytes.astype(">u1"))
    return pc.if_else(pa.array(is_v2), _binary(topic_bytes.astype(">u2")), short) if is_v2.any() else short


def _longs(column: pa.Array) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found


def _binary(values: npt.NDArray) -> pa.BinaryArray:
    """Values of a fixed width as binary of that width."""
    width = values.dtype.itemsize
    offsets = np.arange(len(values) + 1, dtype=np.int32) * width
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values).tobytes())]
    return pa.BinaryArray.from_buffers(pa.binary(), len(values), buffers)
