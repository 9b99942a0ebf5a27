"""The answer to a question about a store."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Answer:
    """Rows, and what must be known about them.

    rows      what was found, in the order a person reads it
    complete  False while something that belongs here cannot be seen yet, or was cut away
    result    the answer besides rows: an offset, a status
    """

    rows: DataFrame
    complete: bool = True
    result: Mapping[str, Any] = field(default_factory=dict)


def cut(rows: DataFrame, limit: int | None) -> DataFrame:
    """The rows to show and one more, which shows that there are more."""
    return rows if limit is None else rows.limit(limit + 1)
