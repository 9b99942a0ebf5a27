"""Rows as a table: texts are cut until it fits a terminal, numbers and times never."""

import io
import os
import sys

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from jobs.launch.command_line import print_result
from jobs.launch.output import Shown, show, side_by_side

pytestmark = pytest.mark.quick

NAMES, ARE_TEXTS, ARE_NUMBERS = ("id", "stored", "body"), (False, False, True), (True, False, False)
LINES = [("7", "2026-01-01 00:00:00.000", "订单号码" * 10), ("10", "2026-01-01 00:00:00.001", "order")]


def printed(width: int) -> list[str] | None:
    table = side_by_side(NAMES, ARE_TEXTS, ARE_NUMBERS, LINES, width)
    if table is None:
        return None
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_texts_are_cut_and_the_rest_is_shown_in_full() -> None:
    lines = printed(44)
    assert lines is not None
    assert [lines[0], *lines[2:]] == [
        "id  stored                   body",
        " 7  2026-01-01 00:00:00.000  订单号码订单号…",
        "10  2026-01-01 00:00:00.001  order",
    ]


def test_nothing_is_cut_where_all_fits() -> None:
    lines = printed(120)
    assert lines is not None
    assert lines[2].endswith("订单号码" * 10)


def test_there_is_no_table_where_texts_would_be_cut_to_a_few_letters() -> None:
    assert printed(43) is not None
    assert printed(42) is None


def test_a_reader_of_rows_that_leaves_ends_them_and_nothing_fails(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", buffering=1) as nobody, monkeypatch.context() as during:
        during.setattr(sys, "stdout", nobody)
        assert show(spark.range(3), "json") == Shown(0, was_cut=True)
        print_result({"job": "sql"})


def test_a_result_that_nobody_reads_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as nobody, monkeypatch.context() as during:
        during.setattr(sys, "stdout", nobody)
        print_result({"job": "sql"})
        assert os.path.samestat(os.fstat(nobody.fileno()), os.stat(os.devnull))


@pytest.mark.parametrize(("is_a_terminal", "shown"), [(True, "a\\x1b[31mb\\x9b"), (False, "a\x1b[31mb\x9b")])
def test_values_steer_no_terminal_and_stay_as_they_are_in_a_file(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, is_a_terminal: bool, shown: str
) -> None:
    class Printed(io.StringIO):
        def isatty(self) -> bool:
            return is_a_terminal

    rows = spark.createDataFrame([("a\x1b[31mb\x9b",)], "body string")
    with monkeypatch.context() as during:
        during.setattr(sys, "stdout", printed := Printed())
        show(rows, "csv")
        show(rows, "json")
    header, csv_row, json_row = printed.getvalue().splitlines()
    assert (header, csv_row) == ("body", shown)
    assert ("\x9b" in json_row) is not is_a_terminal
