"""Records in a segment's bytes: where they start, whether they are whole, what their fields say."""

import io
import random
from typing import Any, cast

import pyarrow as pa
import pytest

from pipelines.broker_files.chain import SKIPPED_LISTED, Checks, RecordChain
from pipelines.broker_files.columns import LogColumns, text
from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.due import DueTimes, Waits
from pipelines.broker_files.segments import Segment
from tests.model.records import Record, crc, encode, encode_blank, encode_properties, place

SEGMENT_BYTES = 4_096
WAITS = Waits((1_000, 5_000), 1_000, 6_000)


def chain_over(content: bytes, **options: Any) -> RecordChain:
    padded = content.ljust(SEGMENT_BYTES, b"\0")
    file = pa.PythonFile(io.BytesIO(padded), mode="r")
    return RecordChain(file, Segment(0, "", len(padded)), 0, len(padded), **options)


def rows_of(chain: RecordChain, directory: str = "/nowhere") -> list[dict[str, Any]]:
    columns = LogColumns(DueTimes(BrokerDirectory(directory), WAITS))
    return [row for at, fields in chain.pieces() for row in columns.of(fields, 0, at).to_pylist()]


def one_row(record: Record) -> dict[str, Any]:
    (row,) = rows_of(chain_over(encode(record)))
    return row


def test_the_worked_example_of_the_specification():
    example = (
        "00000065DAA320A758932AAC000000030000000000000000000000050000000040000000000000000000018BCFE568000A0000010000C350"
        "0000018BCFE5687B0A00000200002A9F0000000000000000000000000000000268690154000754414753016102"
    )
    record = Record(
        topic="T",
        body=b"hi",
        properties={"TAGS": "a"},
        queue_id=3,
        queue_offset=5,
        physical_offset=1_073_741_824,
    )
    assert encode(record).hex().upper() == example
    (row,) = rows_of(chain_over(bytes.fromhex(example)))
    assert row == {
        "segment": 0,
        "physical_offset": 0,  # where it lies here
        "size_bytes": 101,
        "topic": "T",
        "queue_id": 3,
        "queue_offset": 5,
        "flag": 0,
        "sys_flag": 0,
        "body_crc": 1_486_039_724,
        "born_timestamp": 1_700_000_000_000,
        "born_host": "10.0.0.1:50000",
        "store_timestamp": 1_700_000_000_123,
        "store_host": "10.0.0.2:10911",
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body": b"hi",
        "properties": "TAGS\x01a\x02",
        "due_ms": None,
    }


@pytest.mark.parametrize(
    ("born_host", "store_host", "sys_flag"),
    [
        ("10.0.0.1:50000", "10.0.0.2:10911", 0),
        ("[2001:db8::1]:50000", "10.0.0.2:10911", 0x10),
        ("10.0.0.1:50000", "[fe80::9]:10911", 0x20),
        ("[2001:db8::1]:50000", "[fe80::9]:10911", 0x30),
    ],
)
def test_hosts_of_both_kinds(born_host: str, store_host: str, sys_flag: int):
    record = Record(
        born_host=born_host, store_host=store_host, reconsume_times=7, prepared_transaction_offset=99
    )
    row = one_row(record)
    assert (row["born_host"], row["store_host"], row["sys_flag"]) == (born_host, store_host, sys_flag)
    assert (row["reconsume_times"], row["prepared_transaction_offset"], row["body"]) == (7, 99, b"hello")
    assert row["store_timestamp"] == record.store_timestamp


def test_a_v2_record_has_a_long_topic():
    topic = "%RETRY%" + "g" * 200
    row = one_row(Record(topic=topic, is_v2=True))
    assert row["topic"] == topic
    assert row["size_bytes"] == 91 + 1 + len("hello") + len(topic)


def test_kinds_of_records_side_by_side_in_small_reads():
    records = place(
        [
            Record(body=b"1"),
            Record(topic="%RETRY%" + "g" * 150, is_v2=True, born_host="[::1]:1"),
            Record(body=b"", properties={}),
            Record(body=b"x" * 700, store_host="[2001:db8::2]:10911"),
        ],
        SEGMENT_BYTES,
    )
    content = b"".join(encode(record) for record in records)
    for piece_bytes in (100, 128, 500, 4_096):
        rows = rows_of(chain_over(content, piece_bytes=piece_bytes))
        assert [row["physical_offset"] for row in rows] == [record.physical_offset for record in records]
        assert [row["body"] for row in rows] == [record.body for record in records]


@pytest.mark.parametrize("final_separator", [True, False])
def test_properties_end_with_a_separator_or_not(final_separator: bool):
    stored = encode_properties({"TAGS": "中文", "KEYS": "a b"}, final_separator)
    assert one_row(Record(properties=stored))["properties"] == stored.decode()


