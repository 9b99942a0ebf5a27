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
        ("consume_from_min_enable", "boolean", "whether a new member may start at the first message"),
        ("consume_broadcast_enable", "boolean", "whether it may read in broadcasting mode"),
        ("consume_message_orderly", "boolean", "whether it reads in order"),
        ("group_retry_policy", "string", "RocketMQ's retry policy, JSON"),
        ("broker_id", "long", "broker it reads from"),
        ("which_broker_when_consume_slowly", "long", "broker it is sent to when it lags"),
        ("notify_consumer_ids_changed_enable", "boolean", "whether members are notified of others"),
        ("group_sys_flag", "int", "RocketMQ's bits"),
        ("consume_timeout_minute", "int", "minutes that consuming a message may take"),
        ("attributes", "map", "attributes"),
    ),
    key=("group",),
)
