"""SQL92 filters over rows: RocketMQ's own answers, Java's own numbers (docs/rocketmq/consume-filter-ha.md 4.3, 4.4)."""

import gzip
import json
import random
import re
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import NumberFormatException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.filter import FilterSyntaxError, sql92_condition
from pipelines.filter.sql92 import ALL_OF, ANY_OF, OUTCOMES, condition_of
from pipelines.filter.sql92_parse import parse
from pipelines.rocketmq.properties import property_value

PROJECT = Path(__file__).parent.parent.parent
EXPRESSIONS_OF_A_JOB = 300

Case = tuple[str, dict[str, str] | None]  # an expression, and the properties of a message


def answers(spark: SparkSession, cases: Sequence[Case]) -> list[bool | None]:
    """What each expression says of its message; few jobs, each with many expressions as columns."""
    expressions = sorted({expression for expression, _ in cases})
    found: dict[int, bool | None] = {}
    for start in range(0, len(expressions), EXPRESSIONS_OF_A_JOB):
        part = {expression: at for at, expression in enumerate(expressions[start:][:EXPRESSIONS_OF_A_JOB])}
        messages = [
            (case, part[expression], properties)
            for case, (expression, properties) in enumerate(cases)
            if expression in part
        ]
        rows = spark.createDataFrame(messages, "case int, at int, properties map<string,string>").coalesce(1)
        said = F.array(*[sql92_condition(expression, F.col("properties")) for expression in part])
        found |= {
            row["case"]: row["said"] for row in rows.select("case", said[F.col("at")].alias("said")).collect()
        }
    return [found[case] for case in range(len(cases))]


def vectors() -> list[tuple[str, str, dict[str, str], str]]:
    """The table of 4.4: number, expression, properties, and T, F, N, E or P."""
    page = (PROJECT / "docs" / "rocketmq" / "consume-filter-ha.md").read_text(encoding="utf-8")
    section = page.partition("### 4.4")[2].partition("### 4.5")[0]
    found = []
    for line in section.splitlines():
        row = re.fullmatch(r"\| (\d+) \| (?:`(.*)`.*|\(empty text\)) \| (.*) \| ([TFNEP]) \|", line)
        if row:
            pairs = [pair.partition(":") for pair in row[3].split(";") if pair != "–"]
            # Values are as they stand, but for blanks between backticks and the note behind them.
            values = {name: re.sub(r"^\(empty\)$|^`(.*)` .*$", r"\1", value) for name, _, value in pairs}
            found.append((row[1], row[2] or "", values, row[4]))
    return found


VECTORS = vectors()


@pytest.fixture(scope="module")
def answer_of(spark: SparkSession) -> dict[str, bool | None]:
    """Of each vector that is not refused, by its number; in one job."""
    asked = [
        (number, expression, properties)
        for number, expression, properties, result in VECTORS
        if result != "P"
    ]
    said = answers(spark, [(expression, properties) for _, expression, properties in asked])
    return dict(zip([number for number, _, _ in asked], said, strict=True))


@pytest.mark.quick
def test_there_are_all_vectors() -> None:
    assert [number for number, *_ in VECTORS] == [str(number) for number in range(1, 126)]


@pytest.mark.quick
@pytest.mark.parametrize(("number", "expression", "properties", "result"), VECTORS)
def test_a_vector(
    answer_of: dict[str, bool | None], number: str, expression: str, properties: dict[str, str], result: str
) -> None:
    if result == "P":
        with pytest.raises(FilterSyntaxError):
            parse(expression)
    else:
        assert answer_of[number] is {"T": True, "F": False, "N": None, "E": None}[result]


@pytest.mark.slow
def test_every_answer_of_a_real_rocketmq(spark: SparkSession) -> None:
    with gzip.open(PROJECT / "tests" / "data" / "sql92.jsonl.gz", "rt", encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    accepted = []
    for case in cases:
        if case["result"] == "parse-error":
            with pytest.raises(FilterSyntaxError):
                parse(case["expr"])
        else:
            accepted.append(case)
    said = answers(spark, [(case["expr"], case["props"]) for case in accepted])
    expected = [None if case["result"] == "eval-error" else case["result"] for case in accepted]
    assert len(accepted) > 1_800
    assert [
        (case, answer)
        for case, answer, right in zip(accepted, said, expected, strict=True)
        if answer is not right
    ] == []


@pytest.mark.quick
def test_what_the_vectors_leave_open(spark: SparkSession) -> None:
    cases: list[tuple[str, dict[str, str] | None, bool | None]] = [
        ("a IS NULL", None, True),  # no properties at all
        ("TRUE", {}, True),
        ("NULL", {}, None),
        ("a = TRUE = (b = 2)", {"a": "true", "b": "2"}, True),
        # A failure is met wherever an operand is a condition, and a known answer hides what is behind it.
        ("(a > 3) IS NULL", {"a": "x"}, None),
        ("(a > 3) CONTAINS 'x'", {"a": "x"}, None),
        ("(a > 3) CONTAINS ''", {"a": "x"}, False),
        ("-(a > 3) IS NULL", {"a": "x"}, None),
        ("-(a > 3) IS NULL", {"a": "1"}, True),
        ("(a > -(b > 3)) IS NULL", {"b": "x"}, True),  # a is missing: b is not looked at
        ("(a > -(b > 3)) IS NULL", {"a": "1", "b": "x"}, None),
        ("(a > 3) = (b > 3) OR TRUE", {"a": "x", "b": "4"}, None),
        ("TRUE OR a > 3", {"a": "x"}, True),
        ("b = '1' OR a > 3 OR TRUE", {"a": "x"}, None),
        ("(FALSE AND a > 3) OR TRUE", {"a": "x"}, True),
        # Numbers: as the wider one, and what a minus makes of a literal stays as wide as the literal.
        ("3 = 3.0 AND 3000000000 > 3 AND -3000000000 < -2.5", {}, True),
        ("a = -2147483648", {"a": "-2147483648"}, True),
        ("a > -2147483648", {"a": "-2147483649"}, False),
        ("3.0 CONTAINS '3' OR 3 IS NULL", {}, False),
        ("3 = a", {}, False),
        ("a > b", {"a": "0", "b": "-0"}, True),
        ("a >= b", {"a": "-0.0", "b": "0"}, False),
        ("a >= b", {"a": "NaN", "b": "Infinity"}, True),
        ("a > b", {"a": "NaN", "b": "NaN"}, False),
        ("(a = 'x') = 3", {}, None),
        ("3 = (a = 'x')", {}, False),
        ("(a = b) = b", {"a": "x", "b": "true"}, None),
        ("(a = 'x') = b", {}, True),
    ]
    said = answers(spark, [(expression, properties) for expression, properties, _ in cases])
    for (expression, properties, right), answer in zip(cases, said, strict=True):
        assert answer is right, (expression, properties)


def parsed_by_java(spark: SparkSession, name: str) -> Callable[[str], Any]:
    java: Any = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr]
    parse_text = {
        "int": java.Integer.parseInt,
        "long": java.Long.parseLong,
        "double": java.Double.parseDouble,
    }[name]

    def parsed(text: str) -> Any:
        try:
            return parse_text(text)
        except NumberFormatException:
            return None

    return parsed