def test_an_empty_body_and_no_properties():
    row = one_row(Record(body=b"", properties={}))
    assert (row["body"], row["body_crc"], row["properties"]) == (b"", 0, "")


def test_properties_that_are_no_utf8_are_decoded_as_java_does():
    assert one_row(Record(properties=b"TAGS\x01\xff\x02"))["properties"] == "TAGS\x01�\x02"


def test_a_blank_ends_the_segment_whatever_lies_behind_it():
    first, stale = Record(body=b"1"), Record(body=b"stale")
    at = first.size_bytes
    content = encode(first) + encode_blank(SEGMENT_BYTES - at) + encode(stale)
    chain = chain_over(content)
    assert [row["body"] for row in rows_of(chain)] == [b"1"]
    assert (chain.stopped, chain.ended_at) == ("blank", at)


def test_zeros_end_the_log():
    chain = chain_over(encode(Record()))
    assert len(rows_of(chain)) == 1
    assert (chain.stopped, chain.reason) == ("broken", "not a record (length 0, magic 00000000)")


def broken_second(content: bytes) -> tuple[bytes, int]:
    """A sound record, `content`, and a sound record; and where the second one lies."""
    first = Record(body=b"1")
    at = first.size_bytes
    third = Record(body=b"3", physical_offset=at + len(content))
    return encode(first) + content + encode(third), at


SECOND = Record(body=b"22", topic="orders", physical_offset=97)


def damaged(at: int, value: int) -> bytes:
    content = bytearray(encode(SECOND))
    content[at] = value
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (damaged(88, 0xFF), "its CRC does not match"),  # a byte of the body
        (damaged(4, 0x00), "not a record (length 99, magic 00A320A7)"),
        (damaged(87, 0x05), "its parts do not add up to its length"),  # the body's length
        (damaged(90, 0x05), "its parts do not add up to its length"),  # the topic's
        (damaged(90, 0x85), "its parts do not add up to its length"),  # below zero
        (damaged(0, 0x7F), "a record of 2130706531 bytes where the file has 4000 left"),
        (damaged(3, 0x20), "a record of 32 bytes; the shortest has 91"),
    ],
)
def test_damage_ends_the_chain_or_is_stepped_over(content: bytes, reason: str):
    assert encode(SECOND)[88:90] == b"22"
    whole, at = broken_second(content)
    chain = chain_over(whole, checks=Checks(crc=True))
    assert [row["body"] for row in rows_of(chain)] == [b"1"]
    if reason.startswith("a record of 21"):
        reason = f"a record of 2130706531 bytes where the file has {SEGMENT_BYTES - at} left"
    assert (chain.stopped, chain.ended_at, chain.reason) == ("broken", at, reason)

    for piece_bytes in (128, SEGMENT_BYTES):
        stepping = chain_over(whole, checks=Checks(crc=True), skip_damage=True, piece_bytes=piece_bytes)
        assert [row["body"] for row in rows_of(stepping)] == [b"1", b"3"]
        assert (stepping.skipped[0].from_at, stepping.skipped[0].to_at) == (at, at + len(content))


@pytest.mark.parametrize("piece_bytes", [256, 1024, SEGMENT_BYTES])
def test_records_between_damage_are_all_found(piece_bytes: int):
    """Random records and damage, against what was written; what damage says is no record is none."""
    chance = random.Random(piece_bytes)
    content, expected, damage = b"", [], []
    while len(content) < SEGMENT_BYTES - 400:
        at, kind = len(content), chance.randrange(4)
        if kind == 0:
            content += chance.choice((b"\xda\xa3\x20\xa7", b"\xda\xa3\x20", b"\0")) * chance.randrange(1, 30)
        elif kind == 1:  # a record that says another place
            content += encode(Record(body=b"elsewhere", topic="T", physical_offset=at + 1))
        else:
            body = str(at).encode() * chance.randrange(1, 20)
            content += encode(Record(body=body, topic="T", physical_offset=at))
            expected.append(body)
            continue
        damage.append((at, len(content)))
    damage.append((len(content), SEGMENT_BYTES))
    chain = chain_over(content, skip_damage=True, piece_bytes=piece_bytes)
    found = [row["body"] for row in rows_of(chain)]
    # A record that says another place is taken where it follows a good one, as the broker does.
    assert [body for body in found if body != b"elsewhere"] == expected
    holes = [(part.from_at, part.to_at) for part in chain.skipped]
    assert all(any(start <= from_at < end for start, end in damage) for from_at, _ in holes)


class Counting:
    """A file that counts the bytes read from it."""

    def __init__(self, content: bytes) -> None:
        self._file, self.read_bytes = pa.BufferReader(content), 0

    def seek(self, at: int) -> None:
        self._file.seek(at)

    def read_buffer(self, length: int) -> pa.Buffer:
        self.read_bytes += length
        return self._file.read_buffer(length)


