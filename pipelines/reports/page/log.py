"""The store at a glance, and how it grew."""

from collections.abc import Mapping, Sequence

from pipelines.reports.page.ask import Found, Question, question
from pipelines.reports.page.charts import over_time
from pipelines.reports.page.parts import Chart, Section, Tile
from pipelines.reports.page.readers import counted_topics
from pipelines.reports.page.words import count, duration, moment, plural, size
from schemas.queue_bounds import LOG_BOUNDS_QUEUE, LOG_TOPIC

# This query runs first: the width of a bucket follows from its result.
LOG = question(
    "log",
    """
    SELECT count(*) AS messages,
           sum(size_bytes) AS bytes,
           count(DISTINCT segment) AS segments,
           min(store_timestamp) AS first_ms,
           max(store_timestamp) AS last_ms
    FROM commitlog
    """,
)

HEAD = question(
    "head",
    f"""
    SELECT max(next_offset) AS next_offset
    FROM (
        SELECT next_offset FROM queue_bounds WHERE topic = '{LOG_TOPIC}' AND queue_id = {LOG_BOUNDS_QUEUE}
        UNION ALL
        SELECT max(physical_offset + size_bytes) FROM commitlog
    )
    """,
)

# Every row of a queue has an entry there, so the newest entry shows how far dispatch has come.
UNSEEN = question(
    "unseen",
    """
    SELECT count(*) AS messages, sum(size_bytes) AS bytes, min(store_timestamp) AS oldest_ms
    FROM commitlog
    WHERE sys_flag & 12 IN (0, 8)
      AND append_seq > coalesce((SELECT max(append_seq) FROM consume_queue), -1)
    """,
)

GROUPS = question(
    "all-groups",
    """
    SELECT count(*) AS groups, count_if(has_read) AS groups_that_read
    FROM (
        SELECT `group`, bool_or(has_read) AS has_read
        FROM (
            SELECT `group`, false AS has_read FROM subscription_groups
            UNION ALL
            SELECT `group`, true AS has_read FROM consumer_offsets
        )
        GROUP BY `group`
    )
    """,
)

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
BUCKETS_MS = (
    _SECOND, 2 * _SECOND, 5 * _SECOND, 10 * _SECOND, 30 * _SECOND,
    _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE,
    _HOUR, 2 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 7 * _DAY, 30 * _DAY,
)  # fmt: skip
MOST_BUCKETS = 180


def bucket_ms(range_ms: int) -> int:
    """The smallest round width of a bucket (ms) that divides a range of times into at most MOST_BUCKETS.

    >>> bucket_ms(0), bucket_ms(3_600_000), bucket_ms(400 * 30 * 86_400_000) // 86_400_000
    (1000, 30000, 90)
    """
    for width in BUCKETS_MS:
        if range_ms <= (MOST_BUCKETS - 1) * width:
            return width
    longest = BUCKETS_MS[-1]
    return longest * -(-range_ms // ((MOST_BUCKETS - 1) * longest))


def throughput(log: Found) -> Question:
    """The query for messages and bytes a bucket; its width follows from the log's range of times."""
    width = _bucket_of(log)
    return question(
        "throughput",
        f"""
        SELECT store_timestamp - store_timestamp % {width} AS start_ms, count(*) AS messages, sum(size_bytes) AS bytes
        FROM commitlog
        GROUP BY start_ms
        ORDER BY start_ms
        """,
    )


def _bucket_of(log: Found) -> int:
    return bucket_ms((log.first["last_ms"] or 0) - (log.first["first_ms"] or 0))


def glance(found: Mapping[str, Found], now_ms: int) -> Section:
    log, unseen, groups = found["log"].first, found["unseen"].first, found["all-groups"].first
    topics, with_messages = counted_topics(found["topics"])
    waiting = unseen["messages"]
    span = f"from {moment(log['first_ms'])} to {moment(log['last_ms'])} UTC"
    lead = f"Messages stored {span}." if log["messages"] else "The log is empty: nothing has been put yet."
    oldest = "everything is dispatched"
    if waiting:
        oldest = f"{size(unseen['bytes'])}, the oldest from {duration(now_ms - unseen['oldest_ms'])} ago"
    tiles = (
        Tile("Messages", count(log["messages"]), "rows of the log", "log"),
        Tile("Size", size(log["bytes"] or 0), "as RocketMQ stores them", "log"),
        Tile("Segments", count(log["segments"]), "of the log, with messages", "log"),
        Tile(
            "Head", count(found["head"].first["next_offset"] or 0), "the next byte offset of the log", "head"
        ),
        Tile("Topics", count(topics), f"{count(with_messages)} with messages", "topics"),
        Tile(
            "Groups", count(groups["groups"]), f"{count(groups['groups_that_read'])} have read", "all-groups"
        ),
        Tile("Not dispatched", count(waiting), oldest, "unseen"),
    )
    worries = [f"{plural(waiting, 'message')} not dispatched yet: run dispatch."] if waiting else []
    questions = [found[name].question for name in ("log", "head", "all-groups", "unseen")]
    return Section("glance", "At a glance", lead, questions, tiles, worries=worries)


def growth(found: Mapping[str, Found]) -> Section:
    buckets = found["throughput"]
    if not buckets.rows:
        return Section("throughput", "Throughput", "Nothing has been stored yet.", [buckets.question])
    width = _bucket_of(found["log"])
    busiest = max(buckets.rows, key=lambda row: row["messages"])
    lead = (
        f"One bar is {duration(width)}. The busiest began at {moment(busiest['start_ms'])} UTC: "
        f"{plural(busiest['messages'], 'message')}, {size(busiest['bytes'])}."
    )
    return Section(
        "throughput", "Throughput", lead, [buckets.question], charts=_charts(buckets.rows, width, lead)
    )


def _charts(rows: Sequence[Mapping], width: int, lead: str) -> Sequence[Chart]:
    name = "throughput"
    return (
        Chart("Messages stored", over_time(rows, "messages", "messages", width), name, lead),
        Chart("Bytes stored", over_time(rows, "bytes", "bytes", width), name, lead),
    )
