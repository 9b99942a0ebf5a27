"""Python functions over Arrow columns, for what Spark has no function for; and rows of the driver as Arrow columns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, _make_type_verifier

from pipelines.errors import BadInput

_arrow_udf: Any = F.arrow_udf

ROWS_OF_A_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES_OF_A_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"
# Bytes: Spark's own limit of a batch, and the value that Spark takes for no limit.
BATCH_BYTES, NO_LIMIT = 64 * 1024**2, str(2**31 - 1)
# Rows: batches do not get smaller than this, because each has a cost of its own.
FEWEST_ROWS = 1_000


@contextmanager
def unweighed(spark: SparkSession, largest_row: int) -> Iterator[None]:
    """While inside, rows go to Python without Spark measuring all their columns at every row.

    largest_row  no row is larger, bytes; nothing changes where batches of such rows would be below FEWEST_ROWS

    Measuring takes a third of the time that messages of 300 bytes take to get to Python. A batch has no more bytes than
    before, because it has fewer rows.
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
        # The application's value, not the one found on entry: another thread may have changed that.
        for name in (ROWS_OF_A_BATCH, BYTES_OF_A_BATCH):
            value = configured.get(name)
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def over_columns(function: Callable[..., pa.Array], return_type: str, *columns: Column) -> Column:
    """A function of Arrow arrays, applied to columns. Spark infers its kind from annotations, so they are set here."""
    names = function.__code__.co_varnames[: len(columns)]
    function.__annotations__ = {**dict.fromkeys(names, pa.Array), "return": pa.Array}
    return _arrow_udf(function, return_type)(*columns)


def frame_of(spark: SparkSession, rows: Sequence[Any], columns: StructType | str) -> DataFrame:
    """A few rows of the driver as a DataFrame, made by the JVM alone.

    createDataFrame() hands a list to Python workers on its way to the JVM, and the first one of a session takes more than a
    second to start.

    rows  tuples in the order of the columns, or mappings with them; no value for null

    Raises PySparkTypeError or PySparkValueError for a value that its column does not take, as createDataFrame() does: Arrow
    would make a whole number of 1.5. Raises BadInput for text that has no UTF-8 (an argument of other bytes).
    """
    schema: Any = StructType.fromDDL(columns) if isinstance(columns, str) else columns
    verify = _make_type_verifier(schema)
    for row in rows:
        verify(row)
    fields = to_arrow_schema(schema)
    try:
        arrays: list[pa.Array] = [
            pa.array(
                [row.get(field.name) if isinstance(row, Mapping) else row[place] for row in rows], field.type
            )
            for place, field in enumerate(fields)
        ]
    except UnicodeEncodeError as failure:
        raise BadInput(f"{failure.object!r} is not text in UTF-8; expected text that is") from failure
    table: Any = pa.Table.from_arrays(arrays, schema=fields)
    return spark.createDataFrame(table, schema)
