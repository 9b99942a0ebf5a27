"""
**consume** reads a topic as a consumer group: it hands messages to a listener, sends failures back and records the
group's progress. Run it by hand, for any group; copy `my_group.py.example` to give a group a DAG of its own.

**Late?** The group lags; `commitlake query consumer-progress --group …` shows by how much. Nothing is lost until the
log's retention has passed.

**Failed?** Run it again, always: in the log everything happens once. A listener may get messages again that it got from
a run that was killed before it recorded its progress. Messages that the listener fails on do not fail the run: they are
counted as `failed` in the result, come again through the group's retry topic, and become dead letters in the end.
"""

from airflow.sdk import DAG

from commitlake_jobs import EVERY_DAG, LOG_GREW, SHARED_PARAMS, Job, given, text

with DAG(
    dag_id="consume",
    description="A topic read as a consumer group",
    schedule=None,
    doc_md=__doc__,
    params=SHARED_PARAMS
    | {
        "group": text("The consumer group."),
        "topic": text("What to read; else all the group has subscribed."),
        "listener": text("MODULE:NAME of def listen(message) -> ConsumeStatus."),
        "filter_type": text("TAG, SQL92 or CLASS; default TAG."),
        "filter": text("Which messages; else what the group has subscribed, else all."),
        "max_messages": text("Hand over at most N messages.", pattern="^[0-9]*$"),
    },
    **EVERY_DAG,
):
    Job(
        job="consume",
        options={
            "--group": given("group"),
            "--topic": given("topic"),
            "--listener": given("listener"),
            "--filter-type": given("filter_type"),
            "--filter": given("filter"),
            "--max-messages": given("max_messages"),
        },
        outlets=[LOG_GREW],
    )
