"""What failed: messages that a group's listener failed on, and rejected input."""

from collections.abc import Mapping

from pipelines.reports.page.ask import ROWS_SHOWN, Found, question
from pipelines.reports.page.parts import Column, Section, Table, table
from pipelines.reports.page.words import plural

RETRIES = question(
    "retries",
    f"""
    SELECT `group`, original_topic,
           count(*) AS retries,
           count(DISTINCT original_message_id) AS messages,
           max(reconsume_times) AS most_failures,
           max(store_timestamp) AS last_ms
    FROM retries
    GROUP BY `group`, original_topic
    ORDER BY retries DESC, `group`, original_topic
    LIMIT {ROWS_SHOWN}
    """,
)

DEAD_LETTERS = question(
    "dead",
    f"""
    SELECT dead.`group`, dead.original_topic,
           count(*) AS dead_letters,
           count(redriven.source_offset) AS redriven,
           max(dead.reconsume_times) AS most_failures,
           max(dead.store_timestamp) AS last_ms
    FROM dead_letters AS dead
    LEFT JOIN (SELECT DISTINCT source_offset FROM commitlog WHERE startswith(claim, 'redrive:')) AS redriven
        ON redriven.source_offset = dead.physical_offset
    GROUP BY dead.`group`, dead.original_topic
    ORDER BY dead_letters DESC, dead.`group`, dead.original_topic
    LIMIT {ROWS_SHOWN}
    """,
)

# The listeners' errors, from the results of consume.
REASONS = question(
    "reasons",
    f"""
    SELECT get_json_object(result, '$.group') AS `group`, said.error, sum(said.times) AS times, max(started_ms) AS last_ms
    FROM job_runs
    LATERAL VIEW explode(from_json(get_json_object(result, '$.errors'), 'map<string, bigint>')) said AS error, times
    WHERE job = 'consume'
    GROUP BY 1, 2
    ORDER BY times DESC, `group`, error
    LIMIT {ROWS_SHOWN}
    """,
)

REJECTED = question(
    "rejected",
    f"""
    SELECT substring(reason, 1, 300) AS reason, count(*) AS rows, count(DISTINCT batch_id) AS batches
    FROM rejected_messages
    GROUP BY 1
    ORDER BY rows DESC, reason
    LIMIT {ROWS_SHOWN}
    """,
)


def failures(found: Mapping[str, Found], now_ms: int) -> Section:
    retries, dead, rejected = found["retries"], found["dead"], found["rejected"]
    reasons = found["reasons"]
    left = dead.total("dead_letters") - dead.total("redriven")
    counted = [
        plural(retries.total("retries"), "retry", "retries"),
        plural(dead.total("dead_letters"), "dead letter"),
        f"{plural(rejected.total('rows'), 'row')} of input rejected",
    ]
    worries = (
        [f"{plural(left, 'dead letter')} not redriven: read them, fix the cause, then redrive."]
        if left
        else []
    )
    tables = []
    if dead.rows:
        counts = (
            Column("dead_letters", "Dead letters", "count"),
            Column("redriven", "Redriven", "count"),
        )
        tables.append(_by_group("Dead letters", dead, *counts))
    if retries.rows:
        counts = Column("retries", "Retries", "count"), Column("messages", "Messages", "count")
        tables.append(_by_group("Retries", retries, *counts))
    if reasons.rows:
        tables.append(
            table(
                "Listeners' errors",
                reasons,
                Column("group", "Group"),
                Column("error", "Error"),
                Column("times", "Times", "count"),
                Column("last_ms", "Last run, UTC", "moment"),
            )
        )
    if rejected.rows:
        tables.append(
            table(
                "Rejected input",
                rejected,
                Column("reason", "Reason"),
                Column("rows", "Rows", "count"),
                Column("batches", "Batches", "count"),
            )
        )
    lead = (
        f"{', '.join(counted)}."
        if tables
        else "Nothing has failed: no retries, no dead letters, no rejected input."
    )
    asked = [one.question for one in (dead, retries, reasons, rejected)]
    return Section("failures", "Retries and dead letters", lead, asked, (), (), tables, worries)


def _by_group(title: str, found: Found, *counts: Column) -> Table:
    return table(
        title,
        found,
        Column("group", "Group"),
        Column("original_topic", "Topic"),
        *counts,
        Column("most_failures", "Failures, at most", "count"),
        Column("last_ms", "Last, UTC", "moment"),
    )
