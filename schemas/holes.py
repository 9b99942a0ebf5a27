"""Holes: parts of the log whose rows are lost."""

from schemas.table import Table, columns

HOLES = Table(
    "holes",
    "One row per part of the log whose rows are lost, and per queue that had some there: their file was lost and taken out.",
    columns(
        ("from_offset", "long", "physical offset from which the log has no rows, bytes"),
        ("to_offset", "long", "physical offset from which it has rows again, bytes; or its end then"),
        ("topic", "string", "topic whose messages are lost; '' in the row about the log itself"),
        ("queue_id", "int", "queue of the topic; -1 in the row about the log itself"),
        ("from_queue_offset", "long", "the first offset of the queue that is lost; null in the row about the log itself"),
        ("to_queue_offset", "long", "the offset at which the queue goes on; null in the row about the log itself"),
        ("reason", "string", "which file was lost, and what was wrong with it"),
        ("cut_ms", "long", "when it was taken out of the log, epoch milliseconds"),
    ),
    key=("topic", "queue_id", "from_offset"),
    generation=4,
)  # fmt: skip
