"""The view of topics: where their queues begin and end."""

from pipelines.rocketmq.times import timestamp_sql
from pipelines.views.view import View

# A queue ends where dispatch has got to: at the first message that waits for dispatch; else at the offset it goes on from
# (docs/rocketmq/store.md 7.1). This is what queue_bounds says, also where rows have expired, or what the rows since say: an
# inner batch takes several offsets and has an entry at the first alone. Entries that an interrupted dispatch has left do not
# count. In a store of an older version, without progress, the entries say how far dispatch has got.
TOPIC_STATUS = View(
    "topic_status",
    "The queues of every topic: first and next offset dispatch has seen, and the last message's time.",
    """
WITH followed AS (
    SELECT coalesce(
        (SELECT max(append_seq) FROM {progress} AS progress WHERE follower = 'consume_queue'),
        (SELECT max(append_seq) FROM {consume_queue} AS entry),
        -1
    ) AS append_seq
),
entries AS (
    SELECT topic, queue_id,
           try_add(max(queue_offset), 1L) AS next_offset,
           max_by(store_timestamp, queue_offset) AS last_store_timestamp
    FROM {consume_queue} AS entry
    WHERE append_seq <= (SELECT append_seq FROM followed)
    GROUP BY topic, queue_id
),
recent AS (
    SELECT topic, queue_id,
           min(queue_offset) FILTER (WHERE append_seq > (SELECT append_seq FROM followed)) AS first_waiting,
           max(try_add(
               queue_offset,
               IF(sys_flag & 128 <> 0, greatest(try_cast(properties['INNER_NUM'] AS SMALLINT), 1), 1)
           )) AS next_offset
    FROM {messages} AS message
    WHERE sys_flag & 12 IN (0, 8)
      AND append_seq > least(
          (SELECT append_seq FROM followed),
          coalesce((SELECT max(append_seq) FROM {queue_bounds} AS queue), -1)
      )
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
    UNION SELECT topic, queue_id FROM recent
    UNION SELECT topic, queue_id FROM bounds
    UNION SELECT topic, queue_id FROM configured
)
SELECT
    queues.topic,
    queues.queue_id,
    greatest(coalesce(bounds.min_offset, 0), 0) AS min_offset,
    coalesce(
        recent.first_waiting, greatest(entries.next_offset, recent.next_offset, bounds.next_offset), 0
    ) AS max_offset,
    """
    + timestamp_sql("entries.last_store_timestamp")
    + """ AS last_updated
FROM queues
LEFT JOIN bounds ON bounds.topic = queues.topic AND bounds.queue_id = queues.queue_id
LEFT JOIN entries ON entries.topic = queues.topic AND entries.queue_id = queues.queue_id
LEFT JOIN recent ON recent.topic = queues.topic AND recent.queue_id = queues.queue_id
""",
)
