"""
**maintain** keeps a store's files few and its directory clean: it has segments expire that are older than fileReservedTime
(where the store was made with it), compacts small files, and removes those that no version needs any more. Once a day.

**Late or missed?** Queries get slower and the directory larger, nothing else; the next run catches up. Segments expire
only at an hour of the store's deleteWhen (04) in its timeZone (UTC): keep this schedule at such an hour. A run that starts
an hour late compacts, and leaves expiry to the next day.

**Failed?** Run it again, always, also while other jobs write: what it has done stays done, and it removes nothing that
a job or a reader still needs.
"""

from airflow.sdk import DAG

from commitlake_jobs import EVERY_DAG, LOG_GREW, SHARED_PARAMS, Job

with DAG(
    dag_id="maintain",
    description="Old segments expire, small files joined, old ones removed",
    # Four in the morning, as RocketMQ's deleteWhen.
    schedule="0 4 * * *",
    doc_md=__doc__,
    params=SHARED_PARAMS,
    **EVERY_DAG,
):
    Job(job="maintain", outlets=[LOG_GREW])
