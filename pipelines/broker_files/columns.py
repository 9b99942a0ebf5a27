"""Records of a segment as columns of the commit log."""

import codecs
import ipaddress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.broker_files.due import DueTimes
from pipelines.broker_files.records import BORN_HOST_AT, Fields, bodies, properties, topics
from pipelines.rocketmq.flags import BORN_HOST_IPV6, STORE_HOST_IPV6

# The columns of `commitlog` that a record holds, and those for where it lies; all others are the same in one append.
SCHEMA = pa.schema(
    [
        ("segment", pa.int64()),
        ("physical_offset", pa.int64()),
        ("size_bytes", pa.int32()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("flag", pa.int32()),
        ("sys_flag", pa.int32()),
        ("body_crc", pa.int32()),
        ("born_timestamp", pa.int64()),
        ("born_host", pa.string()),
        ("store_timestamp", pa.int64()),
        ("store_host", pa.string()),
        ("reconsume_times", pa.int32()),
        ("prepared_transaction_offset", pa.int64()),
        ("body", pa.binary()),
        ("properties", pa.string()),
    ]
)
REPLACE_EACH_BYTE = "commitlake.replace_each_byte"
SCHEMA_WITH_DUE_TIMES = SCHEMA.append(pa.field("due_ms", pa.int64()))


@dataclass(frozen=True)
class LogColumns:
    """Turns records of one task's pieces into record batches; with `due_times` they have due_ms too."""

    due_times: DueTimes | None = None

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA if self.due_times is None else SCHEMA_WITH_DUE_TIMES

    def of(self, fields: Fields, segment_offset: int, piece_at: int) -> pa.RecordBatch:
        """One row per record; their piece starts `piece_at` bytes after the segment's start.

        A row's physical offset is where the record lies, also where a damaged record has another one.
        """
        physical_offset = fields.starts + (segment_offset + piece_at)
        topic, stored_properties = text(topics(fields)), text(properties(fields))
        columns = {
            "segment": np.full(len(topic), segment_offset),
            "physical_offset": physical_offset,
            "size_bytes": fields.sizes,
            "topic": topic,
            "queue_id": fields.queue_id,
            "queue_offset": fields.queue_offset,
            "flag": fields.flag,
            "sys_flag": fields.sys_flag,
            "body_crc": fields.body_crc,
            "born_timestamp": fields.born_timestamp,
            "born_host": hosts(fields, fields.starts + BORN_HOST_AT, BORN_HOST_IPV6),
            "store_timestamp": fields.store_timestamp,
            "store_host": hosts(fields, fields.store_host_at, STORE_HOST_IPV6),
            "reconsume_times": fields.reconsume_times,
            "prepared_transaction_offset": fields.prepared_transaction_offset,
            "body": bodies(fields),
            "properties": stored_properties,
        }
        if self.due_times is not None:
            columns["due_ms"] = self.due_times.of(fields, physical_offset, topic, stored_properties)
        arrays = [
            column if isinstance(column, pa.Array) else pa.array(column.astype(field.type.to_pandas_dtype()))
            for field, column in zip(self.schema, columns.values(), strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def text(encoded: pa.Array) -> pa.Array:
    """UTF-8 bytes as text; each byte that is not UTF-8 becomes a replacement character.

    Java has one for all bytes of a character that is cut off. Those of three bytes would be as long as what they replace,
    and an export could not see that they are not the record's own.
    """
    try:
        return encoded.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([one.decode("utf-8", REPLACE_EACH_BYTE) for one in encoded.to_pylist()], pa.string())


def _replaced(failure: UnicodeError) -> tuple[str, int]:
    assert isinstance(failure, UnicodeDecodeError)
    return "\ufffd" * (failure.end - failure.start), failure.end


codecs.register_error(REPLACE_EACH_BYTE, _replaced)


def hosts(fields: Fields, positions: npt.NDArray[np.int64], ipv6_bit: int) -> pa.Array:
    """The hosts at `positions` as `ip:port`, `[ip]:port` for IPv6. Each distinct host is formatted once, not once a row."""
    is_ipv6 = (fields.sys_flag & ipv6_bit) != 0
    if not is_ipv6.any():
        longs = np.ndarray((len(fields.piece) - 7,), ">u8", buffer=fields.piece, strides=(1,))
        distinct, index = np.unique(longs[positions], return_inverse=True)
        return pa.array([host(int(one).to_bytes(8, "big")) for one in distinct], pa.string()).take(
            pa.array(index)
        )
    formatted: dict[bytes, str] = {}
    texts = []
    for at, length in zip(positions.tolist(), np.where(is_ipv6, 20, 8).tolist(), strict=True):
        raw = bytes(fields.piece[at : at + length])
        texts.append(formatted.get(raw) or formatted.setdefault(raw, host(raw)))
    return pa.array(texts, pa.string())


def host(raw: bytes) -> str:
    """A host and its port as text.

    >>> host(bytes([10, 0, 0, 1, 0, 0, 0xC3, 0x50]))
    '10.0.0.1:50000'
    """
    address, port = ipaddress.ip_address(raw[:-4]), int.from_bytes(raw[-4:], "big")
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
