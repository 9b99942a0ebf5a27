"""Job runs: when each ran, and its result."""

from schemas.table import Table, columns

JOB_RUNS = Table(
    "job_runs",
    "One row per job run that wrote or failed; readers and idle ticks leave none.",
    columns(
        ("job", "string", "name of the job"),
        ("run_id", "string", "id of the job run"),
        ("started_ms", "long", "when it started, epoch milliseconds"),
        ("seconds", "double", "how long it took"),
        ("status", "string", "ok or failed"),
        ("result", "string", "the job's result, the JSON line it printed"),
    ),
    key=("run_id",),
    numbered_by="nothing",
)

# Jobs that change nothing in a store: their good runs leave no row, so none is known to have followed a failed one.
READERS = ("backup", "doctor", "export_store", "query", "register", "report", "shell", "sql")
# Of these, jobs that write elsewhere. Somebody misses what a failed one has not written.
WRITE_ELSEWHERE = ("backup", "export_store", "register")
MISSED_MS = 24 * 3_600_000


def is_missed(job: str, failed_ms: int, now_ms: int) -> bool:
    """Whether a job whose newest run with a row failed is work that somebody should look after.

    What a reader should have written elsewhere is missed for a day: one that fails each night is known on each morning.
    """
    return job not in READERS or (job in WRITE_ELSEWHERE and failed_ms > now_ms - MISSED_MS)
