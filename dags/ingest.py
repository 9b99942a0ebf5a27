"""
**ingest** puts messages into the log, from files (`input`) or from a RocketMQ broker's directory (`import_from`). Run
it by hand, or from the process that writes the files. Where it appended, **dispatch** follows by itself.

**Failed?** Nothing is lost and nothing is doubled: a batch goes in once, a run cut short goes on where it stopped. Run
it again, always, with the same params. One exception: *wrong arguments or input* (exit status 2) is not retried, since
the same file would fail the same way. The task's log names the lines and what is wrong with them; fix
the file, or set `on_bad` to `quarantine`, which puts the good rows and keeps the bad ones in the table
`rejected_messages`.

**Late?** Messages are not in the log yet, so groups cannot read them; their order and their offsets are not affected.
"""

from airflow.sdk import DAG, task

from commitlake_jobs import EVERY_DAG, LOG_GREW, SHARED_PARAMS, Job, given, text

with DAG(
    dag_id="ingest",
    description="Messages into the log: from files, or from a broker's directory",
    schedule=None,
    doc_md=__doc__,
    params=SHARED_PARAMS
    | {
        "input": text("A file or directory of messages."),
        "format": text("jsonl, parquet, delta or csv; jsonl unless given."),
        "batch_id": text("Put once under this id; else a digest of the input's files."),
        "on_bad": text(
            "reject: one bad row and nothing is put. quarantine: bad rows are kept aside. reject unless given."
        ),
        "import_from": text("Instead of input: a broker's storePathRootDir."),
        "broker_conf": text("The broker's settings, broker.conf; for import_from."),
    },
    **EVERY_DAG,
):

    @task.branch
    def source(import_from: str, params: dict | None = None) -> str:
        """The job to run: the import where the run names a broker, or the Variable does and the run has no input."""
        own = params or {}
        is_import = own.get("import_from") or (import_from and not own.get("input"))
        return "import_store" if is_import else "put_messages"

    source(given("import_from")) >> [
        Job(
            job="put_messages",
            options={
                "--input": given("input"),
                "--format": given("format", "jsonl"),
                "--batch-id": given("batch_id"),
                "--on-bad": given("on_bad", "reject"),
            },
            outlets=[LOG_GREW],
        ),
        Job(
            job="import_store",
            options={"--from": given("import_from"), "--broker-conf": given("broker_conf")},
            outlets=[LOG_GREW],
        ),
    ]
