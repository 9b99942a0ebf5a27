"""Functions of the JVM that Python's API does not offer, where no other test asks them."""

import pytest
from pyspark.sql import SparkSession

from pipelines.log.catalyst import number_apart


@pytest.mark.quick
def test_a_number_apart_is_that_number_and_stays_out_of_the_code(spark: SparkSession) -> None:
    numbers = (0, -1, 1_700_000_000_000, 2**63 - 1, -(2**63))
    columns = [number_apart(number).alias(f"n{place}") for place, number in enumerate(numbers)]
    rows = spark.range(2).select(*columns)
    assert dict(rows.dtypes) == {f"n{place}": "bigint" for place in range(len(numbers))}
    assert [tuple(row) for row in rows.collect()] == [numbers, numbers]
    # Worked out when the plan is made, they would be literals in it, and those are written into the code.
    plan = rows._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("toLong") == len(numbers)
