"""Progress: a cache of how far each follower has come."""

from schemas.table import Table, columns

PROGRESS = Table(
    "progress",
    "One row per follower: the last append it has followed. A cache of what its table says.",
    columns(
        ("follower", "string", "who follows: a derived table's name"),
        ("append_seq", "long", "the last append of the log it has followed"),
    ),
    key=("follower",),
)
