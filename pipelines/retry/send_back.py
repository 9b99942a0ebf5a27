"""Send back: a message a group failed on comes again later, or is given up as a dead letter.

docs/rocketmq/delay-retry-transaction.md 4.3, columns R and Q of 0.5. One failure of a group is sent back once: the claim
names the group and the generation of the queue, which a reset raises, so that the same message may fail again after it.

How long a retry waits is decided here and kept in `due_ms`: its level is one of retryDelayLevel, the ladder of retries, so
that a table made for other delays does not change it (3.5, defect 7). DELAY and the queue of the schedule topic are those of
RocketMQ all the same, within messageDelayLevel (1.2).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.errors import BadInput, StoreError
from pipelines.log.claims import spans_of, unclaimed
from pipelines.log.copies import COPIES_OF_AN_APPEND, copies_of, plan_copies, warn_of_no_copy
from pipelines.log.park import clamped_level, delayed_properties, level_delay_ms
from pipelines.rocketmq.message_ids import message_id
from pipelines.rocketmq.names import SCHEDULE_TOPIC, dead_letter_topic, retry_topic
from pipelines.rocketmq.properties import property_value, without
from pipelines.rocketmq.record import property_pair, with_store_host_bit
from pipelines.rocketmq.settings import INT_MAX, Settings
from pipelines.store.groups import SubscriptionGroupConfig, plan_create_group, read_groups, with_group_created
from pipelines.store.permissions import store_writing_complaint, topic_writing_complaint
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from pipelines.store.topics import plan_retry_topics, read_topics
from pipelines.store.work import Work
from schemas import CONSUMER_OFFSETS

RETRY, DEAD_LETTER = "retry", "dead_letter"
# The first retry waits as level 3 of the ladder does, the next as level 4, and so on (4.5).
FIRST_RETRY_LEVEL = 3

# Counts of plan_send_back's result: what became of failed messages.
SENT_BACK_COUNTS = ("sent_back", "dead_lettered", "dropped")

# Columns of a request to send a message back, and their types.
REQUEST_COLUMNS: Mapping[str, str] = {
    "physical_offset": "long",
    "message_id": "string",
    "delay_level": "int",
    "max_reconsume_times": "int",
}


def claim_prefix(group: str) -> str:
    """The prefix of every claim of a group; the generation follows."""
    return f"group:{group}#"


def claim_of(group: str, generation: Column) -> Column:
    return F.concat(F.lit(claim_prefix(group)), generation.cast("string"))


def group_config(at: Snapshot, group: str) -> SubscriptionGroupConfig:
    """A group's config, or the one that `plan_group` makes. Raises BadInput for a group that may not be made."""
    groups = read_groups(at)
    if group not in groups and not at.store.settings["autoCreateSubscriptionGroup"]:
        raise BadInput(
            f"group {group} does not exist and autoCreateSubscriptionGroup is false; create it with `topics create-group`"
        )
    return groups.get(group) or with_group_created(groups, SubscriptionGroupConfig(group))[group]


def plan_group(at: Snapshot, group: str) -> Plan:
    """The plan that makes a missing group, as a consumer that connects does. Raises BadInput as `group_config`."""
    return Plan() if group in read_groups(at) else plan_create_group(at, group_config(at, group))


def sending_back_complaint(at: Snapshot, group: SubscriptionGroupConfig) -> str | None:
    """Why nothing may be sent back for a group (4.3-3 to 6); None when it may."""
    return store_writing_complaint(at.store.settings) or _retries_complaint(at, group)


def _retries_complaint(at: Snapshot, group: SubscriptionGroupConfig) -> str | None:
    """Why the group's retry topic may not be written to; None if it may, or if the group has no retry queues (4.3-4)."""
    return topic_writing_complaint(at, retry_topic(group.group)) if group.retry_queue_nums > 0 else None


def expect_sending_back(at: Snapshot, group: SubscriptionGroupConfig) -> None:
    """Raises BadInput where nothing may be sent back for a group."""
    complaint = sending_back_complaint(at, group)
    if complaint is not None:
        raise BadInput(
            f"failures of group {group.group} cannot be sent back: {complaint}. Nothing was written"
        )


