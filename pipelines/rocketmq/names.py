"""Names of topics and groups: prefixes, the broker's own topics and groups, limits (docs/rocketmq/store.md 7.2 to 7.5)."""

import re

from pipelines.rocketmq.settings import Settings

RETRY_PREFIX = "%RETRY%"
DEAD_LETTER_PREFIX = "%DLQ%"
# Topics and groups of light queues begin with it; any name is valid for them.
LIGHT_PREFIX = "%LMQ%"
SYSTEM_PREFIX = "rmq_sys_"

DEFAULT_TOPIC = "TBW102"  # topics made on the fly are copied from it
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
BENCHMARK_TOPIC = "BenchmarkTest"

FIXED_SYSTEM_TOPICS = frozenset(
    {
        DEFAULT_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        OP_TOPIC,
        TRACE_TOPIC,
        DISCARD_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        "CHECKPOINT_TOPIC",
    }
)

# The timer topic is not on RocketMQ's list, but a row sent there without TIMER_OUT_MS blocks its timer for
# ever (docs/rocketmq/delay-retry-transaction.md 0.2).
SEND_FORBIDDEN = frozenset(
    {SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC, DISCARD_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC, TIMER_TOPIC}
)

RESERVED_GROUP_PREFIX = "CID_RMQ_SYS_"
# This group reads the half and op topics when a broker checks transactions.
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
# Where a broker keeps which messages POP consumers hold, a topic a cluster, and the group that works through it.
REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
# Names that a client has by default: a user of one has forgotten to choose.
DEFAULT_PRODUCER = "DEFAULT_PRODUCER"
DEFAULT_GROUPS = ("DEFAULT_CONSUMER", DEFAULT_PRODUCER)
# The groups a broker makes when it first starts.
FIRST_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)

# The longest names, characters: a group's leaves room for the prefix of its retry topic.
TOPIC_CHARS, GROUP_CHARS, RETRY_TOPIC_CHARS = 127, 120, 255
# The characters of a name, as a character class of a regular expression takes them.
NAME_CHARS = "%|a-zA-Z0-9_-"
# How Spark and Delta write a missing value in the name of a partition's directory.
MISSING_PARTITION_VALUE = "__HIVE_DEFAULT_PARTITION__"


def retry_topic(group: str) -> str:
    """The topic that holds the messages a group failed on and will see again.

    >>> retry_topic("billing")
    '%RETRY%billing'
    """
    return f"{RETRY_PREFIX}{group}"


def group_of_retry_topic(topic: str) -> str | None:
    """The group whose retries a topic holds; None for any other topic.

    >>> group_of_retry_topic("%RETRY%billing"), group_of_retry_topic("billing")
    ('billing', None)
    """
    return topic.removeprefix(RETRY_PREFIX) if topic.startswith(RETRY_PREFIX) else None


def dead_letter_topic(group: str) -> str:
    """The topic that holds the messages a group failed on for the last time.

    >>> dead_letter_topic("billing")
    '%DLQ%billing'
    """
    return f"{DEAD_LETTER_PREFIX}{group}"


def belongs_to_group(topic: str) -> bool:
    """Whether a topic holds retries or dead letters of a group: it has one queue at first, and its name may be longer."""
    return topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))


def is_system_topic(name: str, settings: Settings) -> bool:
    """Whether the store itself uses this topic: no user may create, update or delete it."""
    return name.startswith(SYSTEM_PREFIX) or name in FIXED_SYSTEM_TOPICS | {
        settings["brokerName"],
        settings["brokerClusterName"],
        reply_topic(settings),
    }


def reply_topic(settings: Settings) -> str:
    """The topic of replies to requests, one for each cluster."""
    return f"{settings['brokerClusterName']}_REPLY_TOPIC"


def topic_name_complaint(name: str | None) -> str | None:
    """Why a topic cannot have this name; None when it can.

    >>> topic_name_complaint("a.b")
    'topic "a.b" has the character "."; allowed are letters, digits, and the characters % | - _'
    """
    return _name_complaint("topic", name, RETRY_TOPIC_CHARS if belongs_to_group(name or "") else TOPIC_CHARS)


def group_name_complaint(name: str | None) -> str | None:
    """Why a group cannot have this name; None when it can."""
    return _name_complaint("group", name, GROUP_CHARS)


def _name_complaint(kind: str, name: str | None, at_most: int) -> str | None:
    if name is None or not name.strip():
        return f"the {kind} has no name"
    illegal = re.search(rf"[^{NAME_CHARS}]", name)
    if illegal:
        return (
            f'{kind} "{name}" has the character "{illegal[0]}"; '
            "allowed are letters, digits, and the characters % | - _"
        )
    if name == MISSING_PARTITION_VALUE:
        return f'{kind} "{name}" is how Spark and Delta write a missing value'
    if len(name) > at_most:
        return f'{kind} "{name[:20]}…" has {len(name)} characters; at most {at_most}'
    return None
