"""Java's String.hashCode, against what RocketMQ's own Java said."""

import gzip
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.rocketmq.hashing import java_hash

GOLDEN = Path(__file__).parent.parent / "data" / "allocation-hash-id.jsonl.gz"


def hashes(spark: SparkSession, *texts: str | None) -> list[int | None]:
    rows = spark.createDataFrame(
        [(place, text) for place, text in enumerate(texts)], "place int, text string"
    )
    return [row[0] for row in rows.orderBy("place").select(java_hash(F.col("text"))).collect()]


@pytest.mark.quick
def test_known_strings(spark: SparkSession) -> None:
    assert hashes(spark, "TagA", "zzzzzzzz", "polygenelubricants", "a", "") == [
        2_598_919, -1_910_022_912, -(2**31), 97, 0,
    ]  # fmt: skip
    assert hashes(spark, None) == [None]


def test_a_character_beyond_the_first_65536_counts_as_the_two_units_java_keeps_it_in(
    spark: SparkSession,
) -> None:
    assert hashes(spark, "é", "文", "😀") == [0xE9, 0x6587, 31 * 0xD83D + 0xDE00]


def test_every_golden_hash_agrees(spark: SparkSession) -> None:
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        said = [json.loads(line) for line in lines]
    cases = [case for case in said if case["kind"] == "hash"]
    assert len(cases) == 200
    assert hashes(spark, *[case["text"] for case in cases]) == [case["hashCode"] for case in cases]