def expect_retries_writable(at: Snapshot, group: SubscriptionGroupConfig) -> None:
    """Raises BadInput where the group's retry topic may not be written to.

    A store that may only be read is no reason: brokers are drained like that. Its group reads until a message fails.
    """
    complaint = _retries_complaint(at, group)
    if complaint is not None:
        raise BadInput(
            f"what group {group.group} fails on could not be sent back: {complaint}. Nothing was read or written"
        )


def _expect_still_allowed(at: Snapshot, group: SubscriptionGroupConfig) -> None:
    """Raises StoreError where nothing may be sent back any more: what a run did before stays."""
    complaint = sending_back_complaint(at, group)
    if complaint is not None:
        raise StoreError(
            f"failures of group {group.group} cannot be sent back: {complaint}. Nothing was written of them; run again once "
            "it is allowed"
        )


def plan_group_topics(at: Snapshot, group: SubscriptionGroupConfig) -> Plan:
    """The plan that makes the group's retry and dead letter topics, where they do not exist or have too few queues.

    Raises StoreError where nothing may be sent back.
    """
    _expect_still_allowed(at, group)
    return plan_retry_topics(at, group.group, group.retry_queue_nums)


def failures_of(at: Snapshot, requests: DataFrame, group: SubscriptionGroupConfig) -> DataFrame:
    """One row a failed message: its claim and the decision about it.

    requests  `request` and the slim columns of the message, as with_rows returns them; of several for one, the first counts
    adds      `claim`, `purpose`, `level` (int, not clamped)
    """
    first = (
        requests.groupBy("source_offset")
        .agg(F.min_by(F.struct("*"), "request").alias("asked"))
        .select("asked.*")
    )
    generations = (
        at.read(CONSUMER_OFFSETS, group=group.group)
        .where(F.col("client_id") == "")
        .select("topic", "queue_id", "generation")
    )
    return decided(
        first.join(F.broadcast(generations), ["topic", "queue_id"], "left")
        .withColumn("generation", F.coalesce("generation", F.lit(0)))
        .withColumn("order", F.col("request")),
        group,
    )


def _raised(times: Column, by: int) -> Column:
    """`times` + `by`, int; an imported count may be the largest int, and stays so."""
    return F.coalesce(F.try_add(times, F.lit(by)), F.lit(INT_MAX))


def decided(failures: DataFrame, group: SubscriptionGroupConfig) -> DataFrame:
    """What becomes of failed messages (4.3-9 to 12): `segment`, `source_offset`, `claim`, `purpose`, `level`,
    `reconsume_times`, `order`.

    failures  `segment`, `source_offset`, `reconsume_times` (those of the log, and tries in order after them), `generation`,
              `delay_level` (null: by the retries), `order`; `max_reconsume_times` where it is not the group's
    """
    times, requested = F.col("reconsume_times"), F.coalesce("delay_level", F.lit(0))
    limit = F.coalesce("max_reconsume_times", F.lit(group.retry_max_times))
    is_dead = (times >= limit) | (requested < 0)
    return failures.select(
        "segment",
        "source_offset",
        claim_of(group.group, F.col("generation")).alias("claim"),
        F.when(is_dead, DEAD_LETTER).otherwise(RETRY).alias("purpose"),
        F.when(requested > 0, requested).otherwise(_raised(times, FIRST_RETRY_LEVEL)).alias("level"),
        times.alias("reconsume_times"),
        "order",
    )


@dataclass(frozen=True)
class SentTo:
    """How far an append of a job run has come: failures up to this `order` are sent back or given up."""

    order: int


