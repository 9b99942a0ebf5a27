"""Message ids: the store's host and the offset of the record, as upper-case hex digits (docs/rocketmq/store.md 2).

They have 4 or 16 bytes of address, 4 of port, 8 of offset.
"""

import ipaddress
import re

from pyspark.sql import Column
from pyspark.sql import functions as F

OFFSET_DIGITS = 16
# An id has 32 digits, or 56 with an IPv6 host.
MESSAGE_ID = re.compile(r"[0-9A-F]{32}|[0-9A-F]{56}")

_GROUP = "lpad(upper(part), 4, '0')"


def message_id_sql(host: str, physical_offset: str) -> str:
    """SQL for the id of the record at an offset of a store; both are SQL expressions, a string and a long."""
    return f"concat({host_hex(host)}, lpad(hex({physical_offset}), {OFFSET_DIGITS}, '0'))"


def message_id() -> Column:
    """The id of a row of the log; needs `store_host` and `physical_offset`."""
    return F.expr(message_id_sql("store_host", "physical_offset"))


def message_id_of(host: str, physical_offset: int) -> str:
    """The id of the record at an offset of a store.

    >>> message_id_of("127.0.0.1:10911", 256)
    '7F00000100002A9F0000000000000100'
    """
    address, _, port = host.rpartition(":")
    packed = ipaddress.ip_address(address.strip("[]")).packed
    return (packed + int(port).to_bytes(4, "big") + physical_offset.to_bytes(8, "big")).hex().upper()


def is_message_id(text: str) -> bool:
    """Whether the text has the form of a message id; unique keys of RocketMQ's clients have it too."""
    return MESSAGE_ID.fullmatch(text.strip().upper()) is not None


def offset_in_id(id_text: Column) -> Column:
    """The physical offset that a message id holds, long; null where its end is not a number in hex."""
    return F.conv(F.right(id_text, F.lit(OFFSET_DIGITS)), 16, 10).try_cast("long")


def offset_of_id(message_id: str) -> int:
    """The physical offset that one id holds. The last eight bytes of a unique key may be no valid offset.

    >>> offset_of_id("7F00000100002A9F0000000000000100")
    256
    """
    return int.from_bytes(bytes.fromhex(message_id[-OFFSET_DIGITS:]), "big", signed=True)


def host_hex(host: str) -> str:
    """SQL for the upper-case hex of an `ip:port` or `[ipv6]:port`: 4 or 16 bytes of address and 4 of port.

    host  an SQL expression of type string; IPv6 may be written in any way RFC 4291 allows
    """
    address = f"substring_index({host}, ':', -1)"
    port = f"lpad(hex(try_cast({address} AS BIGINT)), 8, '0')"
    return f"concat(IF(startswith({host}, '['), {_v6_hex(host)}, {_v4_hex(host)}), {port})"


def _v4_hex(host: str) -> str:
    return _v4_groups_hex(f"substring_index({host}, ':', 1)")


def _v4_groups_hex(address: str) -> str:
    return f"array_join(transform(split({address}, '[.]'), part -> lpad(hex(try_cast(part AS INT)), 2, '0')), '')"


def _v6_hex(host: str) -> str:
    """SQL for the hex of an IPv6 host: the groups before `::`, the missing zeros, the groups after it.

    A last group may be a dotted quad.
    """
    address = f"substring({host}, 2, instr({host}, ']') - 2)"
    before = _groups_hex(f"substring_index({address}, '::', 1)")
    # Without :: nothing comes after it; the part before is then all 32 digits.
    after = _groups_hex(f"IF(instr({address}, '::') > 0, substring_index({address}, '::', -1), '')")
    return f"concat(rpad({before}, 32 - length({after}), '0'), {after})"


def _groups_hex(groups: str) -> str:
    quad = _v4_groups_hex("part")
    return (
        f"array_join(transform(filter(split({groups}, ':'), part -> part <> ''), "
        f"part -> IF(instr(part, '.') > 0, {quad}, {_GROUP})), '')"
    )
