"""SQL that only reads: one query over the tables and views of a store, or a predicate; anything else is refused."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
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
from pipelines.spark_internals.jvm import spark_errors
from pipelines.spark_internals.parser import DoesMore, is_too_deep, reads_of_expression, reads_of_query
from pipelines.spark_internals.sessions import cloned, moved
from pipelines.views.read import VIEWS, Readable, Reading
from schemas import TABLES

# Spark raises these for a query that is wrong, or that meets a value it cannot take.
FAULTS_OF_A_QUERY = (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    SparkRuntimeException,
)


class QuerySession:
    """Read-only queries over tables and views, by their names.

    They run in a session of their own: the caller's session gets neither the names nor the settings.
    """

    def __init__(self, spark: SparkSession, tables: Readable) -> None:
        self._spark = cloned(spark)
        for setting in ("spark.sql.runSQLOnFiles", "spark.sql.variable.substitute"):
            self._spark.conf.set(setting, "false")
        self._reading = Reading(tables)
        self._named: set[str] = set()

    def rows(self, statement: str) -> DataFrame:
        """The rows of one query.

        Raises BadInput as `expect_query` does, and with Spark's own message for a query that Spark refuses.
        """
        for name in expect_query(self._spark, statement) - self._named:
            moved(self._reading.frame(name), self._spark).createOrReplaceTempView(name)
            self._named.add(name)
        with spark_faults():
            return self._spark.sql(statement)


def expect_query(spark: SparkSession, statement: str) -> set[str]:
    """The tables and views that one query reads.

    Raises BadInput for a statement that does anything but read, or reads anything else.
    """
    with spark_faults():
        try:
            reads = reads_of_query(spark, statement)
        except DoesMore as more:
            raise BadInput(
                f"sql takes one query that reads (SELECT, WITH, VALUES, TABLE); this is {more}"
            ) from more
    known = {*(table.name for table in TABLES), *VIEWS}
    for name in sorted(reads.relations):
        if name.lower() not in known:
            raise BadInput(f"there is no table or view {name} in a store; it has {', '.join(sorted(known))}")
    return {name.lower() for name in reads.relations}


def expect_predicate(spark: SparkSession, option: str, predicate: str) -> None:
    """Raises BadInput for a predicate that does anything but compare columns: one with a query in it, or that calls Java."""
    with spark_faults():
        try:
            reads = reads_of_expression(spark, predicate)
        except DoesMore as more:
            raise BadInput(f"{option} takes a condition on columns that only reads; this is {more}") from more
    if reads.relations:
        raise BadInput(
            f"{option} takes a condition on columns; this reads {', '.join(sorted(reads.relations))} too"
        )


@contextmanager
def spark_faults() -> Iterator[None]:
    """While inside, what Spark raises for a text that is wrong, or meets a value it cannot take, becomes BadInput."""
    try:
        yield
    except FAULTS_OF_A_QUERY as wrong:
        raise fault(wrong) from wrong
    except Exception as wrong:
        if is_too_deep(wrong):
            raise BadInput(
                "this is nested too deeply for Spark's parser; write it with fewer levels"
            ) from None
        # Rows that are fetched ahead: what Spark raised is the cause of a failed wait.
        error = next((each for each in spark_errors(wrong) if isinstance(each, FAULTS_OF_A_QUERY)), None)
        if error is not None:
            raise fault(error) from wrong
        raise


def fault(wrong: PySparkException) -> BadInput:
    """A BadInput with Spark's message about a query, in one line, without plan and stack trace."""
    lines = [line.strip() for line in str(wrong).strip().splitlines()]
    said = " ".join(takewhile(lambda line: line and not line.startswith(("==", "JVM stacktrace")), lines))
    return BadInput(re.sub(r";?\s*(SQLSTATE: \w+;?)(.*)$", r" (\1\2)", said).replace(";)", ")").rstrip("; "))
