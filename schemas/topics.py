"""Topics: RocketMQ's TopicConfig."""

from schemas.table import Table, columns

TOPICS = Table(
    "topics",
    "One row per topic: RocketMQ's TopicConfig.",
    columns(
        ("topic", "string", "name of the topic"),
        ("read_queue_nums", "int", "queues that are read"),
        ("write_queue_nums", "int", "queues that are written"),
        ("perm", "int", "bits: 4 read, 2 write, 1 inherit"),
        ("topic_filter_type", "string", "SINGLE_TAG or MULTI_TAG"),
        ("topic_sys_flag", "int", "bits: 1 unit, 2 unit-sub"),
        ("order", "boolean", "whether its messages are ordered over all queues"),
        ("attributes", "map", "queue.type, cleanup.policy, message.type, …"),
    ),
    key=("topic",),
)
