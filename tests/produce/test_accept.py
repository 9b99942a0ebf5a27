"""Rows of an input as messages to be stored: their properties, their size, how their queue is chosen."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.errors import BadInput
from pipelines.rocketmq.compression import Codec, unpacked
from tests.life import B
from tests.model.log import Message, record_size
from tests.produce.input_rows import accepted_rows


def test_properties_are_stored_in_rocketmqs_order_and_empty_ones_are_not(spark: SparkSession) -> None:
    full, empty = accepted_rows(
        spark,
        {"unique_key": "U", "properties": {"p": "1"}, "keys": ["k1", "k2"], "tags": "t"},
        {"unique_key": "", "properties": {}, "keys": [], "tags": ""},
    )
    assert full.stored_properties == "TAGS\x01t\x02KEYS\x01k1 k2\x02p\x011\x02UNIQ_KEY\x01U\x02"
    assert (full.makes_key, empty.makes_key) == (False, True)
    assert empty.stored_properties == ""


@pytest.mark.parametrize(
    ("row", "properties"),
    [
        ({"tags": "é"}, "TAGS\x01é\x02UNIQ_KEY\x01" + "0" * 32 + "\x02"),
        ({"unique_key": "U"}, "UNIQ_KEY\x01U\x02"),
        ({"properties_raw": "a\x01b\x02"}, "a\x01b\x02"),
        ({"topic": "t" * 130, "unique_key": "U"}, "UNIQ_KEY\x01U\x02"),
    ],
    ids=["with a key that the put makes", "with one of its own", "as they are stored", "a V2 record"],
)
def test_a_message_s_size_is_its_record_s(spark: SparkSession, row: dict[str, Any], properties: str) -> None:
    [message] = accepted_rows(spark, {"body": "bödy", **row})
    body = "bödy".encode()
    assert message.size_bytes == record_size(Message(message.topic, body, properties))
    assert message.wire_bytes == len(body) + len(properties.encode())


def test_a_parked_message_s_size_has_its_parking_topic_and_one_digit_of_its_queue(
    spark: SparkSession,
) -> None:
    [message] = accepted_rows(spark, {"unique_key": "U", "delay_level": 1})
    properties = "UNIQ_KEY\x01U\x02DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02"
    assert message.size_bytes == record_size(Message("SCHEDULE_TOPIC_XXXX", b"b", properties))


def test_a_body_may_come_as_text_or_in_base64(spark: SparkSession) -> None:
    rows = accepted_rows(spark, {"body": "a", "body_base64": None}, {"body": None, "body_base64": "AP8="})
    assert [bytes(row.stored_body) for row in rows] == [b"a", b"\x00\xff"]


@pytest.mark.parametrize(
    ("type_name", "key", "java_hash"),
    [
        ("string", "order-1", -1_207_111_310),
        ("string", "é", 233),
        ("int", -5, -5),
        ("long", 2**31 - 1, 2**31 - 1),  # what fits an Integer is one
        ("long", 2**31, -(2**31)),  # a Long: its halves, one xor the other
        ("long", -(2**31) - 1, -(2**31)),
        ("long", 2**32, 1),
    ],
)
def test_a_sharding_key_is_taken_as_java_hashes_it(
    spark: SparkSession, type_name: str, key: str | int, java_hash: int
) -> None:
    [message] = accepted_rows(spark, {"sharding_key": key}, types={"sharding_key": type_name})
    assert message.shard == java_hash


def test_bodies_from_a_size_on_are_compressed_and_say_so(spark: SparkSession) -> None:
    large = "x" * 100
    long, short, already = accepted_rows(
        spark, {"body": large}, {"body": large[1:]}, {"body": large, "sys_flag": 1}, compress_over=100, codec=Codec.zlib
    )  # fmt: skip
    assert long.stored_sys_flag == 0x1 | 0x300
    assert unpacked(bytes(long.stored_body), long.stored_sys_flag, 1_000) == large.encode()
    assert (bytes(short.stored_body), short.stored_sys_flag) == (large[1:].encode(), 0)
    assert (bytes(already.stored_body), already.stored_sys_flag) == (large.encode(), 1)


def test_host_bits_are_what_the_hosts_are_whatever_the_flag_says(spark: SparkSession) -> None:
    six, four = accepted_rows(
        spark, {"born_host": "[::1]:1", "sys_flag": 0}, {"born_host": "10.0.0.1:1", "sys_flag": 0x30}
    )
    assert (six.stored_sys_flag, four.stored_sys_flag) == (0x10, 0)
    assert six.size_bytes == four.size_bytes + 12


def test_numbers_of_a_time_column_are_its_milliseconds(spark: SparkSession) -> None:
    [message] = accepted_rows(spark, {"born_timestamp": str(B)}, types={"born_timestamp": "string"})
    assert message.born_timestamp == B


def test_a_column_whose_type_can_hold_none_of_it_is_refused_whole(spark: SparkSession) -> None:
    with pytest.raises(BadInput, match="queue_id has the type boolean; expected whole numbers"):
        accepted_rows(spark, {"queue_id": True}, types={"queue_id": "boolean"})
