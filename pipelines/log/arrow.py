"""Python functions over Arrow columns, for what Spark has no function for."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

_arrow_udf: Any = F.arrow_udf


def over_columns(function: Callable[..., pa.Array], return_type: str, *columns: Column) -> Column:
    """Apply a function of arrays to arrays: Spark tells its kind by its annotations, so they are set here."""
    names = function.__code__.co_varnames[: len(columns)]
    function.__annotations__ = {**dict.fromkeys(names, pa.Array), "return": pa.Array}
    return _arrow_udf(function, return_type)(*columns)


def over_task(
    function: Callable[[Iterator[tuple[pa.Array, ...]]], Iterator[pa.Array]],
    return_type: str,
    *columns: Column,
) -> Column:
    """Apply a function that walks all batches of a task in order, and so may remember the rows before.

    Spark must not apply it a second time to a part of the rows, as it may do with a deterministic function when it
    moves a filter below it.
    """
    name = function.__code__.co_varnames[0]
    function.__annotations__ = {name: Iterator[tuple[pa.Array, ...]], "return": Iterator[pa.Array]}
    return _arrow_udf(function, return_type).asNondeterministic()(*columns)
