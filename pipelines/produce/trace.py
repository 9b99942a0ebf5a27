r"""Trace records: what a client tells of sending, consuming and ending (docs/rocketmq/consume-filter-ha.md 1.6).

A message of RMQ_SYS_TRACE_TOPIC has records as its body, one after the other, and `trace_keys` as its KEYS. A record is
its type and its fields with U+0001 between them and U+0002 at the end. 1.6 leaves the fields' order open; it is that of
TraceDataEncoder in RocketMQ 5.3. A text that is None is written as Java writes it, `null`: RocketMQ's own readers cannot
do with an empty last field.

`timestamp_ms` is epoch milliseconds, `cost_time_ms` how long it took. `msg_id` is the message's UNIQ_KEY, or its offset id
where it has none.
"""

from collections.abc import Iterable
from enum import IntEnum

from pipelines.transaction import TransactionState

FIELD_SEPARATOR, RECORD_END = "\x01", "\x02"
# EndTransaction's region where the message has no property MSG_REGION.
DEFAULT_TRACE_REGION_ID = "DefaultRegion"

# The names of RocketMQ's LocalTransactionState; UNKNOW is how it spells it.
_LOCAL_TRANSACTION_STATES = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}


class MessageType(IntEnum):
    """What was sent: DELAY_MSG with a property DELAY, else TRANS_MSG_HALF with TRAN_MSG `true`, else NORMAL_MSG."""

    NORMAL_MSG = 0
    TRANS_MSG_HALF = 1
    TRANS_MSG_COMMIT = 2
    DELAY_MSG = 3
    ORDER_MSG = 4


class ConsumeReturnType(IntEnum):
    """How a listener came back (2.6): contextCode of SubAfter."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


def pub_record(
    *,
    timestamp_ms: int,
    region_id: str,
    group_name: str,
    topic: str,
    msg_id: str,
    tags: str | None,
    keys: str | None,
    store_host: str,
    body_length: int,
    cost_time_ms: int,
    msg_type: MessageType,
    offset_msg_id: str,
    success: bool,
) -> str:
    r"""A send that was answered; `success` for SEND_OK alone. `body_length` in bytes, as sent.

    >>> pub_record(timestamp_ms=1000, region_id="DefaultRegion", group_name="PG", topic="T", msg_id="U1",
    ...     tags=None, keys="k1 k2", store_host="10.0.0.1:10911", body_length=42, cost_time_ms=7,
    ...     msg_type=MessageType.NORMAL_MSG, offset_msg_id="0A00", success=True)
    'Pub\x011000\x01DefaultRegion\x01PG\x01T\x01U1\x01null\x01k1 k2\x0110.0.0.1:10911\x0142\x017\x010\x010A00\x01true\x02'
    """
    return _record(
        "Pub",
        timestamp_ms,
        region_id,
        group_name,
        topic,
        msg_id,
        tags,
        keys,
        store_host,
        body_length,
        cost_time_ms,
        msg_type,
        offset_msg_id,
        success,
    )


def sub_before_record(
    *,
    timestamp_ms: int,
    region_id: str | None,
    group_name: str,
    request_id: str,
    msg_id: str,
    retry_times: int,
    keys: str | None,
) -> str:
    r"""One message before the listener has it. `request_id` names the call and comes back in its SubAfter records.

    >>> sub_before_record(timestamp_ms=1000, region_id=None, group_name="CG", request_id="R1", msg_id="U1",
    ...     retry_times=2, keys=None)
    'SubBefore\x011000\x01null\x01CG\x01R1\x01U1\x012\x01null\x02'
    """
    return _record("SubBefore", timestamp_ms, region_id, group_name, request_id, msg_id, retry_times, keys)


def sub_after_record(
    *,
    timestamp_ms: int,
    group_name: str,
    request_id: str,
    msg_id: str,
    keys: str | None,
    cost_time_ms: int,
    context_code: ConsumeReturnType,
    success: bool,
) -> str:
    r"""One message after the listener had it. `cost_time_ms` is the time of the call divided by its messages.

    >>> sub_after_record(timestamp_ms=1009, group_name="CG", request_id="R1", msg_id="U1", keys="k1",
    ...     cost_time_ms=9, context_code=ConsumeReturnType.FAILED, success=False)
    'SubAfter\x01R1\x01U1\x019\x01false\x01k1\x014\x011009\x01CG\x02'
    """
    return _record(
        "SubAfter", request_id, msg_id, cost_time_ms, success, keys, context_code, timestamp_ms, group_name
    )


def end_transaction_record(
    *,
    timestamp_ms: int,
    region_id: str,
    group_name: str,
    topic: str,
    msg_id: str,
    tags: str | None,
    keys: str | None,
    store_host: str,
    transaction_id: str | None,
    transaction_state: TransactionState,
    from_transaction_check: bool,
) -> str:
    r"""What a producer said of a half message: by itself, or because it was asked (`from_transaction_check`).

    >>> end_transaction_record(timestamp_ms=1000, region_id="DefaultRegion", group_name="PG", topic="T",
    ...     msg_id="U1", tags="TagA", keys="k1", store_host="10.0.0.1:10911", transaction_id="U1",
    ...     transaction_state=TransactionState.UNKNOWN, from_transaction_check=True)
    'EndTransaction\x011000\x01DefaultRegion\x01PG\x01T\x01U1\x01TagA\x01k1\x0110.0.0.1:10911\x012\x01U1\x01UNKNOW\x01true\x02'
    """
    return _record(
        "EndTransaction",
        timestamp_ms,
        region_id,
        group_name,
        topic,
        msg_id,
        tags,
        keys,
        store_host,
        MessageType.TRANS_MSG_COMMIT,
        transaction_id,
        _LOCAL_TRANSACTION_STATES[transaction_state],
        from_transaction_check,
    )


def trace_keys(traced: Iterable[tuple[str, str | None]]) -> str:
    """KEYS of a trace message: of each (msg_id, keys) the id and the words of its keys, each once, one space between.

    >>> trace_keys([("U1", "k1 k2"), ("U2", "k2"), ("U3", None)])
    'U1 k1 k2 U2 U3'
    """
    words = [word for msg_id, keys in traced for word in (msg_id, *(keys or "").split(" "))]
    return " ".join(dict.fromkeys(word for word in words if word))


def _record(*fields: str | int | None) -> str:
    return FIELD_SEPARATOR.join(_as_java_writes(field) for field in fields) + RECORD_END


def _as_java_writes(field: str | int | None) -> str:
    if field is None:
        return "null"
    return str(field).lower() if isinstance(field, bool) else str(field)
