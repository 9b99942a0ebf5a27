"""Commit or roll back half messages as their producers say."""

from collections.abc import Callable
from typing import Annotated, Any

import pyarrow as pa
import typer
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.log.append_ids import is_put_by
from pipelines.log.requests import read_requests, refuse, with_rows
from pipelines.store.commit_in_parts import commit_in_parts
from pipelines.store.topics import HALF_TOPIC
from pipelines.transaction.check import answers
from pipelines.transaction.end import REQUEST_COLUMNS, plan_end
from pipelines.transaction.halves import settling_claims
from pipelines.transaction.state import TransactionState
from schemas import COMMITLOG

STATES = tuple(state.value for state in TransactionState)


@job
def end_transactions(
    run: Run,
    input_: Annotated[
        str,
        typer.Option(
            "--input",
            metavar="PATH",
            help="producer_group, message_id (or queue_offset and physical_offset) and state of each half message.",
        ),
    ],
) -> dict[str, Any]:
    """Commit or roll back half messages."""
    return end_from(run, input_)


def end_from(run: Run, path: str) -> dict[str, Any]:
    """End the transactions that a file names; the counts of end_transactions."""
    requests = read_requests(run.spark, path, REQUEST_COLUMNS).withColumn("state", F.upper(F.trim("state")))
    complaint = F.coalesce(
        state_complaint(), F.when(F.col("producer_group").isNull(), F.lit("producer_group is missing"))
    )
    refuse(requests.select(complaint.alias("complaint")).where(F.col("complaint").isNotNull()), path)
    asked = requests.withColumnRenamed("queue_offset", "asked_queue_offset").withColumn(
        "from_check", F.lit(False)
    )
    return carry_out(run, asked)


def state_complaint() -> Column:
    """What is wrong with the column `state` of a request; null where nothing is."""
    is_known = F.coalesce(F.col("state").isin(*STATES), F.lit(False))
    given = F.coalesce("state", F.lit("missing"))
    return F.when(~is_known, F.format_string(f"state is %s; expected one of {', '.join(STATES)}", given))


def carry_out(run: Run, requests: DataFrame) -> dict[str, Any]:
    """End transactions as requests ask.

    requests  what with_rows needs, and `state`, `producer_group`, `asked_queue_offset`, `from_check`
    """
    found = with_rows(run.store.snapshot(), requests)
    # What is refused is found again by each part: the last one's count is the number.
    result = commit_in_parts(
        run.commit,
        lambda at, _: plan_end(at, found, run.now_ms, run.run_id),
        ("committed", "rolled_back"),
    )
    for reason in result["reasons"]:
        run.say(f"refused: {reason}")
    return {name: result[name] for name in ("committed", "rolled_back", "refused")}


def by_answers(run: Run, answered: pa.Table, from_check: bool) -> dict[str, Any]:
    """End the halves at `physical_offset` by their `state`; UNKNOWN leaves them."""
    known = answered.filter(pa.compute.not_equal(answered.column("state"), TransactionState.UNKNOWN.value))
    if not known.num_rows:
        return {"committed": 0, "rolled_back": 0, "refused": 0}
    requests = run.spark.createDataFrame(known).select(
        F.col("physical_offset").alias("request"),
        "physical_offset",
        "state",
        F.lit(None).cast("string").alias("message_id"),
        F.lit(None).cast("string").alias("producer_group"),
        F.lit(None).cast("long").alias("asked_queue_offset"),
        F.lit(from_check).alias("from_check"),
    )
    return carry_out(run, requests)


def run_local_transactions(run: Run, batch_id: str, execute: Callable[..., Any]) -> dict[str, Any]:
    """Run the local transaction of each half a batch has put and nobody has ended, and end it by the answer."""
    at = run.store.snapshot()
    put = at.read(COMMITLOG).where(is_put_by(batch_id) & (F.col("topic") == HALF_TOPIC))
    settled = settling_claims(at).select(F.col("source_offset").alias("physical_offset"))
    open_halves = put.drop("source_offset", "claim", "purpose").join(settled, "physical_offset", "left_anti")
    # A number and a word a half.
    answered = answers(open_halves, execute).toArrow()
    ended = by_answers(run, answered, from_check=False)
    return {**ended, "unknown": answered.num_rows - sum(ended.values())}


if __name__ == "__main__":
    main(end_transactions)
