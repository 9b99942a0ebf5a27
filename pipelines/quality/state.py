"""State that is not derivable: groups' offsets, settings, and the keys of every table of a few rows."""

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.errors import BadInput
from pipelines.quality.promise import Check, Promise, check, complaint
from pipelines.rocketmq.settings import Settings
from pipelines.spark_internals.arrow import frame_of
from pipelines.store.head import bounds_of, head_as_found
from pipelines.store.snapshot import Snapshot
from schemas import (
    COMMITLOG,
    CONSUMER_OFFSETS,
    CUTS,
    EPOCHS,
    FILTER_CLASSES,
    FLOORS,
    IN_FLIGHT,
    PROGRESS,
    QUEUE_BOUNDS,
    REPLICAS,
    STORE_SETTINGS,
    SUBSCRIPTION_GROUPS,
    SUBSCRIPTIONS,
    TOPICS,
)

READ = Promise("read", "no group has read further than its queue goes", "warning")
GONE = Promise("gone", "no group waits at messages that have expired", "info")
IN_WORK = Promise("in_work", "messages in flight lie in their queue", "warning")
SETTING = Promise("setting", "each setting is known and has a value it may have", "critical")
KEYS = Promise("keys", "no key comes twice in a table of state", "critical")

KEYED = (
    STORE_SETTINGS, TOPICS, SUBSCRIPTION_GROUPS, SUBSCRIPTIONS, CONSUMER_OFFSETS, IN_FLIGHT, PROGRESS, QUEUE_BOUNDS,
    CUTS, FLOORS, FILTER_CLASSES, REPLICAS, EPOCHS,
)  # fmt: skip


def group_offsets(at: Snapshot) -> Check:
    """Each group's offset of each queue, beside the queue's bounds."""
    queue = F.format_string(
        "group %s%s in queue %s:%d",
        "group",
        F.when(F.col("client_id") == "", "").otherwise(F.concat(F.lit(" ("), "client_id", F.lit(")"))),
        "topic",
        "queue_id",
    )
    next_offset = F.col("next_offset")
    return check(
        "offsets",
        at.read(CONSUMER_OFFSETS).join(current_bounds(at), ["topic", "queue_id"], "left"),
        F.col("queue_id"),
        {
            READ: complaint(
                (next_offset >= 0) & (next_offset <= F.coalesce("end", F.lit(0))),
                F.format_string(
                    "%s goes on at offset %d; the queue ends at %d",
                    queue,
                    next_offset,
                    F.coalesce("end", F.lit(0)),
                ),
            ),
            GONE: complaint(
                next_offset >= F.coalesce("start", F.lit(0)),
                F.format_string(
                    "%s goes on at offset %d; the queue begins at %d", queue, next_offset, "start"
                ),
            ),
        },
    )


def in_flight(at: Snapshot) -> Check:
    """Each orderly message that is being tried again, beside its queue's bounds."""
    offset = F.col("queue_offset")
    return check(
        "offsets",
        at.read(IN_FLIGHT).join(current_bounds(at), ["topic", "queue_id"], "left"),
        F.col("queue_id"),
        {
            IN_WORK: complaint(
                # One whose message has expired is dropped when the group reads on.
                (offset >= 0) & (offset < F.col("end")),
                F.format_string(
                    "group %s tries offset %d of queue %s:%d, which holds %d to %d",
                    "group",
                    offset,
                    "topic",
                    "queue_id",
                    "start",
                    F.col("end") - 1,
                ),
            )
        },
    )


def current_bounds(at: Snapshot) -> DataFrame:
    """Each queue's bounds now: `topic`, `queue_id`, `start`, `end`; queue_bounds and the appends since."""
    known = at.read(QUEUE_BOUNDS).select("topic", "queue_id", "min_offset", "next_offset")
    since = at.read_after(COMMITLOG, head_as_found(at).bounds_append_seq)
    return (
        known.unionByName(bounds_of(since))
        .groupBy("topic", "queue_id")
        .agg(F.min("min_offset").alias("start"), F.max("next_offset").alias("end"))
    )


def settings_given(at: Snapshot) -> Check:
    """Each setting that the store was given."""
    given = [(row.name, row.value, _fault(row.name, row.value)) for row in at.rows(STORE_SETTINGS)]
    rows = frame_of(at.store.spark, given, "name string, value string, fault string")
    return check("settings", rows, F.lit(0), {SETTING: F.col("fault")})


def _fault(name: str, value: str) -> str | None:
    try:
        Settings.of({name: value})
    except BadInput as wrong:
        return str(wrong)
    return None


def usable_settings(given: Mapping[str, str]) -> Settings:
    """The settings that are right, so that one that is not does not hide what else is wrong."""
    return Settings.of({name: value for name, value in given.items() if _fault(name, value) is None})


def keys_of_state(at: Snapshot) -> Check:
    """Each key of each table of a few rows."""

    def keys(table: str, key: tuple[str, ...], rows: DataFrame) -> DataFrame:
        names = F.array(*[F.coalesce(F.col(f"`{name}`").cast("string"), F.lit("null")) for name in key])
        return rows.select(F.lit(table).alias("table"), F.array_join(names, ", ").alias("key"))

    rows = reduce(DataFrame.unionAll, [keys(table.name, table.key, at.read(table)) for table in KEYED])
    twice = F.format_string("%s has %d rows with the key %s", "table", "count", "key")
    counts = rows.groupBy("table", "key").count()
    return check("settings", counts, F.lit(0), {KEYS: complaint(F.col("count") == 1, twice)})
