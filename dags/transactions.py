"""
**transactions** settles half messages: it commits or rolls back those that `ends` names, then checks those that
have waited longer than `transactionTimeOut` with a `checker` (MODULE:NAME) or a file of `outcomes`. It skips a step
without its param; give a scheduled run its checker or files by the Variable `commitlake`.

**Late?** Messages of a transaction are not visible until it is committed. A check comes later, but it is not lost; the
number of checks before a half is given up (`transactionCheckMax`) counts runs, at most one each `transactionCheckInterval`.

**Failed?** Run it again, always: an end that was carried out has no effect the second time, and a half is committed or
rolled back once. A checker may be called again for a message when its run was killed; its state goes into the log once.
*Wrong arguments or input* (exit status 2) is not retried: fix the file that the log names.
"""

from airflow.sdk import DAG, TriggerRule

from commitlake_jobs import EVERY_DAG, LOG_GREW, SHARED_PARAMS, Job, given, text

with DAG(
    dag_id="transactions",
    description="Half messages committed or rolled back: by their producers' requests, else by checks",
    # A RocketMQ broker checks every 30 s, in a thread; the start of a Spark job takes a good part of that.
    schedule="*/5 * * * *",
    doc_md=__doc__,
    params=SHARED_PARAMS
    | {
        "ends": text("A file: producer_group, message_id and state of each half message to end."),
        "checker": text("MODULE:NAME, called for half messages that have not been ended."),
        "outcomes": text("Instead of a checker, a file of states: unique_key and state."),
    },
    **EVERY_DAG,
):
    end = Job(
        job="end_transactions",
        options={"--input": given("ends")},
        only_with=given("ends"),
        outlets=[LOG_GREW],
    )
    check = Job(
        job="check_transactions",
        options={"--checker": given("checker"), "--outcomes": given("outcomes")},
        only_with=given("checker") + given("outcomes"),
        outlets=[LOG_GREW],
        # Also when there was nothing to end.
        trigger_rule=TriggerRule.NONE_FAILED,
    )
    end >> check
