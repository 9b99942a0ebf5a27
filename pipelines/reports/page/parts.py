"""The parts of the page; the template knows these and nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipelines.reports.page.ask import ROWS_SHOWN, Found, Question

# How the values of a column are written; words.py formats numbers.
Kind = Literal["text", "count", "size", "moment", "seconds", "code", "lines"]


@dataclass(frozen=True)
class Tile:
    """One number with its name; `question` names its query."""

    label: str
    value: str
    note: str
    question: str


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite chart; `says` is its text for readers who cannot see it."""

    title: str
    spec: Mapping[str, Any]
    question: str
    says: str


@dataclass(frozen=True)
class Column:
    name: str
    label: str
    kind: Kind = "text"


@dataclass(frozen=True)
class Table:
    """Rows to sort and filter; `note` is about those that were cut off."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    question: str
    note: str = ""


@dataclass(frozen=True)
class Section:
    """One part of the page.

    lead       its sentence; a section with nothing to show consists only of this
    worries    what a person should act on, for the top of the page
    questions  the SQL its numbers come from
    """

    anchor: str
    title: str
    lead: str
    questions: Sequence[Question]
    tiles: Sequence[Tile] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    worries: Sequence[str] = ()


def table(title: str, found: Found, *columns: Column) -> Table:
    """The table of a query's rows, with a note about those that are left out."""
    note = f"Only the first {ROWS_SHOWN}; the SQL without its LIMIT has them all." if found.was_cut else ""
    return Table(title, columns, found.rows, found.question.name, note)
