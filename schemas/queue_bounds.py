"""Bounds of the queues: with the appends since, the head of the log."""

from schemas.table import Table, columns

# The log itself as a row of the table: a topic cannot have an empty name.
LOG_TOPIC = ""
LOG_BOUNDS_QUEUE = -1
LOG_CLOCK_QUEUE = -2

QUEUE_BOUNDS = Table(
    "queue_bounds",
    "One row per queue: its bounds as of one append, the same for all rows. Beside them two rows of topic '': "
    "queue -1 holds the log's first and next physical offset, queue -2 the last store timestamp.",
    columns(
        ("topic", "string", "topic; '' for the log itself"),
        ("queue_id", "int", "queue of the topic"),
        ("min_offset", "long", "first offset of the queue"),
        ("next_offset", "long", "offset the queue's next message gets"),
        ("append_seq", "long", "the append as of which these are the bounds"),
    ),
    key=("topic", "queue_id"),
)
