"""Complaints: why an input row cannot be stored, as sentences for the user who fixes it.

The rules are RocketMQ's (docs/rocketmq/store.md 1.8–1.12, 7.3, 7.4; consume-filter-ha.md 1.2–1.4).
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.produce.divert import diversion_complaints, may_divert, out_of_years
from pipelines.produce.inputs import Input
from pipelines.rocketmq.compression import Codec
from pipelines.rocketmq.flags import COMPRESSION_BITS, INNER_BATCH, TRANSACTION_BITS, ZLIB
from pipelines.rocketmq.names import (
    DEAD_LETTER_PREFIX,
    NAME_CHARS,
    RETRY_PREFIX,
    RETRY_TOPIC_CHARS,
    SEND_FORBIDDEN,
    TOPIC_CHARS,
)
from pipelines.rocketmq.record import BLANK_BYTES
from pipelines.rocketmq.settings import Settings
from pipelines.spark_internals.catalyst import number_of

# Names that MessageConst reserves (docs/rocketmq/store.md 1.9), except those that an input may set as properties.
RESERVED_PROPERTIES = (
    "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "MIN_OFFSET",
    "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME",
    "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "MSG_REGION", "TRACE_ON", "EXTEND_UNIQ_INFO", "DUP_INFO",
    "TRAN_PREPARED_QUEUE_OFFSET", "INSTANCE_ID", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME",
    "PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE", "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "INNER_MULTI_QUEUE_OFFSET",
    "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS",
    "TIMER_ROLL_TIMES", "TIMER_DELAY_LEVEL", "__BORNHOST", "BORN_TIMESTAMP", "DLQ_ORIGIN_TOPIC",
    "DLQ_ORIGIN_MESSAGE_ID", "__CRC32#", "TIMING-LIST",
)  # fmt: skip

MAX_PROPERTIES_BYTES = 32_767
# Bytes that a parked message may gain when it is copied to its real topic, where it must fit a segment too: a topic of at
# most 255 bytes instead of the parking topic's, and a few short properties.
COPIES_GAIN_BYTES = 512

TOPIC_PATTERN = rf"[{NAME_CHARS}]+"

_IPV4 = r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_GROUP = "[0-9a-fA-F]{1,4}"


def _ipv6() -> str:
    """A pattern of eight groups, or fewer with one run of zeros left out; the last two may be written as IPv4."""

    def last(at_most: int) -> str:
        """A pattern of at most N groups at the end."""
        groups = rf"(?:{_GROUP}:){{0,{at_most - 1}}}{_GROUP}"
        quad = rf"|(?:{_GROUP}:){{0,{at_most - 2}}}{_IPV4}" if at_most >= 2 else ""
        return rf"(?:{groups}{quad})?" if at_most else ""

    whole = rf"(?:{_GROUP}:){{7}}{_GROUP}|(?:{_GROUP}:){{6}}{_IPV4}"
    cut = [
        (rf"{_GROUP}(?::{_GROUP}){{{before - 1}}}" if before else "") + "::" + last(7 - before)
        for before in range(8)
    ]
    return "|".join([whole, *cut])


_PORT = r"(?:6553[0-5]|655[0-2]\d|65[0-4]\d\d|6[0-4]\d{3}|[0-5]?\d{1,4})"
# docs/rocketmq/store.md 1.2. A client cannot read a message whose host has a port out of this range.
_HOST = rf"\A(?:{_IPV4}|\[(?:{_ipv6()})\]):{_PORT}\z"


@dataclass(frozen=True)
class AcceptRules:
    """What accepting depends on besides the row.

    now_ms            epoch milliseconds: when the messages are accepted
    topics            topics of the store: names of existing topics are not checked
    compress_over     compress bodies of at least this many bytes; None: never
    codec             the codec for it
    queues_are_selected  whether a Python selector has chosen queues; `selector_problem` has its errors
    topic_complaints  topic -> why nothing can be put to it
    queues_by_topic   topic -> number of its queues, max of read and write; only topics where a row's queue_id is too large
    multi_tag_topics  topics of the store whose filter type is MULTI_TAG
    new_are_multi_tag  whether a topic that is made on the fly is one of these
    has_begun         whether the log holds messages of the batch: its cancels were accepted then, and may be late by now
    is_whole          whether it holds all of them: none has to find a way to wait from now on
    """

    settings: Settings
    now_ms: int
    topics: Collection[str] = ()
    compress_over: int | None = None
    codec: Codec = Codec.zlib
    needs_sharding_key: bool = False
    queues_are_selected: bool = False
    topic_complaints: Mapping[str, str] | None = None
    queues_by_topic: Mapping[str, int] | None = None
    multi_tag_topics: Collection[str] = ()
    new_are_multi_tag: bool = False
    has_begun: bool = False
    is_whole: bool = False


def complaints_of(source: Input, rules: AcceptRules, properties_bytes: Column) -> list[Column]:
    """Sentences, each null where the row is fine, in the order in which a person would fix them."""
    has = source.columns.__contains__
    complaints = [F.col("problem")] if source.has_problems else []
    if rules.queues_are_selected:
        complaints.append(F.col("selector_problem"))
    complaints.append(F.col("bad_number"))
    complaints += _topic_complaints(rules)
    complaints += _body_complaints(source, rules)
    complaints += _property_complaints(source)
    if source.given_format in ("parquet", "delta"):
        complaints += _text_complaints(source)
    if has("born_timestamp"):
        complaints.append(out_of_years("born_timestamp"))
    if may_divert(source):
        complaints += diversion_complaints(
            source, rules.settings, rules.now_ms, rules.has_begun, rules.is_whole
        )
    if has("batch"):
        complaints.append(
            F.when(
                F.col("batch").isNotNull() & F.col("topic").startswith(RETRY_PREFIX),
                F.format_string(
                    "a batch cannot be sent to retries (topic %s); put its messages one by one", "topic"
                ),
            )
        )
    if has("queue_id"):
        complaints += _queue_complaints(rules)
    if rules.needs_sharding_key:
        missing = F.col("shard").isNull() if has("sharding_key") else F.lit(True)
        if has("queue_id"):
            missing = missing & F.col("queue_id").isNull()
        complaints.append(F.when(missing, F.lit("sharding_key is missing; the selector hash needs one")))
    if has("born_host"):
        is_wrong = F.col("born_host").isNotNull() & ~F.col("born_host").rlike(_HOST)
        complaints.append(
            F.when(
                is_wrong,
                F.format_string(
                    "born_host is %s; expected ip:port or [ipv6]:port", shown(F.col("born_host"))
                ),
            )
        )
    if has("sys_flag"):
        complaints += _sys_flag_complaints()
    complaints.append(
        F.when(
            properties_bytes > MAX_PROPERTIES_BYTES,
            F.format_string(f"its properties are %d bytes; at most {MAX_PROPERTIES_BYTES}", properties_bytes),
        )
    )
    complaints += _size_complaints(source, rules.settings)
    return complaints


def _size_complaints(source: Input, settings: Settings) -> list[Column]:
    size, fits = F.col("size_bytes"), settings.segment_bytes - BLANK_BYTES
    limits = [(settings.max_record_bytes, "maxMessageSize and 65,536 more", F.lit(True))]
    limits.append((fits, "mappedFileSizeCommitLog less 8", F.lit(True)))
    if may_divert(source):
        is_parked = F.col("parked_topic").isNotNull()
        with_copies = f"mappedFileSizeCommitLog less 8, and {COPIES_GAIN_BYTES} for what its copies gain"
        limits.append((fits - COPIES_GAIN_BYTES, with_copies, is_parked))
    return [
        F.when(
            holds & (size > most),
            F.format_string(f"its record is %d bytes; at most {most} ({limit})", size),
        )
        for most, limit, holds in sorted(limits, key=lambda limit: limit[0])
    ]


def shown(text: Column) -> Column:
    """A text on one line: line ends are shown as \\n and \\r."""
    return F.replace(F.replace(text, F.lit("\n"), F.lit(r"\n")), F.lit("\r"), F.lit(r"\r"))


def _topic_complaints(rules: AcceptRules) -> list[Column]:
    topic = F.col("topic")
    is_long_kind = topic.startswith(RETRY_PREFIX) | topic.startswith(DEAD_LETTER_PREFIX)
    # Checked in bytes: a valid name is ASCII, so its bytes are its characters.
    at_most = F.when(is_long_kind, RETRY_TOPIC_CHARS).otherwise(TOPIC_CHARS)
    complaint = F.coalesce(
        F.when(F.coalesce(F.trim(topic), F.lit("")) == "", F.lit("topic is missing")),
        F.when(
            ~topic.rlike(rf"\A{TOPIC_PATTERN}\z"),
            F.format_string("topic %s has a character other than letters, digits and %%|-_", shown(topic)),
        ),
        F.when(
            F.octet_length(topic) > at_most,
            F.format_string(
                "topic %s… has %d bytes; at most %d", F.left(topic, F.lit(40)), F.octet_length(topic), at_most
            ),
        ),
        F.when(
            topic.isin(*sorted(SEND_FORBIDDEN)),
            F.format_string("topic %s is the store's own: no message may be sent to it", topic),
        ),
    )
    fine = [name for name in rules.topics if _is_fine(name)]
    complaints = [F.when(number_of(fine, topic) < 0, complaint)]
    for name, its_complaint in (rules.topic_complaints or {}).items():
        complaints.append(F.when(topic == name, F.lit(its_complaint)))
    return complaints


def _is_fine(topic: str) -> bool:
    """Whether a topic's name surely passes the checks above; rows of any other topic are checked one by one."""
    return (
        re.fullmatch(TOPIC_PATTERN, topic, re.ASCII) is not None
        and len(topic) <= TOPIC_CHARS
        and topic not in SEND_FORBIDDEN
    )


