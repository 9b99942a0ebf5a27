"""Numbers and times as text for a person."""

from datetime import UTC, datetime

from rich.filesize import decimal

# A duration has only its largest unit: "3 h", not "3 h 12 min".
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))


def count(number: int | None) -> str:
    """
    >>> count(1234567), count(None)
    ('1,234,567', '–')
    """
    return "–" if number is None else f"{number:,}"


def size(size_bytes: int | None) -> str:
    """
    >>> size(455997), size(1)
    ('456.0 kB', '1 byte')
    """
    return "–" if size_bytes is None else decimal(size_bytes)


def duration(milliseconds: float) -> str:
    """
    >>> duration(90_000), duration(11_000_000), duration(0)
    ('1 min', '3 h', '0 ms')
    """
    for unit_ms, name in _UNITS:
        if milliseconds >= unit_ms:
            return f"{int(milliseconds // unit_ms):,} {name}"
    return "0 ms"


def moment(epoch_ms: int | None) -> str:
    """
    >>> moment(1795251600000), moment(None)
    ('2026-11-21 09:00:00', '–')
    """
    if epoch_ms is None:
        return "–"
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # a timer may be due later than the calendar goes
        return f"{epoch_ms:,} ms"


def plural(number: int, one: str, many: str | None = None) -> str:
    """
    >>> plural(1, "queue"), plural(2, "queue"), plural(0, "copy", "copies")
    ('1 queue', '2 queues', '0 copies')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"
