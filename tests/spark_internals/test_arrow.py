"""Rows on their way to Python: batches stay small, whether Spark weighs rows or not."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipelines.spark_internals import arrow
from pipelines.spark_internals.arrow import (
    BATCH_BYTES,
    BYTES_OF_A_BATCH,
    NO_LIMIT,
    ROWS_OF_A_BATCH,
    unweighed,
)

ROWS = 200


def rows_of_batches(spark: SparkSession) -> list[int]:
    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})

    found = spark.range(0, ROWS, 1, 1).mapInArrow(count, "rows long").collect()
    return [row.rows for row in found]


@pytest.mark.quick
def test_batches_of_larger_rows_have_fewer_of_them(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "FEWEST_ROWS", 10)
    with unweighed(spark, BATCH_BYTES // 80):
        assert spark.conf.get(BYTES_OF_A_BATCH) == NO_LIMIT
        assert rows_of_batches(spark) == [80, 80, 40]
    with unweighed(spark, 1):
        assert rows_of_batches(spark) == [100, 100]  # as this session is configured


def test_rows_that_may_be_huge_are_weighed(spark: SparkSession) -> None:
    before = spark.conf.get(BYTES_OF_A_BATCH)
    with unweighed(spark, BATCH_BYTES // 10):
        assert spark.conf.get(BYTES_OF_A_BATCH) == before
        assert rows_of_batches(spark) == [100, 100]


def test_settings_come_back_when_the_work_fails(spark: SparkSession) -> None:
    settings = {name: spark.conf.get(name) for name in (ROWS_OF_A_BATCH, BYTES_OF_A_BATCH)}
    with pytest.raises(RuntimeError), unweighed(spark, 1):
        raise RuntimeError
    assert {name: spark.conf.get(name) for name in settings} == settings
