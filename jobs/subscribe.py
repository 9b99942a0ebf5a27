"""Record what a consumer group asks for of a topic; upload its class filter."""

from typing import Annotated, Any

import typer

from jobs.job import Run, job, main
from pipelines.consume.subscriptions import TAG, Subscription, expect_subscription, plan_subscribe
from pipelines.reports.queues import expect_topic
from pipelines.retry.send_back import plan_group


@job
def subscribe(
    run: Run,
    group: Annotated[str, typer.Option(help="The consumer group.")],
    topic: Annotated[str, typer.Option(help="What it reads.")],
    filter_type: Annotated[str, typer.Option(help="TAG, SQL92 or CLASS.")] = TAG,
    filter_: Annotated[
        str,
        typer.Option("--filter", help="Tags joined by ||, a SQL92 expression, or MODULE:NAME of a class."),
    ] = "*",
    filter_class: Annotated[
        str | None,
        typer.Option(metavar="FILE:CLASS", help="Upload this class; needs filterSupportUpload."),
    ] = None,
) -> dict[str, Any]:
    """Record a consumer group's subscription."""
    expect_topic(run.store.snapshot(), topic)
    made = Subscription(group, topic, filter_type.upper(), filter_, run.now_ms)
    expect_subscription(made, run.store.settings)
    run.commit(lambda at: plan_group(at, group))
    return run.commit(lambda at: plan_subscribe(at, made)).result


if __name__ == "__main__":
    main(subscribe)
