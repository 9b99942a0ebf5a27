"""Parking at put and bringing back when due; vectors of docs/rocketmq/delay-retry-transaction.md 9 by number."""

import shutil
from collections.abc import Callable
from functools import partial
from itertools import chain, repeat
from typing import Any

import pytest

from jobs import deliver
from jobs.launch.run import Run
from pipelines.delay import deliver as module
from pipelines.delay.deliver import plan_deliver
from pipelines.store.plan import Plan
from pipelines.store.progress import Seen, seen_by
from schemas import PROGRESS
from tests.life import HALF, SCHEDULE, WHEEL, B, Life, place, raw
from tests.model.log import read_properties
from tests.races import killed_before_writing
from tests.store.earlier_versions import keep_clocks_as_rows

pytestmark = pytest.mark.usefixtures("engine_of_choice")


def test_each_is_delivered_where_it_was_meant_to_go_once_it_is_due(life: Callable[..., Life]) -> None:
    """Vectors 2, 11 to 13 and 16: what a put makes of them is in tests/produce/test_divert.py."""
    store = life()
    store.put(
        B,
        {"topic": "T", "queue_id": 3, "unique_key": "v1", "delay_level": 3},
        {"topic": "T", "queue_id": 1, "unique_key": "v3", "delay_level": 25},
        {"topic": "T", "queue_id": 1, "unique_key": "v4", "delay_level": 0},
        {"topic": "T", "unique_key": "v12", "deliver_at_ms": B + 90_000},
        {"topic": "T", "properties_raw": raw(UNIQ_KEY="v16", DELAY=3, TIMER_DELAY_SEC=90)},
        {"topic": "T", "queue_id": 3, "unique_key": "v29", "transaction": True, "producer_group": "pg"},
    )
    store.put(
        B + 250,
        {"topic": "T", "properties_raw": raw(UNIQ_KEY="v11", TIMER_DELAY_SEC=90)},
        {"topic": "T", "unique_key": "v13", "delay_ms": 400},
    )
    found = {
        properties["UNIQ_KEY"]: (place(row), row.due_ms and row.due_ms - B, properties)
        for row in store.rows()
        for properties in [read_properties(row.properties)]
    }
    assert found["v1"] == (
        (SCHEDULE, 2), 10_000, {"UNIQ_KEY": "v1", "DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "3"},
    )  # fmt: skip
    assert found["v4"] == (("T", 1), None, {"UNIQ_KEY": "v4"})
    assert found["v29"] == (
        (HALF, 0), 6_000,
        {"UNIQ_KEY": "v29", "TRAN_MSG": "true", "PGROUP": "pg", "REAL_TOPIC": "T", "REAL_QID": "3",
         "__transactionId__": "v29"},
    )  # fmt: skip
    assert {key: due for key, (_, due, _) in found.items() if key in ("v3", "v11", "v12", "v13", "v16")} == {
        "v3": 7_200_000, "v11": 91_000, "v12": 90_000, "v13": 1_000, "v16": 10_000,
    }  # fmt: skip
    # Turns are taken by messages that wait too: v12 and v16 name no queue.
    assert [found[key][2]["REAL_QID"] for key in ("v12", "v16")] == ["0", "1"]

    waiting = store.deliver(B + 9_999)
    assert (waiting["delivered"], waiting["skipped"], waiting["next_due_ms"]) == (1, 0, B + 10_000)
    assert [row.topic for row in store.by_key("v13")] == [WHEEL, "T"]  # due since B + 1,000
    assert store.deliver(B + 10_000)["delivered"] == 2  # vector 2: v1 and v16
    source, copy = store.by_key("v1")
    assert place(copy) == ("T", 3)
    assert copy.properties == source.properties  # DELAY and REAL_* are still stored
    assert (copy.source_offset, copy.origin_offset, copy.purpose, copy.claim) == (
        source.physical_offset, source.physical_offset, "deliver", "settle",
    )  # fmt: skip
    assert copy.due_ms is None
    assert store.deliver(B + 90_999)["delivered"] == 1  # v12, due at 90,000; not v11
    last = store.deliver(B + 91_000)
    assert (last["delivered"], last["next_due_ms"]) == (1, B + 7_200_000)
    assert read_properties(store.by_key("v11")[1].properties)["TIMER_DEQUEUE_MS"] == str(B + 91_000)
    end = store.deliver(B + 8_000_000)
    assert (end["delivered"], end["next_due_ms"]) == (1, None)
    store.expect_promises()


@pytest.mark.slow
def test_a_message_that_fits_no_segment_in_its_topic_holds_no_other_up(life: Callable[..., Life]) -> None:
    store = life(mappedFileSizeCommitLog=4096)
    topic = "T" * 100
    properties = raw(UNIQ_KEY="a", REAL_TOPIC=topic, REAL_QID=0, DELAY=1)
    body = b"x" * (4096 - 8 - 91 - len(SCHEDULE) - len(properties))  # it fits to the byte where it waits
    store.append({"topic": SCHEDULE, "properties": properties, "body": body, "due_ms": B + 1_000})
    store.put(B, {"topic": topic, "unique_key": "b", "delay_level": 1})
    assert store.rows()[0].size_bytes == 4096 - 8
    run = store.job("deliver", B + 1_000)
    assert (run.result["delivered"], run.result["skipped"]) == (1, 1)
    assert f"stays where it waits: the message at offset 0 of queue 0 of {SCHEDULE} (byte 0)" in run.stderr
    assert [row.topic for row in store.by_key("b")] == [SCHEDULE, topic]
    assert [row.topic for row in store.by_key("a")] == [SCHEDULE]


@pytest.mark.slow
def test_vectors_7_8_10_and_17_rules_of_being_due(life: Callable[..., Life]) -> None:
    store = life(messageDelayLevel="1s 5s 10s")
    scheduled = {"topic": SCHEDULE, "queue_id": 2}
    store.append(
        {
            **scheduled,
            "due_ms": B + 10_000,
            "properties": raw(UNIQ_KEY="v7", DELAY=3, REAL_TOPIC="T", REAL_QID=0),
        },
        {**scheduled, "due_ms": B, "properties": raw(UNIQ_KEY="v10", DELAY=3, REAL_TOPIC=HALF, REAL_QID=0)},
        {**scheduled, "due_ms": B, "properties": raw(UNIQ_KEY="lost", DELAY=3, REAL_TOPIC="T")},
    )
    store.put(
        B,
        {"topic": "T", "unique_key": "v8", "delay_level": 7},
        {"topic": "T", "unique_key": "U1", "deliver_at_ms": B + 91_000},
        {"topic": "T", "unique_key": "U2", "deliver_at_ms": B + 91_000},
        {"topic": "T", "unique_key": "c1", "deliver_at_ms": B + 91_000, "cancel_unique_key": "U1"},
        {"topic": "T", "unique_key": "c2", "deliver_at_ms": B + 92_000, "cancel_unique_key": "U2"},
    )
    (eighth,) = store.by_key("v8")
    assert (place(eighth), eighth.due_ms, "DELAY\x013\x02" in eighth.properties) == (
        (SCHEDULE, 2),
        B + 10_000,
        True,
    )
    result = store.deliver(B)
    assert (result["delivered"], result["skipped"]) == (0, 2)  # v10 and lost go nowhere
    result = store.deliver(B + 10_000)
    assert (result["delivered"], result["skipped"]) == (2, 0)  # v7 and v8
    # U1 was cancelled in its slot; the cancel of U2 names another slot.
    result = store.deliver(B + 95_000)
    assert (result["delivered"], result["skipped"], result["next_due_ms"]) == (1, 3, None)
    assert [row.topic for row in store.by_key("U2")] == [WHEEL, "T"]
    assert len(store.by_key("U1")) == 1


@pytest.mark.slow
def test_vector_6_an_imported_message_further_away_than_its_level_is_due_at_once(
    life: Callable[..., Life],
) -> None:
    store = life(messageDelayLevel="1s 5s 10s")
    scheduled = {"topic": SCHEDULE, "queue_id": 2, "append_id": "import:0-9"}
    late, exact, own, fast = (
        raw(UNIQ_KEY=key, DELAY=3, REAL_TOPIC="T", REAL_QID=0) for key in ("v6", "v7", "own", "v8")
    )
    store.append(
        {**scheduled, "due_ms": B + 60_000, "properties": late},
        {**scheduled, "due_ms": B + 10_000, "properties": exact},
        # Put here, by another level table: what it waits is its own.
        {**scheduled, "append_id": "r", "due_ms": B + 60_000, "properties": own},
    )
    store.write_floors(half=0)
    # Stored by a broker whose clock was ahead of ours: as far as its level waits, by its own times.
    assert store.deliver(B - 5_000)["delivered"] == 1
    assert [row.topic for row in store.by_key("v6")] == [SCHEDULE, "T"]
    store.append(
        {**scheduled, "due_ms": B + 60_000, "store_timestamp": B + 50_000, "properties": fast},
    )
    assert store.deliver(B + 9_999)["delivered"] == 0
    assert store.deliver(B + 10_000)["delivered"] == 1
    assert store.deliver(B + 59_999)["delivered"] == 0
    assert store.deliver(B + 60_000)["delivered"] == 2


@pytest.mark.slow
def test_a_message_delayed_after_a_deliver_has_started_waits(life: Callable[..., Life]) -> None:
    store = life()
    store.put(B, {"topic": "T", "unique_key": "first", "delay_level": 1})
    store.put(B + 1_500, {"topic": "T", "unique_key": "k", "delay_level": 18})
    assert store.deliver(B)["delivered"] == 0  # its clock was read before the put's
    retry = store.append({"store_timestamp": B + 3_000})[0]
    store.job(
        "send_back",
        B + 3_000,
        "--group",
        "g",
        "--input",
        store.input({"physical_offset": retry.physical_offset}),
    )
    assert store.deliver(B + 2_000)["delivered"] == 1  # first
    assert store.deliver(B + 12_999)["delivered"] == 0
    assert store.deliver(B + 13_000)["delivered"] == 1  # the retry, ten seconds
    assert store.deliver(B + 7_201_499)["delivered"] == 0
    assert store.deliver(B + 7_201_500)["delivered"] == 1
    store.expect_promises()


@pytest.mark.slow
def test_a_message_put_by_a_slower_clock_after_its_time_was_delivered_is_not_forgotten(
    life: Callable[..., Life],
) -> None:
    store = life()
    store.put(B, {"topic": "T", "unique_key": "first", "deliver_at_ms": B + 10_000})
    assert store.deliver(B + 60_000)["delivered"] == 1
    store.put(B + 5_000, {"topic": "T", "unique_key": "late", "deliver_at_ms": B + 20_000})
    assert store.deliver(B + 60_000)["delivered"] == 1
    store.job("dispatch", B + 60_000)
    store.put(B + 5_000, {"topic": "T", "unique_key": "later", "deliver_at_ms": B + 20_000})
    store.job("dispatch", B + 60_000)
    assert store.deliver(B + 61_000)["delivered"] == 1
    assert [row.topic for row in store.by_key("later")] == [WHEEL, "T"]


@pytest.mark.slow
def test_a_cancel_that_was_looked_at_before_its_message_came_cancels_it(life: Callable[..., Life]) -> None:
    store = life()
    store.put(
        B,
        {"topic": "T", "unique_key": "other", "deliver_at_ms": B + 10_000},
        {"topic": "T", "unique_key": "c", "deliver_at_ms": B + 10_000, "cancel_unique_key": "k"},
    )
    assert store.deliver(B + 10_000)["delivered"] == 1
    store.put(B + 5_000, {"topic": "T", "unique_key": "k", "deliver_at_ms": B + 10_000})
    assert (store.deliver(B + 61_000)["delivered"], len(store.by_key("k"))) == (0, 1)


@pytest.mark.slow
def test_what_is_put_between_two_appends_of_a_run_is_for_the_next_run(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = life()
    timed = {"topic": "T", "queue_id": 0}
    store.put(
        B, *[{**timed, "unique_key": f"k{n}", "deliver_at_ms": B + 10_000 + n * 1_000} for n in range(4)]
    )
    plans = []

    def plan(at: Any, *given: Any) -> Plan:
        if len(plans) == 1:  # by a driver whose clock is slower
            store.put(B + 1_000, {**timed, "unique_key": "between", "deliver_at_ms": B + 10_000})
            at = store.store.snapshot()
        plans.append(given)
        return plan_deliver(at, *given, limit=2)

    monkeypatch.setattr(deliver, "plan_deliver", plan)
    assert store.deliver(B + 60_000)["delivered"] == 4
    assert len(store.by_key("between")) == 1
    monkeypatch.undo()
    assert store.deliver(B + 60_000)["delivered"] == 1
    assert store.deliver(B + 60_000)["delivered"] == 0
    store.expect_promises()


@pytest.fixture
def with_a_clock(life: Callable[..., Life]) -> Life:
    """Two timed messages, of which the one due at 10 s was delivered at 20 s; the other is due at 60 s."""
    store = life()
    store.put(B, timed("k10", 10), timed("k60", 60))
    assert store.deliver(B + 20_000)["delivered"] == 1
    return store


def timed(key: str, due_seconds: int) -> dict[str, Any]:
    return {"topic": "T", "queue_id": 0, "unique_key": key, "deliver_at_ms": B + due_seconds * 1_000}


def times_delivered(store: Life, *keys: str) -> list[int]:
    return [sum(row.purpose == "deliver" for row in store.by_key(key)) for key in keys]


@pytest.mark.slow
@pytest.mark.parametrize("upgraded_by", ["dispatch", pytest.param("deliver", marks=pytest.mark.nightly)])
def test_a_clock_that_an_earlier_version_kept_is_gone_on_with(with_a_clock: Life, upgraded_by: str) -> None:
    store = with_a_clock
    keep_clocks_as_rows(store.store)
    before = seen_by(store.store.snapshot(), "deliver")
    assert before == Seen(0, B + 20_000)
    assert store.deliver(B + 20_000)["delivered"] == 0
    if upgraded_by == "dispatch":
        store.job("dispatch", B + 20_000)
        assert store.store.progress.columns == PROGRESS.names
        assert seen_by(store.store.snapshot(), "deliver") == before
    store.put(B + 5_000, timed("late", 15))  # by a slower clock, when its time was over
    assert store.deliver(B + 59_999)["delivered"] == 1
    assert times_delivered(store, "k10", "late", "k60") == [1, 1, 0]
    assert "deliver:clock_ms" not in {row.follower for row in store.store.progress.collect()}
    assert store.deliver(B + 60_000)["delivered"] == 1
    assert store.deliver(B + 90_000)["delivered"] == 0
    assert times_delivered(store, "k10", "late", "k60") == [1, 1, 1]
    store.expect_promises()


@pytest.mark.slow
@pytest.mark.usefixtures("few_or_many")
@pytest.mark.parametrize("is_old", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_deliver_that_was_killed_between_rows_and_progress_delivers_once(
    with_a_clock: Life, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    store = with_a_clock
    if is_old:
        keep_clocks_as_rows(store.store)
    before = seen_by(store.store.snapshot(), "deliver")
    killed_before_writing(monkeypatch, PROGRESS.name)
    assert store.run("deliver", B + 60_000).exit_status == 1
    monkeypatch.undo()
    assert times_delivered(store, "k10", "k60") == [1, 1]
    assert seen_by(store.store.snapshot(), "deliver") == before
    store.put(B + 60_000, timed("k70", 70))
    assert store.deliver(B + 69_999)["delivered"] == 0
    assert store.deliver(B + 70_000)["delivered"] == 1
    assert times_delivered(store, "k10", "k60", "k70") == [1, 1, 1]
    store.expect_promises()


@pytest.mark.slow
def test_a_driver_with_an_older_clock_forgets_nothing_and_repeats_nothing(
    with_a_clock: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = with_a_clock
    store.put(B + 5_000, timed("k15", 15), timed("k40", 40))
    plans: list[int] = []

    def plan(at: Any, now_ms: int, *given: Any) -> Plan:
        plans.append(now_ms)
        planned = plan_deliver(at, now_ms, *given)
        if len(plans) == 1:  # a driver with a newer clock is faster
            assert store.deliver(B + 60_000)["delivered"] == 3
            store.put(B + 5_000, timed("new15", 15), timed("new40", 40))
        return planned

    monkeypatch.setattr(deliver, "plan_deliver", plan)
    assert store.deliver(B + 20_000)["delivered"] == 1
    monkeypatch.undo()
    assert times_delivered(store, "k15", "k40", "k60", "new15", "new40") == [1, 1, 1, 1, 0]
    assert seen_by(store.store.snapshot(), "deliver").clock_ms == B + 20_000
    assert store.deliver(B + 60_000)["delivered"] == 1
    assert store.deliver(B + 60_000)["delivered"] == 0
    assert times_delivered(store, "k10", "k15", "k40", "k60", "new15", "new40") == [1] * 6
    store.expect_promises()


@pytest.mark.slow
def test_progress_does_not_count_in_a_copy_whose_log_lacks_what_was_delivered(with_a_clock: Life) -> None:
    store = with_a_clock
    copy = store.copied("copy")
    assert store.deliver(B + 60_000)["delivered"] == 1
    shutil.rmtree(copy.store.path(PROGRESS))  # as in a copy made table by table while jobs run
    shutil.copytree(store.store.path(PROGRESS), copy.store.path(PROGRESS))
    copy.put(B + 61_000, timed("k70", 70))
    assert copy.deliver(B + 70_000)["delivered"] == 2
    assert times_delivered(copy, "k10", "k60", "k70") == [1, 1, 1]
    copy.expect_promises()


@pytest.mark.slow
def test_each_plan_of_a_run_reads_the_clock(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = life()
    waits = [10_000, 10_000, 10_000, 20_000]
    store.put(
        B, *[{"topic": "T", "unique_key": f"k{n}", "deliver_at_ms": B + wait} for n, wait in enumerate(waits)]
    )
    clock = chain([B + 10_000], repeat(B + 20_000))
    monkeypatch.setattr(Run, "now_ms", property(lambda _: next(clock)))
    monkeypatch.setattr(deliver, "plan_deliver", partial(plan_deliver, limit=2))
    run = store.commitlake("deliver", "--store", store.store.uri, "--quiet")
    assert (run.exit_status, run.result["delivered"]) == (0, 4), run.stderr
    delivered = [row.store_timestamp - B for row in store.rows() if row.topic == "T"]
    assert delivered == [10_000, 10_000, 20_000, 20_000]


@pytest.mark.nightly
def test_what_a_faster_clock_has_stored_is_due_by_that_clock(life: Callable[..., Life]) -> None:
    store = life()
    store.put(B, {"topic": "T", "unique_key": "slow", "delay_level": 5})  # a minute
    store.put(B, {"topic": "T", "unique_key": "timer", "deliver_at_ms": B + 3_000_000})
    store.put(
        B + 3_600_000, {"topic": "T", "unique_key": "fast", "delay_level": 3}
    )  # ten seconds, an hour ahead
    assert store.deliver(B)["delivered"] == 0  # nothing of the slower clock goes by the faster one
    store.put(B + 3_609_999, {"topic": "T", "unique_key": "plain"})
    assert store.deliver(B + 10_999)["delivered"] == 0
    store.put(B + 3_610_000, {"topic": "T", "unique_key": "plain 2"})
    assert store.deliver(B + 11_000)["delivered"] == 1
    assert [row.topic for row in store.by_key("fast")] == [SCHEDULE, "T"]
    assert store.deliver(B + 60_000)["delivered"] == 1
    assert store.deliver(B + 3_000_000)["delivered"] == 1
    assert store.deliver(B + 4_000_000)["delivered"] == 0
    store.expect_promises()


@pytest.mark.slow
@pytest.mark.usefixtures("few_or_many")
def test_a_cancel_counts_wherever_an_append_ends(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = life()
    slot = {"topic": "T", "queue_id": 0, "deliver_at_ms": B + 10_000}
    store.put(
        B,
        *[{**slot, "unique_key": f"k{n}"} for n in range(5)],
        {**slot, "unique_key": "c1", "cancel_unique_key": "k1"},
        {**slot, "unique_key": "c4", "cancel_unique_key": "k4"},
        {**slot, "unique_key": "last", "deliver_at_ms": B + 20_000},
    )
    monkeypatch.setattr(module, "NEXT_DUE_PAGE", 2)
    assert store.deliver(B)["next_due_ms"] == B + 10_000
    monkeypatch.setattr(deliver, "plan_deliver", partial(plan_deliver, limit=2))
    result = store.deliver(B + 10_000)
    assert (result["delivered"], result["skipped"], result["next_due_ms"]) == (3, 4, B + 20_000)
    assert [len(store.by_key(f"k{n}")) for n in range(5)] == [2, 1, 2, 2, 1]


@pytest.mark.slow
def test_the_next_due_time_is_no_cancelled_one(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = life()
    slot = {"topic": "T", "deliver_at_ms": B + 10_000}
    store.put(
        B,
        {**slot, "unique_key": "k0"},
        {**slot, "unique_key": "k1"},
        {**slot, "unique_key": "c0", "cancel_unique_key": "k0"},
        {**slot, "unique_key": "c1", "cancel_unique_key": "k1"},
        {**slot, "unique_key": "waits"},
        {**slot, "unique_key": "later", "deliver_at_ms": B + 20_000},
    )
    monkeypatch.setattr(module, "NEXT_DUE_PAGE", 2)
    assert store.deliver(B)["next_due_ms"] == B + 10_000  # it waits behind two pages of cancelled ones
    monkeypatch.setattr(deliver, "plan_deliver", partial(plan_deliver, limit=4))
    assert store.deliver(B + 10_000)["delivered"] == 1


@pytest.mark.slow
def test_timed_messages_a_broker_put_back_into_its_timer_come_once(life: Callable[..., Life]) -> None:
    store = life()
    timed = {"topic": WHEEL, "append_id": "import:0-9", "due_ms": B + 10_000}
    names = {"REAL_TOPIC": "T", "REAL_QID": 0, "TIMER_OUT_MS": B + 9_000}
    store.append(
        {**timed, "properties": raw(UNIQ_KEY="rolled", **names)},
        {**timed, "properties": raw(UNIQ_KEY="same", **names)},
        {**timed, "properties": raw(UNIQ_KEY="rolled", TIMER_ROLL_TIMES=1, **names)},
        {**timed, "properties": raw(UNIQ_KEY="same", **names)},  # sent twice: a broker delivers both
        {**timed, "properties": raw(UNIQ_KEY="rolled", TIMER_ROLL_TIMES=2, **names)},
        {**timed, "properties": raw(UNIQ_KEY="bare", **names)},
        {**timed, "properties": raw(UNIQ_KEY="c", TIMER_DEL_UNIQKEY="bare", **names)},
        {**timed, "due_ms": B + 11_000, "properties": raw(UNIQ_KEY="c2", TIMER_DEL_UNIQKEY="same", **names)},
    )
    store.write_floors(half=0)
    waiting = [
        (row.unique_key, row.properties.get("TIMER_ROLL_TIMES"))
        for row in store.store.scheduled_messages.collect()
    ]
    assert sorted(waiting, key=str) == [("rolled", "2"), ("same", None), ("same", None)]
    result = store.deliver(B + 60_000)
    assert (result["delivered"], result["skipped"], result["next_due_ms"]) == (3, 5, None)
    delivered = [read_properties(row.properties) for row in store.rows() if row.topic == "T"]
    assert [(each["UNIQ_KEY"], each.get("TIMER_ROLL_TIMES")) for each in delivered] == [
        ("same", None), ("same", None), ("rolled", "2"),
    ]  # fmt: skip
    assert store.deliver(B + 60_000)["delivered"] == 0


@pytest.mark.slow
def test_only_its_own_row_of_the_brokers_log_shows_that_an_imported_message_was_delivered(
    life: Callable[..., Life],
) -> None:
    store = life()
    imported = {"append_id": "import:0-9"}
    keys = ("put here", "word", "same key", "word of the broker", "back", "back too")
    names = {"DELAY": 3, "REAL_TOPIC": "T", "REAL_QID": 0}
    waits = {**imported, "topic": SCHEDULE, "queue_id": 2, "due_ms": B + 10_000}
    later = {**imported, "store_timestamp": B + 10_500}
    store.append(
        *[{**waits, "properties": raw(UNIQ_KEY=key.replace(" ", "-"), **names)} for key in keys[:-1]],
        {**waits, "properties": raw(UNIQ_KEY="back too", **names)},  # the index has such a key word by word
        {**later, "properties": raw(UNIQ_KEY="other", KEYS="x word-of-the-broker")},
        {**later, "properties": raw(UNIQ_KEY="back")},
        {**later, "properties": raw(UNIQ_KEY="back too")},
    )
    store.write_floors(half=0)
    store.job("dispatch", B + 10_600)
    store.put(B + 11_000, {"topic": "T", "unique_key": "new", "keys": "word put-here"})
    store.put(B + 11_000, {"topic": "T", "unique_key": "same-key"})
    left = ["put-here", "same-key", "word", "word-of-the-broker"]
    assert sorted(row.unique_key for row in store.store.scheduled_messages.collect()) == left
    result = store.deliver(B + 12_000)
    assert (result["delivered"], result["skipped"]) == (4, 2)
    delivered = [row for row in store.rows() if row.purpose == "deliver"]
    assert sorted(read_properties(row.properties)["UNIQ_KEY"] for row in delivered) == left
    assert store.store.scheduled_messages.count() == 0
    assert store.deliver(B + 20_000)["delivered"] == 0


def test_a_time_of_day_is_one_of_the_stores_time_zone(life: Callable[..., Life]) -> None:
    store = life(timeZone="Asia/Kolkata")
    store.put(B, {"topic": "T", "deliver_at_time": "03:43:30"})  # B is 22:13:20 in UTC
    assert [row.due_ms for row in store.rows()] == [B + 10_000]


@pytest.mark.slow
def test_vectors_18_and_21_a_level_list_is_gone_through_also_when_runs_were_missed(
    life: Callable[..., Life],
) -> None:
    store = life(messageDelayLevel="1s 5s 10s 30s")
    store.put(
        B,
        {"topic": "T", "queue_id": 1, "unique_key": "hops", "deliver_through": "2,3,1"},
        {"topic": "T", "queue_id": 1, "unique_key": "late", "deliver_through": [2, 3]},
        {"topic": "T", "queue_id": 1, "unique_key": "now", "deliver_through": ","},
        # B is 22:13:20 in UTC; 46 seconds later.
        {"topic": "T", "queue_id": 1, "unique_key": "clock", "deliver_at_time": "22:14:06"},
    )
    assert [place(row) for row in store.by_key("now")] == [("T", 1)]
    (first,) = store.by_key("hops")
    assert (place(first), first.due_ms, "TIMING-LIST\x013,1,\x02" in first.properties) == (
        (SCHEDULE, 1),
        B + 5_000,
        True,
    )
    (clock,) = store.by_key("clock")
    assert (clock.due_ms, "TIMING-LIST\x013,2,1,\x02" in clock.properties) == (B + 30_000, True)
    assert store.deliver(B + 5_000)["delivered"] == 0
    second = store.by_key("hops")[1]
    assert (place(second), second.due_ms, second.purpose) == ((SCHEDULE, 2), B + 15_000, "hop")
    assert "TIMING-LIST\x011,\x02" in second.properties
    result = store.deliver(B + 100_000)
    assert (result["delivered"], result["next_due_ms"]) == (3, None)
    for key in ("hops", "late", "clock"):
        last = store.by_key(key)[-1]
        assert (place(last), "TIMING-LIST" in last.properties) == (("T", 1), False)
    store.expect_promises()


@pytest.mark.slow
@pytest.mark.usefixtures("few_or_many")
@pytest.mark.parametrize(("due", "appends"), [(5, 3), (4, 2)])
def test_more_than_fits_an_append_is_delivered_in_several_in_the_same_order(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch, due: int, appends: int
) -> None:
    store = life()
    waits = [(number * 7) % due for number in range(due)]
    store.put(
        B,
        *[
            {
                "topic": "T",
                "queue_id": 0,
                "unique_key": f"k{wait}",
                "deliver_at_ms": B + 10_000 + wait * 1_000,
            }
            for wait in waits
        ],
    )
    monkeypatch.setattr(deliver, "plan_deliver", partial(plan_deliver, limit=2))
    assert store.deliver(B + 60_000)["delivered"] == due
    delivered = [row for row in store.rows() if row.topic == "T"]
    assert [read_properties(row.properties)["UNIQ_KEY"] for row in delivered] == [f"k{n}" for n in range(due)]
    assert len({row.append_seq for row in delivered}) == appends
    assert store.deliver(B + 60_000)["delivered"] == 0
