"""Record a consumer group's subscription to a topic; upload its class filter."""

from pathlib import Path
from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.consume.class_pages import find_class_filter, plan_upload
from pipelines.consume.subscriptions import CLASS, TAG, Subscription, expect_subscription, plan_subscribe
from pipelines.errors import BadInput
from pipelines.filter.class_filters import UploadedClass, expect_uploads
from pipelines.reports.queues import expect_topic
from pipelines.retry.send_back import group_config, plan_group
from pipelines.store.role import expect_master


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
    at = run.store.snapshot()
    expect_master(at)
    expect_topic(at, topic)
    uploaded = None if filter_class is None else _uploaded(run, topic, group, filter_class)
    if uploaded is not None:
        filter_type, filter_ = CLASS, uploaded.class_name
    made = Subscription(group, topic, filter_type.upper(), filter_, run.now_ms)
    expect_subscription(made, run.store.settings)
    group_config(at, group)  # refused before anything is recorded
    if uploaded is not None:
        run.commit(lambda at: plan_upload(at, uploaded))
    elif made.expression_type == CLASS:
        find_class_filter(at, group, topic, filter_)
    run.commit(lambda at: plan_group(at, group))
    return run.commit(lambda at: plan_subscribe(at, made)).result


def _uploaded(run: Run, topic: str, group: str, filter_class: str) -> UploadedClass:
    expect_uploads(run.store.settings)
    path, colon, class_name = filter_class.rpartition(":")
    if not colon or not class_name.isidentifier():
        raise BadInput(f"--filter-class is {filter_class!r}; expected FILE:CLASS")
    try:
        source = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise BadInput(f"--filter-class {filter_class}: {path} cannot be read ({failure})") from failure
    return UploadedClass.of(topic, group, class_name, source)


if __name__ == "__main__":
    main(subscribe)
