"""The rows a log row gives to the consume queue and to the key index. Bodies are never read."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.log.park import level_delay_ms
from pipelines.rocketmq.flags import COMMITTED, PLAIN, ROLLED_BACK, TRANSACTION_BITS
from pipelines.rocketmq.hashing import java_hash
from pipelines.rocketmq.names import SCHEDULE_TOPIC
from pipelines.rocketmq.properties import property_value
from pipelines.rocketmq.times import within_reach
from schemas import CONSUME_QUEUE, MESSAGE_INDEX


def has_queue_entry() -> Column:
    """Whether a log row enters its queue: not while its transaction is open or rolled back (docs/rocketmq/store.md 3.1)."""
    return _transaction().isin(PLAIN, COMMITTED)


def is_indexed() -> Column:
    """Whether a log row's keys enter the index: also while its transaction is open (3.1)."""
    return _transaction() != ROLLED_BACK


def consume_queue_entries(log: DataFrame, delay_levels_ms: Sequence[int]) -> DataFrame:
    """One row per log row that enters its queue, with the columns of `consume_queue`, in the order of `log`."""
    entries = (
        log.where(has_queue_entry())
        # A column of its own, since it is used several times: Spark then computes it once.
        .withColumn("tags", property_value(F.col("properties"), "TAGS"))
        .withColumn("tags_code", tags_code(F.col("tags"), delay_levels_ms))
    )
    return entries.select(*CONSUME_QUEUE.names)


def tags_code(tags: Column, delay_levels_ms: Sequence[int]) -> Column:
    """Hash of the tags as a long, 0 without tags; of a row delayed by level its due time in ms instead (3.2)."""
    tags_hash = F.coalesce(java_hash(tags), F.lit(0)).cast("long")
    return F.coalesce(F.when(F.col("topic") == SCHEDULE_TOPIC, _delivery_time(delay_levels_ms)), tags_hash)


def _delivery_time(delay_levels_ms: Sequence[int]) -> Column:
    """When a row of the schedule topic is due, ms; null for one without a DELAY above 0.

    `due_ms` is decided at the append; rows written without one wait for their level from their append on.
    """
    level = property_value(F.col("properties"), "DELAY").try_cast("int")
    delay = level_delay_ms(level, delay_levels_ms)
    # The level itself is compared: least() in its delay ignores a null.
    return F.when(level > 0, F.coalesce("due_ms", within_reach(F.col("store_timestamp")) + delay))


def message_index_entries(log: DataFrame) -> DataFrame:
    """One row per UNIQ_KEY and per word of KEYS of a log row, with the columns of `message_index`.

    A word that equals the UNIQ_KEY, or comes twice, gives a row each time, as it does in a broker's index (5.2).
    """
    return numbered_index_entries(log).select(*MESSAGE_INDEX.names)


def numbered_index_entries(log: DataFrame) -> DataFrame:
    """The same with `key_number` (int): the order in which a broker indexes the keys of one message."""
    properties = F.col("properties")
    unique_key = F.coalesce(property_value(properties, "UNIQ_KEY"), F.lit(""))
    keys = F.concat_ws(" ", unique_key, property_value(properties, "KEYS"))
    return (
        log.where(is_indexed())
        .withColumn("keys", F.split(keys, " "))
        # posexplode would have Spark filter empty lists first, and so parse the properties twice.
        .select("*", F.posexplode_outer("keys").alias("key_number", "key"))
        .where(F.col("key") != "")
        .withColumn("hashed", F.concat("topic", F.lit("#"), "key"))
        .withColumn("code", java_hash(F.col("hashed")))
        .withColumn("key_hash", key_hash(F.col("code")))
        .select(*MESSAGE_INDEX.names, "key_number")
    )


def key_hash(code: Column) -> Column:
    """The index's hash of a key from String.hashCode of "topic#key": its absolute value, 0 where an int has none (5.2)."""
    return F.when(code == -(2**31), 0).otherwise(F.abs(code))


def _transaction() -> Column:
    return F.col("sys_flag").bitwiseAND(TRANSACTION_BITS)
