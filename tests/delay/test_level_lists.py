"""Level lists: docs/rocketmq/delay-retry-transaction.md 3; vectors of its section 9 by number."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.delay.level_lists import (
    DAY_SECONDS,
    decomposition,
    levels_of,
    list_until,
    rest_of,
    seconds_until,
)
from pipelines.rocketmq.settings import DEFAULT_DELAY_LEVELS, delay_levels_ms

LEVELS_OF_3_1 = (
    "1s 3s 5s 7s 9s 10s 20s 30s 40s 50s 1m 3m 5m 7m 9m 10m 20m 30m 40m 50m "
    "1h 3h 5h 7h 9h 11h 13h 15h 17h 19h 21h 23h"
)
TABLE = delay_levels_ms(LEVELS_OF_3_1)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("seconds", "levels"),
    [
        (9_860, (7, 19, 12, 11, 21, 21)),  # vector 18
        (86_399, (10, 5, 20, 15, 32)),  # vector 19
        (82_128, (9, 4, 1, 19, 14, 11, 31, 21)),
        (2, (1, 1)),
        (0, ()),
        (30, (8,)),  # vector 20
    ],
)
def test_vectors_18_to_20_lists_of_the_table_of_3_1(seconds: int, levels: tuple[int, ...]) -> None:
    assert decomposition(seconds, TABLE) == levels


@pytest.mark.quick
@pytest.mark.parametrize("table", [LEVELS_OF_3_1, DEFAULT_DELAY_LEVELS])
def test_every_second_of_a_day_is_the_sum_of_its_levels(table: str) -> None:
    levels_ms = delay_levels_ms(table)
    for seconds in range(0, DAY_SECONDS, 7):
        levels = decomposition(seconds, levels_ms)
        assert levels is not None
        assert sum(levels_ms[level - 1] for level in levels) == seconds * 1000


@pytest.mark.quick
def test_a_table_without_seconds_has_no_list_for_some_times() -> None:
    assert decomposition(90, delay_levels_ms("1m 5m")) is None
    assert decomposition(120, delay_levels_ms("1m 5m")) == (1, 1)


def test_lists_in_spark_are_those_of_the_plain_function(spark: SparkSession) -> None:
    rows = spark.range(0, DAY_SECONDS, 997).select(
        "id",
        list_until(F.col("id"), TABLE).alias("text"),
        levels_of(list_until(F.col("id"), TABLE)).alias("levels"),
    )
    for row in rows.collect():
        assert tuple(row.levels) == decomposition(row.id, TABLE)


@pytest.mark.parametrize(
    ("now", "time", "seconds"),
    [
        (23 * 3600 + 59 * 60 + 30, "00:00:00", 30),  # vector 20
        (9 * 3600 + 1, "09:00:00", DAY_SECONDS - 1),
        (9 * 3600, "09:00:00", 0),
        (9 * 3600 + 45 * 60 + 50, "12:30:10", 9_860),
        (0, "12:30:75", None),
    ],
)
def test_how_far_a_time_of_day_is_away(spark: SparkSession, now: int, time: str, seconds: int | None) -> None:
    # now: seconds of the day, 2023-11-14 in UTC
    row = spark.range(1).select(seconds_until(F.lit(time), 1_699_920_000_000 + now * 1000 + 999)).first()
    assert row is not None
    assert row[0] == seconds


@pytest.mark.parametrize(
    ("text", "levels", "rest"),
    [
        ("6,3,", [6, 3], "3,"),  # vector 21: with and without a comma at the end
        ("6,3", [6, 3], "3,"),
        (" 8, 7 ,\t12 ", [8, 7, 12], "7,12,"),
        ("", [], ""),
        (",", [], ""),
        *((text, None, None) for text in ("6;3", "0,1", "-1", "x", "3,,4", "1 2", "8 7,12")),
    ],
)
def test_a_level_list_as_it_is_written(
    spark: SparkSession, text: str, levels: list[int] | None, rest: str | None
) -> None:
    row = (
        spark.createDataFrame([(text,)], "text string")
        .select(levels_of(F.col("text")).alias("levels"))
        .select("levels", rest_of(F.col("levels"), F.lit(1)).alias("rest"))
        .first()
    )
    assert row is not None
    assert (row.levels, row.rest if levels is not None else None) == (levels, rest)


MARCH_29, OCTOBER_25 = 1_774_742_400, 1_792_886_400  # 2026, midnight in UTC: Berlin's clocks change at one


@pytest.mark.parametrize(
    ("now", "time", "away"),
    [
        pytest.param(MARCH_29, "02:30:00", 90 * 60, id="not there that day: 03:30, half past one in UTC"),
        pytest.param(MARCH_29, "03:30:00", 90 * 60, id="the time it becomes"),
        pytest.param(MARCH_29, "00:59:00", 22 * 3600 + 59 * 60, id="tomorrow, which comes an hour early"),
        pytest.param(OCTOBER_25, "02:30:00", 30 * 60, id="there twice: the first"),
        pytest.param(
            OCTOBER_25 + 3600, "02:30:00", 24 * 3600 + 30 * 60, id="the first has passed: tomorrow's"
        ),
        pytest.param(OCTOBER_25 - 7200 + 1, "00:00:00", 25 * 3600 - 1, id="a day of 25 hours"),
    ],
)
def test_a_time_of_day_in_a_zone_whose_clocks_change(
    spark: SparkSession, now: int, time: str, away: int
) -> None:
    seconds = seconds_until(F.lit(time), now * 1000, "Europe/Berlin")
    row = spark.range(1).select(seconds.alias("away"), list_until(seconds, TABLE).alias("list")).first()
    assert row is not None
    assert row.away == away
    levels = [int(level) for level in row.list.split(",") if level]
    assert sum(TABLE[level - 1] for level in levels) == away * 1000


def test_a_summer_time_moves_no_time_of_day(spark: SparkSession) -> None:
    """29 March 2026, 00:30 in UTC: half an hour later Berlin's clocks go from two to three."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    now_ms = 1_774_744_200_000
    row = session.range(1).select(seconds_until(F.lit("12:00:00"), now_ms)).first()
    assert row is not None
    assert row[0] == 11 * 3600 + 1800
