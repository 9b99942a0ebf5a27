"""
**dispatch** builds the consume queues, the key index and the other derived tables from the log's new appends. It runs
whenever a job has appended, once for all appends that came meanwhile.

**Late?** Messages are safe in the log, but groups do not see them yet, and queries of queues say `complete: false`.
Lookups by id and by key see them already.

**Failed?** Run it again, always: it goes on after what it has written, also beside another dispatch. When the derived
tables themselves were lost, run it with `more` set to `--rebuild`; that rebuilds them from the log.
"""

from typing import Any

from airflow.sdk import DAG, task

from commitlake_jobs import EVERY_DAG, LOG, QUEUES_GREW, SHARED_PARAMS, Job, stores_of

with DAG(
    dag_id="dispatch",
    description="The log's new appends into queues and index, whenever a job has appended",
    schedule=[LOG],
    doc_md=__doc__,
    params=SHARED_PARAMS,
    **EVERY_DAG,
):

    @task
    def stores(triggering_asset_events: Any = None) -> list[dict[str, str]]:
        """The stores that have grown, each once; for a run started by hand, the store of its params."""
        return stores_of((triggering_asset_events or {}).get(LOG, [])) or [{}]

    Job.partial(task_id="dispatch", job="dispatch", outlets=[QUEUES_GREW]).expand_kwargs(stores())
