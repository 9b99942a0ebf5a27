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
        (
            "topic_filter_type",
            "string",
            "SINGLE_TAG or MULTI_TAG, which sets a bit in sys_flag of what is put",
        ),
        ("topic_sys_flag", "int", "bits: 1 unit, 2 unit-sub; kept, without effect"),
        ("order", "boolean", "whether its messages are ordered over all queues; kept, without effect"),
        ("attributes", "map", "queue.type, cleanup.policy, message.type, reserve.time; kept, without effect"),
    ),
    key=("topic",),
)
