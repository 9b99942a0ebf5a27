"""The nodes of a parsed SQL92 filter, and what RocketMQ refuses as one (docs/rocketmq/consume-filter-ha.md 4.2)."""

from dataclasses import dataclass, fields

from lark import Token, Transformer, v_args
from lark.exceptions import VisitError

from pipelines.filter.errors import FilterSyntaxError
from pipelines.filter.sql92_grammar import read_tree, refused

LONG_MAX = 2**63 - 1
# Levels of nested nodes: from about 150 on, int or boolean columns alike, Catalyst's recursion overflows the JVM's stack.
MOST_LEVELS = 64
_TOO_DEEP = f"expected conditions nested at most {MOST_LEVELS} levels deep; found more: use fewer parentheses and NOTs"
SMALLEST_FLOAT, LARGEST_FLOAT = 4.9e-324, 1.7976931348623157e308


class Node:
    """A part of a filter: it has a value."""


class Condition(Node):
    """A part of a filter that is true, false or null."""


@dataclass(frozen=True)
class Literal(Node):
    value: str | int | float | bool | None


@dataclass(frozen=True)
class Name(Node):
    """A property by its name: a string, or null where it is missing."""

    name: str


@dataclass(frozen=True)
class Negative(Node):
    of: Node


@dataclass(frozen=True)
class NameAsCondition(Condition):
    """A name where a condition is expected: never true, since properties are strings."""

    of: Name


@dataclass(frozen=True)
class Not(Condition):
    of: Node


@dataclass(frozen=True)
class AllOf(Condition):
    terms: tuple[Node, ...]


@dataclass(frozen=True)
class AnyOf(Condition):
    terms: tuple[Node, ...]


@dataclass(frozen=True)
class Equal(Condition):
    left: Node
    right: Node


@dataclass(frozen=True)
class IsNull(Condition):
    of: Node


@dataclass(frozen=True)
class Ordered(Condition):
    left: Node
    sign: str  # > >= < <=
    right: Node


@dataclass(frozen=True)
class Search(Condition):
    of: Node
    how: str  # CONTAINS, STARTSWITH, ENDSWITH
    text: str
    is_negated: bool  # not the same as Not: for null both the search and the negated one are false


@dataclass(frozen=True)
class OneOf(Condition):
    of: Name
    texts: tuple[str, ...]


def parse(expression: str) -> Node:
    """The filter that an expression begins with; what follows it is ignored.

    Raises FilterSyntaxError for what RocketMQ's parser refuses, and for more than MOST_LEVELS levels.

    >>> parse("a = 1 and so on")
    AllOf(terms=(Equal(left=Name(name='a'), right=Literal(value=1)), NameAsCondition(of=Name(name='so'))))
    """
    try:
        parsed: Node = _Nodes().transform(read_tree(expression))
        _expect_few_levels(parsed)
        return parsed
    except RecursionError:
        raise FilterSyntaxError(_TOO_DEEP) from None
    except VisitError as failure:
        if isinstance(failure.orig_exc, RecursionError):
            raise FilterSyntaxError(_TOO_DEEP) from None
        if not isinstance(failure.orig_exc, _Refusal):
            raise failure.orig_exc from None
        meta = failure.obj if isinstance(failure.obj, Token) else failure.obj.meta
        start = meta.start_pos or 0
        raise refused(expression, start, str(failure.orig_exc), expression[start : meta.end_pos]) from None


def _expect_few_levels(parsed: Node) -> None:
    level, count = [parsed], 0
    while level:
        count += 1
        if count > MOST_LEVELS:
            raise FilterSyntaxError(_TOO_DEEP)
        level = [part for node in level for part in _parts(node)]


def _parts(node: Node) -> list[Node]:
    values = [getattr(node, each.name) for each in fields(node)]  # type: ignore[arg-type]
    return [
        part
        for value in values
        for part in (value if isinstance(value, tuple) else (value,))
        if isinstance(part, Node)
    ]


class _Refusal(Exception):
    """A rule of the grammar refuses its part of the tree; the text is what it expects."""


def _condition(node: Node) -> Node:
    if isinstance(node, Name):
        return NameAsCondition(node)
    if isinstance(node, Condition) or (isinstance(node, Literal) and _is_truth(node)):
        return node
    raise _Refusal("a condition or the name of a property")


def _is_truth(literal: Literal) -> bool:
    return literal.value is None or isinstance(literal.value, bool)


