"""Small tables of state: they have a few thousand rows at most; the driver reads them and replaces them as a whole."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pipelines.spark_internals.arrow import frame_of
from pipelines.store.plan import Write
from pipelines.store.snapshot import Snapshot
from schemas import Table


def write_if_changed(
    at: Snapshot, table: Table, before: Mapping[Any, Any], after: Mapping[Any, Any]
) -> tuple[Write, ...]:
    """The write that replaces all rows of the table with `after`; an empty tuple where `after` equals `before`.

    before, after  rows by key: dataclasses or mappings with the table's columns; written in the order of their keys
    """
    if after == before:
        return ()
    rows = [after[key] for key in sorted(after)]
    return (whole_table_write(at, table, [row if isinstance(row, Mapping) else asdict(row) for row in rows]),)


def whole_table_write(at: Snapshot, table: Table, rows: Sequence[Any], may_lose: bool = False) -> Write:
    """The write that replaces all rows of the table with these, in one file.

    rows  tuples in the order of the table's columns, or mappings with them
    """
    frame = frame_of(at.store.spark, rows, table.columns)
    return at.replace(table, frame.coalesce(1), may_lose=may_lose)
