"""
**maintain** keeps a store's files few and its directory clean: it joins small files, and removes those no version needs
any more. Once a day.

**Late or missed?** Answers get slower and the directory larger, nothing else; the next run makes up for it.

**Failed?** Run it again, always, also while other jobs write: what it had done stays done, and it takes nothing away
that is still owed to anyone.
"""

from airflow.sdk import DAG

from commitlake_jobs import EVERY_DAG, LOG_GREW, SHARED_PARAMS, Job

with DAG(
    dag_id="maintain",
    description="Small files joined, old ones removed",
    # Four in the morning, as a broker's own deleteWhen.
    schedule="0 4 * * *",
    doc_md=__doc__,
    params=SHARED_PARAMS,
    **EVERY_DAG,
):
    Job(job="maintain", outlets=[LOG_GREW])
