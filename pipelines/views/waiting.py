"""The views of messages that wait: `scheduled_messages` for their time, `half_messages` for their transaction's end."""

from pipelines.rocketmq.names import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pipelines.rocketmq.times import timestamp_sql
from pipelines.views.view import View

_REAL_QUEUE = """
    properties['REAL_TOPIC'] AS real_topic,
    try_cast(properties['REAL_QID'] AS INT) AS real_queue_id,
"""


def _property_sql(name: str) -> str:
    """SQL for one property of the stored string; null where there is none."""
    return rf"nullif(regexp_extract(log.properties, '(?s)^(?:.*\\x02)?{name}\\x01([^\\x02]+)', 1), '')"


_CANCELS, _UNIQUE_KEY = _property_sql("TIMER_DEL_UNIQKEY"), _property_sql("UNIQ_KEY")
_REAL_TOPIC = _property_sql("REAL_TOPIC")
_ROLL_TIMES = f"try_cast({_property_sql('TIMER_ROLL_TIMES')} AS INT)"

# Rows of the table `log` with which an imported broker may have delivered a parked row, and their columns. They lie in the
# broker's own log: a row that was appended after the import, or that has the key as a word of KEYS, is another message.
RETURNED_BY_BROKER = "startswith(append_id, 'import:') AND due_ms IS NULL"
RETURNED_COLUMNS = (
    "topic AS back_topic",
    f"{_UNIQUE_KEY} AS back_key",
    "physical_offset AS back_offset",
    "store_timestamp AS back_timestamp",
)


def is_returned_sql(real_topic: str, unique_key: str, physical_offset: str, due_ms: str) -> str:
    """SQL for whether a row of RETURNED_COLUMNS is what an imported parked row became; of that, the columns' names."""
    return (
        f"back_topic = {real_topic} AND back_key = {unique_key} "
        f"AND back_offset > {physical_offset} AND back_timestamp >= {due_ms}"
    )


# What an imported broker had settled is below its floors, back in its topic since it was due, or put back into the timer.
# A timed message may be cancelled in its slot (by a bare key before RocketMQ 5.3.2), and its cancel is never delivered.
# Beyond the floors a half message is settled by a commit row that names it and by op marks that list its queue offset. A
# delayed row on its way to the half topic is dropped when due.
SCHEDULED_MESSAGES = View(
    "scheduled_messages",
    "Delayed and timed messages that wait: parked and not settled by a later row, a cancel or an imported broker.",
    f"""
SELECT
    IF(parked.topic = '{SCHEDULE_TOPIC}', 'schedule', 'timer') AS kind,
    {timestamp_sql("due_ms")} AS due_time,
    {_REAL_QUEUE.strip()}
    parked.*
FROM {{messages}} AS parked
LEFT ANTI JOIN (SELECT source_offset FROM {{commitlog}} AS log WHERE claim = 'settle') AS settled
    ON settled.source_offset = parked.physical_offset
LEFT ANTI JOIN (
    SELECT {_CANCELS} AS cancels, due_ms AS slot, startswith(append_id, 'import:') AS may_be_bare FROM {{commitlog}} AS log
    WHERE topic = '{TIMER_TOPIC}' AND {_CANCELS} IS NOT NULL
) AS cancel
    ON parked.topic = '{TIMER_TOPIC}' AND cancel.slot = parked.due_ms
   AND (cancel.cancels = concat(properties['REAL_TOPIC'], '+', properties['UNIQ_KEY'])
        OR cancel.may_be_bare AND startswith(parked.append_id, 'import:')
           AND cancel.cancels = properties['UNIQ_KEY']
        OR properties['TIMER_DEL_UNIQKEY'] IS NOT NULL AND cancel.cancels = properties['TIMER_DEL_UNIQKEY'])
LEFT ANTI JOIN (
    SELECT {", ".join(RETURNED_COLUMNS)}
    FROM {{commitlog}} AS log
    WHERE {RETURNED_BY_BROKER}
) AS back
    ON startswith(parked.append_id, 'import:')
   AND {is_returned_sql("properties['REAL_TOPIC']", "properties['UNIQ_KEY']", "parked.physical_offset", "parked.due_ms")}
LEFT ANTI JOIN (
    SELECT due_ms AS slot, {_REAL_TOPIC} AS rolled_topic, {_UNIQUE_KEY} AS rolled_key, physical_offset AS rolled_offset,
           born_timestamp AS rolled_born, {_ROLL_TIMES} AS roll_times
    FROM {{commitlog}} AS log
    WHERE startswith(append_id, 'import:') AND topic = '{TIMER_TOPIC}' AND {_ROLL_TIMES} > 0
) AS rolled
    ON parked.topic = '{TIMER_TOPIC}' AND startswith(parked.append_id, 'import:')
   AND rolled.slot = parked.due_ms AND rolled.rolled_born = parked.born_timestamp
   AND rolled.rolled_topic = properties['REAL_TOPIC'] AND rolled.rolled_key = properties['UNIQ_KEY']
   AND rolled.rolled_offset > parked.physical_offset
   AND rolled.roll_times > coalesce(try_cast(properties['TIMER_ROLL_TIMES'] AS INT), 0)
LEFT JOIN {{floors}} AS level
    ON parked.topic = '{SCHEDULE_TOPIC}' AND level.follower = concat('schedule:', CAST(parked.queue_id AS BIGINT) + 1)
WHERE parked.topic IN ('{SCHEDULE_TOPIC}', '{TIMER_TOPIC}')
  AND due_ms IS NOT NULL
  AND coalesce(properties['REAL_TOPIC'], '') <> '{HALF_TOPIC}'
  AND queue_offset >= coalesce(level.position, 0)
  AND NOT (
      parked.topic = '{TIMER_TOPIC}'
      AND queue_offset <
          coalesce((SELECT max(position) FROM {{floors}} AS floor WHERE follower = 'timer:queue_offset'), 0)
      AND try_cast(properties['TIMER_OUT_MS'] AS BIGINT) <
          coalesce((SELECT max(position) FROM {{floors}} AS floor WHERE follower = 'timer:read_time_ms'), 0))
""",
)

HALF_MESSAGES = View(
    "half_messages",
    "Half messages whose transaction is neither committed, rolled back nor given up.",
    f"""
SELECT
    {timestamp_sql("due_ms")} AS due_time,
    {_REAL_QUEUE.strip()}
    properties['PGROUP'] AS producer_group,
    coalesce(try_cast(properties['TRANSACTION_CHECK_TIMES'] AS INT), 0) AS check_times,
    half.*
FROM {{messages}} AS half
LEFT ANTI JOIN (SELECT source_offset FROM {{commitlog}} AS log WHERE claim = 'settle') AS settled
    ON settled.source_offset = half.physical_offset
LEFT ANTI JOIN (
    SELECT prepared_transaction_offset FROM {{commitlog}} AS log WHERE sys_flag & 12 = 8
) AS committed
    ON committed.prepared_transaction_offset = half.physical_offset
LEFT ANTI JOIN (
    SELECT try_cast(mark AS BIGINT) AS queue_offset
    FROM {{commitlog}} AS log LATERAL VIEW explode(split(CAST(body AS STRING), ',')) AS mark
    WHERE topic = '{OP_TOPIC}'
) AS marked
    ON marked.queue_offset = half.queue_offset
WHERE half.topic = '{HALF_TOPIC}'
  AND due_ms IS NOT NULL
  AND half.queue_offset >= coalesce((SELECT max(position) FROM {{floors}} AS floor WHERE follower = 'half'), 0)
""",
)
