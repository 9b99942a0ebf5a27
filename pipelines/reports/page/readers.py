"""Topics with their queues, and the lag of each group."""

from collections.abc import Mapping

from pipelines.reports.page.ask import ROWS_SHOWN, Found, question
from pipelines.reports.page.charts import by_name
from pipelines.reports.page.parts import Chart, Column, Section, table
from pipelines.reports.page.words import count, plural

TOPICS = question(
    "topics",
    f"""
    SELECT topic,
           count(*) AS queues,
           coalesce(try_sum(max_offset - min_offset), 9223372036854775807) AS messages,
           max(max_offset - min_offset) AS largest_queue,
           unix_millis(max(last_updated)) AS last_message_ms,
           count(*) OVER () AS topics,
           count_if(max(max_offset - min_offset) > 0) OVER () AS topics_with_messages
    FROM topic_status
    GROUP BY topic
    ORDER BY messages DESC, topic
    LIMIT {ROWS_SHOWN}
    """,
)

LAG = question(
    "lag",
    f"""
    SELECT `group`, topic, queues, lag, largest_lag, last_read_ms
    FROM (
        SELECT `group`, topic, count(*) AS queues, max(lag) AS largest_lag,
               coalesce(try_sum(lag), 9223372036854775807) AS lag
        FROM consumer_progress
        GROUP BY `group`, topic
    ) LEFT JOIN (
        SELECT `group`, topic, max(committed_timestamp) AS last_read_ms
        FROM consumer_offsets
        GROUP BY `group`, topic
    ) USING (`group`, topic)
    ORDER BY lag DESC, `group`, topic
    LIMIT {ROWS_SHOWN}
    """,
)


def counted_topics(asked: Found) -> tuple[int, int]:
    """How many topics there are, and how many of them have messages; also those that the list has no room for."""
    return (asked.first["topics"], asked.first["topics_with_messages"]) if asked.rows else (0, 0)


def topics(found: Mapping[str, Found], now_ms: int) -> Section:
    asked = found["topics"]
    topics, topics_with_messages = counted_topics(asked)
    with_messages = [row for row in asked.rows if row["messages"]]
    lead = (
        f"{plural(topics, 'topic')}, {count(topics_with_messages)} with messages, "
        "as far as dispatch has come."
    )
    titles = {"topic": "topic", "messages": "messages", "queues": "queues"}
    chart = Chart(
        "Topics with most messages",
        by_name(with_messages, "topic", "messages", "messages", titles),
        "topics",
        "Messages of the largest topics, a bar each.",
    )
    shown = table(
        "Topics",
        asked,
        Column("topic", "Topic"),
        Column("queues", "Queues", "count"),
        Column("messages", "Messages", "count"),
        Column("largest_queue", "Largest queue", "count"),
        Column("last_message_ms", "Last message, UTC", "moment"),
    )
    return Section(
        "topics", "Topics and queues", lead, [asked.question], (), (chart,) if with_messages else (), (shown,)
    )


def groups(found: Mapping[str, Found], now_ms: int) -> Section:
    asked = found["lag"]
    if not asked.rows:
        return Section("groups", "Groups", "No group has read anything yet.", [asked.question])
    behind = [{**row, "reader": f"{row['group']} · {row['topic']}"} for row in asked.rows if row["lag"]]
    lag = asked.total("lag")
    lead = (
        f"{plural(lag, 'message')} to read, most of them for group {behind[0]['group']} of {behind[0]['topic']}."
        if behind
        else "Every group has read all messages of its topics."
    )
    titles = {"group": "group", "topic": "topic", "lag": "to read"}
    chart = Chart("Messages still to read", by_name(behind, "reader", "lag", "messages", titles), "lag", lead)
    shown = table(
        "Lag",
        asked,
        Column("group", "Group"),
        Column("topic", "Topic"),
        Column("queues", "Queues", "count"),
        Column("lag", "To read", "count"),
        Column("largest_lag", "Most in a queue", "count"),
        Column("last_read_ms", "Last progress, UTC", "moment"),
    )
    return Section("groups", "Groups", lead, [asked.question], (), (chart,) if behind else (), (shown,))
