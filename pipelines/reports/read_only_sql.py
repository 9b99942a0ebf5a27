"""One query in SQL over the tables and views of a store, and nothing but a query."""

import re
from itertools import takewhile

from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    PySparkException,
    SparkRuntimeException,
)
from pyspark.sql import DataFrame, SparkSession

from pipelines.errors import BadInput
from pipelines.spark_internals.parser import what_is_no_query
from pipelines.views.read import VIEWS, Readable, Reading
from schemas import TABLES

# What Spark raises for a query that is wrong, or that meets a value it cannot take.
FAULTS_OF_A_QUERY = (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    SparkRuntimeException,
)


def query_rows(spark: SparkSession, tables: Readable, statement: str) -> DataFrame:
    """The rows of one read-only query; tables and views are known by their names.

    Raises BadInput for anything but a query, and with Spark's own line for a query it does not understand.
    """
    expect_query(spark, statement)
    _name_tables(tables, statement)
    try:
        return spark.sql(statement)
    except FAULTS_OF_A_QUERY as wrong:
        raise fault(wrong) from wrong


def expect_query(spark: SparkSession, statement: str) -> None:
    """Raises BadInput unless Spark's parser reads the text as one query."""
    try:
        other = what_is_no_query(spark, statement)
    except FAULTS_OF_A_QUERY as wrong:
        raise fault(wrong) from wrong
    if other is not None:
        raise BadInput(f"sql takes one query that reads (SELECT, WITH, VALUES, TABLE); this is {other}")


def fault(wrong: PySparkException) -> BadInput:
    """What Spark says about a query, in one line."""
    lines = [line.strip() for line in str(wrong).strip().splitlines()]
    said = " ".join(takewhile(lambda line: line and not line.startswith(("==", "JVM stacktrace")), lines))
    return BadInput(re.sub(r";?\s*(SQLSTATE: \w+;?)(.*)$", r" (\1\2)", said).replace(";)", ")").rstrip("; "))


def _name_tables(tables: Readable, statement: str) -> None:
    """Make the tables and views whose names occur in the statement known to the session."""
    words = set(re.findall(r"\w+", statement.lower()))
    reading = Reading(tables)
    for name in (*(table.name for table in TABLES), *VIEWS):
        if name in words:
            reading.frame(name).createOrReplaceTempView(name)
