"""Commit or roll back half messages by their producers' requests."""

from collections.abc import Callable
from typing import Annotated, Any

import pyarrow as pa
import typer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.log.requests import with_rows
from pipelines.store.commit_in_parts import commit_in_parts
from pipelines.store.role import expect_master
from pipelines.transaction.check import answers
from pipelines.transaction.end import plan_end
from pipelines.transaction.requests import open_halves_of, read_end_requests, requests_by_states
from pipelines.transaction.state import TransactionState


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
    return carry_out(run, read_end_requests(run.spark, input_))


def carry_out(run: Run, requests: DataFrame) -> dict[str, Any]:
    """The counts of end_transactions, from carrying out requests.

    requests  as pipelines/transaction/requests.py describes them
    """
    expect_master(run.store.snapshot())
    found = with_rows(run.store.snapshot(), requests)
    # Each part finds all refused requests again, so only the count of the last one is right.
    result = commit_in_parts(
        run.commit,
        lambda at, _: plan_end(at, found, run.now_ms, run.run_id),
        ("committed", "rolled_back"),
    )
    for reason in result["reasons"]:
        run.say(f"refused: {reason}")
    return {name: result[name] for name in ("committed", "rolled_back", "refused")}


def end_by_states(run: Run, states: pa.Table, from_check: bool) -> dict[str, Any]:
    """End the halves at `physical_offset` by their `state`; UNKNOWN leaves them."""
    requests = requests_by_states(run.spark, states, from_check)
    if requests is None:
        return {"committed": 0, "rolled_back": 0, "refused": 0}
    return carry_out(run, requests)


def run_local_transactions(run: Run, batch_id: str, execute: Callable[..., Any]) -> dict[str, Any]:
    """Run the local transaction of each open half that a batch has put, and end it by the state it returns."""
    # A number and a word a half come to the driver.
    open_halves = open_halves_of(run.store.snapshot(), batch_id)
    states = answers(open_halves, execute, run.store.settings["maxUnpackedBytes"]).toArrow()
    ended = end_by_states(run, states, from_check=False)
    return {**ended, "unknown": states.num_rows - sum(ended.values())}


def roll_back_halves(run: Run, batch_id: str, from_offset: int | None) -> dict[str, Any]:
    """Roll back each open half that a batch has put from a physical offset on, without its local transaction.

    from_offset  where this run began to append; None where it appended nothing. Halves of an earlier run stay open: their
                 local transactions may have been run

    So a producer of RocketMQ does whose send came back with a timeout (docs/rocketmq/delay-retry-transaction.md 5.1).
    """
    is_new = F.lit(False) if from_offset is None else F.col("physical_offset") >= from_offset
    open_halves = open_halves_of(run.store.snapshot(), batch_id).where(is_new)
    state = F.lit(TransactionState.ROLLBACK.value).alias("state")
    states = open_halves.select("physical_offset", state).toArrow()
    if states.num_rows:
        run.warn(
            f"{states.num_rows:,} half messages are rolled back and their local transactions not run: slaves lack them. "
            "Put these alone again, as another batch, once slaves follow"
        )
    return {**end_by_states(run, states, from_check=False), "unknown": 0}


if __name__ == "__main__":
    main(end_transactions)
