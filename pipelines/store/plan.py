"""Plans: what a job run will write, worked out but not written."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from schemas import Table


@dataclass(frozen=True)
class Planned:
    """What a commit will hold; the commit is compared with it once it is made (see planned.py).

    rows         how many rows it adds; None where only its bounds are known
    first_offset, last_offset  of an append to the log: physical offsets of its first and its last row, bytes; None where
                               unknown
    next_offset  of an append to the log: where the log ends after it, bytes
    """

    rows: int | None
    first_offset: int | None = None
    last_offset: int | None = None
    next_offset: int | None = None


@dataclass(frozen=True)
class Write:
    """Rows for one table, in one Delta commit, with the number `after` + 1 where commits are numbered.

    table          where the rows go
    rows           the rows, with the table's columns
    after          the last commit number in the snapshot the plan was made from; -1 before the first; None for rows that
                   follow from nothing in their table and may come in any order
    base_version   the table's version in that snapshot
    replace_where  None: the rows are added; a predicate: they replace the rows it matches
    partitions     of a replacement of whole partitions: partition column -> values, {} for all rows; None for another
    key            the commits of this key are numbered apart from the rest of the table; '': of all the table
    may_lose       whether another writer may come first and nothing is lost: so with caches
    planned        what the commit must hold; None where that is not known in advance
    """

    table: Table
    rows: DataFrame
    after: int | None
    base_version: int
    replace_where: str | None = None
    key: str = ""
    may_lose: bool = False
    planned: Planned | None = None
    partitions: Mapping[str, Sequence[str]] | None = None

    @property
    def number(self) -> int | None:
        return None if self.after is None else self.after + 1


@dataclass(frozen=True)
class Plan:
    """Writes in the order they are made, rows first and caches last, and the result that the job run reports.

    side_by_side  the first N writes are made at once: each of a table of its own, and none needs another
    afterwards    makes the write of a cache that refers to the other writes, from a snapshot taken after them; None where
                  there is no such cache
    follows_master  the URI of the master whose rows it brings: only a slave of that master takes it; None for other plans
    """

    writes: tuple[Write, ...] = ()
    result: Mapping[str, Any] = field(default_factory=dict)
    side_by_side: int = 0
    afterwards: Callable[[Any], Write] | None = None
    follows_master: str | None = None

    @property
    def in_turn(self) -> Iterator[Sequence[Write]]:
        """The writes in batches: those that are made at once, then each of the others alone."""
        if self.side_by_side:
            yield self.writes[: self.side_by_side]
        for write in self.writes[self.side_by_side :]:
            yield (write,)
