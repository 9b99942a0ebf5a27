"""Python functions over Arrow columns, for what Spark has no function for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

_arrow_udf: Any = F.arrow_udf

ROWS_OF_A_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES_OF_A_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"
# As many as Spark itself lets a batch have, and what it takes for none at all.
BATCH_BYTES, NO_LIMIT = 64 * 1024**2, str(2**31 - 1)
# No smaller batches than of so many rows are made instead: each costs something of its own.
FEWEST_ROWS = 1_000


@contextmanager
def unweighed(spark: SparkSession, largest_row: int) -> Iterator[None]:
    """While inside, rows go to Python without Spark asking all their columns for their size at every row.

    largest_row  what no row is larger than, bytes; where batches of such rows would be too small nothing changes

    Asking takes a third of the time that messages of 300 bytes take to get there. A batch stays as small: it has
    fewer rows.
    """
    rows = BATCH_BYTES // max(largest_row, 1)
    if rows < FEWEST_ROWS:
        yield
        return
    configured = spark.sparkContext.getConf()
    spark.conf.set(ROWS_OF_A_BATCH, min(rows, int(configured.get(ROWS_OF_A_BATCH, "10000"))))
    spark.conf.set(BYTES_OF_A_BATCH, NO_LIMIT)
    try:
        yield
    finally:
        # Not what was found: a thread beside this one may have changed it.
        for name in (ROWS_OF_A_BATCH, BYTES_OF_A_BATCH):
            value = configured.get(name)
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def over_columns(function: Callable[..., pa.Array], return_type: str, *columns: Column) -> Column:
    """Apply a function of arrays to arrays: Spark tells its kind by its annotations, so they are set here."""
    names = function.__code__.co_varnames[: len(columns)]
    function.__annotations__ = {**dict.fromkeys(names, pa.Array), "return": pa.Array}
    return _arrow_udf(function, return_type)(*columns)
