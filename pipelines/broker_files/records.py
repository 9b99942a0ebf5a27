"""Records of a commit log segment: where each one starts, whether it is whole, and its fields as columns.

The layout is docs/rocketmq/store.md 1.2. A piece is the bytes of a segment that are in memory at once. Only the walk from
record to record is a loop; each field is gathered from all records of a piece at once.
"""

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipelines.rocketmq.flags import BORN_HOST_IPV6, STORE_HOST_IPV6
from pipelines.rocketmq.record import BLANK_BYTES, FIXED_BYTES, IPV6_EXTRA_BYTES

MESSAGE_V1 = 0xDAA320A7
MESSAGE_V2 = 0xDAA320AB
MESSAGE_MAGICS = (MESSAGE_V1, MESSAGE_V2)
BLANK = 0xCBD43194

# Bytes of the fixed fields, and of the lengths of body, topic and properties, in a V1 record with IPv4 hosts.
LEAST_RECORD_BYTES = FIXED_BYTES
PHYSICAL_OFFSET_AT = 28
BODY_LENGTH_AT = 84
BORN_HOST_AT = 48
CRC_BITS = 0x7FFF_FFFF
# enabledAppendPropCRC adds this name, ten digits and 0x02 to a record's end (1.7); 20 bytes in all.
PROPERTY_CRC_NAME = b"__CRC32#\x01"
PROPERTY_CRC_TAIL_BYTES = 20

_SIZE_AND_MAGIC = struct.Struct(">iI")

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Walked:
    """The result of a walk along the chain of records in a piece.

    starts     positions in the piece where its whole records start
    next_at    position where the walk ended: the first after the last whole record
    stopped    `more`: a record goes on after the piece; `blank`: the segment's end; `broken`: not a record. Of entries
               (entries.py) also `uncommitted`, and `no record`: a whole entry with something else in it
    reason     what was found where the walk ended
    index      of entries: the index of the last before `next_at`, None where it is not known
    """

    starts: list[int]
    next_at: int
    stopped: str
    reason: str = ""
    index: int | None = None


def walk(piece: memoryview, first_at: int, left_in_file: int) -> Walked:
    """Walk from record to record by their lengths; `left_in_file` is the file's bytes from the start of `piece` on."""
    at, length = first_at, len(piece)
    starts: list[int] = []
    size_and_magic = _SIZE_AND_MAGIC.unpack_from
    while at + BLANK_BYTES <= length:
        size, magic = size_and_magic(piece, at)
        if magic in MESSAGE_MAGICS:
            following = at + size
            if size < LEAST_RECORD_BYTES or following > left_in_file:
                return Walked(starts, at, "broken", _wrong_length(size, left_in_file - at))
            if following > length:
                return Walked(starts, at, "more")
            starts.append(at)
            at = following
        elif magic == BLANK:  # whatever length it says (docs/rocketmq/store.md 1.5)
            return Walked(starts, at, "blank")
        else:
            return Walked(starts, at, "broken", f"not a record (length {size}, magic {magic:08X})")
    if left_in_file - at < BLANK_BYTES:
        return Walked(starts, at, "broken", f"only {left_in_file - at} bytes are left in the file")
    return Walked(starts, at, "more")


def _wrong_length(size: int, left: int) -> str:
    if size < LEAST_RECORD_BYTES:
        return f"a record of {size} bytes; the shortest has {LEAST_RECORD_BYTES}"
    return f"a record of {size} bytes where the file has {left} left"


@dataclass(frozen=True)
class Fields:
    """The fields of the records in one piece, one array a field; positions are in the piece.

    is_whole  whether the record's parts add up to its length: of a record that is not, only `starts` and `sizes` are valid
    """

    piece: memoryview
    starts: Ints
    sizes: Ints
    body_crc: Ints
    queue_id: Ints
    flag: Ints
    queue_offset: Ints
    physical_offset: Ints
    sys_flag: Ints
    born_timestamp: Ints
    store_timestamp: Ints
    reconsume_times: Ints
    prepared_transaction_offset: Ints
    store_host_at: Ints
    body_at: Ints
    body_end: Ints
    topic_at: Ints
    topic_end: Ints
    properties_at: Ints
    properties_end: Ints
    is_whole: npt.NDArray[np.bool_]


def read_fields(piece: memoryview, starts: Ints) -> Fields:
    """The fields of the records that start at `starts`; each is wholly inside the piece by its own length."""
    ints, longs, bytes_, shorts = (_anywhere(piece, kind) for kind in (">i4", ">i8", "i1", ">i2"))
    sizes = ints(starts)
    ends = starts + sizes
    is_v2 = ints(starts + 4) == np.int32(MESSAGE_V2 - 2**32)
    sys_flag = ints(starts + 36)
    born_extra = np.where(sys_flag & BORN_HOST_IPV6, IPV6_EXTRA_BYTES, 0)
    both_extra = born_extra + np.where(sys_flag & STORE_HOST_IPV6, IPV6_EXTRA_BYTES, 0)

    # A length below zero counts as 0, as in RocketMQ; with one that leads out of the record the record is broken.
    body_at = starts + both_extra + BODY_LENGTH_AT + 4
    body_end = body_at + np.maximum(ints(body_at - 4), 0)
    is_whole = body_end < ends
    topic_at = np.minimum(body_end, ends) + np.where(is_v2, 2, 1)
    topic_length = np.where(is_v2, shorts(topic_at - 2), bytes_(topic_at - 1))
    topic_end = topic_at + np.maximum(topic_length, 0)
    properties_at = topic_end + 2
    properties_end = properties_at + np.maximum(shorts(topic_end), 0)
    is_whole &= (topic_length >= 0) & (properties_end == ends)
    return Fields(
        piece=piece,
        starts=starts,
        sizes=sizes,
        body_crc=ints(starts + 8),
        queue_id=ints(starts + 12),
        flag=ints(starts + 16),
        queue_offset=longs(starts + 20),
        physical_offset=longs(starts + PHYSICAL_OFFSET_AT),
        sys_flag=sys_flag,
        born_timestamp=longs(starts + 40),
        store_timestamp=longs(starts + born_extra + 56),
        reconsume_times=ints(starts + both_extra + 72),
        prepared_transaction_offset=longs(starts + both_extra + 76),
        store_host_at=starts + born_extra + 64,
        body_at=body_at,
        body_end=body_end,
        topic_at=topic_at,
        topic_end=topic_end,
        properties_at=properties_at,
        properties_end=properties_end,
        is_whole=is_whole,
    )


