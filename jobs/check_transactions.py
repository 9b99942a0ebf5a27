"""Check half messages that have waited too long with their producers, and give up on those checked often enough."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.end_transactions import end_by_states
from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.errors import BadInput
from pipelines.log.copies import warn_of_no_copy
from pipelines.log.python_code import load_function
from pipelines.store.commit_in_parts import commit_in_parts
from pipelines.store.role import expect_master
from pipelines.transaction.check import answers, plan_check
from pipelines.transaction.halves import CHECK
from pipelines.transaction.requests import read_outcomes, states_by_outcomes
from schemas import COMMITLOG

Checker = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:NAME", help="def check(message) -> TransactionState, called once a message."
    ),
]
Outcomes = Annotated[
    str | None,
    typer.Option(
        metavar="PATH", help="A file of states instead: unique_key, transaction_id or message_id, and state."
    ),
]

# From rows of the log to `physical_offset` and `state`.
StatesOf = Callable[[DataFrame], DataFrame]


@job
def check_transactions(run: Run, checker: Checker = None, outcomes: Outcomes = None) -> dict[str, Any]:
    """Check unsettled half messages with their producers, and give up on old ones."""
    asked = who_is_asked(run, checker, outcomes)
    return check_halves(run, asked, run.store.snapshot().number(COMMITLOG))


def who_is_asked(run: Run, checker: str | None, outcomes: str | None) -> StatesOf:
    """A function that returns the states of halves.

    Raises BadInput unless exactly one of the two is given, and for one that cannot be used.
    """
    if (checker is None) == (outcomes is None):
        raise BadInput(
            "give either --checker MODULE:NAME or --outcomes PATH, from which the states are taken"
        )
    if outcomes is not None:
        return partial(states_by_outcomes, outcomes=read_outcomes(run.spark, outcomes))
    check = load_function("--checker", checker or "")
    return partial(answers, check=check, max_unpacked_bytes=run.store.settings["maxUnpackedBytes"])


def check_halves(run: Run, states_of: StatesOf, checked_to: int) -> dict[str, Any]:
    """Check the transactions of the run's store; the counts of check_transactions.

    checked_to  the last append whose halves may be checked
    """
    expect_master(run.store.snapshot())
    last_append = run.store.snapshot().number(COMMITLOG)
    result = commit_in_parts(
        run.commit,
        lambda at, _: plan_check(at, run.now_ms, run.run_id, checked_to),
        ("checked", "discarded"),
        after_each=partial(
            warn_of_no_copy,
            run,
            "a half message cannot be put back for a check, and it waits until end_transactions settles it",
        ),
    )
    checked = result["checked"]
    ended = {"committed": 0, "rolled_back": 0, "refused": 0}
    if checked:
        asked = (
            run.store.snapshot()
            .read_in_tasks(COMMITLOG)
            # A run of several rounds checks only what this round has put back.
            .where(
                (F.col("append_seq") > last_append)
                & (F.col("append_id") == run.run_id)
                & (F.col("purpose") == CHECK)
            )
        )
        # A number and a word a half come to the driver.
        ended = end_by_states(run, states_of(asked).toArrow(), from_check=True)
    return {
        "checked": checked,
        "committed": ended["committed"],
        "rolled_back": ended["rolled_back"],
        "unknown": checked - ended["committed"] - ended["rolled_back"],
        "discarded": result["discarded"],
    }


if __name__ == "__main__":
    main(check_transactions)
