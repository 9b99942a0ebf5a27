"""Redrive dead letters, or any rows of the log, back to a topic."""

import re
from typing import Annotated, Any

import typer
from pyspark.sql import functions as F

from jobs.launch.job import job, main
from jobs.launch.output import show
from jobs.launch.run import Run
from pipelines.errors import BadInput
from pipelines.log.claims import unclaimed
from pipelines.reports.answer import MOST_ROWS
from pipelines.retry.redrive import id_of, matched, plan_redrive, still_parked
from pipelines.retry.redrive_topics import expect_no_own_topic, topics_of
from pipelines.store.commit_in_parts import commit_in_parts
from pipelines.store.role import expect_master
from pipelines.store.topics import plan_make_topics
from pipelines.views.read_only_sql import spark_faults

SAMPLE_ROWS = 10


@job
def redrive(
    run: Run,
    where: Annotated[str, typer.Option(metavar="SQL", help="Which rows of the view messages.")],
    to_topic: Annotated[str | None, typer.Option(help="Where to; else where each row came from.")] = None,
    redrive_id: Annotated[
        str | None, typer.Option(help="A row goes once under this id; else one is made from the options.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most N rows, the oldest that are not redriven yet.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report what would be done, and do nothing.")
    ] = False,
) -> dict[str, Any]:
    """Put dead letters, or any rows of the log, back into a topic."""
    if redrive_id is not None and not re.fullmatch(r"[\w.:@/+-]{1,200}", redrive_id):
        raise BadInput(f"--redrive-id is {redrive_id!r}; expected 1 to 200 letters, digits and _ . : @ / + -")
    name = redrive_id or id_of(where, to_topic)
    at = run.store.snapshot()
    expect_master(at)
    with spark_faults():  # a predicate may also fail on a value
        rows = matched(at, where, name, to_topic)
        if limit is not None:
            rows = unclaimed(at, rows).orderBy("source_offset").limit(min(limit, MOST_ROWS))
        waiting = [row.source_offset for row in still_parked(at, rows).limit(3).collect()]
        targets = {row.target for row in rows.select("target").distinct().collect()}  # a row a topic
        found = rows.count()
    if waiting:
        raise BadInput(
            f"rows still parked match, at {', '.join(map(str, waiting))}…: they will be delivered or ended by themselves; "
            "leave their topics out of --where"
        )
    expect_no_own_topic(targets)
    if redrive_id is None:
        run.say(f"redrive id {name}")
    # What the run itself would refuse, its dry run does.
    topics, made = topics_of(run.store.snapshot(), targets)
    if dry_run:
        _show(run, rows)
        return {
            "matched": found,
            "redriven": 0,
            "already": found - unclaimed(at, rows).count(),
            "redrive_id": name,
        }
    if made:
        run.commit(lambda at: plan_make_topics(at, made))
    redriven = 0
    if found:
        redriven = commit_in_parts(
            run.commit,
            lambda at, _: plan_redrive(at, rows, topics, run.now_ms, run.run_id),
            ("redriven",),
        )["redriven"]
    return {"matched": found, "redriven": redriven, "already": found - redriven, "redrive_id": name}


def _show(run: Run, rows: Any) -> None:
    """Print what a dry run found: the rows by topic, and the first of them."""
    by_topic = rows.groupBy("topic", "target").agg(F.count("*").alias("rows")).orderBy("topic", "target")
    for each in by_topic.limit(50).collect():
        run.say(f"{each.rows:,} rows of {each.topic} would go to {each.target}")
    sample = (
        rows.orderBy("source_offset").limit(SAMPLE_ROWS).select("message_id", "topic", "queue_id", "target")
    )
    if not run.quiet:
        show(sample, "table")


if __name__ == "__main__":
    main(redrive)
