"""Decoding properties, against a plain loop over the characters."""

import random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.rocketmq.properties import properties_map, property_value, without


def decoded(text: str) -> dict[str, str]:
    """docs/rocketmq/store.md 1.8, as it is written there."""
    found: dict[str, str] = {}
    for segment in text.split("\x02"):
        name_end = segment.find("\x01")
        if len(segment) >= 3 and name_end > 0 and len(segment) > name_end + 1:
            found[segment[:name_end]] = segment[name_end + 1 :]
    return found


def spark_says(
    spark: SparkSession, texts: list[str | None], name: str
) -> list[tuple[dict | None, str | None]]:
    rows = spark.createDataFrame(
        [(place, text) for place, text in enumerate(texts)], "place int, text string"
    )
    stored = F.col("text")
    answers = rows.orderBy("place").select(properties_map(stored), property_value(stored, name))
    return [(row[0], row[1]) for row in answers.collect()]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("K\x01v\x02", "v"),
        ("K\x01v", "v"),  # the last 0x02 may be missing
        ("K\x01v\x01w\x02", "v\x01w"),
        ("K\x01a\x02K\x01b\x02", "b"),
        ("K\x01a\x02K\x01\x02", "a"),  # the second one vanishes, so it is no later duplicate
        ("K\x01\x02", None),
        ("\x01v\x02", None),
        ("K\x02", None),
        ("XK\x01x\x02", None),  # K at the end of another name
        ("V\x01K\x01x\x02", None),  # K inside a value
        ("V\x01xK\x02KK\x01y\x02", None),
        ("K\x01文😀\x02", "文😀"),
        ("", None),
    ],
)
def test_a_property(spark: SparkSession, text: str, value: str | None) -> None:
    assert decoded(text).get("K") == value
    assert spark_says(spark, [text], "K") == [(decoded(text), value)]


def test_no_properties_at_all(spark: SparkSession) -> None:
    assert spark_says(spark, [None], "K") == [(None, None)]


def test_random_strings_of_separators_and_names(spark: SparkSession) -> None:
    chance = random.Random(3)
    texts: list[str | None] = [
        "".join(chance.choices("\x01\x02AKé", weights=(4, 3, 2, 4, 1), k=chance.randrange(24)))
        for _ in range(2_000)
    ]
    assert spark_says(spark, texts, "K") == [
        (decoded(text or ""), decoded(text or "").get("K")) for text in texts
    ]


def test_random_strings_without_some_names(spark: SparkSession) -> None:
    chance = random.Random(4)
    pairs = ["A\x01x\x02", "K\x01y\x02", "AK\x01A\x01z\x02", "K\x01", "\x02", "\x01", "é\x01K\x01K\x02"]
    texts = [
        "".join(chance.choices(pairs[: chance.choice((3, 7))], k=chance.randrange(6))) for _ in range(2_000)
    ]

    def kept(text: str) -> str:
        named = [(piece, *piece.partition("\x01")) for piece in text.split("\x02")]
        return "".join(
            f"{piece}\x02" for piece, name, _, value in named if name and value and name not in ("A", "K")
        )

    rows = spark.createDataFrame(list(enumerate(texts)), "place int, text string").orderBy("place")
    found = [row[0] for row in rows.select(without(F.col("text"), "A", "K")).collect()]
    assert found == [kept(text) for text in texts]
