"""Bodies compressed as a RocketMQ producer does it, at level 5, and unpacked (docs/rocketmq/consume-filter-ha.md 1.6)."""

import zlib
from collections.abc import Callable
from enum import StrEnum

import lz4.frame
import pyarrow as pa
from pyspark.sql import Column

from pipelines.rocketmq.flags import COMPRESSED, LZ4, ZLIB, ZSTD
from pipelines.spark_internals.arrow import over_columns

LEVEL = 5


class Codec(StrEnum):
    """How bodies are compressed."""

    zlib = "zlib"
    lz4 = "lz4"
    zstd = "zstd"


# Each codec has its value of bits 8 to 10 of sys_flag.
SYS_FLAG_BITS = {Codec.lz4: LZ4, Codec.zstd: ZSTD, Codec.zlib: ZLIB}


def _lz4(body: bytes) -> bytes:
    # The Java library of a RocketMQ consumer refuses frames whose blocks build on each other.
    return bytes(lz4.frame.compress(body, compression_level=LEVEL, block_linked=False))


def _zstd(body: bytes) -> bytes:
    return bytes(pa.Codec("zstd", LEVEL).compress(body, asbytes=True))


_COMPRESS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.zlib: lambda body: zlib.compress(body, LEVEL),
    Codec.lz4: _lz4,
    Codec.zstd: _zstd,
}


def compressed(body: Column, codec: Codec) -> Column:
    """The body, compressed, binary; null for null. Spark has no function for it, so the bytes cross to Python."""

    def compress(bodies: pa.Array) -> pa.Array:
        pack = _COMPRESS[codec]
        return pa.array([None if body is None else pack(body) for body in bodies.to_pylist()], pa.binary())

    return over_columns(compress, "binary", body)


class BodyTooLarge(ValueError):
    """A compressed body unpacks to more bytes than a store allows."""


def unpacked(body: bytes, sys_flag: int, max_bytes: int) -> bytes:
    """The body a producer sent: unpacked if the flag says it was compressed.

    Raises BodyTooLarge as soon as more than `max_bytes` are unpacked: four megabytes may hold 127 gigabytes of zeros.
    """
    if not sys_flag & COMPRESSED:
        return body
    codec = {1: "lz4", 2: "zstd"}.get(sys_flag >> 8 & 7)
    if codec is None:
        found = _inflated(body, max_bytes + 1)
    else:
        found = bytes(pa.input_stream(pa.py_buffer(body), compression=codec).read(max_bytes + 1))
    if len(found) > max_bytes:
        raise BodyTooLarge(
            f"a compressed body of {len(body)} bytes unpacks to more than {max_bytes} (setting maxUnpackedBytes)"
        )
    return found


def _inflated(body: bytes, at_most: int) -> bytes:
    """The bytes that zlib packed, at most `at_most` of them. Raises zlib.error for a body that is not whole."""
    unpacking = zlib.decompressobj()
    found = unpacking.decompress(body, at_most)
    if len(found) < at_most and not unpacking.eof:
        raise zlib.error("the compressed body is not whole")
    return found
