"""Functions of the JVM that Python's API does not offer, where no other test asks them."""

import numpy as np
import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from pipelines.spark_internals.catalyst import (
    number_at,
    number_of,
    off_counter,
    running_counter,
    runtime_literal,
    search,
)

NO_END = np.full(2, 2**62, np.int64)


@pytest.mark.quick
def test_a_number_apart_is_that_number_and_stays_out_of_the_code(spark: SparkSession) -> None:
    numbers = (0, -1, 1_700_000_000_000, 2**63 - 1, -(2**63))
    columns = [runtime_literal(number).alias(f"n{place}") for place, number in enumerate(numbers)]
    rows = spark.range(2).select(*columns)
    assert dict(rows.dtypes) == {f"n{place}": "bigint" for place in range(len(numbers))}
    assert [tuple(row) for row in rows.collect()] == [numbers, numbers]
    # Worked out when the plan is made, they would be literals in it, and those are written into the code.
    plan = rows._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("toLong") == len(numbers)


def asked(spark: SparkSession, column: Column, values: list, type_name: str) -> list:
    rows = spark.createDataFrame([(value,) for value in values], f"value {type_name}").coalesce(1)
    return [row.answer for row in rows.select(column.alias("answer")).collect()]


@pytest.mark.quick
def test_a_number_is_searched_among_ascending_ones(spark: SparkSession) -> None:
    ascending = np.array([-5, 0, 7, 2**40], np.int64)
    found = asked(spark, search(ascending, F.col("value")), [-5, 7, 2**40, -6, 1, 2**41, None], "long")
    assert found == [0, 2, 3, -1, -3, -5, None]
    assert asked(spark, search(ascending[:0], F.col("value")), [1], "long") == [-1]


@pytest.mark.quick
def test_a_text_is_told_among_others(spark: SparkSession) -> None:
    texts = ["order", "%RETRY%billing", "Bücher", "topic-2"]
    values = ["topic-2", "order", "Bücher", "orders", "", None]
    assert asked(spark, number_of(texts, F.col("value")), values, "string") == [3, 0, 2, -1, -1, -1]
    assert asked(spark, number_of([], F.col("value")), ["order", ""], "string") == [-1, -1]


@pytest.mark.quick
def test_a_number_is_taken_by_its_index(spark: SparkSession) -> None:
    numbers = np.array([3, 2**62], np.int64)
    assert asked(spark, number_at(numbers, F.col("value")), [1, 0, 2, -1, None], "int") == [
        2**62,
        3,
        None,
        None,
        None,
    ]


@pytest.mark.quick
def test_every_task_counts_on_from_the_starts_in_the_order_of_its_rows(spark: SparkSession) -> None:
    starts = np.array([100, 2**40], np.int64)
    rows = spark.range(0, 12, 1, 3).withColumn(
        "which", F.when(F.col("id") % 4 != 3, F.col("id") % 2).cast("int")
    )
    counted = rows.withColumn("stood_at", running_counter(starts, NO_END[:2], F.col("which"), F.col("id")))
    # What a counter stood at is used twice and counted once.
    counted = counted.select(
        "id", (F.col("stood_at") + F.col("stood_at") - F.col("stood_at")).alias("stood_at")
    )
    expected = []
    for task in range(3):
        counters = [100, 2**40]
        for number in range(4 * task, 4 * task + 4):
            if number % 4 == 3:
                expected.append(None)
            else:
                expected.append(counters[number % 2])
                counters[number % 2] += number
    for _ in range(2):  # a plan that is carried out again counts anew
        assert [row.stood_at for row in counted.orderBy("id").collect()] == expected


@pytest.mark.quick
def test_a_counter_that_is_not_there_is_an_error(spark: SparkSession) -> None:
    one = F.lit(1).cast("long")
    counted = spark.range(1).select(running_counter(np.array([1], np.int64), NO_END[:1], F.lit(-1), one))
    with pytest.raises(Exception, match="out of bounds") as failed:
        counted.collect()
    assert off_counter(failed.value) == "Index -1 out of bounds for length 1"


@pytest.mark.quick
def test_a_counter_goes_up_to_its_end_and_not_beyond(spark: SparkSession) -> None:
    starts, which = np.array([100], np.int64), F.lit(0)
    for end, step, fits in ((103, 1, True), (102, 1, False), (103, 2, False), (106, 2, True)):
        counter = running_counter(starts, np.array([end], np.int64), which, F.lit(step).cast("long"))
        rows = spark.range(0, 3, 1, 1).select(counter.alias("stood_at"))
        if fits:
            assert [row.stood_at for row in rows.collect()] == [100, 100 + step, 100 + 2 * step]
            continue
        with pytest.raises(Exception, match="out of bounds") as failed:
            rows.collect()
        assert off_counter(failed.value) is not None
    assert off_counter(ValueError("list index out of range")) is None


@pytest.mark.quick
def test_a_plan_s_text_does_not_write_out_what_its_rows_look_up(spark: SparkSession) -> None:
    numbers = np.arange(10_000, dtype=np.int64)
    columns = [
        search(numbers, F.col("id")),
        number_at(numbers, F.col("id").cast("int")),
        number_of([f"topic-{number}" for number in numbers], F.col("id").cast("string")),
        running_counter(numbers, 2 * numbers, F.col("id").cast("int"), F.col("id")),
    ]
    rows = spark.range(2).select(*[column.alias(f"c{place}") for place, column in enumerate(columns)])
    assert [tuple(row) for row in rows.collect()] == [(0, 0, -1, 0), (1, 1, -1, 1)]
    assert len(rows._jdf.queryExecution().toString()) < 10_000
