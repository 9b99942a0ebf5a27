"""Redrive: dead letters, or any rows, back to a topic, each once under a redrive id.

A copy claims `redrive:ID` of its source, so a repeated redrive appends what is missing and nothing else.
"""

import hashlib
from collections.abc import Mapping

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.errors import BadInput
from pipelines.log.claims import spans_of, unclaimed
from pipelines.log.copies import COPIES_OF_AN_APPEND, copies_of, plan_copies
from pipelines.log.park import LEVEL_LIST, is_parking_topic
from pipelines.rocketmq.flags import TRANSACTION_BITS
from pipelines.rocketmq.names import DISCARD_TOPIC, HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from pipelines.rocketmq.properties import property_value, without
from pipelines.rocketmq.record import with_store_host_bit
from pipelines.rocketmq.settings import Settings
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from pipelines.store.topics import TopicConfig
from pipelines.views.read import read_view
from pipelines.views.read_only_sql import expect_predicate

REDRIVE = "redrive"
# Properties that direct the delay or the transaction of the earlier message, and must not act again.
DROPPED = (
    "DELAY", LEVEL_LIST, "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS",
    "TIMER_DELAY_LEVEL", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY",
)  # fmt: skip


def id_of(where: str, to_topic: str | None) -> str:
    """The id of a redrive without --redrive-id: a hash of its predicate and its target topic."""
    return hashlib.sha256(f"{where}\n{to_topic or ''}".encode()).hexdigest()[:16]


def matched(at: Snapshot, where: str, redrive_id: str, to_topic: str | None) -> DataFrame:
    """Rows of the view messages that meet a predicate, but for copies this redrive has made.

    Columns: `segment`, `source_offset`, `claim`, `target` (topic), `topic`, `queue_id`, `message_id`, `is_parked`.

    Raises BadInput for a text that is not a predicate, and for one that does more than read the view's columns.
    """
    expect_predicate(at.store.spark, "--where", where)
    claim = f"redrive:{redrive_id}"
    messages = read_view(at, "messages")
    properties = F.col("properties")
    system = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, DISCARD_TOPIC)
    own = F.when(
        F.col("topic").isin(*system), F.coalesce(properties["REAL_TOPIC"], F.col("topic"))
    ).otherwise(F.col("topic"))
    target = F.lit(to_topic) if to_topic is not None else F.coalesce(properties["RETRY_TOPIC"], own)
    try:
        return (
            messages.where(F.expr(where))
            .where(~F.coalesce(F.col("claim") == claim, F.lit(False)))
            .select(
                "segment",
                F.col("physical_offset").alias("source_offset"),
                F.lit(claim).alias("claim"),
                target.alias("target"),
                "topic",
                "queue_id",
                "message_id",
                (is_parking_topic(F.col("topic")) & F.col("due_ms").isNotNull()).alias("is_parked"),
            )
        )
    except (AnalysisException, ParseException) as failure:
        raise BadInput(
            f"--where is not a valid predicate over the view messages: {str(failure).splitlines()[0]} "
            f"(its columns: {', '.join(messages.columns)})"
        ) from failure


def still_parked(at: Snapshot, rows: DataFrame) -> DataFrame:
    """Those of matched rows that wait for their time or their transaction: a redrive would send them twice."""
    waiting = (
        read_view(at, "scheduled_messages")
        .select("physical_offset")
        .unionByName(read_view(at, "half_messages").select("physical_offset"))
    )
    return rows.where("is_parked").join(
        waiting.withColumnRenamed("physical_offset", "source_offset"), "source_offset", "left_semi"
    )


def plan_redrive(
    at: Snapshot,
    rows: DataFrame,
    topics: Mapping[str, TopicConfig],
    now_ms: int,
    append_id: str,
    limit: int = COPIES_OF_AN_APPEND,
) -> Plan:
    """The plan that appends copies of those of `rows` not redriven yet, in the log's order, at most `limit` of them.

    The result: `redriven`, `more`.
    """
    spans = spans_of(rows)
    if not spans:
        return Plan((), {"redriven": 0, "more": False})
    chosen = (
        unclaimed(at, rows, spans)
        .select(
            "source_offset",
            "claim",
            "target",
            F.col("source_offset").alias("order"),
            F.lit(REDRIVE).alias("purpose"),
        )
        .orderBy("order")
        .limit(limit)
        .toArrow()
    )
    settings = at.store.settings
    planned = plan_copies(at, chosen, lambda log: redriven_copies(log, topics, settings), now_ms, append_id)
    # Where nothing is copied, the log no longer has the chosen rows, and so none after them.
    more = chosen.num_rows == limit and bool(planned.writes)
    return Plan(planned.writes, {"redriven": planned.rows_by_purpose.get(REDRIVE, 0), "more": more})


def redriven_copies(rows: DataFrame, topics: Mapping[str, TopicConfig], settings: Settings) -> DataFrame:
    """Copies without the properties DROPPED, to be consumed as if new.

    A row that stays in its topic keeps its queue; any other goes to a queue chosen by a hash of the row and the redrive.
    One that goes to another topic than it came from also loses RETRY_TOPIC: its retries belong to the new topic, which a
    send back then writes (docs/rocketmq/delay-retry-transaction.md 4.3-9). In a topic of retries the property stays, as
    it says there whose message the retry is.
    """
    queues = F.create_map(
        *[F.lit(part) for name, each in topics.items() for part in (name, each.write_queue_nums)]
    )
    hashed = F.pmod(F.xxhash64("physical_offset", "claim"), queues[F.col("target")].cast("long")).cast("int")
    stays = (F.col("topic") == F.col("target")) & (F.col("queue_id") < queues[F.col("target")])
    properties, target = F.col("properties"), F.col("target")
    is_its_own = target.startswith(RETRY_PREFIX) | (target == property_value(properties, "RETRY_TOPIC"))
    return copies_of(
        rows,
        {
            "topic": F.col("target"),
            "queue_id": F.when(stays, F.col("queue_id")).otherwise(hashed),
            "properties": F.when(is_its_own, without(properties, *DROPPED)).otherwise(
                without(properties, *DROPPED, "RETRY_TOPIC")
            ),
            "reconsume_times": F.lit(0),
            "store_host": F.lit(settings.store_host),
            "sys_flag": with_store_host_bit(
                F.col("sys_flag").bitwiseAND(~TRANSACTION_BITS), settings.store_host
            ),
        },
    )
