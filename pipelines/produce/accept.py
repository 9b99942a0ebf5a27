"""Accept messages: each input row becomes a message to be stored, or gets the reason why it cannot be stored.

The rules are RocketMQ's (docs/rocketmq/store.md 1.8–1.12, 7.3, 7.4; consume-filter-ha.md 1.2–1.4).
"""

from collections.abc import Collection, Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.errors import BadInput
from pipelines.log.numbers import may_be_whole, whole_number
from pipelines.produce.complaints import AcceptRules, complaints_of
from pipelines.produce.divert import may_divert, with_diversion
from pipelines.produce.inputs import Input
from pipelines.rocketmq.compression import SYS_FLAG_BITS, compressed
from pipelines.rocketmq.flags import COMPRESSED, MULTI_TAGS
from pipelines.rocketmq.hashing import java_hash
from pipelines.rocketmq.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from pipelines.rocketmq.properties import property_value
from pipelines.rocketmq.record import (
    UNIQUE_KEY_HEX_DIGITS,
    UNIQUE_KEY_PROPERTY_BYTES,
    property_pair,
    property_pair_bytes,
    property_pairs,
    size_bytes,
    with_host_bits,
)

TRANSACTION_ID = "__transactionId__"


def accepted(rows: DataFrame, source: Input, rules: AcceptRules) -> DataFrame:
    """Messages as they will be stored, but without offsets.

    rows    the input as Input.read returns it
    adds    `stored_body`, `stored_properties` (without a UNIQ_KEY that the put makes), `makes_key` (whether it makes one),
            `stored_sys_flag`, `stored_born_host`, `size_bytes`, `wire_bytes`, `reason` (null for a good row); where the
            input has the columns: `shard`, and what with_diversion adds (`size_bytes` counts one digit for REAL_QID)
    """
    has = source.columns.__contains__
    settings = rules.settings
    typed = rows if source.is_staged else rows.transform(with_typed_columns, source)
    body = given_body(source.columns)
    plain = typed.withColumn("plain_body", body)
    sys_flag = F.coalesce(F.col("sys_flag"), F.lit(0)) if has("sys_flag") else F.lit(0)
    born_host = F.coalesce(F.col("born_host"), F.lit(settings.store_host)) if has("born_host") else None
    stored_body, flag_bits = F.col("plain_body"), F.lit(0)
    if rules.compress_over is not None:
        compresses = (F.length("plain_body") >= rules.compress_over) & (sys_flag.bitwiseAND(COMPRESSED) == 0)
        if has("batch"):
            compresses = compresses & F.col("batch").isNull()  # a batch is never compressed
        stored_body = F.when(compresses, compressed(F.col("plain_body"), rules.codec)).otherwise(
            F.col("plain_body")
        )
        flag_bits = F.when(compresses, F.lit(COMPRESSED | SYS_FLAG_BITS[rules.codec])).otherwise(0)
    flag_bits = flag_bits.bitwiseOR(_multi_tag_bit(rules))
    store_ipv6 = settings.store_host.startswith("[")
    stored_born_host = born_host if born_host is not None else F.lit(settings.store_host)
    messages = plain.withColumns(
        {
            "stored_body": stored_body,
            "stored_properties": _stored_properties(source),
            "makes_key": _makes_key(source),
            "stored_sys_flag": with_host_bits(sys_flag.bitwiseOR(flag_bits), stored_born_host, store_ipv6),
            "stored_born_host": stored_born_host,
        }
    )
    topic = F.coalesce(F.col("topic"), F.lit(""))
    added_bytes = F.when(F.col("makes_key"), F.lit(UNIQUE_KEY_PROPERTY_BYTES)).otherwise(0)
    if may_divert(source):
        messages = messages.transform(
            with_diversion, source, settings, rules.now_ms, rules.has_begun
        ).withColumn("transaction_key", _transaction_key(source))
        added_bytes = added_bytes + _diverting_bytes()
        topic = F.coalesce(F.col("parked_topic"), topic)
    properties_bytes = _stored_properties_bytes(source) + added_bytes
    body_bytes = F.coalesce(F.octet_length("stored_body"), F.lit(0))
    messages = messages.withColumns(
        {
            "size_bytes": size_bytes(topic, body_bytes, properties_bytes, born_host, store_ipv6),
            "wire_bytes": (body_bytes + properties_bytes).cast("int"),
        }
    )
    return messages.withColumn("reason", F.coalesce(*complaints_of(source, rules, properties_bytes)))


