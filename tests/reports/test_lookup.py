"""Messages by id, key and place; all copies of a message."""

import shutil
from collections.abc import Callable

import pytest
from pyspark.sql import functions as F

from pipelines.errors import BadInput
from pipelines.reports.lineage import copies_of
from pipelines.reports.lookup import (
    key_hash,
    message_at,
    message_by_id,
    messages_at_offset,
    messages_by_key,
    messages_by_keys,
    messages_by_unique_key,
    messages_of,
    rows_with_key,
)
from pipelines.reports.questions import Kind, Question
from pipelines.rocketmq.hashing import java_hash
from pipelines.rocketmq.message_ids import message_id_of
from pipelines.store.commit import commit
from pipelines.store.plan import Plan
from pipelines.store.store import Store
from schemas import COMMITLOG, CONSUME_QUEUE
from tests.life import SCHEDULE, Life, raw
from tests.reports.golden import cases, log_row


def test_every_message_is_found_by_a_brokers_id(golden_a: Store):
    at = golden_a.snapshot()
    message = cases("a", "message")[400]
    (row,) = message_by_id(at, message["msgId"].lower()).rows.collect()
    assert (row.physical_offset, row.message_id) == (message["commitLogOffset"], message["msgId"])


def test_an_id_that_is_a_unique_key_finds_all_its_rows(golden_a: Store):
    at = golden_a.snapshot()
    delayed = next(m for m in cases("a", "message") if m["topic"] == "SCHEDULE_TOPIC_XXXX")
    key = delayed["properties"]["UNIQ_KEY"]
    rows = message_by_id(at, key).rows.collect()
    expected = [m["commitLogOffset"] for m in cases("a", "message") if m["properties"].get("UNIQ_KEY") == key]
    assert [row.physical_offset for row in rows] == sorted(expected, reverse=True)


def test_an_id_of_another_store_is_not_found(golden_a: Store):
    assert message_by_id(golden_a.snapshot(), "0A000001000051AF0000000000000000").rows.isEmpty()


@pytest.mark.parametrize("text", ["", "7F00", "not an id at all, but of 32 bytes"])
def test_what_is_no_id_is_refused(golden_a: Store, text: str):
    with pytest.raises(BadInput, match="is not a valid message id"):
        message_by_id(golden_a.snapshot(), text)


def test_by_key_gives_whole_words_only_newest_first(golden_a: Store):
    case = next(c for c in cases("a", "queryByKey") if len(c["offsets"]) > 2)
    answer = messages_by_key(golden_a.snapshot(), case["topic"], case["key"])
    rows = answer.rows.select("physical_offset", "keys").collect()
    assert [row.physical_offset for row in rows] == case["offsets"][::-1]
    assert all(case["key"] in row["keys"] for row in rows)


def test_by_key_between_two_times(golden_a: Store):
    at = golden_a.snapshot()
    case = next(c for c in cases("a", "queryByKey") if len(c["offsets"]) > 2)
    rows = messages_by_key(at, case["topic"], case["key"]).rows.orderBy("physical_offset").collect()
    between = messages_by_key(
        at, case["topic"], case["key"], rows[1].store_timestamp, rows[1].store_timestamp
    )
    assert rows[1].physical_offset in [row.physical_offset for row in between.rows.collect()]
    assert all(row.store_timestamp == rows[1].store_timestamp for row in between.rows.collect())


def test_by_unique_key_leaves_words_of_keys_out(golden_a: Store):
    case = cases("a", "queryByKey")[0]
    assert messages_by_unique_key(golden_a.snapshot(), case["key"], case["topic"]).rows.isEmpty()


def test_a_place_in_the_log_and_in_a_queue(golden_a: Store):
    at = golden_a.snapshot()
    message = cases("a", "message")[100]
    (row,) = messages_at_offset(at, message["commitLogOffset"]).collect()
    place = message["topic"], message["queueId"], message["queueOffset"]
    assert (row.topic, row.queue_id, row.queue_offset) == place
    assert message_at(at, *place).rows.collect() == [row]
    assert messages_at_offset(at, message["commitLogOffset"] + 1).isEmpty()


