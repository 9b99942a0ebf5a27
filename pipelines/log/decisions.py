"""Decisions about rows of the log: which of them are copied, and what becomes of each. This brings them to the rows."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.spark_internals.catalyst import number_at, search

# The most different texts that are written into a plan.
TEXTS_OF_A_PLAN = 100

# Arrow's types of decisions that are looked up as numbers, and Spark's names of them.
_NUMBERS = {pa.bool_(): "boolean", pa.int32(): "int", pa.int64(): "bigint"}


def with_decisions(log: DataFrame, decided: pa.Table) -> DataFrame:
    """Rows of the log that are among the sources of `decided`, with its other columns.

    Where each source is there once, rows look themselves up in its sorted offsets. Spark would make a hash table of them
    first, row by row and on one core, which takes as long as a third of the copies. Each task gets eight bytes a decision
    for each column that is looked up, 32 MB for a million of `deliver`.

    decided  `source_offset` (int64) and any others; one without an offset is about no row
    """
    ordered = decided.filter(decided.column("source_offset").is_valid()).sort_by("source_offset")
    sources, others = ordered.column("source_offset").to_numpy(), ordered.drop_columns("source_offset")
    is_unique = not (sources[1:] == sources[:-1]).any()
    if not is_unique or not all(map(_can_be_looked_up, others.columns)):
        return joined(log, log.sparkSession.createDataFrame(ordered))
    place = F.col("place_of_decision")
    found = log.withColumn("place_of_decision", search(sources, F.col("physical_offset"))).where(place >= 0)
    columns = {name: _value_at(others.column(name), place) for name in others.column_names}
    return found.withColumns(columns).drop("place_of_decision")


def joined(log: DataFrame, decided: DataFrame) -> DataFrame:
    """The same by a join: for decisions that are rows of a query, and for those that cannot be looked up.

    decided  a million rows at most: all of them go to every executor
    """
    of_sources = decided.withColumnRenamed("source_offset", "physical_offset")
    return log.join(F.broadcast(of_sources), "physical_offset")


def _can_be_looked_up(values: pa.ChunkedArray) -> bool:
    """Whether these are numbers or booleans without nulls, or few different texts."""
    if pa.types.is_string(values.type):
        return bool(pc.count_distinct(values).as_py() <= TEXTS_OF_A_PLAN)
    return values.type in _NUMBERS and values.null_count == 0


def _value_at(values: pa.ChunkedArray, place: Column) -> Column:
    if pa.types.is_string(values.type):
        encoded = values.combine_chunks().dictionary_encode()
        codes = encoded.indices.fill_null(-1).cast(pa.int64()).to_numpy()
        texts = F.array(*[F.lit(text) for text in encoded.dictionary.to_pylist()]).cast("array<string>")
        return F.get(texts, number_at(codes, place).cast("int"))
    least_and_most: dict[str, Any] = pc.min_max(values).as_py()
    if least_and_most["min"] == least_and_most["max"]:
        return F.lit(least_and_most["min"]).cast(_NUMBERS[values.type])  # takes no memory
    return number_at(values.cast(pa.int64()).to_numpy(), place).cast(_NUMBERS[values.type])