@pytest.mark.parametrize(
    "damage",
    [
        b"\xda\xa3\x20\xa7" * 1024 * 1024,
        b"".join(b"\0\0\0\x60" + b"\xda\xa3\x20\xa7" for _ in range(512 * 1024)),
    ],
    ids=["one magic", "lengths that fit"],
)
def test_damage_is_searched_in_one_pass(damage: bytes):
    last = encode(Record(body=b"last", topic="T", physical_offset=len(damage)))
    file = Counting(damage + last)
    size = len(damage) + len(last)
    chain = RecordChain(
        cast(pa.NativeFile, file), Segment(0, "", size), 0, size, skip_damage=True, piece_bytes=256 * 1024
    )
    assert [int(fields.body_end[0] - fields.body_at[0]) for _, fields in chain.pieces()] == [4]
    assert file.read_bytes < 4 * size


def test_the_list_of_damaged_parts_is_bounded():
    content = b""
    for _ in range(SKIPPED_LISTED + 500):
        content += encode(Record(body=b"x", topic="T", physical_offset=len(content))) + b"damage"
    file = Counting(content)
    chain = RecordChain(
        cast(pa.NativeFile, file),
        Segment(0, "", len(content)),
        0,
        len(content),
        skip_damage=True,
        piece_bytes=4096,
    )
    assert sum(len(fields.starts) for _, fields in chain.pieces()) == SKIPPED_LISTED + 500
    assert len(chain.skipped) == SKIPPED_LISTED
    assert chain.skipped[-1].parts == 501
    assert chain.skipped[-1].to_at == len(content)
    assert file.read_bytes < 8 * len(content)


def test_without_crc_a_damaged_body_is_taken_as_it_is():
    whole, _ = broken_second(damaged(88, 0xFF))
    rows = rows_of(chain_over(whole))
    assert [row["body"] for row in rows] == [b"1", b"\xff2", b"3"]
    assert rows[1]["body_crc"] == crc(b"22")


def test_the_crc_in_the_properties_of_the_specification():
    example = encode(
        Record(
            topic="T",
            body=b"hi",
            properties=b"TAGS\x01a\x02",
            queue_id=3,
            queue_offset=5,
            physical_offset=2**30,
        )
    )
    grown = bytearray(example + bytes.fromhex("5F5F435243333223013535333433363230323002"))
    grown[0:4] = (121).to_bytes(4, "big")
    grown[92:94] = (27).to_bytes(2, "big")
    sound = chain_over(bytes(grown), checks=Checks(crc=True, by_property=True))
    assert len(rows_of(sound)) == 1
    grown[50] ^= 1  # a byte of the born host, which the body's CRC does not cover
    changed = chain_over(bytes(grown), checks=Checks(crc=True, by_property=True))
    assert rows_of(changed) == []
    assert changed.reason == "its CRC does not match"
    without = chain_over(example, checks=Checks(crc=True, by_property=True))
    assert rows_of(without) == []


def test_a_record_that_was_copied_from_elsewhere_into_a_body_is_no_record():
    inner = encode(Record(body=b"inner", physical_offset=12_345))
    whole, at = broken_second(damaged(4, 0))
    content = whole[:at] + damaged(4, 0) + inner
    stepping = chain_over(content, skip_damage=True)
    assert [row["body"] for row in rows_of(stepping)] == [b"1"]


def test_due_times_without_queue_files():
    half = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "9"}
    born, stored = Record().born_timestamp, Record().store_timestamp
    cases = [
        (Record(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "2"}), stored + 5_000),
        (Record(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "99"}), stored + 5_000),
        (
            Record(topic="rmq_sys_wheel_timer", properties={"TIMER_OUT_MS": "1700000009000"}),
            1_700_000_010_000,
        ),
        (Record(topic="rmq_sys_wheel_timer", properties={"TAGS": "a"}), None),
        (Record(topic="RMQ_SYS_TRANS_HALF_TOPIC", properties=half), born + 9_000),
        (Record(topic="RMQ_SYS_TRANS_HALF_TOPIC", properties={**half, "X": "1"}), born + 9_000),
        (
            Record(topic="RMQ_SYS_TRANS_HALF_TOPIC", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "soon"}),
            born + 6_000,
        ),
        (Record(topic="RMQ_SYS_TRANS_HALF_TOPIC"), born + 6_000),
        (Record(topic="orders", properties={"DELAY": "2"}), None),
    ]
    for record, due_ms in cases:
        assert one_row(record)["due_ms"] == due_ms, record


def test_a_character_that_is_cut_off_is_as_many_as_it_has_bytes() -> None:
    """An export sees that the text is not the record's own by its length."""
    cut = b"ab" + "\U0001f600".encode()[:3]
    assert text(pa.array([cut, b"sound"])).to_pylist() == ["ab" + 3 * "\ufffd", "sound"]
