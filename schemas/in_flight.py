"""Orderly messages that are being tried again."""

from schemas.table import Table, columns

IN_FLIGHT = Table(
    "in_flight",
    "One row per orderly message that failed and waits for its next try.",
    columns(
        ("group", "string", "consumer group"),
        ("topic", "string", "topic"),
        ("queue_id", "int", "queue of the topic"),
        ("queue_offset", "long", "position in the queue"),
        ("tries", "int", "how often it has been tried"),
        ("due_ms", "long", "when it is tried again, epoch milliseconds"),
    ),
    key=("group", "topic", "queue_id", "queue_offset"),
    partition_by=("group", "topic"),
    numbered_by="group",
)
