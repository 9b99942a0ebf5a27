"""Java's String.hashCode of string columns, computed where the rows are.

Spark computes the same sum for Hive's buckets: h = 31 * h + unit, over the bytes of a string. The bytes of an ASCII string
are its UTF-16 units; for any other string Java's own method is called. Nothing crosses to Python, and Spark compiles both
into the code that reads the rows, which it does not do with a lambda of SQL.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.spark_internals.catalyst import hive_hash, is_ascii, string_hash


def java_hash(text: Column) -> Column:
    """String.hashCode of `text`, int; null for null (docs/rocketmq/store.md, conventions)."""
    return F.when(is_ascii(text), hive_hash(text)).otherwise(string_hash(text))


def java_hash_of(text: str) -> int:
    """String.hashCode: over UTF-16 units, as a signed 32-bit number (docs/rocketmq/store.md, conventions).

    >>> java_hash_of("Aa"), java_hash_of("BB"), java_hash_of("polygenelubricants")
    (2112, 2112, -2147483648)
    """
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) % 2**32
    return (code + 2**31) % 2**32 - 2**31
