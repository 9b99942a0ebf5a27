"""Logs that hold any 64 bits where a time or a number is: every reader still answers.

Accepted from a producer they are not; an imported broker may have them.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.views.read import VIEWS
from tests.life import HALF, SCHEDULE, WHEEL, B, Life, raw

LONGS = (-(2**63), -(2**53) - 1, -1, 0, B, 253_402_300_799_999, 2**53 + 1, 2**63 - 1)
INTS = (-(2**31), -1, 0, 2**31 - 1)


def expect_answers(one: Life, now: int) -> None:
    """Every view can be read, and the jobs that read the log end as they do over any other."""
    one.job("dispatch", now)
    for name in VIEWS:
        getattr(one.store, name).collect()
    one.job("query", now, "pull", "--topic", "T", "--queue-id", 0, "--offset", 0)
    outcomes = one.directory / "outcomes.jsonl"
    outcomes.write_text("")
    one.deliver(now)
    one.job("check_transactions", now, "--outcomes", outcomes)


@pytest.mark.slow
def test_a_log_with_any_numbers_is_read_by_everyone(life: Callable[..., Life]) -> None:
    one = life()
    half = raw(REAL_TOPIC="T", REAL_QID=0, TRAN_MSG="true", PGROUP="p")
    rows: list[dict[str, Any]] = []
    for number in LONGS:
        rows += [
            {"topic": "T", "born_timestamp": number, "prepared_transaction_offset": number},
            {"topic": HALF, "sys_flag": 4, "born_timestamp": number, "due_ms": number, "properties": half},
            {
                "topic": HALF,
                "sys_flag": 4,
                "due_ms": B,
                "properties": half
                + raw(CHECK_IMMUNITY_TIME_IN_SECONDS=number, TRANSACTION_CHECK_TIMES=number),
            },
            {
                "topic": SCHEDULE,
                "due_ms": number,
                "properties": raw(REAL_TOPIC="T", REAL_QID=0, DELAY=number, **{"TIMING-LIST": number}),
            },
            {
                "topic": WHEEL,
                "due_ms": number,
                "append_id": "import:x",
                "properties": raw(REAL_TOPIC="T", REAL_QID=number, TIMER_OUT_MS=number, UNIQ_KEY=number),
            },
            {
                "topic": WHEEL,
                "due_ms": B,
                "properties": raw(REAL_TOPIC="T", REAL_QID=0, TIMER_OUT_MS="x" * 40),
            },
        ]
    for number in INTS:
        rows += [
            {"topic": "T", "queue_id": number & 0x7FFFFFFF, "flag": number, "reconsume_times": number},
            {
                "topic": SCHEDULE,
                "queue_id": 2**31 - 1,
                "due_ms": B,
                "properties": raw(REAL_TOPIC="T", REAL_QID=number),
            },
        ]
    rows += [{"topic": "T", "store_host": "1.2.3.4:4294967295", "born_host": "1.2.3.4:4294967295"}]
    rows += [{"topic": "T", "store_timestamp": number} for number in LONGS]
    one.append(*rows)
    expect_answers(one, B + 10_000)
    one.job("query", B + 10_000, "by-time", "--topic", "T", "--queue-id", 0, "--timestamp", B)
    one.job("report", B + 10_000, "--out", one.directory / "report.html")
    found = one.commitlake("validate", "--store", one.store.uri, "--now", B + 10_000, "--quiet")
    assert found.exit_status in (0, 3), found.stderr


NUMBERS = st.one_of(
    st.sampled_from([*LONGS, *INTS, 2**64, -(2**64)]),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(["", " 7 ", "1e3", "0x10", "9" * 30, "NaN", "٣"]),
    st.floats(allow_nan=False, allow_infinity=False),
)
COLUMNS = ("queue_id", "flag", "sys_flag", "delay_level", "born_timestamp", "delay_ms", "deliver_at_ms")
PROPERTIES = (
    "CHECK_IMMUNITY_TIME_IN_SECONDS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "DELAY",
    "REAL_QID", "TRANSACTION_CHECK_TIMES", "TIMING-LIST", "INNER_NUM",
)  # fmt: skip
INPUT_ROWS = st.one_of(
    st.builds(lambda column, number: {column: number}, st.sampled_from(COLUMNS), NUMBERS),
    st.builds(
        lambda first, number, second, other: {"properties_raw": raw(**{first: number, second: other})},
        st.sampled_from(PROPERTIES), NUMBERS, st.sampled_from(PROPERTIES), NUMBERS,
    ),
    st.builds(
        lambda born, immunity: {
            "born_timestamp": born,
            "transaction": True,
            "producer_group": "p",
            "properties": {"CHECK_IMMUNITY_TIME_IN_SECONDS": f"0{immunity}"},
        },
        NUMBERS, NUMBERS,
    ),
)  # fmt: skip


@pytest.mark.nightly
def test_whatever_numbers_are_given_a_quarantine_puts_the_good_rows(life: Callable[..., Life]) -> None:
    one = life()
    puts = 0

    @settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.lists(INPUT_ROWS, min_size=60, max_size=120))
    def quarantine(rows: list[dict[str, Any]]) -> None:
        nonlocal puts
        puts += 1
        # The first in order, the second out of it.
        arrivals = LONGS if puts == 2 else (7,)
        source = one.input(
            *[
                {"topic": "T", "body": json.dumps(row), **row, "arrival": arrivals[number % len(arrivals)]}
                for number, row in enumerate(rows)
            ]
        )
        found = one.job("put_messages", B + puts, "--input", source, "--on-bad", "quarantine").result
        assert found["appended"] + found["rejected"] == len(rows)
        assert found["rejected"] > 0

    quarantine()
    expect_answers(one, B + 10_000)