DOUBLES = """
    NaN|+NaN|-NaN|nan|NAN|Infinity|-Infinity|+Infinity|infinity|INFINITY|inf|+inf|-inf|Inf|Infinit|1e400|-1e400|1e-400|
    0x1p4|0X.8P+2|-0x1.8p1|0x10|0x1p|1.5f|2F|2.5d|3D|3L|1e|1e5|.5|5.|.|+|-|+-3|1_0|1,5| 2 |\t3\n|\x001|1 2|\x85 2|３|1.5ff
"""
WHOLE_NUMBERS = """
    +3|-3|+|-|03|3.|3.0|3e0|0x3|3L| 3|3 |\t3|3\n|3\x00|\x7f3|1_0|2147483647|2147483648|-2147483649|3000000000|
    9223372036854775807|9223372036854775808
"""


@pytest.mark.parametrize(
    ("kind", "expression", "limit", "texts"),
    [
        ("int", "a > 2", 2, WHOLE_NUMBERS),
        ("long", "a > 2147483648", 2**31, WHOLE_NUMBERS),
        ("double", "a > 1.5", 1.5, DOUBLES),
    ],
)
def test_strings_are_numbers_where_java_says_so(
    spark: SparkSession, kind: str, expression: str, limit: float, texts: str
) -> None:
    chance = random.Random(7)
    at_random = {"".join(chance.choices("0159.+-eExXpPfdNan \t", k=chance.randrange(6))) for _ in range(200)}
    some = [*texts.strip(" \n").replace("|\n    ", "|").split("|"), *sorted(at_random)]
    java = parsed_by_java(spark, kind)
    rows = spark.createDataFrame([({"a": text},) for text in some], "properties map<string,string>")
    said = [row[0] for row in rows.select(sql92_condition(expression, F.col("properties"))).collect()]
    for text, answer in zip(some, said, strict=True):
        number = java(text)
        # Not a number is above all numbers.
        right = None if number is None else number > limit or number != number
        assert answer is right, text
    assert {True, False, None} == set(said)


@pytest.mark.quick
@pytest.mark.parametrize("table", [ALL_OF, ANY_OF])
def test_terms_may_be_taken_together_in_any_pairs(table: str) -> None:
    rows = table.split()

    def of(left: str, right: str) -> str:
        return rows[OUTCOMES.index(left)][OUTCOMES.index(right)]

    for first, second, third in product(OUTCOMES, repeat=3):
        assert of(of(first, second), third) == of(first, of(second, third))


def test_many_terms_side_by_side_and_one_in_the_other(spark: SparkSession) -> None:
    flat = " OR ".join(f"a = {number}" for number in range(200))
    deep = "a = 0"
    for number in range(1, 20):
        deep = f"NOT ({deep} {'AND' if number % 2 else 'OR'} a > {number})"
    said = answers(
        spark, [(flat, {"a": "199"}), (flat, {"a": "200"}), (deep, {"a": "12"}), (deep, {"a": "x"})]
    )
    assert said == [True, False, deep_answer(12), None]


def deep_answer(a: int) -> bool:
    value = a == 0
    for number in range(1, 20):
        value = not ((value and a > number) if number % 2 else (value or a > number))
    return value


@pytest.mark.quick
def test_the_properties_string_of_the_log(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [("amount\x01600\x02region\x01us-1\x02",), ("vip\x01true",), ("amount\x01600\x02",), ("",), (None,)],
        "properties string",
    )
    parsed = parse("amount > 500 AND region IN ('cn-hz','us-1') OR vip = TRUE")
    condition = condition_of(parsed, lambda name: property_value(F.col("properties"), name))
    assert [row[0] for row in rows.select(condition).collect()] == [True, True, None, None, None]
