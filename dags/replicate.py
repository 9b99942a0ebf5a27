"""
**replicate** has a slave follow its master: the store `slave` takes over what is new in `store`, then builds its queues and
index from it. It runs every minute, so the slave lacks at most about a minute.

**Late or missed?** The slave lags; the master's table `replicas` says how far. Nothing is lost while the master lives: the
next run takes over all there is. A slave that lacks much of the log should not be promoted.

**Failed?** The next minute's run does the same work, so wait for it. Or run it again, always: it goes on where the slave's
log ends. A run that is refused says how the two logs differ; docs/operations.md has what to do after a failover.
"""

from datetime import timedelta

from airflow.sdk import DAG

from commitlake_jobs import EVERY_DAG, SHARED_PARAMS, Job, given, text

with DAG(
    dag_id="replicate",
    description="A slave takes over what its master has",
    schedule="* * * * *",
    doc_md=__doc__,
    params={
        **SHARED_PARAMS,
        "slave": text("The store that follows; none: nothing to do."),
        "replica_id": text("Its id among the master's slaves; else the one it has."),
    },
    **EVERY_DAG,
):
    copied = Job(
        job="replicate",
        store=given("slave"),
        options={"--master": given("store"), "--replica-id": given("replica_id")},
        only_with=given("slave"),
        # The next minute's run is the retry.
        retries=0,
        # The first run copies the whole log.
        execution_timeout=timedelta(hours=12),
    )
    copied >> Job(job="dispatch", store=given("slave"), more="", only_with=given("slave"), retries=0)
