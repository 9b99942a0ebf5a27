"""What a log row becomes in each derived table."""

import pytest
from pyspark.sql import SparkSession

from pipelines.dispatch.entries import (
    consume_queue_entries,
    message_index_entries,
)
from tests.dispatch.log_rows import log_rows, properties

LEVELS_MS = (1_000, 5_000)
PREPARED, COMMITTED, ROLLED_BACK = 0x4, 0x8, 0xC


def tags_codes(spark: SparkSession, *rows: dict) -> list[int]:
    entries = consume_queue_entries(log_rows(spark, *rows), LEVELS_MS)
    return [row.tags_code for row in entries.orderBy("physical_offset").collect()]


def keys(spark: SparkSession, *rows: dict) -> list[str]:
    return sorted(row.key for row in message_index_entries(log_rows(spark, *rows)).collect())


@pytest.mark.quick
def test_the_tag_is_hashed_and_no_tag_is_0(spark: SparkSession) -> None:
    rows = [
        {"properties": properties(TAGS="TagA")},
        {"properties": ""},
        {"properties": properties(TAGS="zzzzzzzz")},
    ]
    assert tags_codes(spark, *rows) == [2_598_919, 0, -1_910_022_912]


def test_a_row_of_the_schedule_topic_has_its_delivery_time_instead(spark: SparkSession) -> None:
    parked = {"topic": "SCHEDULE_TOPIC_XXXX", "store_timestamp": 10_000}
    assert tags_codes(
        spark,
        {**parked, "properties": properties(TAGS="TagA", DELAY="2"), "due_ms": 77},  # decided at its append
        {**parked, "properties": properties(DELAY="2")},
        {**parked, "properties": properties(DELAY="9")},  # capped to the highest level
        {**parked, "properties": properties(TAGS="TagA", DELAY="0")},
        {**parked, "properties": properties(TAGS="TagA")},
        {"properties": properties(TAGS="TagA", DELAY="2")},  # delivered: its level does not act again
    ) == [77, 15_000, 15_000, 2_598_919, 2_598_919, 2_598_919]


def test_a_level_that_no_table_knows_waits_a_second(spark: SparkSession) -> None:
    row = {"topic": "SCHEDULE_TOPIC_XXXX", "store_timestamp": 10_000, "properties": properties(DELAY="1")}
    without_levels = consume_queue_entries(log_rows(spark, row), ())
    assert [entry.tags_code for entry in without_levels.collect()] == [11_000]


def test_open_and_rolled_back_transactions_have_no_queue_entry_and_only_open_ones_are_indexed(
    spark: SparkSession,
) -> None:
    rows = [
        {"sys_flag": bits, "properties": properties(UNIQ_KEY=name)}
        for name, bits in (("none", 0), ("open", PREPARED), ("committed", COMMITTED), ("back", ROLLED_BACK))
    ]
    entries = consume_queue_entries(log_rows(spark, *rows), LEVELS_MS)
    assert sorted(row.physical_offset for row in entries.collect()) == [0, 200]
    assert keys(spark, *rows) == ["committed", "none", "open"]


def test_each_word_of_keys_and_the_unique_key_are_indexed(spark: SparkSession) -> None:
    assert keys(spark, {"properties": properties(UNIQ_KEY="u", KEYS="a  b a")}) == ["a", "a", "b", "u"]
    assert keys(spark, {"properties": properties(KEYS=" ")}) == []
    assert keys(spark, {"properties": properties(UNIQ_KEY="u", KEYS="u")}) == ["u", "u"]
    assert keys(spark, {"properties": ""}) == []


def test_key_hash_is_of_topic_and_key_and_never_negative(spark: SparkSession) -> None:
    rows = [
        {"topic": "T", "properties": properties(KEYS="k1")},
        {"topic": "orders", "properties": properties(KEYS="é")},
    ]
    hashes = {row.key: row.key_hash for row in message_index_entries(log_rows(spark, *rows)).collect()}
    assert hashes["k1"] == 2_539_445
    assert all(key_hash >= 0 for key_hash in hashes.values())
