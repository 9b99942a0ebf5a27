"""Redrive: dead letters and other rows back to a topic, once under an id."""

from collections.abc import Callable

import pytest

from tests.life import B, Life, lineage, place, raw
from tests.model.log import read_properties

pytestmark = pytest.mark.usefixtures("engine_of_choice")


@pytest.mark.slow
def test_dead_letters_go_back_to_where_they_came_from_once(life: Callable[..., Life]) -> None:
    store = life()
    dead = {"topic": "%DLQ%g", "reconsume_times": 17}
    rows = store.append(
        {
            **dead,
            "properties": raw(UNIQ_KEY="a", RETRY_TOPIC="T", DELAY=0, REAL_TOPIC="%RETRY%g", REAL_QID=0),
        },
        {**dead, "properties": raw(UNIQ_KEY="b", RETRY_TOPIC="U", TRAN_MSG="true", TIMER_DELAY_LEVEL=3)},
        {"topic": "T", "queue_id": 2, "properties": raw(UNIQ_KEY="c")},
    )
    where = ("--where", "topic = '%DLQ%g'", "--redrive-id", "monday")
    tried = store.job("redrive", B + 1, *where, "--dry-run").result
    assert (tried["matched"], tried["redriven"], len(store.rows())) == (2, 0, 3)
    first = store.job("redrive", B + 1, *where, "--limit", "1").result
    assert (first["matched"], first["redriven"]) == (1, 1)
    second = store.job("redrive", B + 2, *where, "--limit", "1").result  # goes on after the first
    assert (second["matched"], second["redriven"]) == (1, 1)
    result = store.job("redrive", B + 2, *where).result
    assert (result["matched"], result["redriven"], result["already"]) == (2, 0, 2)
    a, b = store.rows()[3:]
    assert (a.topic, a.reconsume_times, read_properties(a.properties)) == (
        "T",
        0,
        {"UNIQ_KEY": "a", "RETRY_TOPIC": "T"},
    )
    assert (b.topic, read_properties(b.properties)) == ("U", {"UNIQ_KEY": "b", "RETRY_TOPIC": "U"})
    assert lineage(a) == (rows[0].physical_offset, "redrive", "redrive:monday")
    elsewhere = ("--where", "unique_key = 'c'", "--to-topic", "V")
    assert store.job("redrive", B + 3, *elsewhere).result["redriven"] == 1
    assert store.job("redrive", B + 3, *elsewhere).result["redriven"] == 0
    assert store.rows()[-1].topic == "V"
    assert store.job("redrive", B + 4, "--where", "unique_key = 'c' AND topic = 'T'").result["redriven"] == 1
    assert place(store.rows()[-1]) == ("T", 2)  # it stays in its queue
    store.expect_promises()


@pytest.mark.slow
def test_a_dead_letter_belongs_to_the_topic_it_is_redriven_to(life: Callable[..., Life]) -> None:
    store = life()
    origin = {"UNIQ_KEY": "a", "ORIGIN_MESSAGE_ID": "AA"}
    store.append({"topic": "%DLQ%g", "properties": raw(RETRY_TOPIC="T", **origin)})
    for topic, properties in {
        "X": origin,  # a send back writes the topic it lies in
        "T": {**origin, "RETRY_TOPIC": "T"},
        "%RETRY%g": {**origin, "RETRY_TOPIC": "T"},
    }.items():
        store.job("redrive", B, "--where", "topic = '%DLQ%g'", "--to-topic", topic)
        copy = store.rows()[-1]
        assert (copy.topic, read_properties(copy.properties)) == (topic, properties)
    (sent,) = store.store.commitlog.where("topic = 'X'").collect()
    request = store.input({"physical_offset": sent.physical_offset, "delay_level": -1})
    store.job("send_back", B, "--group", "h", "--input", request)
    store.job("redrive", B, "--where", "topic = '%DLQ%h'")
    assert store.rows()[-1].topic == "X"


def test_what_cannot_be_redriven_is_refused(life: Callable[..., Life]) -> None:
    store = life()
    store.put(B, {"topic": "T", "delay_level": 3})
    run = store.job("redrive", B, "--where", "queue_id >= 0", exit_status=2)
    assert "rows still parked match, at 0" in run.stderr
    run = store.job("redrive", B, "--where", "no_such_column = 1", exit_status=2)
    assert "--where is not a valid predicate over the view messages" in run.stderr
    run = store.job("redrive", B, "--where", "topic", exit_status=2)
    assert "--where is not a valid predicate" in run.stderr
    assert len(store.rows()) == 1


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("reflect('java.lang.System', 'getProperty', 'user.home') > ''", "this is a call of reflect"),
        ("EXISTS (SELECT 1 FROM text.`/etc/hosts`)", "this reads text./etc/hosts too"),
        ("topic IN (SELECT value FROM csv.`/etc/hosts`)", "this reads csv./etc/hosts too"),
        ("java_method('java.lang.Math', 'abs', -1) = '1'", "this is a call of java_method"),
    ],
)
def test_a_condition_only_reads_columns(life: Callable[..., Life], where: str, sentence: str) -> None:
    store = life()
    for arguments in ((), ("--dry-run",)):
        refused = store.job("redrive", B, "--where", where, *arguments, exit_status=2)
        assert sentence in refused.stderr


def test_a_row_whose_queue_the_topic_does_not_have_goes_to_one_it_has(life: Callable[..., Life]) -> None:
    store = life()
    store.job("topics", B, "create", "T", "--queues", 2)
    store.append(
        *[
            {"topic": "T", "queue_id": queue, "properties": raw(UNIQ_KEY=f"k{queue}")}
            for queue in (1, 2, 3, 9)
        ]
    )
    store.job("redrive", B + 1, "--where", "topic = 'T'")
    copies = store.rows()[4:]
    assert place(copies[0]) == ("T", 1)
    assert {copy.queue_id for copy in copies} <= {0, 1}
    store.expect_promises()
