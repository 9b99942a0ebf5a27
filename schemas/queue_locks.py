"""Queue locks: which job run of a group reads a queue."""

from schemas.table import Table, columns

QUEUE_LOCKS = Table(
    "queue_locks",
    "One row per queue that a job run of a group reads alone.",
    columns(
        ("group", "string", "consumer group"),
        ("topic", "string", "topic"),
        ("queue_id", "int", "queue of the topic"),
        ("holder", "string", "id of the job run that reads it"),
        ("process", "string", "the holder's JVM, where it reads on the machine of that JVM alone; else null"),
        ("expires_ms", "long", "when the lock ends unless the holder has renewed it, epoch milliseconds"),
    ),
    key=("group", "topic", "queue_id"),
    partition_by=("group",),
    numbered_by="group",
    generation=3,
)
