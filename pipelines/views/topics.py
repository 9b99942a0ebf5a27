"""The view of topics: where their queues begin and end."""

from pipelines.rocketmq.times import timestamp_sql
from pipelines.views.view import View

# A queue ends where dispatch has got to: after its last entry; else at the first message that waits for dispatch;
# else, where its rows have expired, at the offset it goes on from (docs/rocketmq/store.md 7.1).
TOPIC_STATUS = View(
    "topic_status",
    "The queues of every topic: first and next offset dispatch has seen, and the last message's time.",
    """
WITH entries AS (
    SELECT topic, queue_id,
           try_add(max(queue_offset), 1L) AS next_offset,
           max_by(store_timestamp, queue_offset) AS last_store_timestamp
    FROM {consume_queue} AS entry
    GROUP BY topic, queue_id
),
waiting AS (
    SELECT topic, queue_id, min(queue_offset) AS next_offset
    FROM {commitlog} AS log
    WHERE sys_flag & 12 IN (0, 8)
      AND append_seq > coalesce((SELECT max(append_seq) FROM {consume_queue} AS entry), -1)
    GROUP BY topic, queue_id
),
bounds AS (
    SELECT topic, queue_id, min_offset, next_offset FROM {queue_bounds} AS queue WHERE topic <> ''
),
configured AS (
    SELECT topic, explode(sequence(0, greatest(read_queue_nums, write_queue_nums) - 1)) AS queue_id
    FROM {topics} AS topic
    WHERE greatest(read_queue_nums, write_queue_nums) > 0
),
queues AS (
    SELECT topic, queue_id FROM entries
    UNION SELECT topic, queue_id FROM waiting
    UNION SELECT topic, queue_id FROM bounds
    UNION SELECT topic, queue_id FROM configured
)
SELECT
    queues.topic,
    queues.queue_id,
    greatest(coalesce(bounds.min_offset, 0), 0) AS min_offset,
    coalesce(entries.next_offset, waiting.next_offset, bounds.next_offset, 0) AS max_offset,
    """
    + timestamp_sql("entries.last_store_timestamp")
    + """ AS last_updated
FROM queues
LEFT JOIN bounds ON bounds.topic = queues.topic AND bounds.queue_id = queues.queue_id
LEFT JOIN entries ON entries.topic = queues.topic AND entries.queue_id = queues.queue_id
LEFT JOIN waiting ON waiting.topic = queues.topic AND waiting.queue_id = queues.queue_id
""",
)
