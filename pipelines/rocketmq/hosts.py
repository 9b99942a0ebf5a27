"""Hosts as text and as the bytes of a message id (docs/rocketmq/store.md 2)."""

_GROUP = "lpad(upper(part), 4, '0')"


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
    """The groups before `::`, as many zeros as are missing, the groups after it; a last group may be a dotted
    quad.
    """
    address = f"substring({host}, 2, instr({host}, ']') - 2)"
    before = _groups_hex(f"substring_index({address}, '::', 1)")
    # Without :: there is nothing behind it; what stands before is then all 32 digits.
    after = _groups_hex(f"IF(instr({address}, '::') > 0, substring_index({address}, '::', -1), '')")
    return f"concat(rpad({before}, 32 - length({after}), '0'), {after})"


def _groups_hex(groups: str) -> str:
    quad = _v4_groups_hex("part")
    return (
        f"array_join(transform(filter(split({groups}, ':'), part -> part <> ''), "
        f"part -> IF(instr(part, '.') > 0, {quad}, {_GROUP})), '')"
    )
