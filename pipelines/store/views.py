"""Views: what a person asks of the tables, each written once as SQL.

A view's text names the tables and views it reads in braces. The same text is read over the tables' newest
rows, over those of one snapshot or of a past time, and, with the tables' registered names put in, becomes a
view of the session's catalog.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import Any, Protocol

from pyspark.sql import DataFrame

from pipelines.rocketmq.message_ids import message_id_sql
from pipelines.rocketmq.names import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from pipelines.store.times import timestamp_sql
from schemas import COMMITLOG, TABLES, Table

_TABLES = {table.name: table for table in TABLES}


@dataclass(frozen=True)
class View:
    """One view: its name in SQL, what a row of it is, and the query it stands for.

    >>> View("halves", "…", "SELECT * FROM {parked} AS p").reads
    ('parked',)
    """

    name: str
    comment: str
    text: str

    @property
    def reads(self) -> tuple[str, ...]:
        """The tables and views the text names."""
        named = {name for _, name, _, _ in Formatter().parse(self.text) if name}
        return tuple(sorted(named))

    def over(self, names: Mapping[str, str]) -> str:
        """The query with every table and view under the name SQL knows it by."""
        return self.text.format(**{name: names[name] for name in self.reads})


class Readable(Protocol):
    """What gives a table's rows: a store, a snapshot, a store as of a past time."""

    def read(self, table: Table) -> DataFrame: ...


@dataclass
class Reading:
    """Tables and views of one source, each made into a frame once."""

    source: Readable
    _frames: dict[str, DataFrame] = field(default_factory=dict)

    def frame(self, name: str) -> DataFrame:
        if name not in self._frames:
            self._frames[name] = (
                self.source.read(_TABLES[name]) if name in _TABLES else self._view_frame(VIEWS[name])
            )
        return self._frames[name]

    def _view_frame(self, view: View) -> DataFrame:
        inputs: dict[str, Any] = {name: self.frame(name) for name in view.reads}
        spark = next(iter(inputs.values())).sparkSession
        return spark.sql(view.text, **inputs)


def read_view(source: Readable, name: str) -> DataFrame:
    """The rows of a view over the tables that `source` reads."""
    return Reading(source).frame(name)


@dataclass(frozen=True)
class _LogRows:
    """Rows of the log in place of the log."""

    rows: DataFrame

    def read(self, table: Table) -> DataFrame:
        return self.rows.select(*table.names)


def as_messages(rows: DataFrame) -> DataFrame:
    """Rows of the log as the view `messages` shows them."""
    return read_view(_LogRows(rows), "messages")


# A name and a value end where the next 0x01 or 0x02 is; pieces without a name or without a value vanish, and
# of a name that comes twice the last value counts (docs/rocketmq/store.md 1.8).
_PIECES = r"""
    filter(split({text}, '\u0002'),
           piece -> instr(piece, '\u0001') > 1 AND instr(piece, '\u0001') < length(piece))
"""
_NAME = r"substring_index({piece}, '\u0001', 1)"
_VALUE = r"substring({piece}, instr({piece}, '\u0001') + 1)"


def properties_sql(text: str) -> str:
    """SQL for a map<string,string> of the properties stored in the expression `text`."""
    pieces = _PIECES.format(text=text).strip()
    name, value = _NAME.format(piece="piece"), _VALUE.format(piece="piece")
    later = "slice({all}, place + 2, size({all}))".format(all="pieces")
    # Almost no message has a name twice; only then is every piece compared with those behind it.
    return f"""
    transform(array({pieces}), pieces ->
        IF(size(array_distinct(transform(pieces, piece -> {name}))) = size(pieces),
           map_from_entries(transform(pieces, piece -> struct({name}, {value}))),
           map_from_entries(transform(
               filter(pieces, (piece, place) ->
                   NOT exists({later}, other -> {_NAME.format(piece="other")} = {name})),
               piece -> struct({name}, {value})))))[0]
    """.strip()


def _log_columns(replaced: Mapping[str, str]) -> str:
    return ",\n    ".join(
        f"{replaced[name]} AS {name}" if name in replaced else name for name in COMMITLOG.columns.names
    )


MESSAGES = View(
    "messages",
    "The log's rows as a person reads them: properties as a map, tags, keys, ids and real times.",
    rf"""
SELECT
    {_log_columns({"properties": "properties"})},
    properties['TAGS'] AS tags,
    coalesce(filter(split(properties['KEYS'], ' '), word -> word <> ''), array()) AS keys,
    {message_id_sql("store_host", "physical_offset")} AS message_id,
    properties['UNIQ_KEY'] AS unique_key,
    {timestamp_sql("store_timestamp")} AS store_time,
    {timestamp_sql("born_timestamp")} AS born_time,
    IF(sys_flag & 1 = 0, try_validate_utf8(CAST(body AS STRING)), NULL) AS body_text
FROM (
    SELECT
    {_log_columns({"properties": properties_sql("log.properties")})}
    FROM {{commitlog}} AS log
) AS decoded
""",
)

