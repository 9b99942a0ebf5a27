"""SQL92 filters as columns (docs/rocketmq/consume-filter-ha.md 4.3).

A condition has one of four outcomes: true, false, null, or an error, when it meets a value it cannot compare. One that
can fail is one int column, and tables map outcomes to outcomes, so that every part of an expression is in the column once,
however deep it is nested. One that cannot fail is a boolean column, whose AND, OR and NOT are Spark's.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.filter.sql92_parse import (
    AllOf,
    AnyOf,
    Equal,
    IsNull,
    Literal,
    Name,
    NameAsCondition,
    Negative,
    Node,
    Not,
    OneOf,
    Ordered,
    Search,
    parse,
)

OUTCOMES = "FTNE"  # false, true, null, error
FALSE, TRUE, NULL, ERROR = range(4)

# Truth tables: a letter for each outcome of the left side, or a word with a letter for each outcome of the right side.
ALL_OF = "FFFF FTNE FNNE EEEE"
ANY_OF = "FTNE TTTT NTNE EEEE"
NOT = "TFNE"
IS_NULL = "FFTE"
EQUAL = "TFFE FTFE NNTE EEEE"
EQUAL_TO_STRING = "EEFE EEFE NNTE EEEE"  # right side: T for a string, N where it is missing
EQUAL_TO_NUMBER = "FFNE"
NUMBER_EQUAL_TO = "FFFE"
NEGATIVE = "NNNE"
SEARCH = "FFFE"

CONDITION, STRING = "condition", "string"
NUMBERS = ("int", "long", "double")  # from narrow to wide

JAVA_WHOLE_NUMBER = r"\A[+-]?[0-9]+\z"
JAVA_NUMBER = {
    "int": JAVA_WHOLE_NUMBER,
    "long": JAVA_WHOLE_NUMBER,
    "double": r"(?s)\A([\x00-\x20]*[+-]?(NaN|Infinity)[\x00-\x20]*|.*[0-9].*)\z",
}

# Null, from a function that Spark does not compile into its loop over the rows. The filter beside it is then compiled apart
# too: in small methods, and what occurs twice in it is computed once. Inside the loop a filter of a dozen terms is one
# method, too large for the JVM's compiler: 2 M rows took half a minute instead of three seconds.
COMPILED_APART = "exists(array(0), element -> cast(null AS boolean))"

SIGNS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
SEARCHES = {"CONTAINS": Column.contains, "STARTSWITH": Column.startswith, "ENDSWITH": Column.endswith}


@dataclass(frozen=True)
class Value:
    """A part of a filter as a column; its kind is CONDITION (an outcome, int), STRING (or null) or one of NUMBERS."""

    kind: str
    column: Column


def sql92_condition(expression: str, properties: Column) -> Column:
    """Whether messages match an expression: true, false or null; only true delivers a message.

    properties  map<string,string>; null: no properties

    Evaluation goes from left to right; AND and OR stop where the outcome is known. A value that is reached and cannot be
    compared makes the whole expression null: `a > 3` where a is "x".

    Raises FilterSyntaxError for an expression RocketMQ's parser refuses.
    """
    return condition_of(parse(expression), properties.getItem)


def condition_of(parsed: Node, property_of: Callable[[str], Column]) -> Column:
    """Whether messages match a parsed filter, as sql92_condition; the properties need not be a map.

    property_of  from a property's name to a string column, null where the property is missing. For rows of the log
                 `property_value` of the properties string costs a fraction of making the map first.
    """
    outcome = _Columns(cache(property_of)).outcome(parsed)
    return F.coalesce(F.expr("array(false, true, null, null)")[outcome], F.expr(COMPILED_APART))


@dataclass(frozen=True)
class _Columns:
    property_of: Callable[[str], Column]

    def outcome(self, node: Node) -> Column:
        """A condition's outcome: an int, the index of its letter in OUTCOMES."""
        if _cannot_fail(node):
            return F.coalesce(self.truth(node).cast("int"), F.lit(NULL))
        match node:
            case AllOf(terms):
                return self._folded(ALL_OF, terms)
            case AnyOf(terms):
                return self._folded(ANY_OF, terms)
            case Not(of):
                return _look_up(NOT, self.outcome(of))
            case Equal(left, right):
                return _equal(self.value(left), self.value(right))
            case Ordered(left, sign, right):
                return _ordered(self.value(left), sign, self.value(right))
            case IsNull(of):
                return _is_null(self.value(of))
            case Search(of, how, text, is_negated):
                return _search(self.value(of), how, text, is_negated)
            case Literal(value):
                return _literal(value).column
        raise AssertionError(f"{node} is not a condition")

    def truth(self, node: Node) -> Column:
        """The truth of a condition that cannot fail: a boolean, or null."""
        match node:
            case AllOf(terms):
                return _in_pairs(operator.and_, [self.truth(term) for term in terms])
            case AnyOf(terms):
                return _in_pairs(operator.or_, [self.truth(term) for term in terms])
            case Not(of):
                return ~self.truth(of)
            case OneOf(of, texts):
                return self.property_of(of.name).isin(*texts)
            case NameAsCondition(of):
                return F.when(self.property_of(of.name).isNotNull(), F.lit(False))
            case IsNull(of):
                return self.value(of).column.isNull()
        raise AssertionError(f"{node} may fail")

    def value(self, node: Node) -> Value:
        match node:
            case Name(name):
                return Value(STRING, self.property_of(name))
            case Literal(value):
                return _literal(value)
            case Negative(of):
                return _negative(self.value(of))
        return Value(CONDITION, self.outcome(node))

    def _folded(self, table: str, terms: tuple[Node, ...]) -> Column:
        return _in_pairs(partial(_look_up, table), [self.outcome(term) for term in terms])


