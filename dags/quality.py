"""
**quality** checks every promise of a store, and then makes the report page, also when a promise is broken: the page
shows what is wrong. Once a day, after maintain.

**validate failed with *a promise does not hold*** (exit status 3)? It is not retried, because a retry would find the
same. The task's log names the promises and the first rows that break them. When they are about the log, stop writing to
the store until the cause is known; derived tables can be rebuilt (**dispatch** with `more` set to `--rebuild`).

**Failed otherwise, or late?** Only the page gets older. Run it again, always: it changes no message, and writes what it
finds to the table `validations`.
"""

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, TriggerRule

from commitlake_jobs import EVERY_DAG, SHARED_PARAMS, Job, given, text

with DAG(
    dag_id="quality",
    description="Every promise checked, then the report page",
    # After maintain, so that its work is checked too.
    schedule="0 5 * * *",
    doc_md=__doc__,
    params=SHARED_PARAMS
    | {
        "out": text(
            "Where the page goes; else that of the Variable, else commitlake-report.html in the project."
        )
    },
    **EVERY_DAG,
):
    validate = Job(job="validate")
    report = Job(
        job="report",
        options={"--out": given("out", "commitlake-report.html")},
        # `more` is for validate.
        more="",
        trigger_rule=TriggerRule.ALL_DONE,
    )
    validate >> report
    # A DAG run has the state of its last tasks: without this one, a successful report would hide a broken promise.
    [validate, report] >> EmptyOperator(task_id="all_promises_hold")
