"""The model against the specification's worked examples (docs/rocketmq/store.md 9), added up by hand."""

import pytest

from tests.model.log import (
    Blank,
    DoesNotFit,
    Log,
    Message,
    body_crc,
    java_hash,
    key_hash,
    keys,
    properties_string,
    read_properties,
    record_size,
)

pytestmark = pytest.mark.quick

# 91 fixed bytes, the topic's one, and a body of 8: 100 bytes a record.
HUNDRED_BYTES = Message("T", body=b"12345678")


def test_the_worked_example():
    message = Message("T", body=b"hi", properties=properties_string({"TAGS": "a"}), queue_id=3)
    assert record_size(message) == 101
    assert body_crc(b"hi") == 0x58932AAC
    assert key_hash("T", "k1") == 2539445


def test_hashes_that_overflow():
    assert java_hash("zzzzzzzz") == -1910022912
    assert java_hash("polygenelubricants") == -2147483648
    assert java_hash("😀") == 1772899  # two UTF-16 units


def test_eight_bytes_stay_free_at_a_segments_end():
    log = Log(segment_bytes=208)
    places = [log.append(HUNDRED_BYTES, now=5).physical_offset for _ in range(3)]
    assert places == [0, 100, 208]
    assert log.blanks == [Blank(200, 8)]


def test_one_byte_less_and_the_second_record_rolls():
    log = Log(segment_bytes=207)
    assert [log.append(HUNDRED_BYTES, now=5).physical_offset for _ in range(2)] == [0, 207]
    assert log.blanks == [Blank(100, 107)]


def test_a_batch_never_straddles_segments():
    log = Log(segment_bytes=350)
    log.append(HUNDRED_BYTES, now=5)
    batch = log.append_batch([HUNDRED_BYTES] * 3, now=4)
    assert [record.physical_offset for record in batch] == [350, 450, 550]
    assert [record.queue_offset for record in batch] == [1, 2, 3]
    assert {record.store_timestamp for record in batch} == {5}  # the clock stepped back, the log's does not


def test_what_no_segment_takes_is_refused_and_takes_no_place():
    log = Log(segment_bytes=107)
    with pytest.raises(DoesNotFit):
        log.append(HUNDRED_BYTES, now=5)
    assert (log.next_offset, log.blanks, log.records) == (0, [], [])


def test_half_messages_take_no_queue_offset():
    log = Log(segment_bytes=1_000)
    offsets = [log.append(Message("T", sys_flag=flag), now=0).queue_offset for flag in (0, 0x4, 0x8, 0xC, 0)]
    assert offsets == [0, 0, 1, 0, 2]
    assert [entry.queue_offset for entry in log.queues()["T", 0]] == [0, 1, 2]


def test_properties_without_name_or_value_vanish():
    assert read_properties("A\x01\x02\x01v\x02bad\x02K\x01v\x01w\x02K2\x01end") == {
        "K": "v\x01w",
        "K2": "end",
    }


def test_keys_are_the_unique_key_and_the_words_of_keys():
    assert keys(properties_string({"KEYS": "a  b", "UNIQ_KEY": "U"})) == ["U", "a", "b"]


def test_a_delayed_message_is_due_in_its_queue_entry():
    log = Log(segment_bytes=1_000)
    for level in ("3", "25", "0"):
        log.append(Message("SCHEDULE_TOPIC_XXXX", properties=properties_string({"DELAY": level})), now=1_000)
    codes = [entry.tags_code for entry in log.queues()["SCHEDULE_TOPIC_XXXX", 0]]
    assert codes == [11_000, 7_201_000, 0]
