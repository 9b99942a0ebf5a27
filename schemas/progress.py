"""Progress: a cache of how far each follower of the log has come, each row with its proof."""

from schemas.table import Table, columns

PROGRESS = Table(
    "progress",
    "One row per follower of the log: the last append it has followed, and of which table and log that holds. A cache.",
    columns(
        ("follower", "string", "who follows the log: a derived table or a job, by name"),
        ("append_seq", "long", "the last append of the log it has followed"),
        ("table_id", "string", "of a derived table: Delta's id of the table for which the row holds"),
        (
            "table_number",
            "long",
            "of a derived table: its commit number then; the row does not count while the table has a lower one",
        ),
        (
            "table_version",
            "long",
            "of a derived table: its Delta version before that; the row does not count once a commit without a number "
            "has changed rows since",
        ),
        ("log_id", "string", "Delta's id of the log that was followed"),
        ("log_version", "long", "the version that the log had then"),
        (
            "log_commit",
            "string",
            "Delta's txnId of that version: a log with another one at that version is another log",
        ),
        (
            "clock_ms",
            "long",
            "of a job that acts by a clock: all that was due then, of appends up to append_seq, is done, epoch milliseconds",
        ),
    ),
    key=("follower",),
)
