"""Consumers: what each client of a group has read, and the message that a queue of it waits at."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.rocketmq.names import retry_topic
from pipelines.rocketmq.settings import LONG_MAX
from pipelines.rocketmq.times import timestamp_sql
from pipelines.store.snapshot import Snapshot
from pipelines.views.read import read_view
from schemas import CONSUMER_OFFSETS, IN_FLIGHT, SUBSCRIPTIONS


def consumer_status(at: Snapshot, group: str) -> DataFrame:
    """A row a queue and client of a group: its filter, its offset, and the message that an orderly queue waits at.

    gives `group`, `client_id` ('' for the group as a whole), `topic`, `queue_id`, `expression_type`, `expression`,
          `next_offset`, `max_offset`, `lag`, `generation` (raised by each reset), `committed_time`; of an orderly queue
          that waits `waits_at` (queue offset), `tries` and `due_time`, else null
    """
    queue = ["topic", "queue_id"]
    ends = read_view(at, "topic_status").select(*queue, "max_offset")
    asked = at.read(SUBSCRIPTIONS).where(F.col("group") == group)
    # Messages of a batch fail together: the queue waits at the first.
    waiting = (
        at.read(IN_FLIGHT)
        .where(F.col("group") == group)
        .groupBy(*queue)
        .agg(
            F.min("queue_offset").alias("waits_at"),
            F.min_by("tries", "queue_offset").alias("tries"),
            F.min_by("due_ms", "queue_offset").alias("due_ms"),
        )
    )
    # Retries are read unfiltered, whatever the group selects (docs/rocketmq/consume-filter-ha.md 2.1).
    is_retry = F.col("topic") == retry_topic(group)
    behind = F.try_subtract(F.coalesce("max_offset", F.lit(0)), F.col("next_offset"))
    # An imported offset may lie beyond its queue's end.
    lag = F.greatest(F.coalesce(behind, F.lit(LONG_MAX)), F.lit(0))
    return (
        at.read(CONSUMER_OFFSETS)
        .where(F.col("group") == group)
        .join(ends, queue, "left")
        .join(asked.select("topic", "expression_type", "expression"), "topic", "left")
        .join(waiting, queue, "left")
        .select(
            "group",
            "client_id",
            *queue,
            F.when(is_retry, "TAG").otherwise(F.col("expression_type")).alias("expression_type"),
            F.when(is_retry, "*").otherwise(F.col("expression")).alias("expression"),
            "next_offset",
            "max_offset",
            lag.alias("lag"),
            "generation",
            F.expr(timestamp_sql("committed_timestamp")).alias("committed_time"),
            "waits_at",
            "tries",
            F.expr(timestamp_sql("due_ms")).alias("due_time"),
        )
        .orderBy("client_id", *queue)
    )
