"""Progress: a cache of how far each follower of the log has come, each row with the proof of what it says."""

from schemas.table import Table, columns

PROGRESS = Table(
    "progress",
    "One row per follower of the log: the last append it has followed, and which table and log the row speaks of. A cache.",
    columns(
        ("follower", "string", "who follows the log: a derived table or a job, by name"),
        ("append_seq", "long", "the last append of the log it has followed"),
        ("table_id", "string", "of a derived table: Delta's id of the table that the row speaks of"),
        (
            "table_number",
            "long",
            "of a derived table: its commit number then; the row does not count while the table has a lower one",
        ),
        ("log_id", "string", "Delta's id of the log that was followed"),
        ("log_version", "long", "the version that the log had then"),
        (
            "log_commit",
            "string",
            "Delta's txnId of that version: a log that has another one there is another log",
        ),
        (
            "clock_ms",
            "long",
            "of a job that acts by a clock: all that was due then, of appends up to append_seq, is done, epoch milliseconds",
        ),
    ),
    key=("follower",),
)
