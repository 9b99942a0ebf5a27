"""The key index: messages by unique key and by the words of KEYS."""

from schemas.table import Table, columns

MESSAGE_INDEX = Table(
    "message_index",
    "One row per UNIQ_KEY and per word of KEYS of a message. Derived from the log.",
    columns(
        ("segment", "long", "segment of physical_offset"),
        ("topic", "string", "topic of the row in the log"),
        ("key", "string", "UNIQ_KEY or one word of KEYS"),
        ("key_hash", "int", "RocketMQ's index hash of topic#key"),
        ("physical_offset", "long", "where the record starts in the log, bytes"),
        ("store_timestamp", "long", "the store's clock at the append, epoch milliseconds"),
        ("append_seq", "long", "the append of the log that this row follows"),
    ),
    key=("physical_offset", "key"),
    statistics=("key_hash", "append_seq", "segment"),
)