def _body_complaints(source: Input, rules: AcceptRules) -> list[Column]:
    has = source.columns.__contains__
    complaints = []
    if has("body_base64"):
        encoded = F.col("body_base64").isNotNull()
        if has("body"):
            both = encoded & F.col("body").isNotNull()
            complaints.append(F.when(both, F.lit("body and body_base64 are both given; one is enough")))
        undecoded = F.try_to_binary(F.col("body_base64").cast("string"), F.lit("base64")).isNull()
        complaints.append(F.when(encoded & undecoded, F.lit("body_base64 is not base64")))
    at_most = rules.settings.max_message_bytes
    complaints.append(F.when(F.col("plain_body").isNull(), F.lit("body is missing; an empty one is legal")))
    complaints.append(
        F.when(
            F.octet_length("plain_body") > at_most,
            F.format_string(
                f"its body is %d bytes; at most {at_most} (maxMessageSize)", F.octet_length("plain_body")
            ),
        )
    )
    return complaints


def _property_complaints(source: Input) -> list[Column]:
    has = source.columns.__contains__
    complaints = []
    if has("properties"):
        names = F.map_keys("properties")
        reserved = F.array_intersect(names, F.array(*[F.lit(name) for name in RESERVED_PROPERTIES]))
        complaints.append(
            F.when(
                F.size(reserved) > 0,
                F.format_string(
                    "property %s is reserved; give tags, keys and the like as columns, or all as properties_raw",
                    F.array_join(reserved, ", "),
                ),
            )
        )
        blank = F.exists(
            F.map_entries("properties"),
            lambda e: (F.trim(e["key"]) == "") | (F.coalesce(F.trim(e["value"]), F.lit("")) == ""),
        )
        complaints.append(
            F.when(blank, F.lit("a property has a blank name or value; RocketMQ would not keep it"))
        )
        unsafe = F.exists(
            F.map_entries("properties"), lambda e: e["key"].rlike("[\x01\x02]") | e["value"].contains("\x02")
        )
        complaints.append(
            F.when(unsafe, F.lit("a property has a byte 0x01 in its name or 0x02; they separate properties"))
        )
        if has("unique_key"):
            inside = F.col("properties")["UNIQ_KEY"]
            differs = F.coalesce(inside != F.col("unique_key"), F.lit(False))
            complaints.append(F.when(differs, F.lit("unique_key and the property UNIQ_KEY differ; give one")))
    for name in ("tags", "keys", "unique_key", "cancel_unique_key"):
        if has(name):
            complaints.append(
                F.when(
                    F.col(name).contains("\x02"), F.lit(f"{name} has a byte 0x02; it separates properties")
                )
            )
    if has("properties_raw"):
        others = [
            F.col(name).isNotNull() for name in ("tags", "keys", "properties", "unique_key") if has(name)
        ]
        if others:
            any_other = others[0]
            for other in others[1:]:
                any_other = any_other | other
            complaints.append(
                F.when(
                    F.col("properties_raw").isNotNull() & any_other,
                    F.lit(
                        "properties_raw comes alone: tags, keys, properties and unique_key must be inside it"
                    ),
                )
            )
    return complaints