def _multi_tag_bit(rules: AcceptRules) -> Column:
    """The bit of messages put to a MULTI_TAG topic, wherever they wait first (docs/rocketmq/store.md 1.6)."""
    topic, bit = F.col("topic"), F.lit(0)
    if rules.multi_tag_topics:
        bit = F.when(topic.isin(*rules.multi_tag_topics), F.lit(MULTI_TAGS)).otherwise(bit)
    if rules.new_are_multi_tag:
        # A group's topics are made without a look at TBW102.
        is_new = (
            ~topic.isin(*rules.topics)
            & ~topic.startswith(RETRY_PREFIX)
            & ~topic.startswith(DEAD_LETTER_PREFIX)
        )
        bit = F.when(is_new, F.lit(MULTI_TAGS)).otherwise(bit)
    return bit


# --- columns with their expected types ---

_NUMBERS = {
    "queue_id": "int", "flag": "int", "sys_flag": "int", "delay_level": "int",
    "born_timestamp": "long", "arrival": "long", "delay_ms": "long", "deliver_at_ms": "long",
}  # fmt: skip


_TEXTS = (
    "topic", "tags", "properties_raw", "unique_key", "batch", "born_host", "deliver_at_time", "cancel_unique_key",
    "transaction", "producer_group",
)  # fmt: skip

# Columns that may also be a TIMESTAMP.
_TIMES = ("born_timestamp", "deliver_at_ms", "arrival")


def with_typed_columns(rows: DataFrame, source: Input) -> DataFrame:
    """The rows with numbers as numbers, keys as words, a sharding key as its hash `shard`. A value that does not fit its
    column becomes null; `bad_number` is a sentence about the row's first such value, else null.

    Raises BadInput for a column whose type can hold no value that fits.
    """
    types = dict(rows.dtypes)
    _expect_types({name: types[name] for name in source.columns})
    wrong, columns = [], {}
    for name, wanted in _NUMBERS.items():
        if name not in source.columns or types[name] == {"long": "bigint"}.get(wanted, wanted):
            continue
        value, is_wrong = _number(name, wanted, types[name])
        columns[name] = value
        wrong.append(
            F.when(
                is_wrong,
                F.format_string(
                    f"{name} is %s; expected a whole number of type {wanted}", F.col(name).cast("string")
                ),
            )
        )
    if "keys" in source.columns:
        columns["keys"] = _key_words(F.col("keys"), types["keys"])
    if "sharding_key" in source.columns:
        columns["shard"], complaint = _shard(F.col("sharding_key"), types["sharding_key"])
        wrong.append(complaint)
    if "properties" in source.columns and types["properties"] == "string":
        parsed = F.from_json("properties", "map<string,string>")
        columns["properties"] = parsed
        is_wrong = F.col("properties").isNotNull() & parsed.isNull()
        wrong.append(F.when(is_wrong, F.lit("properties: expected an object of strings")))
    elif "properties" in source.columns and types["properties"] != "map<string,string>":
        columns["properties"] = F.col("properties").cast("map<string,string>")
    if "deliver_through" in source.columns:
        columns["deliver_through"] = _level_list_text(F.col("deliver_through"), types["deliver_through"])
    for name in _TEXTS:
        if name in source.columns and types[name] != "string":
            columns[name] = F.col(name).cast("string")
    columns["bad_number"] = F.coalesce(*wrong) if wrong else F.lit(None).cast("string")
    return rows.withColumns(columns)


def _expect_types(types: Mapping[str, str]) -> None:
    """Raises BadInput for a column whose type can hold no expected value."""
    for name, given in types.items():
        if not _fits(name, given):
            hint = ""
            if name in _TIMES and given in ("timestamp_ntz", "date"):
                hint = "; a TIMESTAMP is taken too: which moment this is depends on a time zone, so cast it to one"
            raise BadInput(
                f"the input's column {name} has the type {given}; expected {_expected(name)}{hint}"
            )


