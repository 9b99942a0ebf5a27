"""Sending back and giving up; vectors of docs/rocketmq/delay-retry-transaction.md 9 by number."""

from collections.abc import Callable

import pytest
from pyspark.sql import functions as F

from pipelines.retry.send_back import RETRY, plan_send_back, sent_back_copies
from pipelines.store.commit import commit
from pipelines.store.groups import SubscriptionGroupConfig
from pipelines.store.topics import TopicConfig, plan_make_topics
from tests.life import SCHEDULE, B, Life, lineage, place, raw
from tests.model.log import read_properties

pytestmark = pytest.mark.usefixtures("engine_of_choice")

RETRY_G, DEAD_G = "%RETRY%g", "%DLQ%g"


@pytest.mark.slow
def test_vectors_22_to_27_a_failed_message_comes_later_or_is_dead(life: Callable[..., Life]) -> None:
    store = life()
    again = raw(RETRY_TOPIC="T", ORIGIN_MESSAGE_ID="AA", UNIQ_KEY="k")
    rows = store.append(
        {"queue_id": 3, "properties": raw(UNIQ_KEY="v22", TIMER_DELIVER_MS=5), "flag": 7},
        {"topic": RETRY_G, "reconsume_times": 15, "properties": again},
        {"topic": RETRY_G, "reconsume_times": 16, "properties": again},
        {"reconsume_times": 0, "properties": raw(UNIQ_KEY="v25a")},
        {"reconsume_times": 7, "properties": raw(UNIQ_KEY="v25b")},
        {"reconsume_times": 17, "properties": raw(UNIQ_KEY="v26")},
        {"reconsume_times": 3, "properties": raw(UNIQ_KEY="v27")},
    )
    asked = [
        {},
        {},
        {},
        {"delay_level": -1},
        {"delay_level": 5},
        {"max_reconsume_times": 20},
        {"max_reconsume_times": 3},
    ]
    requests = [
        {"physical_offset": row.physical_offset, **more} for row, more in zip(rows, asked, strict=True)
    ]
    requests.append(requests[0])  # the same failure reported twice counts once
    path = store.input(*requests)
    result = store.job("send_back", B, "--group", "g", "--input", path).result
    assert (result["sent_back"], result["dead_lettered"], result["already"], result["dropped"]) == (
        4,
        3,
        0,
        0,
    )
    copies = store.rows()[len(rows) :]
    found = [(place(row), row.reconsume_times, read_properties(row.properties), row.due_ms) for row in copies]

    where, times, properties, due_ms = found[0]  # vector 22
    assert (where, times, due_ms, copies[0].flag) == ((SCHEDULE, 2), 1, B + 10_000, 7)
    assert properties == {
        "UNIQ_KEY": "v22", "RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "0A00000200000001" + "0" * 16, "WAIT": "false",
        "DELAY": "3", "REAL_TOPIC": RETRY_G, "REAL_QID": "0",
    }  # fmt: skip
    assert lineage(copies[0]) == (rows[0].physical_offset, "retry", "group:g#0")
    where, times, properties, due_ms = found[1]  # vector 23
    assert (where, times, due_ms) == ((SCHEDULE, 17), 16, B + 7_200_000)
    assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == ("T", "AA")
    where, times, properties, due_ms = found[2]  # vector 24
    assert (where, times, properties["DELAY"], due_ms) == ((DEAD_G, 0), 17, "0", None)
    assert lineage(copies[2])[1:] == ("dead_letter", "group:g#0")
    assert found[3][:2] == ((DEAD_G, 0), 1)  # vector 25
    assert (found[4][:2], found[4][3]) == (((SCHEDULE, 4), 8), B + 60_000)
    assert (found[5][0], found[5][3]) == ((SCHEDULE, 17), B + 7_200_000)  # vector 26
    assert found[6][:2] == ((DEAD_G, 0), 4)  # vector 27

    result = store.job("send_back", B + 1, "--group", "g", "--input", path).result
    assert (result["sent_back"], result["dead_lettered"], result["already"]) == (0, 0, 7)
    # Another group may fail on the same message.
    result = store.job("send_back", B + 1, "--group", "h", "--input", store.input(requests[0])).result
    assert (result["sent_back"], result["already"]) == (1, 0)
    assert store.deliver(B + 10_001)["delivered"] == 2
    delivered = [row for row in store.rows() if row.topic == RETRY_G and row.purpose == "deliver"]
    assert [(row.reconsume_times, row.origin_offset) for row in delivered] == [(1, rows[0].physical_offset)]
    topics = {row.topic: row.write_queue_nums for row in store.store.topics.collect()}
    assert (topics[RETRY_G], topics[DEAD_G], topics["%RETRY%h"]) == (1, 1, 1)
    store.expect_promises()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ladder", "waits_ms"),
    [
        ({}, [10_000, 30_000, 240_000, 7_200_000, 60_000]),  # RocketMQ's own levels 3, 4, 8, 18 and 5
        pytest.param(
            {"retryDelayLevel": "1s 2s 30s 40s"},
            [30_000, 40_000, 40_000, 40_000, 40_000],
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_retries_wait_by_a_ladder_of_their_own_and_not_by_a_custom_level_table(
    life: Callable[..., Life], ladder: dict[str, str], waits_ms: list[int]
) -> None:
    store = life(messageDelayLevel="1s 3s 5s", **ladder)
    times = [0, 1, 5, 15, 0]
    rows = store.append(*[{"reconsume_times": n, "properties": raw(UNIQ_KEY=f"k{n}")} for n in times])
    requests: list[dict[str, object]] = [{"physical_offset": row.physical_offset} for row in rows]
    requests[-1]["delay_level"] = 5
    store.job("send_back", B, "--group", "g", "--input", store.input(*requests))
    copies = store.rows()[len(rows) :]
    assert [row.due_ms - B for row in copies] == waits_ms
    # As a broker with this table would store them: within the table.
    levels = [(place(row), read_properties(row.properties)["DELAY"]) for row in copies]
    assert levels == [((SCHEDULE, 2), "3")] * 5
    store.job("dispatch", B)
    entries = store.store.consume_queue.where(f"topic = '{SCHEDULE}'").orderBy("queue_offset").collect()
    assert [entry.tags_code - B for entry in entries] == waits_ms
    # What is put by level waits as the table says.
    store.put(B, {"topic": "T", "delay_level": 3})
    assert store.rows()[-1].due_ms == B + 5_000
    assert [store.deliver(B + after)["delivered"] for after in (9_999, 10_000)] == [1, int(not ladder)]
    store.expect_promises()


def test_vector_28_without_retry_queues_a_failure_is_dropped_and_counted(life: Callable[..., Life]) -> None:
    store = life()
    store.job("topics", B, "create-group", "g", "--retry-queues", "0")
    (row,) = store.append({"properties": raw(UNIQ_KEY="a")})
    path = store.input({"physical_offset": row.physical_offset})
    result = store.job("send_back", B, "--group", "g", "--input", path).result
    assert (result["dropped"], result["sent_back"], len(store.rows())) == (1, 0, 1)


def test_requests_about_no_message_are_refused(life: Callable[..., Life]) -> None:
    store = life()
    (row,) = store.append({"properties": raw(UNIQ_KEY="a")})
    path = store.input(
        {"physical_offset": row.physical_offset}, {"physical_offset": 12345}, {"message_id": "0" * 32}
    )
    run = store.job("send_back", B, "--group", "g", "--input", path, exit_status=2)
    assert "no message 12345 is in the log" in run.stderr
    assert "no message 00000000000000000000000000000000 is in the log" in run.stderr
    run = store.job("send_back", B, "--group", "g", "--input", store.input({"offset": 0}), exit_status=2)
    assert "has a column 'offset'" in run.stderr
    assert len(store.rows()) == 1


def test_the_name_of_a_send_back_may_not_be_taken_for_a_put(life: Callable[..., Life]) -> None:
    store = life()
    (row,) = store.append({"properties": raw(UNIQ_KEY="a")})
    path = store.input({"physical_offset": row.physical_offset})
    for name in ("orders:0-5", "trace:orders", "no name"):
        run = store.job("send_back", B, "--group", "g", "--input", path, "--batch-id", name, exit_status=2)
        assert f"--batch-id is '{name}'" in run.stderr
    assert len(store.rows()) == 1


def queue_nums(store: Life, topic: str) -> tuple[int, int]:
    (row,) = store.store.topics.where(f"topic = '{topic}'").collect()
    return row.read_queue_nums, row.write_queue_nums


@pytest.mark.slow
def test_retries_go_to_queues_that_the_retry_topic_has(life: Callable[..., Life]) -> None:
    store = life()
    rows = store.append(*[{"queue_id": 3, "properties": raw(UNIQ_KEY=f"k{n}")} for n in range(13)])
    send_back = (
        "--group",
        "g",
        "--input",
        store.input(*[{"physical_offset": row.physical_offset} for row in rows]),
    )
    store.job("topics", B, "create-group", "g")
    store.job("send_back", B, "--group", "g", "--input", store.input({"physical_offset": 0}))
    assert queue_nums(store, RETRY_G) == (1, 1)
    store.job("topics", B, "update-group", "g", "--retry-queues", 8)
    assert queue_nums(store, RETRY_G) == (8, 8)
    assert store.job("send_back", B, *send_back).result["sent_back"] == 12
    queues = {read_properties(row.properties)["REAL_QID"] for row in store.rows() if row.purpose == "retry"}
    assert len(queues) > 1
    # Fewer are used from now on; those that are there may hold messages, so they stay.
    store.job("topics", B, "update-group", "g", "--retry-queues", 2)
    assert queue_nums(store, RETRY_G) == (8, 8)
    # A topic that was made with fewer queues than the group has now, by an earlier version or a broker.
    store.job("topics", B, "update", RETRY_G, "--queues", 1)
    store.job("send_back", B, "--group", "g", *send_back[2:])
    assert queue_nums(store, RETRY_G) == (2, 2)


@pytest.mark.slow
def test_no_retry_goes_where_the_retry_topic_ends(life: Callable[..., Life]) -> None:
    store = life()
    rows = store.append(*[{"properties": raw(UNIQ_KEY=f"k{n}")} for n in range(6)])
    group = SubscriptionGroupConfig("g", retry_queue_nums=8)
    commit(store.store, lambda at: plan_make_topics(at, [TopicConfig(RETRY_G, 2, 2)]))
    failures = store.store.spark.createDataFrame(
        [(row.segment, row.physical_offset, "group:g#0", "retry", 3, row.physical_offset) for row in rows],
        "segment long, source_offset long, claim string, purpose string, level int, order long",
    )
    commit(store.store, lambda at: plan_send_back(at, failures, group, B, "run"))
    queues = {read_properties(row.properties)["REAL_QID"] for row in store.rows() if row.purpose == "retry"}
    assert queues == {"0", "1"}


def test_the_plan_of_copies_stays_short(
    life: Callable[..., Life], capsys: pytest.CaptureFixture[str]
) -> None:
    """As one expression their properties were a plan of half a million characters, which Spark took ten seconds to read."""
    store = life().store
    decided = {"claim": F.lit("c"), "purpose": F.lit(RETRY), "order": F.lit(0), "level": F.lit(3)}
    sent_back_copies(
        store.commitlog.withColumns(decided), SubscriptionGroupConfig("g"), store.settings
    ).explain("extended")
    assert 10_000 < len(capsys.readouterr().out) < 100_000