def _is_number(literal: Literal) -> bool:
    return isinstance(literal.value, int | float) and not isinstance(literal.value, bool)


def _ordered(left: Node, sign: str, right: Node) -> Ordered:
    for operand in (left, right):
        if isinstance(operand, Condition) or (isinstance(operand, Literal) and not _is_number(operand)):
            raise _Refusal(f"numbers or names of properties to compare by {sign}")
    return Ordered(left, sign, right)


def _equal(left: Node, right: Node) -> Equal:
    literals = [operand for operand in (left, right) if isinstance(operand, Literal)]
    if any(literal.value is None for literal in literals):
        raise _Refusal("IS NULL or IS NOT NULL to compare with NULL")
    # RocketMQ allows the mirror image, 3 = TRUE; it is false.
    if len(literals) == 2 and _is_truth(literals[0]) and not _is_truth(literals[1]):
        raise _Refusal("TRUE, FALSE or the name of a property after TRUE = or FALSE =")
    return Equal(left, right)


def _one_of(node: Node, texts: tuple[str, ...]) -> OneOf:
    if not isinstance(node, Name):
        raise _Refusal("the name of a property before IN")
    return OneOf(node, texts)


def _is_less(left: Literal, right: Literal) -> bool:
    """Whether one number is less: whole numbers are compared as they are, others as doubles (4.3)."""
    assert isinstance(left.value, int | float), "limits are numbers"
    assert isinstance(right.value, int | float), "limits are numbers"
    if isinstance(left.value, int) and isinstance(right.value, int):
        return left.value < right.value
    return float(left.value) < float(right.value)


def _text(string: Token) -> str:
    return string[1:-1].replace("''", "'")


@v_args(inline=True)
class _Nodes(Transformer[Token, Node]):
    """Turns lark's tree into nodes: a method for each rule of the grammar, of the same name."""

    def start(self, node: Node) -> Node:
        return _condition(node)

    def any_of(self, *terms: Node) -> AnyOf:
        return AnyOf(tuple(map(_condition, terms)))

    def all_of(self, *terms: Node) -> AllOf:
        return AllOf(tuple(map(_condition, terms)))

    def negation(self, node: Node) -> Not:
        return Not(_condition(node))

    def equal(self, left: Node, right: Node) -> Equal:
        return _equal(left, right)

    def not_equal(self, left: Node, right: Node) -> Not:
        return Not(_equal(left, right))

    def is_null(self, node: Node) -> IsNull:
        return IsNull(node)

    def is_not_null(self, node: Node) -> Not:
        return Not(IsNull(node))

    def ordered(self, left: Node, sign: Token, right: Node) -> Ordered:
        return _ordered(left, sign, right)

    def search(self, node: Node, negation: Token | None, how: Token, string: Token) -> Search:
        return Search(node, how.type, _text(string), is_negated=negation is not None)

    def between(self, node: Node, low: Node, high: Node) -> AllOf:
        both = AllOf((_ordered(node, ">=", low), _ordered(node, "<=", high)))
        if isinstance(low, Literal) and isinstance(high, Literal) and _is_less(high, low):
            raise _Refusal("the smaller limit of BETWEEN first")
        return both

    def not_between(self, node: Node, low: Node, high: Node) -> AnyOf:
        return AnyOf((_ordered(node, "<", low), _ordered(node, ">", high)))

    def one_of(self, node: Node, *strings: Token) -> OneOf:
        return _one_of(node, tuple(map(_text, strings)))

    def none_of(self, node: Node, *strings: Token) -> Not:
        return Not(_one_of(node, tuple(map(_text, strings))))

    def negative(self, node: Node) -> Negative:
        return Negative(node)

    def name(self, name: Token) -> Name:
        return Name(str(name))

    def string(self, string: Token) -> Literal:
        return Literal(_text(string))

    def integer(self, digits: Token) -> Literal:
        number = int(digits.rstrip("lL"))
        if number > LONG_MAX:
            raise _Refusal(f"a whole number up to {LONG_MAX}")
        return Literal(number)

    def float(self, digits: Token) -> Literal:
        number = float(digits)
        if not SMALLEST_FLOAT <= number <= LARGEST_FLOAT:  # zero is refused too
            raise _Refusal("a number from 4.9E-324 to 1.7976931348623157E308, or 0 without a point")
        return Literal(number)

    def true(self) -> Literal:
        return Literal(True)

    def false(self) -> Literal:
        return Literal(False)

    def null(self) -> Literal:
        return Literal(None)
