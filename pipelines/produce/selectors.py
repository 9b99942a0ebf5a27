"""Queue selectors in Python: the user's function, and random (docs/rocketmq/consume-filter-ha.md 1.4).

Round robin and hash need no Python: counting chooses their queues.
"""

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.log.message import Message, read_properties
from pipelines.log.python_code import expect_no_control_c, text_of
from pipelines.produce.accept import given_body
from pipelines.spark_internals.arrow import over_columns

Selector = Callable[[list[int], Message, Any], int]

# The input columns, beside the body, that a message for the user's code is made of, where the input has them.
_GIVEN = (
    "topic", "tags", "keys", "properties", "properties_raw", "unique_key", "flag", "born_timestamp", "born_host",
)  # fmt: skip


def given_columns(rows: DataFrame) -> list[Column]:
    """The columns of typed input rows from which given_message makes a message."""
    return [
        given_body(rows.columns).alias("body"),
        *(F.col(name) for name in _GIVEN if name in rows.columns),
    ]


def with_selected_queues(
    rows: DataFrame, select: Selector | None, queues: Callable[[str], int], batch_id: str
) -> DataFrame:
    """The rows with `queue_id` chosen where the row has no queue; random also leaves rows with a sharding key alone.

    rows    typed input rows and `position` (long, unique)
    select  the user's function; None: random, the same queue for the same batch id and position. A batch has one queue: its
            name counts in place of positions
    queues  a topic's number of queues
    adds    `selector_problem` (string): how the user's function failed; null where it did not
    """
    has = rows.columns
    chosen = F.col("queue_id") if "queue_id" in has else F.lit(None).cast("int")
    sharded = F.col("shard").isNotNull() if "shard" in has and select is None else F.lit(False)
    argument = F.col("sharding_key").cast("string") if "sharding_key" in has else F.lit(None).cast("string")

    seed = F.col("position").cast("string")
    if "batch" in has:
        seed = F.coalesce(F.concat(F.lit("batch "), "batch"), seed)

    def choose(message: pa.Array, arguments: pa.Array, seeds: pa.Array) -> pa.Array:
        answers = [
            _choose(dict(row), argument, seed, select, queues, batch_id)
            for row, argument, seed in zip(
                message.to_pylist(maps_as_pydicts="lossy"),
                arguments.to_pylist(),
                seeds.to_pylist(),
                strict=True,
            )
        ]
        return pa.array(answers, pa.struct([("queue_id", pa.int32()), ("problem", pa.string())]))

    answer = over_columns(
        choose,
        "queue_id int, problem string",
        F.struct(*given_columns(rows)),
        argument,
        seed,
    )
    decided = chosen.isNotNull() | sharded
    return (
        rows.withColumn("answer", answer)
        .withColumn("queue_id", F.when(decided, chosen).otherwise(F.col("answer.queue_id")))
        .withColumn("selector_problem", F.when(~decided, F.col("answer.problem")))
        .drop("answer")
    )


def _choose(
    row: dict[str, Any],
    argument: str | None,
    seed: str,
    select: Selector | None,
    queues: Callable[[str], int],
    batch_id: str,
) -> dict[str, Any]:
    count = queues(row["topic"] or "")
    if select is None:
        return {"queue_id": zlib.crc32(f"{batch_id}:{seed}".encode()) % count, "problem": None}
    try:
        queue_id = select(list(range(count)), given_message(row), argument)
    except BaseException as failure:
        expect_no_control_c(failure)
        return {
            "queue_id": None,
            "problem": f"the selector raised {type(failure).__name__}: {text_of(failure)}",
        }
    if not isinstance(queue_id, int) or not 0 <= queue_id < count:
        return {
            "queue_id": None,
            "problem": f"the selector chose queue {queue_id!r}; expected 0 to {count - 1}",
        }
    return {"queue_id": queue_id, "problem": None}


def given_message(row: Mapping[str, Any]) -> Message:
    """The message of an input row, with the values of given_columns; `properties_raw` stands for all its properties."""
    given = {name: row[name] for name in _GIVEN if row.get(name) is not None}
    stored = given.pop("properties_raw", None)
    if stored is not None:
        properties = read_properties(stored)
        named = {"tags": "TAGS", "keys": "KEYS", "unique_key": "UNIQ_KEY"}
        given |= {"properties": properties} | {field: properties.get(name) for field, name in named.items()}
    return Message(**{"topic": "", **given, "body": row["body"] or b""})