def _text_complaints(source: Input) -> list[Column]:
    """Sentences about strings that are not UTF-8: readers of tables do not check them, and these become properties."""
    names = ("tags", "keys", "unique_key", "properties_raw", "cancel_unique_key", "producer_group")
    complaints = [
        F.when(~F.is_valid_utf8(name), F.lit(f"{name} has bytes that are not UTF-8"))
        for name in names
        if name in source.columns
    ]
    if "properties" in source.columns:
        is_wrong = F.exists(
            F.map_entries("properties"), lambda e: ~F.is_valid_utf8(e["key"]) | ~F.is_valid_utf8(e["value"])
        )
        complaints.append(F.when(is_wrong, F.lit("properties has bytes that are not UTF-8")))
    return complaints


def _queue_complaints(rules: AcceptRules) -> list[Column]:
    queue_id, topic = F.col("queue_id"), F.col("topic")
    complaints = [F.when(queue_id < 0, F.format_string("queue_id is %d; expected 0 or more", queue_id))]
    for name, queues in (rules.queues_by_topic or {}).items():
        too_large = (topic == name) & (queue_id >= queues)
        complaints.append(
            F.when(
                too_large,
                F.format_string(f"queue_id is %d; topic {name} has queues 0 to {queues - 1}", queue_id),
            )
        )
    return complaints


def _sys_flag_complaints() -> list[Column]:
    flag = F.col("sys_flag")
    return [
        F.when(
            flag.bitwiseAND(TRANSACTION_BITS) != 0,
            F.lit("sys_flag has transaction bits (0xC); they are the store's to set"),
        ),
        F.when(
            flag.bitwiseAND(INNER_BATCH) != 0,
            F.lit("sys_flag says inner batch (0x80); batches are put with the column batch"),
        ),
        F.when(
            (flag < 0) | (flag.bitwiseAND(COMPRESSION_BITS) > ZLIB),
            F.format_string("sys_flag is %d; its compression type (0x700) must be 0 to 3", flag),
        ),
    ]
