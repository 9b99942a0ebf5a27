"""The answer to a question about a store."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Answer:
    """The rows of a query, whether they are complete, and further results.

    rows      the rows found, in the order in which a person reads them
    complete  False while rows are missing: dispatch has not followed them yet, or a limit cut them off
    result    the results besides rows: an offset, a status
    """

    rows: DataFrame
    complete: bool = True
    result: Mapping[str, Any] = field(default_factory=dict)


# Spark counts the rows of a limit in 32 bits.
MOST_ROWS = 2**31 - 1


def cut(rows: DataFrame, limit: int | None) -> DataFrame:
    """The rows to show, and one more by which `limit` is known to have cut some off."""
    return rows if limit is None or limit >= MOST_ROWS else rows.limit(limit + 1)
