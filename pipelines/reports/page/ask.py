"""The page's queries over tables and views: run as `commitlake sql` runs them, and shown with their rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import cleandoc
from typing import Any

from pyspark.sql import DataFrame

from pipelines.store.beside import beside
from pipelines.store.snapshot import Snapshot
from pipelines.views.read_only_sql import QuerySession

# Rows of a list on the page; readers that need the others have the SQL.
ROWS_SHOWN = 200
# Queries that run side by side: most are short, and while one is planned another reads.
AT_ONCE = 4


@dataclass(frozen=True)
class Question:
    """One query of the page.

    name  its name in the page, an anchor
    sql   exactly the SQL that is run; it returns one row or few, or ends in a LIMIT
    """

    name: str
    sql: str


@dataclass(frozen=True)
class Found:
    """A query and its rows: aggregates, at most LIMIT of them."""

    question: Question
    rows: Sequence[Mapping[str, Any]]

    @property
    def first(self) -> Mapping[str, Any]:
        return self.rows[0]

    @property
    def was_cut(self) -> bool:
        """Whether there may be more rows than the page shows."""
        return len(self.rows) >= ROWS_SHOWN

    def parted(self, name: str) -> tuple["Found", "Found"]:
        """The rows with a value in a column, and ROWS_SHOWN of those without: the rows of two GROUPING SETS."""
        having = [row for row in self.rows if row[name] is not None]
        others = [row for row in self.rows if row[name] is None]
        return replace(self, rows=having), replace(self, rows=others[:ROWS_SHOWN])

    def total(self, name: str) -> int:
        return sum(row[name] or 0 for row in self.rows)


def question(name: str, sql: str) -> Question:
    """A query from SQL with the indentation of the code around it."""
    return Question(name, cleandoc(sql))


def ask(at: Snapshot, questions: Iterable[Question]) -> dict[str, Found]:
    """The rows of the queries, by their names; all are of the same version of every table."""
    session = QuerySession(at.store.spark, at)

    def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
        return [row.asDict(recursive=True) for row in frame.collect()]  # aggregates, bounded by the query

    with beside(at.store.spark, AT_ONCE) as threads:
        # The first ones run while the others are planned.
        running = {asked: threads.submit(rows_of, session.rows(asked.sql)) for asked in questions}
        return {asked.name: Found(asked, rows.result()) for asked, rows in running.items()}
