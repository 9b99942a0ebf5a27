"""Progress: a cache of how far each follower has come, each row with the proof of what it says."""

from schemas.table import Table, columns

PROGRESS = Table(
    "progress",
    "One row per follower: the last append it has followed, and which table and which log that is said of. A cache.",
    columns(
        ("follower", "string", "who follows: a derived table's name, or a job's"),
        ("append_seq", "long", "the last append of the log it has followed"),
        ("table_id", "string", "of a derived table: Delta's id of the table this is said of"),
        (
            "table_number",
            "long",
            "of a derived table: its commit number then; with a lower one the row does not count",
        ),
        ("log_id", "string", "Delta's id of the log that was followed"),
        ("log_version", "long", "the log's version then"),
        (
            "log_commit",
            "string",
            "Delta's txnId of that version: a log that has another one there is another log",
        ),
    ),
    key=("follower",),
)
