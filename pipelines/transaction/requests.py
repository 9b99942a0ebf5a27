"""Requests to end half messages: read from a file, or made from the states that producers return.

A request has the columns of REQUEST_COLUMNS and those `with_rows` adds; `asked_queue_offset`, the queue offset it names; and
`from_check` (boolean), whether it comes from a check.
"""

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.log.append_ids import is_put_by
from pipelines.log.requests import read_requests, refuse
from pipelines.rocketmq.message_ids import message_id
from pipelines.rocketmq.names import HALF_TOPIC
from pipelines.rocketmq.properties import property_value
from pipelines.store.snapshot import Snapshot
from pipelines.transaction.end import REQUEST_COLUMNS
from pipelines.transaction.halves import COMMIT, DISCARD, ROLLBACK, settling_claims
from pipelines.transaction.state import TransactionState
from schemas import COMMITLOG

STATES = tuple(state.value for state in TransactionState)
OUTCOME_COLUMNS = {
    "unique_key": "string",
    "transaction_id": "string",
    "message_id": "string",
    "state": "string",
}


def read_end_requests(spark: SparkSession, path: str) -> DataFrame:
    """The requests in a file. Raises BadInput for a state that is unknown and for a producer group that is missing."""
    requests = read_requests(spark, path, REQUEST_COLUMNS).withColumn("state", F.upper(F.trim("state")))
    is_missing = F.col("producer_group").isNull()
    complaint = F.coalesce(_state_complaint(), F.when(is_missing, F.lit("producer_group is missing")))
    refuse(requests.select(complaint.alias("complaint")).where(F.col("complaint").isNotNull()), path)
    renamed = requests.withColumnRenamed("queue_offset", "asked_queue_offset")
    return renamed.withColumn("from_check", F.lit(False))


def read_outcomes(spark: SparkSession, path: str) -> DataFrame:
    """The outcomes of checked transactions in a file, with OUTCOME_COLUMNS. Raises BadInput as `read_end_requests`."""
    outcomes = read_requests(spark, path, OUTCOME_COLUMNS).withColumn("state", F.upper(F.trim("state")))
    names = [F.col(name) for name in ("unique_key", "transaction_id", "message_id")]
    nameless = F.lit("an outcome names no message: give unique_key, transaction_id or message_id")
    complaint = F.coalesce(_state_complaint(), F.when(F.coalesce(*names).isNull(), nameless))
    refuse(outcomes.select(complaint.alias("complaint")).where(F.col("complaint").isNotNull()), path)
    return outcomes


def _state_complaint() -> Column:
    """What is wrong with the column `state` of a request; null where nothing is."""
    is_known = F.coalesce(F.col("state").isin(*STATES), F.lit(False))
    given = F.coalesce("state", F.lit("missing"))
    return F.when(~is_known, F.format_string(f"state is %s; expected one of {', '.join(STATES)}", given))


def states_by_outcomes(halves: DataFrame, outcomes: DataFrame) -> DataFrame:
    """The `state` of each half that outcomes name, by its `physical_offset`; of several outcomes the first counts."""
    properties = F.col("properties")
    half = halves.select(
        "physical_offset",
        message_id().alias("id"),
        property_value(properties, "UNIQ_KEY").alias("key"),
        property_value(properties, "__transactionId__").alias("transaction"),
        F.coalesce("origin_offset", "physical_offset").alias("origin"),
    )
    origin_id = F.concat(F.left("id", F.length("id") - 16), F.lpad(F.hex("origin"), 16, "0"))
    is_it = (
        (F.col("unique_key") == F.col("key"))
        | (F.col("transaction_id") == F.col("transaction"))
        | (F.upper("message_id") == F.col("id"))
        | (F.upper("message_id") == origin_id)
    )
    return (
        half.join(F.broadcast(outcomes), is_it)
        .groupBy("physical_offset")
        .agg(F.min_by("state", "request").alias("state"))
    )


def requests_by_states(spark: SparkSession, states: pa.Table, from_check: bool) -> DataFrame | None:
    """Requests to end the halves at `physical_offset` by their `state`; None where every state is UNKNOWN."""
    known = states.filter(pa.compute.not_equal(states.column("state"), TransactionState.UNKNOWN.value))
    if not known.num_rows:
        return None
    return spark.createDataFrame(known).select(
        F.col("physical_offset").alias("request"),
        "physical_offset",
        "state",
        F.lit(None).cast("string").alias("message_id"),
        F.lit(None).cast("string").alias("producer_group"),
        F.lit(None).cast("long").alias("asked_queue_offset"),
        F.lit(from_check).alias("from_check"),
    )


def open_halves_of(at: Snapshot, batch_id: str) -> DataFrame:
    """Log rows, as they were put, of the halves that a batch has put and nothing has ended.

    A half that a check or an expiry has put back is still open, and an end settles its newest copy. So what counts is
    whether any copy of it was ended.
    """
    put = at.read_in_tasks(COMMITLOG).where(is_put_by(batch_id) & (F.col("topic") == HALF_TOPIC))
    is_end = F.col("purpose").isin(COMMIT, ROLLBACK, DISCARD)
    ended = settling_claims(at).where(is_end).select(F.col("origin_offset").alias("physical_offset"))
    return put.join(ended, "physical_offset", "left_anti")
