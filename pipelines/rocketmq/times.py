"""Times: which ones a put takes, and how jobs compute with those of a log.

An imported log may hold any 64 bits as a time, and one such row must not stop a job that reads all of them.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

# A put takes times in the years 1970 to 9999, epoch milliseconds.
FIRST_MS, LAST_MS = 0, 253_402_300_799_999

# A time counts as at most this far from 1970, milliseconds: a thousand times and waits of this size add up in 64 bits.
FARTHEST_MS = 2**53

# Every reader can show these, in any time zone: Python's calendar ends with the year 9999 of the reader's own zone.
_FIRST_SHOWN_MS, _LAST_SHOWN_MS = -62_135_510_400_000, 253_402_214_399_999


def within_reach(time: Column) -> Column:
    """A time or a wait that can be added to others without an overflow: long, cut to ±FARTHEST_MS."""
    return (
        F.when(time > FARTHEST_MS, FARTHEST_MS).when(time < -FARTHEST_MS, -FARTHEST_MS).otherwise(time)
    ).cast("long")


def timestamp_sql(epoch_ms: str) -> str:
    """SQL for an expression's epoch milliseconds as a TIMESTAMP; null where the calendar has no such day."""
    return (
        f"IF({epoch_ms} BETWEEN {_FIRST_SHOWN_MS} AND {_LAST_SHOWN_MS}, timestamp_millis({epoch_ms}), NULL)"
    )
