"""Workers that begin at once: what they have imported is not looked through after each task."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession


@pytest.mark.quick
def test_what_workers_have_imported_is_set_aside(spark: SparkSession) -> None:
    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc

        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {"aside": [gc.get_freeze_count()], "others": [len(gc.get_objects())]}
            )

    rows = spark.range(0, 4, 1, 4).mapInArrow(count, "aside long, others long").collect()
    assert len(rows) == 4
    assert all(row.aside > row.others for row in rows)
