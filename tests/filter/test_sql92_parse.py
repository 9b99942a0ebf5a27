"""What is refused as a SQL92 filter, and in which words; what is read, and how."""

from collections.abc import Callable

import pytest

from pipelines.filter import FilterSyntaxError
from pipelines.filter.sql92_parse import (
    MOST_LEVELS,
    AllOf,
    Equal,
    Literal,
    Name,
    NameAsCondition,
    Negative,
    Not,
    OneOf,
    Ordered,
    parse,
)

pytestmark = pytest.mark.quick

A, B = Name("a"), Name("b")
OPERAND = r"a name, a number, a string, FALSE, NOT, NULL, TRUE, \(, \+ or -"
NUMBERS = "numbers or names of properties to compare by"


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("", f"expected {OPERAND}; found the end"),
        ("a >", f"expected {OPERAND}; found the end"),
        ("a == 1", f'expected {OPERAND}; found "=" at character 4'),
        ("in = 'x'", f'expected {OPERAND}; found "in" at character 1'),
        ("(a = 1", r"expected \); found the end"),
        ("a IS 3", 'expected NOT or NULL; found "3" at character 6'),
        ("a NOT LIKE 'x'", 'expected BETWEEN, CONTAINS, ENDSWITH, IN or STARTSWITH; found "LIKE" at character 7'),
        ("a IN (1)", 'expected a string; found "1" at character 7'),
        ("a != 1", 'expected the end, AND, .*, <>.*; found "!= 1" at character 3'),
        ("a\n  AND b = 'x", "expected .*; found \"'x\" at line 2, character 11"),
        # A token, but not where it stands.
        ("a = 9223372036854775808", 'expected a whole number up to 9223372036854775807; found "9223372036854775808"'),
        ("a > 0.0", 'expected a number from 4.9E-324 to 1.79.*E308, or 0 without a point; found "0.0" at character 5'),
        ("a = 1e400", 'expected a number from 4.9E-324 to 1.79.*; found "1e400" at character 5'),
        ("a = 1 AND b > 'x'", f"expected {NUMBERS} >; found \"b > 'x'\" at character 11"),
        ("a BETWEEN 1 AND NULL", f'expected {NUMBERS} <=; found "a BETWEEN 1 AND NULL" at character 1'),
        ("a BETWEEN 2 AND 1.5", "expected the smaller limit of BETWEEN first; found"),
        ("a = NULL", 'expected IS NULL or IS NOT NULL to compare with NULL; found "a = NULL"'),
        ("TRUE = 3", "expected TRUE, FALSE or the name of a property after TRUE = or FALSE =; found"),
        ("NOT a IN ('x')", "expected the name of a property before IN; found"),
        ("NOT 3", 'expected a condition or the name of a property; found "NOT 3" at character 1'),
        ("'a text that is too long to be shown in full'", "found \"'a text that is too long to be shown in …\" at"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_was_expected_what_was_found_and_where(expression: str, complaint: str) -> None:
    with pytest.raises(FilterSyntaxError, match=complaint):
        parse(expression)


@pytest.mark.parametrize("rest", ["garbage #", ") #", "'x' #", "5L", "- #", "+ 2", "-- no line end"])
def test_what_comes_behind_a_filter_is_not_read(rest: str) -> None:
    assert parse(f"a = 1 {rest}") == Equal(A, Literal(1))


@pytest.mark.parametrize("text", ["/* x **/ a\f=\r1", "a -- x\n= 1 -- y\r", "a =--\r\n1", "a /* = 2 */ = 1"])
def test_comments_and_blanks(text: str) -> None:
    assert parse(text) == Equal(A, Literal(1))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("5L", 5), ("5l", 5), ("9223372036854775807", 2**63 - 1), ("0L", 0), ("012", 0),
        (".5", 0.5), ("5.", 5.0), ("00.5", 0.5), ("5e1", 50.0), ("5.E-1", 0.5), ("4.9E-324", 5e-324), ("5.0L", 5.0),
        ("''", ""), ("'it''s'", "it's"), ("'a\nb'", "a\nb"), ("'中文'", "中文"), ("'a\\'", "a\\"),
        ("tRUE", True), ("false", False),
    ],
)  # fmt: skip
def test_literals(text: str, value: object) -> None:
    node = parse(f"a = {text}")
    assert node == Equal(A, Literal(value))  # type: ignore[arg-type]
    assert isinstance(node, Equal)
    assert type(node.right.value) is type(value)  # type: ignore[attr-defined]


def test_not_binds_more_tightly_than_a_comparison() -> None:
    assert parse("NOT a = 'x'") == Equal(Not(NameAsCondition(A)), Literal("x"))
    assert parse("NOT (a = 'x')") == Not(Equal(A, Literal("x")))


def test_signs() -> None:
    assert parse("- -a > + 3") == Ordered(Negative(Negative(A)), ">", Literal(3))


def test_between_is_two_comparisons() -> None:
    assert parse("a BETWEEN 1 AND b AND b") == AllOf(
        (AllOf((Ordered(A, ">=", Literal(1)), Ordered(A, "<=", B))), NameAsCondition(B))
    )


def test_the_name_before_in_may_have_parentheses() -> None:
    assert parse("((a)) NOT IN ('x', 'y')") == Not(OneOf(A, ("x", "y")))


@pytest.mark.slow
@pytest.mark.parametrize("levels", [MOST_LEVELS + 1, 1_000, 20_000])
@pytest.mark.parametrize(
    "nested",
    [
        lambda n: "NOT " * n + "a IS NULL",
        lambda n: "-" * n + "1 = a",
        lambda n: "(" * n + "a = '1' OR b = '2'" + " AND c = '3')" * n,
        lambda n: "a" + " = TRUE" * n,
    ],
    ids=["NOT", "signs", "AND in OR", "comparisons"],
)
def test_a_filter_nested_too_deeply_is_refused(nested: Callable[[int], str], levels: int) -> None:
    with pytest.raises(FilterSyntaxError, match=f"nested at most {MOST_LEVELS} levels deep"):
        parse(nested(levels))


def test_parentheses_alone_and_long_lists_are_not_deep() -> None:
    assert parse("(" * 1_000 + "a = 1" + ")" * 1_000) == parse("a = 1")
    parse(" AND ".join(["a = 1"] * 5_000))
    parse("NOT " * (MOST_LEVELS - 3) + "a IS NULL")
