"""Answers to all the page's questions, made by hand: what the page makes of rows can be looked at without a store."""

from typing import Any

from pipelines.reports.page import failures, log, readers, replicas, upkeep, waiting
from pipelines.reports.page.ask import Found

NOW = 1_795_251_600_000  # 2026-11-21 09:00:00 UTC
# What a page must show as it is: what a broker takes for a topic is narrow, what a log holds may be anything.
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{ 7 * 7 }}"

TOPICS_ARE_3 = {"topics": 3, "topics_with_messages": 0}
TOPICS_ARE_40 = {"topics": 40, "topics_with_messages": 39}

EMPTY: dict[str, list[dict[str, Any]]] = {
    "log": [{"messages": 0, "bytes": None, "segments": 0, "first_ms": None, "last_ms": None}],
    "head": [{"next_offset": None}],
    "unseen": [{"messages": 0, "bytes": None, "oldest_ms": None}],
    "all-groups": [{"groups": 8, "groups_that_read": 0}],
    "topics": [
        {"topic": name, "queues": 1, "messages": 0, "largest_queue": 0, "last_message_ms": None}
        | TOPICS_ARE_3
        for name in ("SELF_TEST_TOPIC", "TBW102", "TRANS_CHECK_MAX_TIME_TOPIC")
    ],
}

FULL: dict[str, list[dict[str, Any]]] = {
    "log": [{"messages": 700, "bytes": 91_000, "segments": 2, "first_ms": NOW - 3_600_000, "last_ms": NOW - 1_000}],
    "head": [{"next_offset": 91_000}],
    "unseen": [{"messages": 3, "bytes": 400, "oldest_ms": NOW - 5_000}],
    "all-groups": [{"groups": 9, "groups_that_read": 2}],
    "throughput": [
        {"start_ms": NOW - 3_600_000 + 30_000 * n, "messages": 5 + n % 7, "bytes": 700 + 13 * n} for n in range(0, 120, 2)
    ],
    "topics": [
        {"topic": NASTY, "queues": 4, "messages": 300, "largest_queue": 80, "last_message_ms": NOW - 1_000} | TOPICS_ARE_40,
        *(
            {"topic": f"topic-{n}", "queues": 8, "messages": n, "largest_queue": n, "last_message_ms": NOW - n}
            | TOPICS_ARE_40
            for n in range(38, 0, -1)
        ),
    ],
    "lag": [
        {"group": NASTY, "topic": NASTY, "queues": 4, "lag": 120, "largest_lag": 40, "last_read_ms": NOW - 60_000},
        {"group": "shipping", "topic": "topic-5", "queues": 8, "lag": 0, "largest_lag": 0, "last_read_ms": NOW},
    ],
    "scheduled": [
        {"due": due, "topic": topic, "kind": kind, "messages": messages, "next_due_ms": next_due, "last_due_ms": last_due}
        for due, topic, kind, messages, next_due, last_due in (
            ("overdue", None, "schedule", 2, NOW - 120_000, NOW - 110_000),
            ("1 h", None, "schedule", 7, NOW + 700_000, NOW + 710_000),
            ("1 h", None, "timer", 5, NOW + 800_000, NOW + 810_000),
            ("later", None, "timer", 1, 2**62, 2**62),
            (None, NASTY, "timer", 6, NOW + 800_000, 2**62),
            (None, "topic-5", "schedule", 9, NOW - 120_000, NOW),
        )
    ],
    "halves": [
        {"age": age, "producer_group": group, "topic": group, "messages": n, "most_questions": 4, "oldest_ms": oldest}
        for age, group, n, oldest in (
            ("1 min", None, 2, NOW - 9_000), ("older", None, 1, 1), (None, NASTY, 3, NOW - 9_000)
        )
    ],
    "dead": [
        {"group": NASTY, "original_topic": NASTY, "dead_letters": 4, "redriven": 1, "most_failures": 16, "last_ms": NOW}
    ],
    "retries": [
        {"group": NASTY, "original_topic": None, "retries": 9, "messages": 5, "most_failures": 3, "last_ms": NOW}
    ],
    "reasons": [{"group": NASTY, "error": f"ValueError: {NASTY}", "times": 9, "last_ms": NOW}],
    "rejected": [{"reason": NASTY, "rows": 2, "batches": 1}],
    "segments": [
        {"segment": n, "messages": 9, "bytes": 900, "first_ms": ms, "last_ms": ms + 1}
        for n, ms in ((0, NOW - 80 * 3_600_000), (1_000, NOW - 71 * 3_600_000), (2_000, NOW - 90 * 3_600_000))
    ],
    "jobs": [
        {"job": "deliver", "runs": 3, "failed": 1, "median_seconds": 2.25, "last_ms": NOW, "last_status": "failed"},
        {"job": "dispatch", "runs": 5, "failed": 0, "median_seconds": 1.5, "last_ms": NOW, "last_status": "ok"},
    ],
    "runs": [
        {"started_ms": NOW, "job": "deliver", "status": "failed", "seconds": 2.25, "result": f'{{"job": "{NASTY}"}}'},
        {"started_ms": NOW - 9_000, "job": "dispatch", "status": "ok", "seconds": 1.5, "result": "{}"},
    ],
    "settings": [
        {"name": "brokerName", "value": NASTY}, {"name": "flushDiskType", "value": "SYNC_FLUSH"},
        {"name": "fileReservedTime", "value": "72"},
    ],
    "replicas": [
        {"replica_id": "1", "uri": "/slave", "acked_offset": 91_000, "in_sync": True, "updated_timestamp": NOW - 60_000},
        {"replica_id": NASTY, "uri": NASTY, "acked_offset": 90_000, "in_sync": True, "updated_timestamp": NOW - 3_600_000},
    ],
    "epochs": [{"epoch": 2, "start_offset": 400}, {"epoch": 1, "start_offset": 0}],
    "quality": [
        {
            "suite": "log", "expectation": NASTY, "severity": "critical", "checked": 700, "broken": 2, "checked_ms": NOW,
            "from_append_seq": 0, "to_append_seq": 9, "complaints": [NASTY, "offset 7 is 8"],
        }
    ],
    "quality-history": [
        {"checked_ms": NOW, "run_id": "r2", "expectations": 9, "not_met": 1, "checked": 700, "broken": 2},
        {"checked_ms": NOW - 9, "run_id": "r1", "expectations": 9, "not_met": 0, "checked": 600, "broken": 0},
    ],
}  # fmt: skip


def found(rows: dict[str, list[dict[str, Any]]]) -> dict[str, Found]:
    """The rows as answers; a question without rows has found none."""
    asked = [
        log.LOG, log.HEAD, log.UNSEEN, log.GROUPS, readers.TOPICS, readers.LAG, *waiting.questions(NOW),
        failures.DEAD_LETTERS, failures.RETRIES, failures.REASONS, failures.REJECTED,
        upkeep.SEGMENTS, upkeep.JOBS, upkeep.RUNS, upkeep.GIVEN_SETTINGS,
        upkeep.NEWEST_VALIDATION, upkeep.VALIDATIONS_BEFORE, replicas.REPLICAS, replicas.EPOCHS,
        log.throughput(Found(log.LOG, rows["log"])),
    ]  # fmt: skip
    return {question.name: Found(question, rows.get(question.name, [])) for question in asked}