def _cannot_fail(node: Node) -> bool:
    """Whether a condition has nothing to compare."""
    match node:
        case AllOf(terms) | AnyOf(terms):
            return all(_cannot_fail(term) for term in terms)
        case Not(of):
            return _cannot_fail(of)
        case IsNull(of):
            return isinstance(of, Name)
    return isinstance(node, (OneOf, NameAsCondition))


def _in_pairs(join: Callable[[Column, Column], Column], columns: list[Column]) -> Column:
    """All columns joined: pairs of neighbours, then pairs of those, so that a hundred are seven deep."""
    while len(columns) > 1:
        last = columns[-1:] if len(columns) % 2 else []
        columns = [join(left, right) for left, right in zip(columns[::2], columns[1::2], strict=False)] + last
    return columns[0]


def _look_up(table: str, *outcomes: Column) -> Column:
    """The outcome that a truth table has for one outcome, or for two."""
    index, *right = outcomes
    if right:
        index = index * len(OUTCOMES) + right[0]
    letters = table.replace(" ", "")
    # Two bits a letter, in one number: a shift costs less than reading an array.
    packed = sum(OUTCOMES.index(letter) << 2 * number for number, letter in enumerate(letters))
    as_int = packed - 2**32 if packed >= 2**31 else packed
    return F.call_function("shiftright", F.lit(as_int), index * 2).bitwiseAND(3)


def _literal(value: str | int | float | bool | None) -> Value:
    if value is None or isinstance(value, bool):
        return Value(CONDITION, F.lit(NULL if value is None else int(value)))
    if isinstance(value, str):
        return Value(STRING, F.lit(value))
    if isinstance(value, float):
        return Value("double", F.lit(value))
    return Value("int" if value < 2**31 else "long", F.lit(value))


def _negative(value: Value) -> Value:
    if value.kind in NUMBERS:
        return Value(value.kind, -value.column)
    if value.kind == STRING:
        return Value(CONDITION, F.lit(NULL))
    return Value(CONDITION, _look_up(NEGATIVE, value.column))


