"""Level lists: a wait made of several delay levels, one after the other.

docs/rocketmq/delay-retry-transaction.md 3, with the corrections of 3.5.
"""

from collections.abc import Sequence
from functools import cache

from pyspark.sql import Column
from pyspark.sql import functions as F

DAY_SECONDS = 86_400
# A day on which clocks go back is longer than others; one that a zone has twice, twice as long.
LONGEST_DAY_HOURS = 48


@cache
def decomposition(seconds: int, levels_ms: tuple[int, ...]) -> tuple[int, ...] | None:
    """Levels that together wait `seconds`: its seconds first, then minutes, then hours; None if none do.

    Largest levels first within each part: with the table of 3.1 these are the lists of 3.2.

    >>> decomposition(62, (1_000, 60_000))
    (1, 1, 2)
    """
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    levels: list[int] = []
    for part_ms in (left * 1000, minutes * 60_000, hours * 3_600_000):
        for delay, level in sorted(
            ((delay, level) for level, delay in enumerate(levels_ms, 1)), key=lambda d: -d[0]
        ):
            while 0 < delay <= part_ms:
                levels.append(level)
                part_ms -= delay
        if part_ms:
            return None
    return tuple(levels)


def lists_of_parts(levels_ms: tuple[int, ...]) -> tuple[list[str | None], list[str | None], list[str | None]]:
    """Level lists of each second, minute and hour of the longest day, a comma after each level; None where there is none."""

    def text(seconds: int) -> str | None:
        levels = decomposition(seconds, levels_ms)
        return None if levels is None else "".join(f"{level}," for level in levels)

    return (
        [text(second) for second in range(60)],
        [text(minute * 60) for minute in range(60)],
        [text(hour * 3600) for hour in range(LONGEST_DAY_HOURS)],
    )


def seconds_until(time_of_day: Column, now_ms: int, zone: str = "UTC") -> Column:
    """Whole seconds from now until the next time it is `HH:mm:ss` in a zone, whatever the session's; null if not a time.

    A time that is now is zero seconds away, one a second ago comes again tomorrow (3.3). Where clocks go forward or back,
    java.time's rules hold, which are Spark's: a time that a day does not have is later by what the clocks skip, and of one
    that comes twice the first counts.
    """
    # Computed from hours, minutes and seconds: to_timestamp of the time alone would depend on today's date.
    parts = [F.regexp_extract(time_of_day, TIME_OF_DAY_PATTERN, group).try_cast("int") for group in (1, 2, 3)]
    second_of_day = parts[0] * 3600 + parts[1] * 60 + parts[2]
    now = now_ms // 1000
    # Local times as if they were UTC's, seconds since 1970.
    local_now = F.unix_seconds(F.from_utc_timestamp(F.timestamp_seconds(F.lit(now)), zone))
    midnight = local_now - F.pmod(local_now, F.lit(DAY_SECONDS))

    def seconds_away(day: int) -> Column:
        local = midnight + day * DAY_SECONDS + second_of_day
        return F.unix_seconds(F.to_utc_timestamp(F.timestamp_seconds(local), zone)) - now

    today, tomorrow = seconds_away(0), seconds_away(1)
    return F.when(today >= 0, today).otherwise(tomorrow).cast("int")


TIME_OF_DAY_PATTERN = r"\A([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])\z"


def list_until(seconds: Column, levels_ms: Sequence[int]) -> Column:
    """The level list, each level followed by a comma, that waits `seconds`; null where the table has none."""
    parts = lists_of_parts(tuple(levels_ms))
    indexes = (seconds % 60, F.floor(seconds / 60) % 60, F.floor(seconds / 3600))
    return F.concat(
        *[
            F.get(F.array(*[F.lit(text) for text in texts]), index.cast("int"))
            for texts, index in zip(parts, indexes, strict=True)
        ]
    )


def levels_of(text: Column) -> Column:
    """The levels of a list as array<int>: a comma at the end adds no level; null for anything but whole numbers over 0."""
    # White space within a number stays: "1 2" must not become level 12.
    joined = F.regexp_replace(text, r"\A\s+|\s+\z|\s*(,)\s*", "$1")
    trimmed = F.regexp_replace(joined, r",\z", "")
    levels = F.transform(F.split(trimmed, ","), lambda level: level.try_cast("int"))
    is_list = trimmed.rlike(LIST_PATTERN)
    return F.when(trimmed == "", F.array().cast("array<int>")).when(is_list, levels)


LIST_PATTERN = r"\A0*[1-9][0-9]{0,8}(,0*[1-9][0-9]{0,8})*\z"


def rest_of(levels: Column, taken: Column) -> Column:
    """What is left of a list after its first levels, as it is stored: each followed by a comma; empty when consumed."""
    left = F.slice(levels, taken + 1, F.size(levels))
    return F.array_join(F.transform(left, lambda level: F.concat(level.cast("string"), F.lit(","))), "")
