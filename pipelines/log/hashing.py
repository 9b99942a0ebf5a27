"""Java's String.hashCode of string columns, computed where the rows are.

Spark has the same sum inside, for Hive's buckets: h = 31 * h + unit, over the bytes of a string or the elements of an
array. The bytes of an ASCII string are its UTF-16 units; any other string is first spelled out as an array of them.
Nothing crosses to Python: 2 M strings of 45 characters take well under a second of one core.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.log.catalyst import hive_hash


def java_hash(text: Column) -> Column:
    """String.hashCode of `text`, int; null for null (docs/rocketmq/store.md, conventions)."""
    is_ascii = F.octet_length(text) == F.length(text)
    return F.when(is_ascii, hive_hash(text)).when(text.isNotNull(), hive_hash(_utf16_units(text)))


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


def _utf16_units(text: Column) -> Column:
    """The UTF-16 units of a string that is not empty, array<int>; a character beyond the 65,536 first has two."""
    digits = F.hex(F.encode(text, "UTF-16BE"))  # four to a unit
    first_digits = F.sequence(F.lit(1), F.length(digits), F.lit(4))
    return F.transform(first_digits, lambda first: F.conv(digits.substr(first, F.lit(4)), 16, 10).cast("int"))
