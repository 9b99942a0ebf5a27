"""The parts of the page; the template knows these and nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipelines.reports.page.ask import ROWS_SHOWN, Found, Question

# How a column's values are written: words.py has the forms of numbers.
Kind = Literal["text", "count", "size", "moment", "seconds", "code", "lines"]


@dataclass(frozen=True)
class Tile:
    """One number with its name; `question` is where it comes from."""

    label: str
    value: str
    note: str
    question: str


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite chart; `says` is its text for readers who do not see it."""

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
    """Rows to sort and filter; `note` is about those that were cut."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    question: str
    note: str = ""


@dataclass(frozen=True)
class Section:
    """One part of the page.

    lead       its sentence; where there is nothing to show, the section is only this
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
    """The rows of an answer, with a note about those that are left out."""
    note = f"Only the first {ROWS_SHOWN}; the SQL without its LIMIT has them all." if found.was_cut else ""
    return Table(title, columns, found.rows, found.question.name, note)
