"""Send back messages that a group failed on elsewhere: they come again later, or become dead letters."""

from functools import partial
from typing import Annotated, Any

import typer
from pyspark.sql import DataFrame

from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.log.append_ids import expect_batch_id
from pipelines.log.requests import read_requests, refuse_missing, refuse_parked, with_rows
from pipelines.retry.send_back import (
    REQUEST_COLUMNS,
    SENT_BACK_COUNTS,
    expect_sending_back,
    failures_of,
    group_config,
    plan_group,
    plan_group_topics,
    plan_send_back,
    warn_of_given_up,
)
from pipelines.store.commit_in_parts import commit_in_parts
from pipelines.store.role import expect_master


@job
def send_back(
    run: Run,
    group: Annotated[str, typer.Option(help="The consumer group that failed.")],
    input_: Annotated[
        str,
        typer.Option(
            "--input",
            metavar="PATH",
            help="Its failures: physical_offset or message_id, and optionally delay_level.",
        ),
    ],
    batch_id: Annotated[
        str | None, typer.Option(help="Name of the rows' append; else the id of the run.")
    ] = None,
) -> dict[str, Any]:
    """Send back failures reported from elsewhere."""
    expect_batch_id(batch_id)
    return send_failures(run, group, input_, batch_id)


def send_failures(run: Run, group: str, input_: str, batch_id: str | None = None) -> dict[str, Any]:
    """The counts of send_back, from sending back the messages that a file lists."""
    return send_requests(run, group, read_requests(run.spark, input_, REQUEST_COLUMNS), input_, batch_id)


def send_requests(
    run: Run, group: str, requests: DataFrame, named: str, batch_id: str | None = None
) -> dict[str, Any]:
    """The counts of send_back, from carrying out requests; `named`: their source, for errors."""
    at = run.store.snapshot()
    expect_master(at)
    config = group_config(at, group)
    expect_sending_back(at, config)
    found = with_rows(at, requests)
    refuse_missing(found, named)
    refuse_parked(found, named)
    run.commit(lambda at: plan_group(at, group))
    failures = failures_of(at, found, config)
    asked = failures.count()
    if asked and config.retry_queue_nums > 0:
        run.commit(lambda at: plan_group_topics(at, config))
    result = commit_in_parts(
        run.commit,
        lambda at, after: plan_send_back(at, failures, config, run.now_ms, batch_id or run.run_id, after),
        SENT_BACK_COUNTS,
        after_each=partial(warn_of_given_up, run, group),
    )
    counts = {name: result[name] for name in SENT_BACK_COUNTS}
    if counts["dropped"] and config.retry_queue_nums <= 0:
        run.say(f"{counts['dropped']:,} messages dropped: group {group} has no retry queues")
    return {**counts, "already": asked - sum(counts.values())}


if __name__ == "__main__":
    main(send_back)