class _anywhere:
    """Reads numbers of one dtype at any positions of a piece, aligned or not; those after its end read its last bytes."""

    def __init__(self, piece: memoryview, kind: str) -> None:
        dtype = np.dtype(kind)
        self._last = max(len(piece) - dtype.itemsize, 0)
        self._numbers: npt.NDArray = np.ndarray((self._last + 1,), dtype, buffer=piece, strides=(1,))

    def __call__(self, positions: Ints) -> Ints:
        return self._numbers[np.minimum(positions, self._last)].astype(np.int64)


def wrong_crc(fields: Fields, by_property: bool) -> int:
    """Index of the first record whose CRC does not match; the number of records when all do.

    by_property  compare the CRC in the properties, of the whole record (forceVerifyPropCRC); False: the body's
    """
    if by_property:
        wrong = (index for index in range(len(fields.starts)) if not _property_crc_matches(fields, index))
        return next(wrong, len(fields.starts))
    piece, crc32 = fields.piece, zlib.crc32
    bodies = zip(fields.body_at.tolist(), fields.body_end.tolist(), fields.body_crc.tolist(), strict=True)
    for index, (at, end, stored) in enumerate(bodies):
        if end > at and crc32(piece[at:end]) & CRC_BITS != stored:
            return index
    return len(fields.starts)


def _property_crc_matches(fields: Fields, index: int) -> bool:
    start, size = int(fields.starts[index]), int(fields.sizes[index])
    properties = bytes(fields.piece[fields.properties_at[index] : fields.properties_end[index]])
    found = properties.rfind(PROPERTY_CRC_NAME)
    if found < 0 or (found > 0 and properties[found - 1] != 2):
        return False
    digits = properties[found + len(PROPERTY_CRC_NAME) :].split(b"\x02")[0]
    if not digits.isdigit():
        return False
    expected = int(digits[::-1])  # the least significant digit comes first
    return zlib.crc32(fields.piece[start : start + size - PROPERTY_CRC_TAIL_BYTES]) & CRC_BITS == expected


def located_records(piece: memoryview, piece_offset: int) -> Ints:
    """Positions in `piece`, ascending, where whole records start whose own physical offset is where they lie.

    piece_offset  physical offset of the piece's first byte
    """
    length = len(piece)
    if length < LEAST_RECORD_BYTES:
        return np.zeros(0, np.int64)
    magics: npt.NDArray = np.ndarray((length - LEAST_RECORD_BYTES + 1,), ">u4", piece, offset=4, strides=(1,))
    starts = np.flatnonzero((magics == MESSAGE_V1) | (magics == MESSAGE_V2)).astype(np.int64)
    starts = starts[_anywhere(piece, ">i8")(starts + PHYSICAL_OFFSET_AT) == piece_offset + starts]
    sizes = _anywhere(piece, ">i4")(starts).astype(np.int64)
    starts = starts[(sizes >= LEAST_RECORD_BYTES) & (starts + sizes <= length)]
    return starts[read_fields(piece, starts).is_whole]


def ends_in_zero(fields: Fields) -> npt.NDArray[np.bool_]:
    """Whether each whole record ends in a byte 0 of its properties, or of its topic where it has none.

    A broker never writes that: the record's end had not reached the disk when the broker went down. Its own recovery
    keeps such a record, since its lengths add up and the CRC is of the body alone.
    """
    has_properties = fields.properties_end > fields.properties_at
    ends = np.where(has_properties, fields.properties_end, fields.topic_end)
    last = np.frombuffer(fields.piece, np.uint8)[ends - 1]
    return (last == 0) & (has_properties | (fields.topic_end > fields.topic_at))


def bodies(fields: Fields) -> pa.Array:
    """The bodies of whole records, binary."""
    return _parts(fields, 0)


def topics(fields: Fields) -> pa.Array:
    return _parts(fields, 2)


def properties(fields: Fields) -> pa.Array:
    return _parts(fields, 4)


def _parts(fields: Fields, first: int) -> pa.Array:
    """One part of each record, binary: 0 the body, 2 the topic, 4 the properties.

    The piece itself is the data of one long binary array whose elements are body, gap, topic, gap, properties, gap, …;
    Arrow's take of every sixth, from `first` on, copies their bytes without a loop over records here.
    """
    count = len(fields.starts)
    borders = np.empty((count, 6), np.int32)
    bounds = (
        fields.body_at,
        fields.body_end,
        fields.topic_at,
        fields.topic_end,
        fields.properties_at,
        fields.properties_end,
    )
    for column, positions in enumerate(bounds):
        borders[:, column] = positions
    elements = pa.Array.from_buffers(
        pa.binary(),
        max(count * 6 - 1, 0),
        [None, pa.py_buffer(borders.reshape(-1)), pa.py_buffer(fields.piece)],
    )
    return elements.take(pa.array(np.arange(count, dtype=np.int32) * 6 + first))
