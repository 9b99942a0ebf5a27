"""Why a row of an input cannot be put: each rule by one row, in the words its user reads."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.produce.accepted_input import AcceptedInput
from pipelines.produce.complaints import AcceptRules
from pipelines.produce.inputs import freeze
from pipelines.rocketmq.settings import Settings
from tests.conftest import write_jsonl
from tests.life import B
from tests.produce.input_rows import accepted_rows

REFUSED = {
    "topic name": ({"topic": "a.b", "body": ""}, "topic a.b has a character other than letters, digits and %|-_"),
    "no topic": ({"body": ""}, "topic is missing"),
    "system topic": ({"topic": "SCHEDULE_TOPIC_XXXX", "body": ""}, "topic SCHEDULE_TOPIC_XXXX is the store's own"),
    "long topic": ({"topic": "t" * 128, "body": ""}, "has 128 bytes; at most 127"),
    "no body": ({"topic": "T"}, "body is missing"),
    "two bodies": ({"topic": "T", "body": "", "body_base64": ""}, "body and body_base64 are both given"),
    "not base64": ({"topic": "T", "body_base64": "%"}, "body_base64 is not base64"),
    "large body": ({"topic": "T", "body": "x" * 1_001}, "its body is 1001 bytes; at most 1000 (maxMessageSize)"),
    "large properties": (
        {"topic": "T", "body": "", "properties": {"p": "x" * 32_800}}, "its properties are 32845 bytes; at most 32767",
    ),
    "reserved name": ({"topic": "T", "body": "", "properties": {"KEYS": "x"}}, "property KEYS is reserved"),
    "blank value": ({"topic": "T", "body": "", "properties": {"p": " "}}, "blank name or value"),
    "properties not an object": ({"topic": "T", "body": "", "properties": 5}, "properties: expected an object"),
    "raw beside tags": ({"topic": "T", "body": "", "properties_raw": "", "tags": "x"}, "properties_raw comes alone"),
    "queue too high": ({"topic": "T", "body": "", "queue_id": 4}, "queue_id is 4; topic T has queues 0 to 3"),
    "queue negative": ({"topic": "T", "body": "", "queue_id": -1}, "queue_id is -1; expected 0 or more"),
    "queue no number": ({"topic": "T", "body": "", "queue_id": "x"}, "queue_id is x; expected a whole number"),
    "sharding key": ({"topic": "T", "body": "", "sharding_key": 1.5}, "sharding_key: expected a string or a whole"),
    "host": ({"topic": "T", "body": "", "born_host": "nowhere"}, "born_host is nowhere; expected ip:port"),
    "transaction bits": ({"topic": "T", "body": "", "sys_flag": 4}, "sys_flag has transaction bits"),
    # Vector 5 of docs/rocketmq/delay-retry-transaction.md 9, which a broker would take: here an end says what is committed.
    "prepared": ({"topic": "T", "body": "", "sys_flag": 4, "delay_level": 1}, "sys_flag has transaction bits"),
    "committed": ({"topic": "T", "body": "", "sys_flag": 8, "delay_level": 1}, "sys_flag has transaction bits"),
    "inner batch": ({"topic": "T", "body": "", "sys_flag": 0x80}, "sys_flag says inner batch (0x80); batches are put with"),
    "unwrapped inner batch": ({"topic": "T", "body": "", "sys_flag": 0xC0}, "sys_flag says inner batch (0x80)"),
    "unknown column": ({"topic": "T", "body": "", "tagz": "x"}, "unknown column tagz"),
    "delay no number": ({"topic": "T", "body": "", "delay_level": "x"}, "delay_level is x; expected a whole number"),
    "transaction alone": ({"topic": "T", "body": "", "transaction": True}, "producer_group is missing"),
    "delayed half": (
        {"topic": "T", "body": "", "transaction": True, "producer_group": "p", "delay_level": 1},
        "a transactional message cannot be delayed or timed",
    ),
    "delay no number in raw": ({"topic": "T", "body": "", "properties_raw": "DELAY\x01x\x02"}, "property DELAY is x"),
    "no time of day": ({"topic": "T", "body": "", "deliver_at_time": "24:00:00"}, 'deliver_at_time is "24:00:00"'),
    "no level list": ({"topic": "T", "body": "", "deliver_through": "6;3"}, 'deliver_through is "6;3"; expected level'),
    "level and list": ({"topic": "T", "body": "", "delay_level": 1, "deliver_through": "6"}, "are given together"),
    "cancel without time": ({"topic": "T", "body": "", "cancel_unique_key": "U"}, "cancel_unique_key needs deliver_at_ms"),
    "cancel of a key that is two": (
        {"topic": "T", "body": "", "cancel_unique_key": "U\x02x", "deliver_at_ms": B + 1},
        "cancel_unique_key has a byte 0x02",
    ),
    "cancel of the past": (
        {"topic": "T", "body": "", "cancel_unique_key": "U", "deliver_at_ms": 1}, "that message is due already",
    ),
    "delay in a batch": ({"topic": "T", "body": "", "delay_level": 1, "batch": "b"}, "a message of a batch cannot be"),
}  # fmt: skip

GOOD = {
    "empty body": {"topic": "T", "body": ""},
    "longest topic": {"topic": "t" * 127, "body": ""},
    "longest retry topic": {"topic": "%RETRY%" + "g" * 248, "body": ""},
    "largest body": {"topic": "T", "body": "x" * 1_000},
    "largest properties": {"topic": "T", "body": "", "properties": {"p": "x" * 32_722}},
    "last queue": {"topic": "T", "body": "", "queue_id": 3},
    "queue of a topic that is not there": {"topic": "new", "body": "", "queue_id": 9},
    "largest port": {"topic": "T", "body": "", "born_host": "255.255.255.255:65535"},
    "short IPv6 host": {"topic": "T", "body": "", "born_host": "[::1]:1"},
    "cancel of the future": {
        "topic": "T", "body": "", "cancel_unique_key": "U", "deliver_at_ms": B + 1,
    },
    "half": {"topic": "T", "body": "", "transaction": True, "producer_group": "p"},
}  # fmt: skip


@pytest.fixture(scope="module")
def reasons(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """What is said of each row, all read from one file of lines."""
    rows = {name: row for name, (row, _) in REFUSED.items()} | GOOD
    source = freeze(
        spark,
        str(write_jsonl(Path(tmp_path_factory.mktemp("rows")) / "a.jsonl", list(rows.values()))),
        "jsonl",
    )
    rules = AcceptRules(Settings.of({"maxMessageSize": "1000"}), B, ("T",), queues_by_topic={"T": 4})
    found = AcceptedInput(spark, source, rules).messages().select("reason").collect()
    return {name: row.reason for name, row in zip(rows, found, strict=True)}


@pytest.mark.parametrize("name", REFUSED)
def test_a_row_that_cannot_be_put_says_why(reasons: dict[str, str | None], name: str) -> None:
    assert REFUSED[name][1] in (reasons[name] or "")


@pytest.mark.parametrize("name", GOOD)
def test_a_row_at_the_edge_of_what_is_allowed_is_good(reasons: dict[str, str | None], name: str) -> None:
    assert reasons[name] is None


@pytest.mark.parametrize(
    ("row", "free", "said"),
    [
        ({}, 8, None),
        ({}, 7, "its record is 135 bytes; at most 134 (mappedFileSizeCommitLog less 8)"),
        ({"delay_ms": 1_000}, 519, "and 512 for what its copies gain)"),
    ],
    ids=["it fits a segment exactly", "a byte too long", "it would not fit when it comes back"],
)
def test_a_record_has_to_fit_a_segment(
    spark: SparkSession, row: dict[str, Any], free: int, said: str | None
) -> None:
    settings = {"mappedFileSizeCommitLog": str(135 + free)}
    [message] = accepted_rows(spark, row, settings=settings)
    assert (message.reason is None) == (said is None)
    assert (said or "") in (message.reason or "")


def test_the_selector_hash_needs_a_key_or_a_queue(spark: SparkSession) -> None:
    rows = accepted_rows(
        spark, {"sharding_key": "k"}, {"queue_id": 0}, {}, needs_sharding_key=True
    )  # fmt: skip
    assert [row.reason for row in rows] == [
        None, None, "sharding_key is missing; the selector hash needs one",
    ]  # fmt: skip


def test_what_is_wrong_with_a_topic_is_said_of_its_rows_alone(spark: SparkSession) -> None:
    rows = accepted_rows(
        spark, {"topic": "closed"}, {"topic": "open"}, topics=("closed", "open"), topic_complaints={"closed": "no"}
    )  # fmt: skip
    assert [row.reason for row in rows] == ["no", None]
