"""Spark's SQL parser: what a text would read and call, before anything of it is run.

Spark has no public way to parse without running. The parsed plan is checked and not the analysed one, because analysis
already calls functions: those of VALUES and LIMIT. Every part of it must be listed here as one that only reads, so that a
statement of a later Spark is refused until somebody has checked it. Read from Spark 4.1.4: Catalyst's `parsePlan`,
`parseExpression`, the classes its parser makes, and the groups of ExpressionInfo.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from pipelines.spark_internals.jvm import is_java, java_causes, java_session, jvm

_CATALYST = "org.apache.spark.sql.catalyst."
_EXPRESSIONS = f"{_CATALYST}expressions."
_TREE_NODE = f"{_CATALYST}trees.TreeNode"
_LOGICAL_PLAN = f"{_CATALYST}plans.logical.LogicalPlan"
_COLLECTIONS = ("scala.collection.Iterable", "scala.Option")

# These parts of a plan only read.
_PLANS = frozenset(
    _CATALYST + name
    for name in (
        *(
            f"plans.logical.{name}"
            for name in (
                "Aggregate", "Distinct", "Except", "Filter", "Generate", "GlobalLimit", "Intersect", "Join", "LateralJoin",
                "LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "Pivot", "Project", "RepartitionByExpression",
                "Sample", "Sort", "SubqueryAlias", "Union", "UnresolvedHint", "UnresolvedWith", "Unpivot",
                "WithWindowDefinition",
            )
        ),
        *(
            f"analysis.{name}"
            for name in (
                "UnresolvedHaving", "UnresolvedInlineTable", "UnresolvedRelation", "UnresolvedSubqueryColumnAliases",
                "UnresolvedTableValuedFunction",
            )
        ),
        "expressions.PipeOperator",
    )
)  # fmt: skip
# These parts of an expression only read, and are not Catalyst's own expressions yet.
_UNRESOLVED = frozenset(
    f"{_CATALYST}analysis.{name}"
    for name in (
        "GetColumnByOrdinal", "UnresolvedAlias", "UnresolvedAttribute", "UnresolvedExtractValue", "UnresolvedFunction",
        "UnresolvedGenerator", "UnresolvedOrdinal", "UnresolvedRegex", "UnresolvedStar", "UnresolvedStarExceptOrReplace",
        "UnresolvedStarWithColumns", "UnresolvedStarWithColumnsRenames",
    )
)  # fmt: skip

# Functions are allowed by the groups that Spark puts them in. misc_funcs and xml_funcs are not among them: they hold
# functions that call Java, and that read files and addresses (from_avro, from_protobuf, from_xml).
_GROUPS = frozenset(
    f"{name}_funcs"
    for name in (
        "agg", "array", "bitwise", "collection", "conditional", "conversion", "csv", "datetime", "generator", "hash", "json",
        "lambda", "map", "math", "predicate", "st", "string", "struct", "url", "variant", "window",
    )
)  # fmt: skip
_FUNCTIONS = frozenset(
    (
        "aes_decrypt", "aes_encrypt", "assert_true", "input_file_block_length", "input_file_block_start", "input_file_name",
        "monotonically_increasing_id", "raise_error", "spark_partition_id", "try_aes_decrypt", "typeof", "uuid", "version",
    )
)  # fmt: skip
_FAMILIES = ("approx_top_k_", "bitmap_", "hll_", "kll_sketch_", "theta_")
_TABLE_FUNCTIONS = frozenset(
    (
        "collations", "explode", "explode_outer", "inline", "inline_outer", "json_tuple", "posexplode", "posexplode_outer",
        "range", "sql_keywords", "stack", "variant_explode", "variant_explode_outer",
    )
)  # fmt: skip


class DoesMore(Exception):
    """A text does more than read."""


@dataclass(frozen=True)
class Reads:
    """What a text reads: the names of relations, each as its parts joined by dots, except those of its own WITH."""

    relations: frozenset[str]


def reads_of_query(spark: SparkSession, statement: str) -> Reads:
    """What one query reads.

    Raises DoesMore for a statement that is not a query, and for a part or a function that is not known to only read;
    Spark's ParseException for a text its parser does not understand.
    """
    return _reads_of(spark, java_session(spark).sessionState().sqlParser().parsePlan(statement))


def reads_of_expression(spark: SparkSession, expression: str) -> Reads:
    """What an expression, such as a predicate, reads besides its columns. Raises as `reads_of_query`."""
    return _reads_of(spark, java_session(spark).sessionState().sqlParser().parseExpression(expression))


def is_too_deep(failure: BaseException) -> bool:
    """Whether a text was nested too deeply for the JVM's stack."""
    return any(is_java(cause, "java.lang.StackOverflowError") for cause in java_causes(failure))