def _is_null(value: Value) -> Column:
    if value.kind == CONDITION:
        return _look_up(IS_NULL, value.column)
    return value.column.isNull().cast("int")


def _search(value: Value, how: str, text: str, is_negated: bool) -> Column:
    if not text or value.kind in NUMBERS:
        return F.lit(FALSE)
    if value.kind == CONDITION:
        return _look_up(SEARCH, value.column)
    found = SEARCHES[how](value.column, text)
    return F.coalesce((~found if is_negated else found).cast("int"), F.lit(FALSE))


def _ordered(left: Value, sign: str, right: Value) -> Column:
    # A condition comes here only as the negative of something: its outcome is null or an error.
    if left.kind == CONDITION:
        return left.column
    if right.kind == CONDITION:
        return F.when(left.column.isNull(), NULL).otherwise(right.column)
    compare = SIGNS[sign]
    if left.kind == right.kind == STRING:
        low, high = _as_number(left, "double"), _as_number(right, "double")
        # To Spark 0.0 and -0.0 are equal, to Java they are not; their texts differ.
        answer = F.when(low == high, compare(low.cast("string"), high.cast("string"))).otherwise(
            compare(low, high)
        )
    else:
        kind = _common_kind(left, right)
        answer = compare(_as_number(left, kind), _as_number(right, kind))
    is_missing = left.column.isNull() | right.column.isNull()
    return _or_else(answer, F.when(is_missing, NULL).otherwise(ERROR))


def _equal(left: Value, right: Value) -> Column:
    kinds = (left.kind, right.kind)
    if CONDITION in kinds:
        return _equal_to_condition(left, right)
    if kinds == (STRING, STRING):
        answer = left.column == right.column
    else:
        kind = _common_kind(left, right)
        answer = _as_number(left, kind) == _as_number(right, kind)
    if_missing = F.when(left.column.isNull(), F.when(right.column.isNull(), TRUE).otherwise(NULL)).when(
        right.column.isNull(), FALSE
    )
    return _or_else(answer, if_missing.otherwise(ERROR))


def _or_else(answer: Column, outcome: Column) -> Column:
    """The outcome of a comparison, and `outcome` where it has none: (answer - outcome) + outcome.

    So both are needed for every row, and Spark works out a property that occurs in both once. What only a branch needs, as
    in coalesce(answer, outcome), it works out apart.
    """
    return F.coalesce(answer.cast("int") - outcome, F.lit(0)) + outcome


def _equal_to_condition(left: Value, right: Value) -> Column:
    if left.kind in NUMBERS:
        return _look_up(NUMBER_EQUAL_TO, right.column)
    if right.kind in NUMBERS:
        return _look_up(EQUAL_TO_NUMBER, left.column)
    if right.kind == STRING:
        is_there = F.when(right.column.isNull(), NULL).otherwise(TRUE)
        return _look_up(EQUAL_TO_STRING, left.column, is_there)
    if left.kind == STRING:
        is_true = (F.lower(left.column) == "true").cast("int")
        return _look_up(EQUAL, F.coalesce(is_true, F.lit(NULL)), right.column)
    return _look_up(EQUAL, left.column, right.column)


def _common_kind(left: Value, right: Value) -> str:
    """The kind as which two numbers, or a number and a string, are compared: the wider one."""
    return max((value.kind for value in (left, right) if value.kind != STRING), key=NUMBERS.index)


def _as_number(value: Value, kind: str) -> Column:
    """A number as a wider one; a string as Java parses it, null where it cannot."""
    if value.kind != STRING:
        return value.column.cast(kind)
    # The pattern keeps out what only Spark parses: white space around whole numbers, and inf and nan in any case. It lets
    # through what Java parses, and what neither does.
    return F.regexp_extract(value.column, JAVA_NUMBER[kind], 0).try_cast(kind)