def test_many_places_are_joined_and_few_are_named_with_the_same_rows(golden_a: Store, monkeypatch):
    at = golden_a.snapshot()
    places = at.read(CONSUME_QUEUE).where((F.col("topic") == "BatchTopic") & (F.col("queue_id") == 3))
    named = {row.physical_offset for row in messages_of(at, places).collect()}
    monkeypatch.setattr("pipelines.reports.lookup.PLACES_NAMED", 5)
    joined = {row.physical_offset for row in messages_of(at, places).collect()}
    assert named == joined
    assert len(named) == 21


def test_an_id_traces_the_copies_that_a_broker_has_made(life: Callable[..., Life]) -> None:
    store = life()
    broker, key = {"append_id": "import:broker"}, raw(UNIQ_KEY="k1")
    waited, _ = store.append({"topic": SCHEDULE, "properties": key, **broker}, {"topic": "T", **broker})
    delivered, dead, _ = store.append(
        {"properties": key, **broker},
        {"topic": "%DLQ%g", "properties": key, **broker},
        {"properties": key},  # another message, put here with that key
    )
    (again,) = store.append({"properties": key, "origin_offset": dead.physical_offset})
    copies = [row.physical_offset for row in (waited, delivered, dead, again)]
    at = store.store.snapshot()
    for row in (delivered, again):
        message_id = message_id_of(row.store_host, row.physical_offset)
        answer = Question(Kind.trace, key=message_id, topic=None).answered(at)
        assert [found.physical_offset for found in answer.rows.collect()] == copies


def test_hash_of_a_key_is_the_one_the_index_holds(spark):
    keys = ["k1", "", "订单-1", "🚀" * 3, "polygenelubricants"]
    rows = spark.createDataFrame([(key,) for key in keys], "key string")
    hashes = rows.select("key", java_hash(F.concat(F.lit("T#"), "key")).alias("code")).collect()
    for row in hashes:
        assert key_hash("T", row["key"]) == (0 if row.code == -(2**31) else abs(row.code))


@pytest.mark.slow
def test_appends_that_are_not_dispatched_yet_are_found_by_id_and_key_but_not_in_their_queue(
    spark, golden: Callable[[str], Store], tmp_path
):
    shutil.copytree(golden("b").uri.removeprefix("file:"), tmp_path / "b")
    store = Store(spark, str(tmp_path / "b"))
    end = cases("b", "store")[0]["maxPhyOffset"]
    last = next(m for m in cases("b", "message") if m["topic"] == "OrderTopic" and m["queueOffset"] == 64)
    new = dict(
        last,
        commitLogOffset=end,
        queueOffset=1_000,
        properties={"UNIQ_KEY": "AB" * 16, "KEYS": "x brand-new"},
    )
    lineage = dict(
        zip(COMMITLOG.names, log_row(new, store.settings.segment_bytes, append_seq=1), strict=True)
    )
    lineage |= {
        "source_offset": last["commitLogOffset"],
        "origin_offset": last["commitLogOffset"],
        "purpose": "retry",
    }
    row = spark.createDataFrame([tuple(lineage.values())], COMMITLOG.columns)
    commit(store, lambda at: Plan((at.append(COMMITLOG, row),)))
    at = store.snapshot()
    assert [r.physical_offset for r in messages_by_key(at, "OrderTopic", "brand-new").rows.collect()] == [end]
    assert message_by_id(at, "ab" * 16).rows.isEmpty()  # unique keys are told apart by case
    assert [r.physical_offset for r in messages_by_unique_key(at, "AB" * 16).rows.collect()] == [end]
    old = last["properties"]["KEYS"].split()[0]
    keys = spark.createDataFrame([("brand-new",), (old,), ("none",)], "key string")
    by_keys = messages_by_keys(at, "OrderTopic", keys).rows.select("key", "physical_offset").collect()
    by_old = messages_by_key(at, "OrderTopic", old).rows.collect()
    assert by_old
    assert [(row["key"], row.physical_offset) for row in by_keys] == sorted(
        [("brand-new", end), *((old, row.physical_offset) for row in by_old)],
        key=lambda pair: (pair[0], -pair[1]),
    )
    in_queue = message_at(at, "OrderTopic", last["queueId"], 1_000)
    assert (in_queue.rows.count(), in_queue.complete) == (0, False)
    copies = copies_of(at, rows_with_key(at, "brand-new", None)).rows.collect()
    assert [copy.physical_offset for copy in copies] == [last["commitLogOffset"], end]