def _reads_of(spark: SparkSession, root: Any) -> Reads:
    relations: set[str] = set()
    # A list, not recursion: a text may be nested as deeply as the JVM's parser goes.
    left: list[tuple[Any, frozenset[str]]] = [(root, frozenset())]
    while left:
        part, named = left.pop()
        if not isinstance(part, JavaObject):
            continue
        if not is_java(part, _TREE_NODE):
            left += [(inner, named) for inner in _held_by(part)]
            continue
        kind = _expect_known(part)
        if kind == "UnresolvedWith":
            left += _queries_of_with(part, named)
            continue
        if kind == "UnresolvedRelation":
            name = ".".join(_texts(part.multipartIdentifier()))
            if name.lower() not in named:
                relations.add(name)
        elif kind == "UnresolvedFunction":
            _expect_function(spark, _texts(part.nameParts()))
        elif kind == "UnresolvedGenerator":
            _expect_function(spark, [str(part.name().unquotedString())])
        elif kind == "UnresolvedTableValuedFunction":
            _expect_table_function(_texts(part.name()))
        left += [(inner, named) for inner in _fields(part)]
    return Reads(frozenset(relations))


def _expect_known(part: Any) -> str:
    """The part's kind: its class without the package. Raises DoesMore for one that is not known to only read."""
    name = str(part.getClass().getName())
    kind = name.rpartition(".")[2].rstrip("$")
    if name not in _PLANS and name not in _UNRESOLVED and not _is_expression(part, name):
        raise DoesMore(kind)
    return kind


def _is_expression(part: Any, name: str) -> bool:
    """Whether a part is one of Catalyst's own expressions. The parser makes none with an effect: functions are names."""
    return name.startswith(_EXPRESSIONS) and not is_java(part, _LOGICAL_PLAN)


def _queries_of_with(part: Any, named: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    """The queries of a WITH, each with the names it knows: those before it, its own where it is recursive."""
    for relation in _held_by(part.cteRelations()):
        name = str(relation.productElement(0)).lower()
        yield relation.productElement(1), named | {name} if part.allowRecursion() else named
        named |= {name}
    yield part.child(), named


def _expect_function(spark: SparkSession, parts: list[str]) -> None:
    name = parts[-1].lower()
    identifier = jvm(spark).org.apache.spark.sql.catalyst.FunctionIdentifier(name)
    found = java_session(spark).sessionState().functionRegistry().lookupFunction(identifier)
    is_built_in = len(parts) == 1 and found.isDefined() and found.get().getSource() == "built-in"
    if not is_built_in:
        raise DoesMore(f"a call of {'.'.join(parts)}, which is not a function of Spark's own")
    if found.get().getGroup() not in _GROUPS and name not in _FUNCTIONS and not name.startswith(_FAMILIES):
        raise DoesMore(f"a call of {name}")


def _expect_table_function(parts: list[str]) -> None:
    if len(parts) != 1 or parts[0].lower() not in _TABLE_FUNCTIONS:
        raise DoesMore(f"a call of {'.'.join(parts)}")


def _texts(names: Any) -> list[str]:
    return [str(name) for name in _held_by(names)]


def _fields(part: Any) -> Iterator[Any]:
    return _each(part.productIterator())


def _held_by(value: Any) -> Iterable[Any]:
    """What a collection, an option or a tuple of Scala's holds; nothing for any other value."""
    if any(is_java(value, kind) for kind in _COLLECTIONS):
        return _each(value.iterator())
    return _fields(value) if is_java(value, "scala.Product") else ()


def _each(iterator: Any) -> Iterator[Any]:
    while iterator.hasNext():
        yield iterator.next()
