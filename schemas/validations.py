"""Validations: which promises were checked, and how many rows broke them."""

from schemas.table import Table, columns

VALIDATIONS = Table(
    "validations",
    "One row per promise and job run of validate: how many rows were checked, how many broke it, the first complaints.",
    columns(
        ("run_id", "string", "the job run; after a repair it checks again as RUN_ID:repaired"),
        ("checked_ms", "long", "the job run's clock, epoch milliseconds, but later than the run before"),
        ("suite", "string", "suite the promise belongs to: log, queues, index, …"),
        ("expectation", "string", "the promise, as a sentence"),
        ("severity", "string", "critical, warning or info"),
        ("from_append_seq", "long", "segments with appends after this one were checked; -1: everything"),
        ("to_append_seq", "long", "the log's last append when it was checked"),
        ("checked", "long", "rows that were checked"),
        ("broken", "long", "rows that break the promise"),
        ("complaints", "strings", "what is wrong with the first of them, a sentence each, at most 20"),
    ),
    key=("run_id", "suite", "expectation"),
    numbered_by="nothing",
    generation=2,
)
