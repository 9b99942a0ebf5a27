"""Messages that wait: for their time, or for the end of a transaction."""

from collections.abc import Mapping, Sequence

from pipelines.reports.page.ask import ROWS_SHOWN, Found, Question, question
from pipelines.reports.page.charts import by_step
from pipelines.reports.page.parts import Chart, Column, Section, table
from pipelines.reports.page.words import duration, moment, plural

_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000
OVERDUE, LATER = "overdue", "later"
HORIZONS = (
    ("1 min", _MINUTE),
    ("10 min", 10 * _MINUTE),
    ("1 h", _HOUR),
    ("1 day", _DAY),
    ("7 days", 7 * _DAY),
)
AGES = (("1 min", _MINUTE), ("10 min", 10 * _MINUTE), ("1 h", _HOUR), ("1 day", _DAY))
OLDER = "older"
# Rows of steps beside those of topics: overdue, the horizons and later, each of two kinds.
MOST_STEPS = 2 * (len(HORIZONS) + 2)


def questions(now_ms: int) -> list[Question]:
    """The queries of both sections, all as of the same moment."""
    due = _steps([(name, f"due_ms <= {now_ms + most}") for name, most in ((OVERDUE, 0), *HORIZONS)], LATER)
    age = _steps([(name, f"born_timestamp >= {now_ms - most}") for name, most in AGES], OLDER)
    # One pass for both: rows of a step, which have no topic, and rows of a topic, which have no step.
    return [
        question(
            "scheduled",
            f"""
            SELECT due, kind, topic, count(*) AS messages, min(due_ms) AS next_due_ms, max(due_ms) AS last_due_ms
            FROM (SELECT {due} AS due, kind, real_topic AS topic, due_ms FROM scheduled_messages)
            GROUP BY GROUPING SETS ((due, kind), (topic, kind))
            ORDER BY due IS NULL, next_due_ms, topic
            LIMIT {ROWS_SHOWN + MOST_STEPS}
            """,
        ),
        question(
            "halves",
            f"""
            SELECT age, producer_group, topic, count(*) AS messages,
                   max(check_times) AS most_questions, min(born_timestamp) AS oldest_ms
            FROM (
                SELECT {age} AS age, producer_group, real_topic AS topic, check_times, born_timestamp FROM half_messages
            )
            GROUP BY GROUPING SETS ((age), (producer_group, topic))
            ORDER BY age IS NULL, messages DESC, producer_group, topic
            LIMIT {ROWS_SHOWN + MOST_STEPS}
            """,
        ),
    ]


def _steps(steps: Sequence[tuple[str, str]], beyond: str) -> str:
    """SQL for the name of the first step whose condition holds."""
    cases = " ".join(f"WHEN {condition} THEN '{name}'" for name, condition in steps)
    return f"CASE {cases} ELSE '{beyond}' END"


def delays(found: Mapping[str, Found], now_ms: int) -> Section:
    asked = [found["scheduled"].question]
    horizon, by_topic = found["scheduled"].parted("due")
    if not horizon.rows:
        return Section("delays", "Delays", "No delayed or timed message is waiting.", asked)
    waiting = horizon.total("messages")
    next_due_ms = min(row["next_due_ms"] for row in horizon.rows)
    overdue = sum(row["messages"] for row in horizon.rows if row["due"] == OVERDUE)
    lead = f"{plural(waiting, 'message')} waiting, the first for {moment(next_due_ms)} UTC."
    steps = (OVERDUE, *(name for name, _ in HORIZONS), LATER)
    chart = Chart(
        "Due within", by_step(horizon.rows, "due", steps, "messages", "messages", "kind"), "scheduled", lead
    )
    shown = table(
        "Waiting, by topic",
        by_topic,
        Column("topic", "Topic"),
        Column("kind", "Kind"),
        Column("messages", "Messages", "count"),
        Column("next_due_ms", "Next due, UTC", "moment"),
        Column("last_due_ms", "Last due, UTC", "moment"),
    )
    worries = []
    if overdue:
        late = duration(now_ms - next_due_ms)
        worries = [f"{plural(overdue, 'delayed message')} overdue, by up to {late}: run deliver."]
    return Section("delays", "Delays", lead, asked, (), (chart,), (shown,), worries)


def transactions(found: Mapping[str, Found], now_ms: int) -> Section:
    asked = [found["halves"].question]
    halves, pending = found["halves"].parted("age")
    if not halves.rows:
        return Section("transactions", "Transactions", "No transaction is pending.", asked)
    oldest_ms = min(row["oldest_ms"] for row in halves.rows)
    total = plural(halves.total("messages"), "half message")
    lead = f"{total} neither committed nor rolled back, the oldest for {duration(now_ms - oldest_ms)}."
    steps = (*(name for name, _ in AGES), OLDER)
    chart = Chart(
        "Younger than", by_step(halves.rows, "age", steps, "messages", "half messages"), "halves", lead
    )
    shown = table(
        "Pending, by producer group",
        pending,
        Column("producer_group", "Producer group"),
        Column("topic", "Topic"),
        Column("messages", "Half messages", "count"),
        Column("most_questions", "Checks, at most", "count"),
        Column("oldest_ms", "Oldest, UTC", "moment"),
    )
    old = sum(row["messages"] for row in halves.rows if row["age"] == OLDER)
    worries = (
        [f"{plural(old, 'transaction')} pending for more than a day: run check_transactions."] if old else []
    )
    return Section("transactions", "Transactions", lead, asked, (), (chart,), (shown,), worries)
