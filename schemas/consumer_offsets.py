"""Consumer offsets: how far each group has read each queue."""

from schemas.table import Table, columns

CONSUMER_OFFSETS = Table(
    "consumer_offsets",
    "One row per group, topic, queue and client: the next offset to read.",
    columns(
        ("group", "string", "consumer group"),
        ("topic", "string", "topic"),
        ("queue_id", "int", "queue of the topic"),
        ("client_id", "string", "the member when broadcasting; empty when clustering"),
        ("next_offset", "long", "queue offset to read next"),
        ("generation", "long", "raised by a reset"),
        ("committed_timestamp", "long", "when it was recorded, epoch milliseconds"),
    ),
    key=("group", "topic", "queue_id", "client_id"),
    partition_by=("group", "topic"),
    numbered_by="group",
)
