"""Rows for a person at a terminal, and for a program that reads lines.

Lines for programs (json, csv) go to stdout before the result line; the table for a person goes to stderr, as
all talk does.
"""

import csv
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from types import SimpleNamespace
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jobs.launch.command_line import leave
from jobs.launch.printable import printable
from pipelines.views.text import base64_text


class Output(StrEnum):
    """How rows are shown."""

    table = "table"
    json = "json"


class SqlOutput(StrEnum):
    """How the rows of the user's own query are shown."""

    table = "table"
    json = "json"
    csv = "csv"


# A long answer is shown as several tables, so that it needs no more memory than a short one.
ROWS_OF_A_TABLE = 200
# A table shows this many characters of a long value.
CHARACTERS_SHOWN = 80
BYTES_SHOWN = 120
# The width where stderr is not a terminal and COLUMNS is unset.
WIDTH_WITHOUT_TERMINAL = 140
# A column of texts is made no narrower than this; where that is not enough, rows stand one below the other.
LEAST_WIDTH = 12
# Between two columns: one space, and one that the table draws.
GAP = 2


@dataclass(frozen=True)
class Shown:
    """How many rows were shown, and whether there were more."""

    rows: int
    was_cut: bool


def show(rows: DataFrame, output: str, limit: int | None = None) -> Shown:
    """Show the rows in their order, at most `limit` of them."""
    writers = {"json": _write_json, "csv": _write_csv, "table": _print_tables}
    return writers[output](_with_names_of_their_own(rows), limit)


def readable_messages(messages: DataFrame) -> DataFrame:
    """The main columns of rows of the view messages, for a person; `--output json` has every column.

    messages  those of the view messages; also `key`, by which each was found, where there were several
    """
    compressed = F.format_string("(compressed, %d bytes)", F.length("body"))
    is_compressed = F.col("sys_flag").bitwiseAND(1) != 0
    return messages.select(
        *(["key"] if "key" in messages.columns else []),
        "topic",
        F.concat_ws(":", "queue_id", "queue_offset").alias("queue:offset"),
        F.col("physical_offset").alias("at byte"),
        F.col("store_time").alias("stored"),
        "purpose",
        "tags",
        "keys",
        F.when(is_compressed, compressed).otherwise(F.coalesce("body_text", _hex("body"))).alias("body"),
    )


def _hex(name: str) -> Column:
    return F.concat(F.lit("0x"), F.hex(F.substring(name, 1, CHARACTERS_SHOWN // 2)))


def _write_json(rows: DataFrame, limit: int | None) -> Shown:
    """Print an object a row: binary as base64, times as ISO 8601, nulls included."""
    lines = rows.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}))
    return _each(lines, limit, lambda row: _write(f"{row[0]}\n"))


def _write(text: str) -> int:
    """Write to stdout; control characters of values are escaped on a terminal, which they would steer."""
    return sys.stdout.write(printable(text) if sys.stdout.isatty() else text)


def _write_csv(rows: DataFrame, limit: int | None) -> Shown:
    writer = csv.writer(SimpleNamespace(write=_write), lineterminator="\n")
    writer.writerow(rows.columns)
    return _each(rows.select(*(_as_text(field) for field in rows.schema)), limit, writer.writerow)


def _as_text(field: T.StructField) -> Column:
    value = _column(field)
    if isinstance(field.dataType, T.BinaryType):
        return base64_text(value)
    if isinstance(field.dataType, T.ArrayType | T.MapType | T.StructType | T.VariantType):
        return F.to_json(value)
    return value.cast("string")


def _each(rows: DataFrame, limit: int | None, write: Callable[[Row], Any]) -> Shown:
    count = 0
    # Two partitions at a time, whatever the number of rows.
    for row in rows.toLocalIterator(prefetchPartitions=True):
        if count == limit:
            return Shown(count, was_cut=True)
        try:
            write(row)
        except BrokenPipeError:
            leave(sys.stdout)
            return Shown(count, was_cut=True)
        count += 1
    return Shown(count, was_cut=False)


def _print_tables(rows: DataFrame, limit: int | None) -> Shown:
    console = terminal()
    names = rows.columns
    are_numbers = [isinstance(field.dataType, T.NumericType) for field in rows.schema]
    are_texts = [not isinstance(field.dataType, T.NumericType | T.TimestampType) for field in rows.schema]
    # As above: two partitions at a time.
    found = rows.select(*(_shortened_in_spark(field) for field in rows.schema)).toLocalIterator(
        prefetchPartitions=True
    )
    left, count = sys.maxsize if limit is None else limit, 0
    while batch := list(islice(found, min(ROWS_OF_A_TABLE, left - count))):
        lines = [[cell(value) for value in row] for row in batch]
        table = side_by_side(names, are_texts, are_numbers, lines, console.width)
        if table is not None:
            console.print(table)
        else:
            _print_one_below_the_other(console, names, lines, count)
        count += len(batch)
    return Shown(count, was_cut=next(found, None) is not None)


