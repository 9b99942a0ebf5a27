"""A stored message: its values come from a batch when it is asked, and it can be changed and sent elsewhere."""

import pickle
from dataclasses import fields, replace

import pyarrow as pa
import pytest

from pipelines.log.message import STORED, Message, StoredMessage, messages_of
from schemas import COMMITLOG

pytestmark = pytest.mark.quick


@pytest.fixture
def messages() -> list[StoredMessage]:
    numbers = {name: [7, 8] for name in STORED}
    texts = {
        "topic": ["T", "U"], "born_host": ["10.0.0.1:5"] * 2, "store_host": ["127.0.0.1:10911"] * 2,
        "stored_body": [b"a", b"b"], "stored_properties": ["TAGS\x01x\x02", "KEYS\x01k\x02"],
    }  # fmt: skip
    return list(
        messages_of(
            pa.RecordBatch.from_pydict({**numbers, **texts, "sys_flag": [0, 0], "max_unpacked_bytes": [9, 9]})
        )
    )


def test_each_has_the_values_of_its_row(messages: list[StoredMessage]) -> None:
    first, second = messages
    assert (first.topic, first.body, first.tags, first.keys, first.queue_offset) == ("T", b"a", "x", None, 7)
    assert (second.topic, second.body, second.tags, second.keys, second.queue_offset) == (
        "U",
        b"b",
        None,
        "k",
        8,
    )
    assert first.message_id == "7F00000100002A9F0000000000000007"
    assert first != second


def test_a_changed_one_keeps_the_rest(messages: list[StoredMessage]) -> None:
    message = messages[1]
    assert message.body == b"b"
    placed = message.placed("V", 3).tried(2)
    assert (placed.topic, placed.queue_id, placed.reconsume_times, placed.body) == ("V", 3, 10, b"b")
    assert (message.topic, message.queue_id, message.reconsume_times) == ("U", 8, 8)
    assert replace(message, topic="W").topic == "W"


def test_a_consumed_one_says_since_when(messages: list[StoredMessage]) -> None:
    message = messages[0].placed("V", 3)
    assert message.properties == {"TAGS": "x"}
    message.start_consuming(5)
    assert message.properties == {"TAGS": "x", "CONSUME_START_TIME": "5"}
    assert messages[0].properties == {"TAGS": "x"}


def test_it_has_all_that_the_log_has_of_it(messages: list[StoredMessage]) -> None:
    assert {*COMMITLOG.names} <= {field.name for field in fields(Message)}
    assert {name: getattr(messages[1], name) for name in ("segment", "append_seq", "claim")} == {
        "segment": 8,
        "append_seq": 8,
        "claim": 8,
    }


def test_a_pickled_one_leaves_its_batch_behind(messages: list[StoredMessage]) -> None:
    sent = pickle.loads(pickle.dumps(messages[0]))
    assert type(sent) is Message
    assert (sent.topic, sent.body, sent.properties) == ("T", b"a", {"TAGS": "x"})
