"""What a put makes of messages that wait; vectors of docs/rocketmq/delay-retry-transaction.md 9 by number."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.life import HALF, SCHEDULE, WHEEL, B, raw
from tests.produce.input_rows import accepted_rows

AT_ONCE = (None, None, None)


def waits(message: Any) -> tuple[Any, ...]:
    """(topic, due, due after its append): where a message is parked and until when."""
    return message.parked_topic, message.due_at_ms, message.due_after_ms


@pytest.mark.parametrize(
    ("level", "parked_queue", "after_ms", "stored_level"),
    [
        pytest.param(3, 2, 10_000, 3, id="vector 1"),
        pytest.param(25, 17, 7_200_000, 18, id="vector 3: no level is above the last"),
    ],
)
def test_a_level_waits_in_its_queue_from_its_append_on(
    spark: SparkSession, level: int, parked_queue: int, after_ms: int, stored_level: int
) -> None:
    [message] = accepted_rows(spark, {"delay_level": level})
    assert (*waits(message), message.parked_queue) == (SCHEDULE, None, after_ms, parked_queue)
    assert message.diverting_pairs == raw(DELAY=stored_level, REAL_TOPIC="T")


@pytest.mark.parametrize("level", [0, -1, None])
def test_vector_4_a_level_that_is_none_does_not_wait(spark: SparkSession, level: int | None) -> None:
    [message] = accepted_rows(spark, {"delay_level": level})
    assert (*waits(message), message.diverting_pairs) == (*AT_ONCE, "")


@pytest.mark.parametrize(
    ("row", "now", "slot", "due"),
    [
        pytest.param({"deliver_at_ms": B + 90_000}, B, B + 89_000, B + 90_000, id="vector 12: a time on a second"),
        pytest.param({"delay_ms": 400}, B + 250, B, B + 1_000, id="vector 13: within this second"),
        pytest.param(
            {"properties_raw": raw(TIMER_DELAY_SEC=90)}, B + 250, B + 90_000, B + 91_000, id="vector 11: seconds"
        ),
        pytest.param({"properties_raw": raw(TIMER_DELAY_MS=1)}, B, B, B + 1_000, id="a millisecond"),
        pytest.param({"properties_raw": raw(TIMER_DELIVER_MS=B + 1)}, B, B, B + 1_000, id="the next millisecond"),
        pytest.param(
            {"properties_raw": raw(TIMER_DELAY_SEC=5, TIMER_DELIVER_MS=B + 90_000)}, B, B + 4_000, B + 5_000,
            id="seconds go first",
        ),
    ],
)  # fmt: skip
def test_a_time_waits_in_the_slot_before_it_and_is_due_when_the_slot_is_over(
    spark: SparkSession, row: dict[str, Any], now: int, slot: int, due: int
) -> None:
    [message] = accepted_rows(spark, row, now_ms=now)
    assert waits(message) == (WHEEL, due, None)
    assert raw(TIMER_OUT_MS=slot, REAL_TOPIC="T") in message.diverting_pairs


@pytest.mark.parametrize("deliver_at_ms", [B - 1, B])
def test_vector_14_a_time_that_is_over_does_not_wait(spark: SparkSession, deliver_at_ms: int) -> None:
    [message] = accepted_rows(spark, {"deliver_at_ms": deliver_at_ms})
    assert (*waits(message), message.diverting_pairs) == (*AT_ONCE, raw(TIMER_DELIVER_MS=deliver_at_ms))


def test_a_last_property_that_is_not_closed_is_closed_before_another_follows(spark: SparkSession) -> None:
    alone, followed = accepted_rows(
        spark, {"properties_raw": "TAGS\x01a"}, {"properties_raw": "TAGS\x01a", "deliver_at_ms": B}
    )
    assert (alone.stored_properties, alone.diverting_pairs) == ("TAGS\x01a", "")
    assert followed.stored_properties + followed.diverting_pairs == raw(TAGS="a", TIMER_DELIVER_MS=B)


def test_vector_16_a_level_goes_before_a_time_and_takes_its_place(spark: SparkSession) -> None:
    [message] = accepted_rows(spark, {"properties_raw": raw(UNIQ_KEY="k", DELAY=3, TIMER_DELAY_SEC=90)})
    assert waits(message) == (SCHEDULE, None, 10_000)
    assert message.stored_properties + message.diverting_pairs == raw(UNIQ_KEY="k", DELAY=3, REAL_TOPIC="T")


def test_what_came_out_of_the_timer_once_does_not_go_into_it_again(spark: SparkSession) -> None:
    [message] = accepted_rows(spark, {"properties_raw": raw(TIMER_OUT_MS=B, TIMER_DELIVER_MS=B + 90_000)})
    assert waits(message) == AT_ONCE


def test_vector_29_a_half_waits_for_its_end_until_it_is_asked_about(spark: SparkSession) -> None:
    half = {"transaction": True, "producer_group": "pg", "unique_key": "k"}
    [message] = accepted_rows(spark, {**half, "born_timestamp": B - 5})
    assert (*waits(message), message.parked_queue, message.is_half) == (HALF, B - 5 + 6_000, None, 0, True)
    assert message.diverting_pairs == raw(TRAN_MSG="true", PGROUP="pg", REAL_TOPIC="T")


def test_a_half_with_an_immunity_of_its_own_is_asked_about_after_it(spark: SparkSession) -> None:
    half = {"transaction": True, "producer_group": "pg", "born_timestamp": B}
    immune = {"properties": {"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}}
    [message] = accepted_rows(spark, {**half, **immune})
    assert waits(message) == (HALF, B + 60_000, None)


def test_a_level_list_waits_its_first_level_and_keeps_the_rest(spark: SparkSession) -> None:
    first, last, none = accepted_rows(
        spark, {"deliver_through": [2, 3, 1]}, {"deliver_through": [2]}, {"deliver_through": []}
    )
    assert (waits(first), first.parked_queue) == ((SCHEDULE, None, 5_000), 1)
    assert first.diverting_pairs == "DELAY\x012\x02TIMING-LIST\x013,1,\x02REAL_TOPIC\x01T\x02"
    assert last.diverting_pairs == raw(DELAY=2, REAL_TOPIC="T")
    assert waits(none) == AT_ONCE


@pytest.mark.parametrize(("seconds", "is_good"), [(259_200, True), (259_201, False)])
def test_vector_15_a_horizon_refuses_what_is_beyond_it(
    spark: SparkSession, seconds: int, is_good: bool
) -> None:
    settings = {"timerMaxDelaySec": "259200"}
    [message] = accepted_rows(spark, {"properties_raw": raw(TIMER_DELAY_SEC=seconds)}, settings=settings)
    assert (message.reason is None) == is_good
    assert is_good or "more than 259200000 ms (timerMaxDelaySec) after now" in message.reason