def _shortened_in_spark(field: T.StructField) -> Column:
    """A column cut in Spark to what is shown, so that a body of megabytes does not come to the driver."""
    value = _column(field)
    if isinstance(field.dataType, T.TimestampType):
        return F.date_format(value, "yyyy-MM-dd HH:mm:ss.SSS")
    if isinstance(field.dataType, T.BinaryType):
        return F.substring(value, 1, BYTES_SHOWN)
    if isinstance(field.dataType, T.StringType):
        return F.substring(value, 1, CHARACTERS_SHOWN + 1)
    if isinstance(field.dataType, T.VariantType):
        return F.to_json(value)
    return (
        value
        if _has_python_values(field.dataType)
        else F.substring(value.cast("string"), 1, CHARACTERS_SHOWN + 1)
    )


def _has_python_values(kind: T.DataType) -> bool:
    """Whether Python holds all values of a type: it has no year 10000, no months of an interval and no zone but its own."""
    if isinstance(kind, T.ArrayType):
        return _has_python_values(kind.elementType)
    if isinstance(kind, T.MapType):
        return _has_python_values(kind.keyType) and _has_python_values(kind.valueType)
    if isinstance(kind, T.StructType):
        return all(_has_python_values(field.dataType) for field in kind)
    held = (T.NumericType, T.BooleanType, T.StringType, T.BinaryType, T.VariantType, T.NullType)
    return isinstance(kind, held)


def side_by_side(
    names: Sequence[str],
    are_texts: Sequence[bool],
    are_numbers: Sequence[bool],
    lines: Sequence[Sequence[str]],
    width: int,
) -> Table | None:
    """The rows as a table in which rich cuts texts until it fits; None where a text would get less than LEAST_WIDTH."""
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, GAP - 1, 0, 0), header_style="bold", show_edge=False
    )
    least = 0
    for name, is_text, is_number, *values in zip(names, are_texts, are_numbers, *lines, strict=True):
        widest = max(map(cell_len, (name, *values)))
        least += GAP + (min(widest, LEAST_WIDTH) if is_text else widest)
        # Only columns that may wrap are narrowed; their cells do not wrap all the same.
        table.add_column(_one_line(name), justify="right" if is_number else "left", no_wrap=not is_text)
    for line in lines:
        table.add_row(*map(_one_line, line))
    return table if least <= width else None


def _one_line(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")


def _print_one_below_the_other(
    console: Console, names: Sequence[str], lines: Sequence[Sequence[str]], before: int
) -> None:
    for number, line in enumerate(lines, start=before + 1):
        console.print(Text(f"row {number}", style="bold"))
        block = Table(box=None, show_header=False, pad_edge=False)
        block.add_column(no_wrap=True)
        block.add_column(overflow="fold")
        for name, value in zip(names, line, strict=True):
            block.add_row(Text(f"  {name}"), Text(value))
        console.print(block)


def cell(value: Any) -> str:
    """A value as a person reads it, shortened.

    >>> cell({"a": "1", "b": None}), cell(["x", "y"]), cell(b"\\x00\\xff"), cell(None)
    ('a=1 b=', 'x y', '0x00FF', '')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray):
        return _shortened(_bytes_as_text(bytes(value)))
    if isinstance(value, Row):
        value = value.asDict()
    if isinstance(value, dict):
        return _shortened(" ".join(f"{name}={cell(one)}" for name, one in value.items()))
    if isinstance(value, list):
        return _shortened(" ".join(cell(one) for one in value))
    return _shortened(str(value))


def _shortened(text: str) -> str:
    visible = "".join(character if character.isprintable() else " " for character in text)
    return visible if len(visible) <= CHARACTERS_SHOWN else visible[: CHARACTERS_SHOWN - 1] + "…"


def _bytes_as_text(value: bytes) -> str:
    # The beginning of a longer value may end inside a character of up to four bytes.
    for missing in range(4 if len(value) == BYTES_SHOWN else 1):
        try:
            return value[: len(value) - missing].decode("utf-8")
        except UnicodeDecodeError:
            continue
    return "0x" + value.hex().upper()


def _column(field: T.StructField) -> Column:
    return F.col("`" + field.name.replace("`", "``") + "`")


def _with_names_of_their_own(rows: DataFrame) -> DataFrame:
    """The rows with distinct column names: a query may use a name twice, and an object cannot hold both."""
    names: list[str] = []
    for name in rows.columns:
        taken = {known.lower() for known in names}
        own, number = name, 2
        while own.lower() in taken:
            own, number = f"{name}_{number}", number + 1
        names.append(own)
    return rows.toDF(*names) if names != rows.columns else rows


def terminal() -> Console:
    """The console on stderr: as wide as the terminal, without colours where there is none."""
    is_known = sys.stderr.isatty() or "COLUMNS" in os.environ
    return Console(
        stderr=True, highlight=False, markup=False, width=None if is_known else WIDTH_WITHOUT_TERMINAL
    )