def plan_send_back(
    at: Snapshot,
    failures: DataFrame,
    group: SubscriptionGroupConfig,
    now_ms: int,
    append_id: str,
    after: SentTo | None = None,
    limit: int = COPIES_OF_AN_APPEND,
) -> Plan:
    """The plan that appends the copies of failures that are not claimed yet, at most `limit` of them.

    failures  as decided returns them; each has an `order` of its own
    after     how far an earlier append of the same job run has come

    The result: `sent_back`, `dead_lettered`, `dropped` (of a group without retry queues, or `too_large`), `too_large` (as
    of CopyPlan: a copy that fits no segment never will, and all other failures would wait for it), `more` (how far this
    append has come; None when nothing is left). Raises StoreError where nothing may be sent back.
    """
    _expect_still_allowed(at, group)
    if after is not None:
        failures = failures.where(F.col("order") > after.order)
    spans = spans_of(failures)
    chosen = (
        unclaimed(at, failures, spans).drop("segment").orderBy("order").limit(limit + 1).toArrow()
        if spans
        else None
    )
    nothing = {"sent_back": 0, "dead_lettered": 0, "dropped": 0, "too_large": (), "more": None}
    if chosen is None or not chosen.num_rows:
        return Plan((), nothing)
    if group.retry_queue_nums <= 0:  # RocketMQ answers SUCCESS and stores nothing (4.3-4)
        return Plan((), {**nothing, "dropped": chosen.num_rows})
    is_last, chosen = chosen.num_rows <= limit, _first(chosen, limit)
    settings = at.store.settings
    known_topic = read_topics(at).get(retry_topic(group.group))
    if known_topic is not None:
        # A queue that the topic does not have is never chosen: no consumer would read it.
        group = replace(group, retry_queue_nums=min(group.retry_queue_nums, known_topic.write_queue_nums))
    planned = plan_copies(
        at,
        chosen,
        lambda rows: sent_back_copies(rows, group, settings),
        now_ms,
        append_id,
        leaves_out_too_large=True,
    )
    counts = planned.rows_by_purpose
    return Plan(
        planned.writes,
        {
            "sent_back": counts.get(RETRY, 0),
            "dead_lettered": counts.get(DEAD_LETTER, 0),
            "dropped": len(planned.too_large),
            "too_large": planned.too_large,
            "more": None if is_last else SentTo(chosen.column("order")[-1].as_py()),
        },
    )


def warn_of_given_up(work: Work, group: str, part: Mapping[str, Any]) -> None:
    """Warn of failures that an append has given up because their copies do not fit a segment.

    part  the result of plan_send_back
    """
    warn_of_no_copy(
        work, f"group {group} failed on a message that cannot be sent back, and it is given up", part
    )


def _first(chosen: pa.Table, limit: int) -> pa.Table:
    return chosen.sort_by("order").slice(0, limit)


def sent_back_copies(rows: DataFrame, group: SubscriptionGroupConfig, settings: Settings) -> DataFrame:
    """Copies as columns R (retry) and Q (dead letter) of 0.5; R is delayed by level before the group's retry topic (1.2)."""
    levels = settings.delay_levels_ms
    is_dead = F.col("purpose") == DEAD_LETTER
    properties = F.col("properties")
    # A column of its own: what is made of it names it 26 times, and as an expression made one of ten thousand parts.
    rows = rows.withColumn(
        "named",
        F.concat(
            without(properties, "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "WAIT"),
            property_pair(
                "RETRY_TOPIC", F.coalesce(property_value(properties, "RETRY_TOPIC"), F.col("topic"))
            ),
            property_pair(
                "ORIGIN_MESSAGE_ID", F.coalesce(property_value(properties, "ORIGIN_MESSAGE_ID"), message_id())
            ),
            F.lit("WAIT\x01false\x02"),
        ),
    )
    named = F.col("named")
    # The queue depends on the row and its claim alone: a plan made again chooses the same.
    retry_queue = F.pmod(F.xxhash64("physical_offset", "claim"), F.lit(max(group.retry_queue_nums, 1))).cast(
        "int"
    )
    level = clamped_level(F.col("level"), levels)
    dead = F.concat(without(named, "DELAY"), F.lit("DELAY\x010\x02"))
    delayed = delayed_properties(named, level, None, F.lit(retry_topic(group.group)), retry_queue)
    return copies_of(
        rows,
        {
            "topic": F.when(is_dead, dead_letter_topic(group.group)).otherwise(F.lit(SCHEDULE_TOPIC)),
            "queue_id": F.when(is_dead, F.lit(0)).otherwise(level - 1),
            "properties": F.when(is_dead, dead).otherwise(delayed),
            "reconsume_times": _raised(F.col("reconsume_times"), 1),
            "store_host": F.lit(settings.store_host),
            "sys_flag": with_store_host_bit(F.col("sys_flag"), settings.store_host),
            "due_after_ms": F.when(~is_dead, level_delay_ms(F.col("level"), settings.retry_levels_ms)),
        },
    )
