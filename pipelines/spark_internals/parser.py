"""Spark's SQL parser, asked what a text is before anything of it is run.

Spark has no public way to parse without running. Read from Spark 4.1.4, Catalyst's `parsePlan` and the traits its plans
have; a new kind of statement that has none of them would be taken for a query.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from pipelines.spark_internals.jvm import is_java, java_session

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
# Commands, INSERT and its kin, scripts run by TRANSFORM, procedures, and text that becomes a statement later.
_NO_QUERY = (
    f"{_LOGICAL}.Command",
    f"{_LOGICAL}.ParsedStatement",
    f"{_LOGICAL}.ScriptTransformation",
    f"{_LOGICAL}.ExecutableDuringAnalysis",
    "org.apache.spark.sql.catalyst.analysis.UnresolvedExecuteImmediate",
)


def what_is_no_query(spark: SparkSession, statement: str) -> str | None:
    """Catalyst's name of the first part of a statement that does more than read; None for a query.

    Raises Spark's ParseException for a text its parser does not understand.
    """
    plan = java_session(spark).sessionState().sqlParser().parsePlan(statement)
    for node in _nodes(plan):
        if any(is_java(node, kind) for kind in _NO_QUERY):
            return str(node.nodeName())
    return None


def _nodes(plan: Any) -> Iterator[Any]:
    """The plan and everything below it, with the queries of a WITH."""
    yield plan
    for below in (plan.children(), plan.innerChildren()):
        nodes = below.iterator()
        while nodes.hasNext():
            yield from _nodes(nodes.next())
