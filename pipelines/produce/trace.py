r"""Trace messages: what clients report of sending and consuming (docs/rocketmq/consume-filter-ha.md 1.6).

A message of RMQ_SYS_TRACE_TOPIC has records as its body, one after the other, and as its KEYS the traced message's id and
keys. A record is its type and its fields, with U+0001 between them and U+0002 at the end. 1.6 leaves the order of fields
open; it is that of TraceDataEncoder in RocketMQ 5.3. A missing field is `null`, as Java writes it: RocketMQ's own readers
fail on an empty last field.

The message id in a record is the message's UNIQ_KEY, or its offset id where it has none.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.rocketmq.names import DEFAULT_PRODUCER, TRACE_TOPIC

# The region that clients without one of their own write.
REGION = "DefaultRegion"

# RocketMQ's MessageType: the kind of message that was sent.
NORMAL_MSG, TRANS_MSG_HALF, DELAY_MSG = 0, 1, 3
# RocketMQ's ConsumeReturnType: how a listener returned. Its index is the contextCode of SubAfter.
RETURN_TYPES = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")


def traces_of_sends(messages: DataFrame) -> DataFrame:
    """A trace message for each put message: input rows with `topic`, `body` and `keys`.

    messages  rows of the view `messages`
    """
    named = F.col("properties")
    message_type = (
        F.when(named["DELAY"].isNotNull(), DELAY_MSG)
        .when(F.coalesce(named["TRAN_MSG"], F.lit("")) == "true", TRANS_MSG_HALF)
        .otherwise(NORMAL_MSG)
    )
    record = _record(
        F.lit("Pub"),
        F.col("store_timestamp"),  # the same whenever the put is repeated
        F.lit(REGION),
        F.coalesce(named["PGROUP"], F.lit(DEFAULT_PRODUCER)),
        F.coalesce(named["REAL_TOPIC"], "topic"),
        _msg_id(),
        F.col("tags"),
        named["KEYS"],
        F.col("store_host"),
        F.length("body"),
        F.lit(0),  # the time it took: a batch is sent at once, so that of one message is not known
        message_type,
        F.col("message_id"),
        F.lit(True),
    )
    return _trace_messages(messages, record)


def traces_of_consumption(
    messages: DataFrame, group: str, call: str, now_ms: int, cost_time_ms: int
) -> DataFrame:
    """A trace message for each message handed to a listener, SubBefore and SubAfter in one: input rows as above.

    messages      rows of the view `messages`, and `return_type` (string): one of RETURN_TYPES, null for SUCCESS
    call          names the call of the listener; with the message's id it makes the record's request id
    cost_time_ms  milliseconds a message, the average of those handed over together
    """
    request_id = F.upper(F.md5(F.concat(F.lit(call), F.col("message_id"))))
    return_type = F.coalesce("return_type", F.lit("SUCCESS"))
    code = F.array_position(F.array(*[F.lit(name) for name in RETURN_TYPES]), return_type) - 1
    before = _record(
        F.lit("SubBefore"),
        F.lit(now_ms),
        F.lit(REGION),
        F.lit(group),
        request_id,
        _msg_id(),
        F.col("reconsume_times"),
        F.col("properties")["KEYS"],
    )
    after = _record(
        F.lit("SubAfter"),
        request_id,
        _msg_id(),
        F.lit(cost_time_ms),
        return_type == "SUCCESS",
        F.col("properties")["KEYS"],
        code,
        F.lit(now_ms),
        F.lit(group),
    )
    return _trace_messages(messages, F.concat(before, after))


def _trace_messages(messages: DataFrame, body: Column) -> DataFrame:
    words = F.array_distinct(F.concat(F.array(_msg_id()), F.col("keys")))
    return messages.select(
        F.lit(TRACE_TOPIC).alias("topic"), body.alias("body"), F.array_join(words, " ").alias("keys")
    )


def _msg_id() -> Column:
    return F.coalesce("unique_key", "message_id")


def _record(*fields: Column) -> Column:
    texts = [F.coalesce(field.cast("string"), F.lit("null")) for field in fields]
    return F.concat(F.concat_ws("\x01", *texts), F.lit("\x02"))
