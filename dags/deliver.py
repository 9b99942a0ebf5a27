"""
**deliver** brings delayed and timed messages back to their topics when they are due, and failed ones that are to be
tried again. It runs every minute, so a message comes at most about a minute and a job's start after its time.

**Late or missed?** Messages come late, none is lost: the next run delivers all that is due by then, in the order of
their due times. A run that takes longer than a minute is not a failure; the next starts after it.

**Failed?** The next minute's run does the same work, so wait for it. Or run it again, always, also beside another: each
message is delivered once. If every run fails, the last one's log gives the reason in a sentence.
"""

from datetime import timedelta

from airflow.sdk import DAG

from commitlake_jobs import EVERY_DAG, LOG_GREW, SHARED_PARAMS, Job

with DAG(
    dag_id="deliver",
    description="Delayed and timed messages back to their topics when they are due",
    schedule="* * * * *",
    doc_md=__doc__,
    params=SHARED_PARAMS,
    **EVERY_DAG,
):
    Job(
        job="deliver",
        outlets=[LOG_GREW],
        # The next minute's run is the retry.
        retries=0,
        # One run at a time: one that hangs must not hold back all that follow.
        execution_timeout=timedelta(minutes=30),
    )
