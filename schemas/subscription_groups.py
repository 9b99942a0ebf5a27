"""Consumer groups: RocketMQ's SubscriptionGroupConfig."""

from schemas.table import Table, columns

SUBSCRIPTION_GROUPS = Table(
    "subscription_groups",
    "One row per consumer group: RocketMQ's SubscriptionGroupConfig.",
    columns(
        ("group", "string", "name of the group"),
        ("retry_queue_nums", "int", "queues of its retry topic"),
        ("retry_max_times", "int", "failures after which a message is dead"),
        ("consume_enable", "boolean", "whether it may read"),
        (
            "consume_from_min_enable",
            "boolean",
            "whether it may begin a queue at the first message; else at the end",
        ),
        ("consume_broadcast_enable", "boolean", "whether it may read in broadcasting mode"),
        ("consume_message_orderly", "boolean", "whether it reads in order, where consume says nothing"),
        (
            "group_retry_policy",
            "string",
            "RocketMQ's retry policy of clients that pop, JSON; kept, without effect",
        ),
        ("broker_id", "long", "copy it reads from with consume --replica auto; 0: the master"),
        (
            "which_broker_when_consume_slowly",
            "long",
            "copy it reads from instead when it lags far",
        ),
        (
            "notify_consumer_ids_changed_enable",
            "boolean",
            "whether members are notified of others; kept, without effect",
        ),
        ("group_sys_flag", "int", "RocketMQ's bits; kept, without effect"),
        (
            "consume_timeout_minute",
            "int",
            "minutes one call of its listener may take, where consume says nothing",
        ),
        ("attributes", "map", "attributes; kept, without effect"),
    ),
    key=("group",),
)
