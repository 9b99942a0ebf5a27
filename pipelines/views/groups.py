"""The views of consumer groups: how far they have read, and what they failed on."""

from pipelines.rocketmq.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from pipelines.views.view import View


def _copies_for_group(name: str, comment: str, prefix: str) -> View:
    # The log is filtered by topic, and not consume_queue read: rows that are not dispatched yet count too.
    return View(
        name,
        comment,
        f"""
SELECT
    substring(topic, {len(prefix) + 1}) AS `group`,
    coalesce(properties['RETRY_TOPIC'], properties['DLQ_ORIGIN_TOPIC']) AS original_topic,
    coalesce(properties['ORIGIN_MESSAGE_ID'], properties['DLQ_ORIGIN_MESSAGE_ID']) AS original_message_id,
    copies.*
FROM {{messages}} AS copies
WHERE startswith(topic, '{prefix}')
""",
    )


RETRIES = _copies_for_group("retries", "Messages a group failed on and will see again.", RETRY_PREFIX)
DEAD_LETTERS = _copies_for_group(
    "dead_letters", "Messages a group failed on for the last time.", DEAD_LETTER_PREFIX
)

# A group that has read one queue of a topic reads the topic: a queue it has not begun counts from 0, as a
# broker counts it. Where each member reads everything (broadcasting), the slowest one counts for the group.
CONSUMER_PROGRESS = View(
    "consumer_progress",
    "How far each group has read each queue, and how many messages wait for it.",
    """
WITH committed AS (
    SELECT `group`, topic, queue_id, min(next_offset) AS next_offset
    FROM {consumer_offsets} AS offset
    GROUP BY `group`, topic, queue_id
),
read_queues AS (
    SELECT reader.`group`, reader.topic, status.queue_id
    FROM (SELECT DISTINCT `group`, topic FROM committed) AS reader
    JOIN {topic_status} AS status ON status.topic = reader.topic
    UNION
    SELECT `group`, topic, queue_id FROM committed
)
SELECT
    read_queues.`group`,
    read_queues.topic,
    read_queues.queue_id,
    coalesce(status.max_offset, 0) AS max_offset,
    coalesce(committed.next_offset, 0) AS next_offset,
    greatest(coalesce(
        try_subtract(coalesce(status.max_offset, 0), coalesce(committed.next_offset, 0)), 9223372036854775807), 0) AS lag
FROM read_queues
LEFT JOIN committed
    ON committed.`group` = read_queues.`group`
   AND committed.topic = read_queues.topic
   AND committed.queue_id = read_queues.queue_id
LEFT JOIN {topic_status} AS status
    ON status.topic = read_queues.topic AND status.queue_id = read_queues.queue_id
""",
)