def _fits(name: str, given: str) -> bool:
    if name in _NUMBERS:
        return may_be_whole(given) or _is_moment(name, given)
    if name == "body":
        return given in ("string", "binary")
    if name == "properties":
        return given == "string" or given.startswith("map<string,")
    if name in _TEXTS or name == "body_base64":
        return not given.startswith(("array<", "map<", "struct<", "variant"))
    return True


def _expected(name: str) -> str:
    if name in _NUMBERS:
        return "whole numbers"
    return {"body": "text or binary", "properties": "a map of strings"}.get(name, "text")


def _is_moment(name: str, given: str) -> bool:
    return name in _TIMES and given == "timestamp"


def _number(name: str, wanted: str, given: str) -> tuple[Column, Column]:
    """(the column as a number, whether its value is not a valid one). A TIMESTAMP becomes milliseconds since 1970."""
    if _is_moment(name, given):
        # arrival is an order, so it keeps microseconds.
        return (F.unix_micros if name == "arrival" else F.unix_millis)(name), F.lit(False)
    return whole_number(name, wanted, given)


def _key_words(keys: Column, type_name: str) -> Column:
    if type_name.startswith("array"):
        return F.array_join(keys.cast("array<string>"), " ")
    if type_name == "variant":
        words = F.try_variant_get(keys, "$", "array<string>")
        return F.coalesce(F.array_join(words, " "), F.try_variant_get(keys, "$", "string"))
    return keys.cast("string")


def _level_list_text(levels: Column, type_name: str) -> Column:
    """Levels as the text `8,7,12`, from text or from a list."""
    if type_name.startswith("array"):
        return F.array_join(levels.cast("array<string>"), ",")
    return F.regexp_replace(levels.cast("string"), r"\A\s*\[|\]\s*\z", "")


def _shard(key: Column, type_name: str) -> tuple[Column, Column]:
    """(Java's hashCode of the key, int; a sentence where it has no such hash), consume-filter-ha.md 1.4."""
    expected = F.when(key.isNotNull(), F.lit("sharding_key: expected a string or a whole number"))
    if type_name in ("int", "bigint", "smallint", "tinyint"):
        return _integer_hash(key.cast("long")), F.lit(None).cast("string")
    if type_name == "string":
        return F.when(key.isNotNull(), java_hash(key)), F.lit(None).cast("string")
    if type_name != "variant":
        return F.lit(None).cast("int"), expected
    kind = F.schema_of_variant(key)
    text, number = F.try_variant_get(key, "$", "string"), F.try_variant_get(key, "$", "long")
    shard = F.when(kind == "STRING", java_hash(text)).when(kind == "BIGINT", _integer_hash(number))
    is_wrong = kind.isNotNull() & ~kind.isin("STRING", "BIGINT", "VOID")
    return shard, F.when(is_wrong, F.lit("sharding_key: expected a string or a whole number"))


def _integer_hash(number: Column) -> Column:
    """Java's hashCode of a whole number: one that fits an Integer hashes to itself, a Long to the xor of its halves."""
    fits = number.between(-(2**31), 2**31 - 1)
    halves = number.bitwiseXOR(F.shiftrightunsigned(number, 32)).bitwiseAND(F.lit(0xFFFFFFFF).cast("long"))
    signed = F.when(halves > 2**31 - 1, halves - F.lit(2**32)).otherwise(halves)
    return F.when(fits, number).otherwise(signed).cast("int")


def given_body(columns: Collection[str]) -> Column:
    """The bytes of a row's body, of `body` or else `body_base64`; `columns` are those that the input has."""
    texts = []
    if "body" in columns:
        texts.append(F.col("body").cast("binary"))
    if "body_base64" in columns:
        texts.append(F.try_to_binary(F.col("body_base64").cast("string"), F.lit("base64")))
    return F.coalesce(*texts)


def _given_key(source: Input) -> Column | None:
    keys = []
    if "unique_key" in source.columns:
        keys.append(F.when(F.col("unique_key") != "", F.col("unique_key")))
    if "properties" in source.columns:
        keys.append(F.col("properties")["UNIQ_KEY"])
    return F.coalesce(*keys) if keys else None


