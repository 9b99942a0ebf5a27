"""Consume queues: where each queue's messages lie in the log."""

from schemas.table import Table, columns

CONSUME_QUEUE = Table(
    "consume_queue",
    "One row per message of a queue: where it lies in the log. Derived from the log.",
    columns(
        ("segment", "long", "segment of physical_offset"),
        ("topic", "string", "topic"),
        ("queue_id", "int", "queue of the topic"),
        ("queue_offset", "long", "position in the queue, from 0, without gaps"),
        ("physical_offset", "long", "where the record starts in the log, bytes"),
        ("size_bytes", "int", "length of the record"),
        ("tags_code", "long", "hash of the tag, or the delivery time of a message delayed by level"),
        ("store_timestamp", "long", "the store's clock at the append, epoch milliseconds"),
        ("append_seq", "long", "the append of the log that this entry follows"),
    ),
    key=("topic", "queue_id", "queue_offset"),
    statistics=(
        "topic",
        "queue_id",
        "queue_offset",
        "physical_offset",
        "store_timestamp",
        "append_seq",
        "segment",
    ),
)
