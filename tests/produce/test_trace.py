"""Trace records: docs/rocketmq/consume-filter-ha.md 1.6. A record is written here with | for U+0001 and ; for U+0002."""

import pytest

from pipelines.produce.trace import (
    ConsumeReturnType,
    MessageType,
    end_transaction_record,
    pub_record,
    sub_after_record,
    sub_before_record,
    trace_keys,
)
from pipelines.transaction import TransactionState

pytestmark = pytest.mark.quick


def shown(record: str) -> str:
    return record.replace("\x01", "|").replace("\x02", ";")


def test_pub() -> None:
    record = pub_record(
        timestamp_ms=1_000,
        region_id="DefaultRegion",
        group_name="PG",
        topic="T",
        msg_id="U1",
        tags="TagA",
        keys="k1 k2",
        store_host="10.0.0.1:10911",
        body_length=42,
        cost_time_ms=7,
        msg_type=MessageType.DELAY_MSG,
        offset_msg_id="0A00",
        success=True,
    )
    assert shown(record) == "Pub|1000|DefaultRegion|PG|T|U1|TagA|k1 k2|10.0.0.1:10911|42|7|3|0A00|true;"


def test_sub_before_and_sub_after_of_one_message() -> None:
    before = sub_before_record(
        timestamp_ms=1_000,
        region_id="DefaultRegion",
        group_name="CG",
        request_id="R1",
        msg_id="U1",
        retry_times=2,
        keys="k1",
    )
    after = sub_after_record(
        timestamp_ms=1_009,
        group_name="CG",
        request_id="R1",
        msg_id="U1",
        keys="k1",
        cost_time_ms=9,
        context_code=ConsumeReturnType.FAILED,
        success=False,
    )
    assert (
        shown(before + after)
        == "SubBefore|1000|DefaultRegion|CG|R1|U1|2|k1;SubAfter|R1|U1|9|false|k1|4|1009|CG;"
    )


@pytest.mark.parametrize(
    ("state", "written"),
    [
        (TransactionState.COMMIT, "COMMIT_MESSAGE"),
        (TransactionState.ROLLBACK, "ROLLBACK_MESSAGE"),
        (TransactionState.UNKNOWN, "UNKNOW"),
    ],
)
def test_end_transaction(state: TransactionState, written: str) -> None:
    record = end_transaction_record(
        timestamp_ms=1_000,
        region_id="DefaultRegion",
        group_name="PG",
        topic="T",
        msg_id="U1",
        tags="TagA",
        keys="k1",
        store_host="10.0.0.1:10911",
        transaction_id="X1",
        transaction_state=state,
        from_transaction_check=True,
    )
    assert (
        shown(record)
        == f"EndTransaction|1000|DefaultRegion|PG|T|U1|TagA|k1|10.0.0.1:10911|2|X1|{written}|true;"
    )


def test_a_text_that_is_not_there_is_written_as_java_writes_it() -> None:
    record = sub_before_record(
        timestamp_ms=1_000,
        region_id=None,
        group_name="CG",
        request_id="R1",
        msg_id="U1",
        retry_times=0,
        keys=None,
    )
    assert shown(record) == "SubBefore|1000|null|CG|R1|U1|0|null;"


def test_the_code_of_a_return_is_its_place_in_1_6() -> None:
    names = [code.name for code in sorted(ConsumeReturnType)]
    assert names == ["SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED"]
    assert list(ConsumeReturnType) == [0, 1, 2, 3, 4]


def test_keys_are_the_ids_and_the_words_of_the_keys_each_once() -> None:
    assert trace_keys([("U1", "k1  k2"), ("U2", "k2"), ("U2", ""), ("U3", None)]) == "U1 k1 k2 U2 U3"
