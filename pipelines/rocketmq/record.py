"""A message as RocketMQ stores it: its properties string, its hosts, its size (docs/rocketmq/store.md 1.2–1.8)."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.rocketmq.flags import BORN_HOST_IPV6, STORE_HOST_IPV6

NAME_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"

# Of a V1 record with IPv4 hosts: the fields of fixed width and the three lengths (1.3).
FIXED_BYTES = 91
IPV6_EXTRA_BYTES = 12
# Topics of more characters get the V2 record, whose topic length takes a byte more (1.4).
V1_TOPIC_CHARS = 127

# These bytes always stay free at the end of a segment, for the blank record (1.5).
BLANK_BYTES = 8
# Bytes before each record in a log that DLedger wrote (1.16): no row takes them, and they are too few for a record.
ENTRY_HEADER_BYTES = 48

# A put adds this to a message without a unique key: UNIQ_KEY 0x01 <32 hex digits> 0x02.
UNIQUE_KEY_HEX_DIGITS = 32
UNIQUE_KEY_PROPERTY_BYTES = len("UNIQ_KEY") + 1 + UNIQUE_KEY_HEX_DIGITS + 1

# An element of a batch on the wire has six lengths and numbers around its body and properties (1.14).
WIRE_FIXED_BYTES = 22


def property_pair(name: str, value: Column) -> Column:
    """`name 0x01 value 0x02`, string; '' where the value is null or empty (an empty value is not preserved)."""
    pair = F.concat(F.lit(name + NAME_SEPARATOR), value, F.lit(PROPERTY_SEPARATOR))
    return F.when(value != "", pair).otherwise(F.lit(""))


def property_pair_bytes(name: str, value: Column) -> Column:
    """Length of `property_pair` in bytes, int, without making it."""
    return F.when(value != "", F.octet_length(value) + len(name) + 2).otherwise(0)


def property_pairs(properties: Column) -> Column:
    """All entries of a map as pairs, string, in the map's order; '' for a null map."""

    def pair(entry: Column) -> Column:
        return F.concat(entry["key"], F.lit(NAME_SEPARATOR), entry["value"], F.lit(PROPERTY_SEPARATOR))

    return F.coalesce(F.array_join(F.transform(F.map_entries(properties), pair), ""), F.lit(""))


def is_ipv6(host: Column) -> Column:
    """Whether a host `ip:port` is written with an IPv6 address: `[ip]:port`."""
    return host.startswith("[")


def with_host_bits(sys_flag: Column, born_host: Column, store_host_is_ipv6: bool) -> Column:
    """The flag with its two host bits set by what the hosts are, IPv4 or IPv6 (1.6)."""
    kept = sys_flag.bitwiseAND(~(BORN_HOST_IPV6 | STORE_HOST_IPV6))
    born = F.when(is_ipv6(born_host), F.lit(BORN_HOST_IPV6)).otherwise(0)
    return kept.bitwiseOR(born).bitwiseOR(F.lit(STORE_HOST_IPV6 if store_host_is_ipv6 else 0))


def with_store_host_bit(sys_flag: Column, store_host: str) -> Column:
    """The flag of a row that this store makes from another store's: its store host bit is set by our host (1.6)."""
    bit = STORE_HOST_IPV6 if store_host.startswith("[") else 0
    return sys_flag.bitwiseAND(~STORE_HOST_IPV6).bitwiseOR(F.lit(bit))


def v2_bytes(topic: Column) -> Column:
    """The bytes a record is longer by where its topic makes it a V2 record, int: 1 or 0 (1.4)."""
    # A string's bytes are known, its characters must be counted: few topics have so many bytes that it is needed.
    is_v2 = (F.octet_length(topic) > V1_TOPIC_CHARS) & (F.length(topic) > V1_TOPIC_CHARS)
    return F.when(is_v2, F.lit(1)).otherwise(0)


def size_bytes(
    topic: Column,
    body_bytes: Column,
    properties_bytes: Column,
    born_host: Column | None,
    store_host_is_ipv6: bool,
) -> Column:
    """Length of the record in bytes, int (1.3). `born_host` None stands for the store's own host."""
    fixed = F.lit(FIXED_BYTES + (IPV6_EXTRA_BYTES if store_host_is_ipv6 else 0))
    if born_host is None:
        fixed = fixed + (IPV6_EXTRA_BYTES if store_host_is_ipv6 else 0)
    else:
        fixed = fixed + F.when(is_ipv6(born_host), F.lit(IPV6_EXTRA_BYTES)).otherwise(0)
    return (fixed + v2_bytes(topic) + body_bytes + F.octet_length(topic) + properties_bytes).cast("int")


def body_crc(body: Column) -> Column:
    """CRC-32 of the stored body without its highest bit; 0 for an empty one (1.7)."""
    return F.crc32(body).bitwiseAND(F.lit(0x7FFFFFFF).cast("long")).cast("int")
