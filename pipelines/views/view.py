"""A view as a value: the text of a query, which names the tables and views it reads in braces.

The same text is read over the tables' newest rows, over those of one snapshot or of a past time (read.py), and, with the
tables' registered names put in, becomes a view of the session's catalog (store/catalog.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter


@dataclass(frozen=True)
class View:
    """One view: its name in SQL, what a row of it is (comment), and its query (text).

    >>> View("halves", "…", "SELECT * FROM {parked} AS p").reads
    ('parked',)
    """

    name: str
    comment: str
    text: str

    @property
    def reads(self) -> tuple[str, ...]:
        """The tables and views the text names."""
        named = {name for _, name, _, _ in Formatter().parse(self.text) if name}
        return tuple(sorted(named))

    def over(self, names: Mapping[str, str]) -> str:
        """The query with every table and view under its name in SQL: `names` has these by the names in the text."""
        return self.text.format(**{name: names[name] for name in self.reads})
