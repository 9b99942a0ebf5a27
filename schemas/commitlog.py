"""The commit log: the truth about messages."""

from schemas.table import Table, columns

COMMITLOG = Table(
    "commitlog",
    "One row per message, in the order and at the offsets RocketMQ gives them; append-only.",
    columns(
        ("segment", "long", "start offset of the commit log file this row belongs to, bytes"),
        ("physical_offset", "long", "where the record starts, bytes from the start of the log"),
        ("size_bytes", "int", "length of the record as RocketMQ stores it"),
        ("topic", "string", "topic the row lies in; a system topic while the message is parked"),
        ("queue_id", "int", "queue of the topic"),
        ("queue_offset", "long", "position in the queue, from 0, without gaps"),
        ("flag", "int", "the user's flag, opaque"),
        ("sys_flag", "int", "RocketMQ's bits: compression, transaction type, IPv6 hosts"),
        ("body_crc", "int", "CRC-32 of the stored body, without its highest bit; 0 for an empty body"),
        ("born_timestamp", "long", "the producer's clock, epoch milliseconds"),
        ("born_host", "string", "the producer, ip:port"),
        ("store_timestamp", "long", "the store's clock at the append, epoch milliseconds; never less than the row before"),
        ("store_host", "string", "the store, ip:port"),
        ("reconsume_times", "int", "how often consuming it has failed"),
        ("prepared_transaction_offset", "long", "physical offset of the half message for commit rows, else 0"),
        ("body", "binary", "as stored, compressed where sys_flag says so; empty, never null"),
        ("properties", "string", "as stored: name 0x01 value 0x02, repeated"),
        ("append_seq", "long", "number of the commit that wrote the row to this log, from 0, never used again"),
        ("append_id", "string", "who wrote it: BATCH_ID:from-to of a put's input rows, half-open; else the id of a job run"),
        ("due_ms", "long", "when a parked row is due, epoch milliseconds; null for a row that is not parked"),
        ("source_offset", "long", "physical offset of the row this one was made from"),
        ("origin_offset", "long", "physical offset of the first row of that chain"),
        ("purpose", "string", "why it was made: deliver, hop, roll, retry, dead_letter, check, commit, rollback, …"),
        ("claim", "string", "what this row claims of the source; (source_offset, claim) is unique"),
    ),
    key=("physical_offset",),
    partition_by=("segment",),
    statistics=(
        "physical_offset", "topic", "queue_id", "queue_offset", "store_timestamp",
        "append_seq", "append_id", "due_ms", "source_offset", "origin_offset", "claim",
    ),
    properties={"delta.appendOnly": "true"},
)  # fmt: skip