def _makes_key(source: Input) -> Column:
    """Whether the put makes the row's unique key: the row has none, and does not have `properties_raw`."""
    given = _given_key(source)
    makes = F.lit(True) if given is None else given.isNull()
    if "properties_raw" in source.columns:
        makes = makes & F.col("properties_raw").isNull()
    return makes


def _transaction_key(source: Input) -> Column:
    """The unique key that a half message already has; null when it has none, or the put makes it."""
    keys = []
    given = _given_key(source)
    if given is not None:
        keys.append(given)
    if "properties_raw" in source.columns:
        keys.append(property_value(F.col("properties_raw"), "UNIQ_KEY"))
    return F.coalesce(*keys) if keys else F.lit(None).cast("string")


def _diverting_bytes() -> Column:
    """Bytes of the properties that parking adds; REAL_QID counts with one digit."""
    key_bytes = F.when(F.col("makes_key"), F.lit(UNIQUE_KEY_HEX_DIGITS)).otherwise(
        F.octet_length("transaction_key")
    )
    transaction = F.when(
        F.col("is_half") & (key_bytes > 0), key_bytes + len(f"{TRANSACTION_ID}\x01\x02")
    ).otherwise(0)
    queue = F.when(F.col("parked_topic").isNotNull(), F.lit(len("REAL_QID\x010\x02"))).otherwise(0)
    return F.octet_length("diverting_pairs") + transaction + queue


def final_properties(source: Input, unique_key: Column) -> Column:
    """The properties string of a placed message, as the log stores it.

    unique_key  the key that the put makes for a row without one
    needs       the columns of `accepted`, and `chosen_queue_id` (int): the queue in the message's own topic
    """
    makes_key = F.col("makes_key")
    made = F.when(makes_key, property_pair("UNIQ_KEY", unique_key)).otherwise(F.lit(""))
    stored = F.concat("stored_properties", made)
    if not may_divert(source):
        return F.when(makes_key, stored).otherwise(F.col("stored_properties"))
    queue = F.when(
        F.col("parked_topic").isNotNull(), property_pair("REAL_QID", F.col("chosen_queue_id").cast("string"))
    ).otherwise(F.lit(""))
    key = F.when(makes_key, unique_key).otherwise(F.col("transaction_key"))
    transaction = F.when(
        F.col("is_half"), property_pair(TRANSACTION_ID, F.coalesce(key, F.lit("")))
    ).otherwise(F.lit(""))
    return F.concat(stored, "diverting_pairs", queue, transaction)


def _stored_properties(source: Input) -> Column:
    parts = [
        _own_properties() if text is None else property_pair(name, text)
        for name, text in _given_properties(source).items()
    ]
    built = F.concat(*parts) if parts else F.lit("")
    if "properties_raw" not in source.columns:
        return built
    return F.coalesce(F.col("properties_raw"), built)


def _stored_properties_bytes(source: Input) -> Column:
    """Bytes of `stored_properties`: a sum over the properties where possible, since counting need not build the string."""
    if may_divert(source):
        return F.octet_length("stored_properties")
    lengths = [
        F.octet_length(_own_properties()) if text is None else property_pair_bytes(name, text)
        for name, text in _given_properties(source).items()
    ]
    return reduce(Column.__add__, lengths, F.lit(0))


def _given_properties(source: Input) -> dict[str, Column | None]:
    """Properties from the input's columns, in stored order: name -> text; None stands for the column `properties`, a map."""
    given: dict[str, Column | None] = {}
    if "tags" in source.columns:
        given["TAGS"] = F.col("tags")
    if "keys" in source.columns:
        given["KEYS"] = F.col("keys")
    if "properties" in source.columns:
        given["properties"] = None
    if (key := _given_key(source)) is not None:
        given["UNIQ_KEY"] = key
    return given


def _own_properties() -> Column:
    own = F.map_filter("properties", lambda name, value: (name != "UNIQ_KEY") & (value != ""))
    return F.when(F.col("properties").isNull(), "").otherwise(property_pairs(own))
