"""What a log row becomes in each table that is derived from the log. Never reads a body."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.log.hashing import java_hash
from pipelines.log.properties import property_value
from pipelines.store.topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from schemas import CLAIMS, CONSUME_QUEUE, MESSAGE_INDEX, PARKED

TRANSACTION_BITS, COMMITTED, ROLLED_BACK = 0xC, 0x8, 0xC

# What a broker waits for a level its table does not have.
UNKNOWN_LEVEL_MS = 1_000


def has_queue_entry() -> Column:
    """Whether a log row enters its queue: not while its transaction is open or rolled back (docs/rocketmq/store.md 3.1)."""
    return _transaction().isin(0, COMMITTED)


def is_indexed() -> Column:
    """Whether a log row's keys enter the index: also while its transaction is open (3.1)."""
    return _transaction() != ROLLED_BACK


def consume_queue_entries(log: DataFrame, delay_levels_ms: Sequence[int]) -> DataFrame:
    """One row per log row that enters its queue, with the columns of `consume_queue`, in the order of `log`."""
    entries = (
        log.where(has_queue_entry())
        # A column of its own, since it is used several times: Spark then works it out once.
        .withColumn("tags", property_value(F.col("properties"), "TAGS"))
        .withColumn("tags_code", tags_code(F.col("tags"), delay_levels_ms))
    )
    return entries.select(*CONSUME_QUEUE.names)


def tags_code(tags: Column, delay_levels_ms: Sequence[int]) -> Column:
    """Hash of the tags as a long, 0 without; of a row delayed by level when it is due instead (3.2)."""
    tags_hash = F.coalesce(java_hash(tags), F.lit(0)).cast("long")
    return F.coalesce(F.when(F.col("topic") == SCHEDULE_TOPIC, _delivery_time(delay_levels_ms)), tags_hash)


def _delivery_time(delay_levels_ms: Sequence[int]) -> Column:
    """When a row of the schedule topic is due; null for one without a DELAY above 0.

    `due_ms` was decided at its append; rows written without one wait for their level from then on.
    """
    level = property_value(F.col("properties"), "DELAY").try_cast("int")
    delays = F.array(*[F.lit(delay).cast("long") for delay in delay_levels_ms])
    capped = F.least(level, F.lit(len(delay_levels_ms)))
    delay = F.coalesce(F.get(delays, capped - 1), F.lit(UNKNOWN_LEVEL_MS))
    # Of the level itself: least() takes no notice of a null.
    return F.when(level > 0, F.coalesce("due_ms", F.col("store_timestamp") + delay))


def message_index_entries(log: DataFrame) -> DataFrame:
    """One row per UNIQ_KEY and per word of KEYS of a log row, with the columns of `message_index`.

    A word that equals the UNIQ_KEY, or comes twice, gives a row each time, as it does in a broker's index (5.2).
    """
    properties = F.col("properties")
    unique_key = F.coalesce(property_value(properties, "UNIQ_KEY"), F.lit(""))
    keys = F.concat_ws(" ", unique_key, property_value(properties, "KEYS"))
    entries = (
        log.where(is_indexed())
        .withColumn("keys", F.split(keys, " "))
        # Not explode: Spark would look for empty lists first, and take the properties apart twice.
        .withColumn("key", F.explode_outer("keys"))
        .where(F.col("key") != "")
        .withColumn("hashed", F.concat("topic", F.lit("#"), "key"))
        .withColumn("code", java_hash(F.col("hashed")))
        .withColumn("key_hash", key_hash(F.col("code")))
    )
    return entries.select(*MESSAGE_INDEX.names)


def key_hash(code: Column) -> Column:
    """The index's hash of a key from String.hashCode of "topic#key": its absolute value, 0 where there is none (5.2)."""
    return F.when(code == -(2**31), 0).otherwise(F.abs(code))


def parked_messages(log: DataFrame) -> DataFrame:
    """One row per log row with a due time, with the columns of `parked`."""
    properties = F.col("properties")
    topic = F.col("topic")
    kind = (
        F.when(topic == SCHEDULE_TOPIC, "schedule")
        .when(topic == TIMER_TOPIC, "timer")
        .when(topic == HALF_TOPIC, "half")
    )
    parked = log.where(F.col("due_ms").isNotNull()).withColumns(
        {
            "kind": kind,
            "origin_offset": F.coalesce("origin_offset", "physical_offset"),
            "real_topic": property_value(properties, "REAL_TOPIC"),
            "unique_key": property_value(properties, "UNIQ_KEY"),
            "cancels": property_value(properties, "TIMER_DEL_UNIQKEY"),
        }
    )
    return parked.select(*PARKED.names)


def claims_of(log: DataFrame) -> DataFrame:
    """One row per log row that claims something of the row it was made from, with the columns of `claims`."""
    return log.where(F.col("claim").isNotNull()).select(*CLAIMS.names)


def _transaction() -> Column:
    return F.col("sys_flag").bitwiseAND(TRANSACTION_BITS)
