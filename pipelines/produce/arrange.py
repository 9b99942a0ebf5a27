"""Arrange an input whose order or queues cannot be had by reading it twice: write it once, in order, and put that.

Only input whose `arrival` is out of order is sorted, and only a Python selector's choices are kept: everything else is
put from where it lies.
"""

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.produce.accept import with_typed_columns
from pipelines.produce.inputs import Input, staged_input
from pipelines.produce.selectors import Selector, with_selected_queues


def arrange(
    spark: SparkSession,
    source: Input,
    directory: str,
    batch_id: str,
    by_arrival: bool,
    selects: bool,
    select: Selector | None,
    queues: Callable[[str], int],
) -> Input:
    """Write the input's rows to `directory` in order of arrival, with their queues; the input to put instead.

    Rows of the same arrival keep the order of the files' names and of the lines in them.
    """
    files = F.create_map(*[F.lit(part) for pair in source.hashes.items() for part in pair])
    rows = (
        source.read(spark)
        .transform(with_typed_columns, source)
        .withColumn("file_number", files[F.col("file_hash")])
        .withColumn("position", F.monotonically_increasing_id())  # ascends within a piece
    )
    if selects:
        rows = rows.transform(with_selected_queues, select, queues, batch_id)
    order = [*(["arrival"] if by_arrival else []), "file_number", "block_start", "position"]
    helpers = ["file_hash", "block_start", "file_number", "position", "sharding_key"]
    ordered = rows.repartitionByRange(*order).sortWithinPartitions(*order)
    ordered.drop(*helpers).write.mode("overwrite").parquet(directory)
    columns = source.columns | ({"queue_id"} if selects else set())
    return replace(staged_input(spark, directory, source), columns=columns)
