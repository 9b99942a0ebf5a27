"""Bodies compressed as a RocketMQ producer does it (docs/rocketmq/consume-filter-ha.md 1.6), at its level 5."""

import zlib
from collections.abc import Callable
from enum import StrEnum

import lz4.frame
import pyarrow as pa
from pyspark.sql import Column

from pipelines.rocketmq.flags import LZ4, ZLIB, ZSTD
from pipelines.spark_internals.arrow import over_columns

LEVEL = 5


class Codec(StrEnum):
    """How bodies are compressed."""

    zlib = "zlib"
    lz4 = "lz4"
    zstd = "zstd"


# Bits 8 to 10 of sys_flag.
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
    """The body, compressed. Spark has no function for it, so the bytes cross to Python."""

    def compress(bodies: pa.Array) -> pa.Array:
        pack = _COMPRESS[codec]
        return pa.array([None if body is None else pack(body) for body in bodies.to_pylist()], pa.binary())

    return over_columns(compress, "binary", body)
