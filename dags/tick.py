"""
**tick** does what `dispatch`, `deliver` and the checks of `transactions` do, every few seconds, in one Spark session that
lives for ten minutes: a message comes a second or so after its time, not a job's start later. Use it in place of these
three DAGs, for a store whose messages must be on time; it takes a place of the pool all the time.

**Late or missed?** Messages come late, none is lost: the next run goes on. Groups' DAGs hear of new messages when a run
ends.

**Failed?** The next run, at most ten minutes later, does the same work; or run it again, always, also beside another: each
message is delivered once. If every run fails, the last one's log gives the reason in a sentence.
"""

from datetime import timedelta

from airflow.sdk import DAG

from commitlake_jobs import EVERY_DAG, QUEUES_GREW, SHARED_PARAMS, Job, given, text

with DAG(
    dag_id="tick",
    description="Dispatch, deliver and check every few seconds, in one session",
    schedule="*/10 * * * *",
    doc_md=__doc__,
    params=SHARED_PARAMS
    | {
        "every": text("Seconds from one round to the next; 5 unless given."),
        "lasting": text(
            "Seconds after which no round begins; 585 unless given, so that the next run is on time."
        ),
        "checker": text("MODULE:NAME, called for half messages that have not been ended."),
        "outcomes": text("Instead of a checker, a file of states: unique_key and state."),
    },
    **EVERY_DAG,
):
    Job(
        job="run_cycle",
        options={
            "--every": given("every", "5"),
            "--for": given("lasting", "585"),
            "--checker": given("checker"),
            "--outcomes": given("outcomes"),
        },
        outlets=[QUEUES_GREW],
        # The next run is the retry.
        retries=0,
        execution_timeout=timedelta(minutes=30),
    )
