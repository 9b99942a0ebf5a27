"""Bodies compressed as a RocketMQ producer does it: zlib, level 5 (docs/rocketmq/store.md 1.6)."""

import zlib

import pyarrow as pa
from pyspark.sql import Column

from pipelines.log.arrow import over_columns

LEVEL = 5


def zlib_compressed(body: Column) -> Column:
    """The body, compressed. Spark has no function for it, so the bytes cross to Python."""

    def compress(bodies: pa.Array) -> pa.Array:
        return pa.array(
            [None if body is None else zlib.compress(body, LEVEL) for body in bodies.to_pylist()], pa.binary()
        )

    return over_columns(compress, "binary", body)
