"""Arrange an input: write a copy in order of arrival, with its queues, and put the copy.

Only two kinds need it: input whose `arrival` is out of order, and input whose queues a Python selector chooses; any other is
read twice where it lies. Only the input decides at which rows the copy is cut into files, so that a put that was
interrupted finds the same rows in the same files when it is run again.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.log.count import ARRIVAL_OF_NONE, ROWS_OF_A_SAMPLE, CountedSplit
from pipelines.log.place import input_row, last_not_above
from pipelines.produce.accept import with_typed_columns
from pipelines.produce.accepted_input import AcceptedInput
from pipelines.produce.complaints import AcceptRules
from pipelines.produce.counted_input import CountedInput
from pipelines.produce.inputs import staged_input
from pipelines.produce.selectors import Selector, with_selected_queues
from pipelines.spark_internals.catalyst import search

# Bytes of the input, compressed as it is, for each file of the copy: a task sorts them, and later reads them as one split.
FILE_BYTES = 128 * 1024**2
SMALL_FILE_BYTES = 8 * 1024**2
# More rows than an input has: a border's input_row and the rank of its arrival are packed into one number.
_ROWS = 2**40


def arrange(
    counted: CountedInput,
    rules: AcceptRules,
    directory: str,
    batch_id: str,
    selects: bool,
    select: Selector | None,
) -> AcceptedInput:
    """The input to put instead of `counted`: its rows, written to `directory` in order of arrival with their queues.

    rules    of the put, for the rows of the copy
    selects  whether a Python selector chooses queues; `select` is None for the random one

    Rows of the same arrival keep the order of the files' names and of the lines in them.
    """
    source, spark, by_arrival = counted.source, counted.given.session_with_splits(), counted.is_out_of_order
    arrival = F.coalesce("arrival", F.lit(ARRIVAL_OF_NONE).cast("long"))
    rows = (
        source.read(spark)
        .transform(with_typed_columns, source)
        .withColumn("position", input_row(counted.splits))
        .withColumn("order", arrival if by_arrival else F.lit(0).cast("long"))
    )
    if selects:
        rows = rows.transform(with_selected_queues, select, counted.rules.queue_nums.of, batch_id)
    # One file: a batch is neighbouring rows of one file, and a border could cut it.
    has_batches = any(split.units is not None for split in counted.splits)
    wanted = 1 if has_batches else _files_of(source.stored_bytes(spark))
    borders = file_borders(counted.splits, by_arrival, wanted)
    files = len(borders[0]) + 1
    ordered = rows.repartitionById(files, _file_of(*borders)).sortWithinPartitions("order", "position")
    helpers = ["file_hash", "block_start", "position", "order", "sharding_key"]
    ordered.drop(*helpers).write.mode("overwrite").option("maxRecordsPerFile", 0).parquet(directory)
    columns = source.columns | ({"queue_id"} if selects else set())
    staged = replace(staged_input(spark, directory, source), columns=columns)
    # whole_files: where the copy's files begin depends on the input alone; where blocks of a file begin may not.
    return AcceptedInput(
        counted.given.spark, staged, replace(rules, queues_are_selected=selects), whole_files=True
    )


def _files_of(stored_bytes: int) -> int:
    """The number of files that an input is cut into.

    >>> _files_of(0), _files_of(SMALL_FILE_BYTES + 1), _files_of(100 * FILE_BYTES)
    (1, 2, 100)
    """
    each = min(max(stored_bytes // 8, SMALL_FILE_BYTES), FILE_BYTES)
    return max(1, -(-stored_bytes // each))


def file_borders(
    splits: Sequence[CountedSplit], by_arrival: bool, files: int
) -> tuple[np.ndarray, np.ndarray]:
    """Where files begin, without the first: (arrivals, input_rows), ascending, about equally many rows apart."""
    rows = np.array([split.rows for split in splits], np.int64)
    firsts = np.cumsum(rows) - rows
    steps = [np.arange(0, count, ROWS_OF_A_SAMPLE) for count in rows]
    positions = np.concatenate([first + step for first, step in zip(firsts, steps, strict=True)])
    # A sample stands for the rows up to the next one of its split.
    weights = np.concatenate(
        [np.minimum(ROWS_OF_A_SAMPLE, count - step) for count, step in zip(rows, steps, strict=True)]
    )
    arrivals = np.zeros(len(positions), np.int64)
    if by_arrival:
        arrivals = np.concatenate([arrival for split in splits for arrival in split.arrivals])
    order = np.lexsort((positions, arrivals))
    before = np.cumsum(weights[order]) - weights[order]
    wanted = np.arange(1, files) * int(rows.sum()) // files
    chosen = np.unique(np.searchsorted(before, wanted))
    begins = order[chosen[(chosen > 0) & (chosen < len(order))]]
    return arrivals[begins], positions[begins]


def _file_of(arrivals: np.ndarray, positions: np.ndarray) -> Column:
    """The file of a row, int: the number of borders not after its (`order`, `position`), by two binary searches."""
    different, numbers = np.unique(arrivals, return_inverse=True)
    found = search(different, F.col("order")).cast("long")
    key = F.when(found >= 0, found * _ROWS + F.col("position")).otherwise((-found - 1) * _ROWS - 1)
    return last_not_above(numbers.astype(np.int64) * _ROWS + positions, key) + 1
