"""Decisions about rows of the log: looked up, or joined, they are the same."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipelines.log.decisions import TEXTS_OF_A_PLAN, joined, with_decisions

OFFSETS = [900, 100, 500]
FIXED = {"source_offset": pa.array(OFFSETS, pa.int64())}


@pytest.mark.parametrize(
    ("columns", "is_joined"),
    [
        ({"order": pa.array([3, 1, 2], pa.int64()), "is_settled": pa.array([True, False, True])}, False),
        ({"order": pa.array([-(2**63), 0, 2**63 - 1], pa.int64())}, False),
        ({"times": pa.array([-1, 0, 2**31 - 1], pa.int32())}, False),
        ({"order": pa.array([7, 7, 7], pa.int64()), "is_settled": pa.array([False] * 3)}, False),
        ({"claim": pa.array(["it's", 'a "é\\', None])}, False),
        ({"claim": pa.array(["", "", ""])}, False),
        ({"claim": pa.array([None] * 3, pa.string())}, False),
        ({"order": pa.array([None, 1, 2], pa.int64())}, True),
        ({"delay": pa.array([0.5, 1.0, 2.0])}, True),
    ],
)  # fmt: skip
def test_what_is_looked_up_is_what_is_joined(
    spark: SparkSession, columns: dict[str, pa.Array], is_joined: bool
) -> None:
    log = spark.range(0, 1_001, 100).withColumnRenamed("id", "physical_offset")
    decided = pa.table(FIXED | columns)
    found = with_decisions(log, decided)
    expected = joined(log, spark.createDataFrame(decided))
    assert ("Join" in plan_of(found)) == is_joined
    assert found.dtypes == expected.dtypes
    assert sorted(found.collect(), key=str) == sorted(expected.collect(), key=str)
    assert found.count() == len(OFFSETS)


def test_a_source_that_is_decided_twice_comes_twice(spark: SparkSession) -> None:
    log = spark.range(0, 1_001, 100).withColumnRenamed("id", "physical_offset")
    twice = pa.table({"source_offset": pa.array([100, 100, 500]), "rank": pa.array([0, 1, 0])})
    assert sorted(map(tuple, with_decisions(log, twice).collect())) == [(100, 0), (100, 1), (500, 0)]


def test_one_without_an_offset_is_about_no_row(spark: SparkSession) -> None:
    log = spark.range(0, 1_001, 100).withColumnRenamed("id", "physical_offset")
    decided = pa.table({"source_offset": pa.array([None, 100, None], pa.int64()), "order": [1, 2, 3]})
    assert [tuple(row) for row in with_decisions(log, decided).collect()] == [(100, 2)]
    nothing = decided.slice(0, 1)
    assert with_decisions(log, nothing).collect() == []


def test_many_different_texts_are_joined(spark: SparkSession) -> None:
    count = TEXTS_OF_A_PLAN + 1
    log = spark.range(count).withColumnRenamed("id", "physical_offset")
    decided = pa.table({"source_offset": pa.array(range(count)), "claim": [f"g{n}" for n in range(count)]})
    found = with_decisions(log, decided)
    assert "Join" in plan_of(found)
    assert found.count() == count


def plan_of(rows: Any) -> str:
    return str(rows._jdf.queryExecution().analyzed())