_REAL_PLACE = """
    properties['REAL_TOPIC'] AS real_topic,
    try_cast(properties['REAL_QID'] AS INT) AS real_queue_id,
"""


def _property_sql(name: str) -> str:
    """SQL for one property of the stored string; null where there is none."""
    return rf"nullif(regexp_extract(log.properties, '(?s)^(?:.*\\x02)?{name}\\x01([^\\x02]+)', 1), '')"


_CANCELS, _UNIQUE_KEY = _property_sql("TIMER_DEL_UNIQKEY"), _property_sql("UNIQ_KEY")
_REAL_TOPIC = _property_sql("REAL_TOPIC")
_ROLL_TIMES = f"try_cast({_property_sql('TIMER_ROLL_TIMES')} AS INT)"

# What an imported broker had already settled is below its floors, back in its topic since it was due, or put back into
# the timer; a timer may be cancelled in its slot (by a bare key before RocketMQ 5.3.2), and its cancel is never
# delivered. Beyond the floors a half is settled by a commit row that names it and by op marks that list its queue offset.
# A delayed row on its way to the half topic is dropped when due.
SCHEDULED_MESSAGES = View(
    "scheduled_messages",
    "Delayed and timed messages that wait: parked and not settled by a later row, a cancel or an imported broker.",
    f"""
SELECT
    IF(parked.topic = '{SCHEDULE_TOPIC}', 'schedule', 'timer') AS kind,
    {timestamp_sql("due_ms")} AS due_time,
    {_REAL_PLACE.strip()}
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
    SELECT topic AS back_topic, {_UNIQUE_KEY} AS back_key, physical_offset AS back_offset,
           store_timestamp AS back_timestamp
    FROM {{commitlog}} AS log
    WHERE startswith(append_id, 'import:') AND due_ms IS NULL
) AS back
    ON startswith(parked.append_id, 'import:')
   AND back.back_topic = properties['REAL_TOPIC'] AND back.back_key = properties['UNIQ_KEY']
   AND back.back_offset > parked.physical_offset AND back.back_timestamp >= parked.due_ms
LEFT ANTI JOIN (
    SELECT due_ms AS slot, {_REAL_TOPIC} AS rolled_topic, {_UNIQUE_KEY} AS rolled_key, physical_offset AS rolled_offset,
           {_ROLL_TIMES} AS roll_times
    FROM {{commitlog}} AS log
    WHERE startswith(append_id, 'import:') AND topic = '{TIMER_TOPIC}' AND {_ROLL_TIMES} > 0
) AS rolled
    ON parked.topic = '{TIMER_TOPIC}' AND startswith(parked.append_id, 'import:')
   AND rolled.slot = parked.due_ms
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
    {_REAL_PLACE.strip()}
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


def _copies_for_group(name: str, comment: str, prefix: str) -> View:
    # The log's own column is filtered, not consume_queue: rows that are not dispatched yet count too.
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

# A queue's end is what dispatch has seen: its last entry; else the first message that waits for dispatch;
# else, of a queue whose rows have expired, the offset it goes on from (docs/rocketmq/store.md 7.1).
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

# A group that has read one queue of a topic reads the topic: a queue it has not begun counts from 0, as a
# broker counts it. Members that each read everything (broadcasting) stand for the group by the slowest of
# them.
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

MESSAGE_LINEAGE = View(
    "message_lineage",
    "Every row with the first row of its chain: all copies of a message share an origin_offset.",
    """
SELECT
    coalesce(origin_offset, physical_offset) AS origin_offset,
    physical_offset,
    source_offset,
    purpose,
    claim,
    topic,
    queue_id,
    queue_offset,
    store_time,
    """
    + timestamp_sql("due_ms")
    + """ AS due_time,
    reconsume_times,
    message_id,
    unique_key
FROM {messages} AS copies
""",
)

# In an order in which a view comes after those it reads.
VIEWS: Mapping[str, View] = {
    view.name: view
    for view in (
        MESSAGES,
        SCHEDULED_MESSAGES,
        HALF_MESSAGES,
        RETRIES,
        DEAD_LETTERS,
        TOPIC_STATUS,
        CONSUMER_PROGRESS,
        MESSAGE_LINEAGE,
    )
}
