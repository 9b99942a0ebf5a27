"""Rows that wait, as the table of parked rows has them."""

from pyspark.sql import SparkSession

from pipelines.log.park import parked_messages
from tests.dispatch.log_rows import log_rows, properties


def test_parked_rows_are_told_by_their_due_time(spark: SparkSession) -> None:
    rows = [
        {},
        {
            "topic": "SCHEDULE_TOPIC_XXXX",
            "due_ms": 5,
            "properties": properties(REAL_TOPIC="orders", UNIQ_KEY="u"),
        },
        {
            "topic": "rmq_sys_wheel_timer",
            "due_ms": 6,
            "properties": properties(TIMER_DEL_UNIQKEY="u"),
            "origin_offset": 0,
        },
        {"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "due_ms": 7},
    ]
    parked = parked_messages(log_rows(spark, *rows)).orderBy("due_ms").collect()
    found = [
        (row.kind, row.due_ms, row.origin_offset, row.real_topic, row.unique_key, row.cancels)
        for row in parked
    ]
    assert found == [
        ("schedule", 5, 100, "orders", "u", None),
        ("timer", 6, 0, None, None, "u"),
        ("half", 7, 300, None, None, None),
    ]
