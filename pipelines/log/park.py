"""Parking: how a message is rewritten when it has to wait, and until when (docs/rocketmq/delay-retry-transaction.md).

A parked row lies in a topic of the store's own and carries its real topic and queue as properties. When it is due is
decided here, at its append, and kept in `due_ms`.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.rocketmq.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pipelines.rocketmq.properties import property_value, without
from pipelines.rocketmq.record import property_pair
from pipelines.rocketmq.times import FARTHEST_MS, within_reach
from pipelines.store.progress import covered, followed_rows
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG, PARKED

# Properties: the levels still to wait for, and the time of day that they were made from.
LEVEL_LIST, TIME_OF_DAY = "TIMING-LIST", "TIMING"
# Properties that a delay level replaces (1.2): another level, an earlier parking, a timer.
LEVEL_REPLACES = (
    "DELAY",
    "REAL_TOPIC",
    "REAL_QID",
    "TIMER_DELAY_SEC",
    "TIMER_DELAY_MS",
    "TIMER_DELIVER_MS",
    LEVEL_LIST,
)

# How long a broker waits for a level that its table does not have (1.3).
UNKNOWN_LEVEL_MS = 1_000


def level_delay_ms(level: Column, levels_ms: Sequence[int]) -> Column:
    """How long a level waits in ms, long: levels above the table's last wait as the last does."""
    if not levels_ms:
        return F.lit(UNKNOWN_LEVEL_MS).cast("long")
    delays = F.array(*[F.lit(delay).cast("long") for delay in levels_ms])
    index = F.try_subtract(F.least(level, F.lit(len(levels_ms))), F.lit(1))
    return F.coalesce(F.get(delays, index), F.lit(UNKNOWN_LEVEL_MS))


def clamped_level(level: Column, levels_ms: Sequence[int]) -> Column:
    """The level as it is written back: at most the table's last (1.2)."""
    return F.least(level, F.lit(len(levels_ms)))


def level_pairs(level: Column, rest: Column | None, topic: Column) -> Column:
    """Properties a row delayed by level gains, but for REAL_QID: the level, the rest of a level list, its real topic."""
    pairs = [property_pair("DELAY", level.cast("string"))]
    if rest is not None:
        pairs.append(property_pair(LEVEL_LIST, F.coalesce(rest, F.lit(""))))
    return F.concat(*pairs, property_pair("REAL_TOPIC", topic))


def delayed_properties(
    properties: Column, level: Column, rest: Column | None, topic: Column, queue_id: Column
) -> Column:
    """The properties of a row that is delayed by level (1.2): `level` clamped, `topic` and `queue_id` its real ones."""
    return F.concat(
        without(properties, *LEVEL_REPLACES),
        level_pairs(level, rest, topic),
        property_pair("REAL_QID", queue_id.cast("string")),
    )


def timer_out_ms(deliver_at_ms: Column, precision_ms: int) -> Column:
    """The slot of a timed row in ms: the last one that begins before its time (2.2)."""
    last = within_reach(deliver_at_ms) - 1
    return last - F.pmod(last, F.lit(precision_ms))


def half_due_ms(born_timestamp: Column, immunity_seconds: Column, time_out_ms: int) -> Column:
    """When a half may first be checked, ms: after its own immunity if it has one, else transactionTimeOut (5.7-8)."""
    limit = F.coalesce(immunity_ms(immunity_seconds), F.lit(min(time_out_ms, FARTHEST_MS)).cast("long"))
    return within_reach(born_timestamp) + limit


def immunity_ms(immunity_seconds: Column) -> Column:
    """A half's own immunity, milliseconds; null where it has none: nothing, -1, or not a whole number."""
    seconds = immunity_seconds.try_cast("long")
    return within_reach(F.when(seconds != -1, seconds)) * 1000


def immunity_seconds(properties: Column) -> Column:
    return property_value(properties, "CHECK_IMMUNITY_TIME_IN_SECONDS")


def is_parking_topic(topic: Column) -> Column:
    """Whether rows wait in a topic before they go to their real one."""
    return topic.isin(SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC)


def real_place(properties: Column) -> tuple[Column, Column]:
    """The real (topic, queue) of a parked row; null where its properties have none."""
    return property_value(properties, "REAL_TOPIC"), property_value(properties, "REAL_QID").try_cast("int")


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


def parked_rows(at: Snapshot, condition: Column) -> DataFrame:
    """Rows of `parked`, and of the log's appends it has not followed, that meet a condition on its columns."""
    followed = covered(at, PARKED)
    derived = followed_rows(at, PARKED).where(condition)
    if followed >= at.number(COMMITLOG):
        return derived
    later = at.read_after(COMMITLOG, followed).where(F.col("due_ms").isNotNull())
    return derived.unionByName(parked_messages(later).where(condition))
