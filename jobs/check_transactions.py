"""Ask producers about half messages that have waited too long, and give up on those that have been asked often enough."""

from typing import Annotated, Any

import typer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.end_transactions import by_answers, state_complaint
from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.errors import BadInput
from pipelines.log.python_code import load_function
from pipelines.log.requests import read_requests, refuse
from pipelines.rocketmq.message_ids import message_id
from pipelines.rocketmq.properties import property_value
from pipelines.store.commit_in_parts import commit_in_parts
from pipelines.transaction.check import answers, plan_check
from pipelines.transaction.halves import CHECK
from schemas import COMMITLOG

Checker = Annotated[
    str | None,
    typer.Option(metavar="MODULE:NAME", help="def check(message) -> TransactionState, asked once a message."),
]
Outcomes = Annotated[
    str | None,
    typer.Option(
        metavar="PATH", help="Answers instead: unique_key, transaction_id or message_id, and state."
    ),
]
OUTCOME_COLUMNS = {
    "unique_key": "string",
    "transaction_id": "string",
    "message_id": "string",
    "state": "string",
}


@job
def check_transactions(run: Run, checker: Checker = None, outcomes: Outcomes = None) -> dict[str, Any]:
    """Ask about unsettled half messages and give up on old ones."""
    return check_halves(run, checker, outcomes)


def check_halves(run: Run, checker: str | None, outcomes: str | None) -> dict[str, Any]:
    """Check the transactions of the run's store; the counts of check_transactions."""
    if (checker is None) == (outcomes is None):
        raise BadInput("give either --checker MODULE:NAME or --outcomes PATH: who is to be asked?")
    check = load_function("--checker", checker) if checker is not None else None
    said = None if outcomes is None else _outcomes(run, outcomes)
    last_append = run.store.snapshot().number(COMMITLOG)
    result = commit_in_parts(
        run.commit, lambda at, _: plan_check(at, run.now_ms, run.run_id), ("checked", "discarded")
    )
    checked = result["checked"]
    ended = {"committed": 0, "rolled_back": 0, "refused": 0}
    if checked:
        asked = (
            run.store.snapshot()
            .read(COMMITLOG)
            # A run that goes round asks about what this round has put back, not an earlier one.
            .where(
                (F.col("append_seq") > last_append)
                & (F.col("append_id") == run.run_id)
                & (F.col("purpose") == CHECK)
            )
        )
        # A number and a word a half.
        answered = (answers(asked, check) if check is not None else _said(asked, said)).toArrow()
        ended = by_answers(run, answered, from_check=True)
    return {
        "checked": checked,
        "committed": ended["committed"],
        "rolled_back": ended["rolled_back"],
        "unknown": checked - ended["committed"] - ended["rolled_back"],
        "discarded": result["discarded"],
    }


def _outcomes(run: Run, path: str) -> DataFrame:
    outcomes = read_requests(run.spark, path, OUTCOME_COLUMNS).withColumn("state", F.upper(F.trim("state")))
    names = [F.col(name) for name in ("unique_key", "transaction_id", "message_id")]
    is_nameless = F.coalesce(*names).isNull()
    complaint = F.coalesce(
        state_complaint(),
        F.when(
            is_nameless, F.lit("an outcome names no message: give unique_key, transaction_id or message_id")
        ),
    )
    refuse(outcomes.select(complaint.alias("complaint")).where(F.col("complaint").isNotNull()), path)
    return outcomes


def _said(asked: DataFrame, outcomes: DataFrame | None) -> DataFrame:
    """What the outcomes say of the halves asked about; of several the first counts."""
    assert outcomes is not None, "either a checker or outcomes are given"
    properties = F.col("properties")
    half = asked.select(
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


if __name__ == "__main__":
    main(check_transactions)
