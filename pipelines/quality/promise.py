"""Promises: what must hold of rows, and the sentence a person would want to see about a row of which it does not.

A theme reads rows once and returns a frame with a complaint column for each of its promises: null where it holds. What is
unknown counts as broken.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

Severity = Literal["critical", "warning", "info"]
# The severities, the worst first.
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")


@dataclass(frozen=True)
class Promise:
    """One thing that must hold of every row of a frame.

    column    the frame's complaint column: null, or what is wrong with the row
    sentence  what is promised; the expectation's name in tables and reports
    severity  critical: messages are lost, twice or wrong; warning: an answer may be wrong; info: worth knowing
    """

    column: str
    sentence: str
    severity: Severity


@dataclass(frozen=True)
class Check:
    """Rows and the promises that must hold of them.

    suite  the suite's name, as `--suite` takes it
    rows   `place` (long: complaints are shown in its order) and a complaint column a promise. They are read twice where a
           promise is broken, so they must be the same each time
    """

    suite: str
    rows: DataFrame
    promises: tuple[Promise, ...]


def check(suite: str, rows: DataFrame, place: Column, complaints: Mapping[Promise, Column]) -> Check:
    """A check of `rows`: a complaint column for each promise."""
    columns = [complaint.cast("string").alias(promise.column) for promise, complaint in complaints.items()]
    with_place = rows.select(place.cast("long").alias("place"), *columns)
    return Check(suite, with_place, tuple(complaints))


def complaint(holds: Column, sentence: Column) -> Column:
    """`sentence` where the promise does not hold, or where that is unknown."""
    return F.when(~F.coalesce(holds, F.lit(False)), sentence)


def record() -> Column:
    """A row of the log as a complaint names it: where it lies, and which message of its queue it is."""
    return F.format_string(
        "the record at byte %d (%s %d:%d)", "physical_offset", "topic", "queue_id", "queue_offset"
    )


def at_least(severity: Severity) -> Sequence[Severity]:
    """The severities that are as bad as this one, or worse.

    >>> at_least("warning")
    ('critical', 'warning')
    """
    return SEVERITIES[: SEVERITIES.index(severity) + 1]
