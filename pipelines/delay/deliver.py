"""Deliver: bring parked messages back to their own topics when they are due, each once.

docs/rocketmq/delay-retry-transaction.md 1.3 to 1.5, 2.3, 2.4 and 3. What is due is asked of `parked`, which is laid out by
due time, and of the appends it has not seen. What of it has been settled is told by its claim; what an imported broker had
settled, by its floors and by the rows it delivered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.delay.level_lists import levels_of, rest_of
from pipelines.dispatch.entries import message_index_entries
from pipelines.log.claims import SETTLE, Span, lies_in, spans_of_offsets, unclaimed
from pipelines.log.copies import COPIES_OF_AN_APPEND, copies_of, plan_copies
from pipelines.log.encode import property_pair
from pipelines.log.park import (
    LEVEL_LIST,
    clamped_level,
    delayed_properties,
    level_delay_ms,
    parked_messages,
    parked_rows,
    real_place,
)
from pipelines.log.properties import NAME_END, property_value, without
from pipelines.store.floors import IMPORT_PREFIX, read_floors
from pipelines.store.head import read_head
from pipelines.store.plan import Plan
from pipelines.store.progress import progress_write, read_progress, remembered
from pipelines.store.snapshot import Snapshot
from pipelines.store.topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from schemas import COMMITLOG, MESSAGE_INDEX

# In `progress`: all that was due at the clock, of appends up to the number, is settled.
SEEN_APPENDS, SEEN_CLOCK = "deliver", "deliver:clock_ms"

DELIVER, HOP = "deliver", "hop"
WAITING_KINDS = ("schedule", "timer")
# Waiting rows looked at together for the time of the next one.
NEXT_DUE_PAGE = 1_000


Place = tuple[int, int]  # (due_ms, physical_offset)


@dataclass(frozen=True)
class Seen:
    """What earlier runs have settled: everything due at `clock_ms` of the appends up to `append_seq`."""

    append_seq: int
    clock_ms: int


def plan_deliver(
    at: Snapshot, now_ms: int, run_id: str, after: Place | None = None, limit: int = COPIES_OF_AN_APPEND
) -> Plan:
    """Append copies of what is due and not settled, in the order (due_ms, physical_offset), at most `limit` of them.

    after  the place where an earlier append of the same run stopped

    The result: `delivered`, `hops` (to the next level of a list), `skipped` (due, but settled by rule or without a place
    to go), `stopped` (the place up to which all is settled; None when that is all).
    """
    candidates = due_messages(at, now_ms, seen(at))
    if after is not None:
        due, offset = F.col("due_ms"), F.col("source_offset")
        candidates = candidates.where((due > after[0]) | ((due == after[0]) & (offset > after[1])))
    # Some forty bytes a row; the one more tells whether this append is the last.
    found = candidates.orderBy("due_ms", "source_offset").limit(limit + 1).toArrow()
    chunk = found.slice(0, limit)
    if not chunk.num_rows:
        return Plan((), {"delivered": 0, "hops": 0, "skipped": 0, "stopped": None})
    columns = {"source_offset": chunk.column("source_offset"), "order": chunk.column("due_ms")}
    chosen = pa.table({**columns, "is_settled": np.zeros(chunk.num_rows, bool)})
    left = with_rules(at, chunk).select("source_offset", F.col("due_ms").alias("order"), "is_settled")
    settings = at.store.settings
    levels = settings.delay_levels_ms if _some_have_lists(at, chunk) else None
    precision_ms = settings["timerPrecisionMs"]
    planned = plan_copies(
        at, chosen, lambda rows: delivered_copies(rows, now_ms, levels, precision_ms), now_ms, run_id, left
    )
    writes = list(planned.writes)
    stopped = None
    if found.num_rows > limit:
        stopped = (chunk.column("due_ms")[-1].as_py(), chunk.column("source_offset")[-1].as_py())
    else:
        writes.append(progress_write(at, {SEEN_APPENDS: at.number(COMMITLOG), SEEN_CLOCK: now_ms}))
    by_purpose = planned.rows_by_purpose
    return Plan(
        tuple(writes),
        {
            "delivered": by_purpose.get(DELIVER, 0),
            "hops": by_purpose.get(HOP, 0),
            "skipped": planned.passed_over,
            "stopped": stopped,
        },
    )


def seen(at: Snapshot) -> Seen:
    known = read_progress(at)
    return Seen(known.get(SEEN_APPENDS, -1), known.get(SEEN_CLOCK, -(2**62)))


def due_messages(at: Snapshot, now_ms: int, since: Seen) -> DataFrame:
    """Parked rows that are due now and that earlier runs have not settled, or may have: claims tell.

    Columns: those of to_settle.
    """
    waits = F.col("kind").isin(*WAITING_KINDS)
    is_new = (F.col("due_ms") > since.clock_ms) | (F.col("append_seq") > since.append_seq)
    due = parked_rows(at, is_new & (F.col("due_ms") <= now_ms)).where(waits)
    has_gone_back = read_head(at).last_store_timestamp > now_ms
    if has_gone_back or since.append_seq < at.number(COMMITLOG):
        due = due.unionByName(_too_far(at, now_ms, since, has_gone_back))
    return due.select(*to_settle())


def _too_far(at: Snapshot, now_ms: int, since: Seen, has_gone_back: bool) -> DataFrame:
    """Rows delayed by level whose time is further away than their level waits: they are due at once (1.3).

    That is so after the clock went back, and for an import whose level table was another one. Else no row need be looked
    at: none was stored later than now.
    """
    is_scheduled = (
        (F.col("topic") == SCHEDULE_TOPIC) & F.col("due_ms").isNotNull() & (F.col("due_ms") > now_ms)
    )
    scheduled = at.read(COMMITLOG).where(is_scheduled)
    if not has_gone_back:
        is_new_import = (F.col("append_seq") > since.append_seq) & F.col("append_id").startswith(
            IMPORT_PREFIX
        )
        scheduled = scheduled.where(is_new_import)
    delay = level_delay_ms(F.col("queue_id") + 1, at.store.settings.delay_levels_ms)
    return parked_messages(scheduled.where(F.col("due_ms") > now_ms + delay))


def with_rules(at: Snapshot, chunk: pa.Table) -> DataFrame:
    """Those of some parked rows that nobody has claimed, with `is_settled`: whether a rule says they are, without a claim.

    chunk  rows with the columns of to_settle

    Settled by rule: a timer that was cancelled in its slot, and its cancel; a row on its way to the half topic; one
    without a topic to go to; what an imported broker had delivered.
    """
    spans = spans_of_offsets(chunk.column("source_offset").to_numpy())
    rows = unclaimed(at, at.store.spark.createDataFrame(chunk), spans)
    settled = F.col("goes_nowhere")
    if chunk.column("cancels").null_count < chunk.num_rows:
        is_cancel = F.col("cancels").isNotNull()
        cancelled = rows.where(is_cancel).select(
            "due_ms", F.col("cancels").alias("named"), F.lit(True).alias("is_cancelled")
        )
        rows = rows.join(cancelled.distinct(), ["due_ms", "named"], "left")
        settled = settled | is_cancel | F.coalesce("is_cancelled", F.lit(False))
    floors = read_floors(at)
    if not floors:
        return rows.withColumn("is_settled", settled)
    delivered = delivered_before_import(at, rows, spans, floors).select(
        "source_offset", F.lit(True).alias("is_back")
    )
    return rows.join(delivered, "source_offset", "left").withColumn(
        "is_settled", settled | F.coalesce("is_back", F.lit(False))
    )


def delivered_before_import(
    at: Snapshot, rows: DataFrame, spans: Sequence[Span], floors: Mapping[str, int]
) -> DataFrame:
    """Those of `rows` that an imported broker had delivered: below its floors, or back in their topic when due.

    rows  `source_offset`, `due_ms`, `kind`
    """
    properties = F.col("properties")
    imported = (
        at.read(COMMITLOG)
        .where(lies_in("physical_offset", spans) & F.col("append_id").startswith(IMPORT_PREFIX))
        .select(
            F.col("physical_offset").alias("source_offset"),
            "queue_id",
            "queue_offset",
            property_value(properties, "REAL_TOPIC").alias("real_topic"),
            property_value(properties, "UNIQ_KEY").alias("unique_key"),
        )
    )
    of_import = rows.select("source_offset", "due_ms", "kind").join(imported, "source_offset")
    below = F.lit(False)
    for follower, position in floors.items():
        if follower.startswith("schedule:"):
            level = F.col("queue_id") + 1 == int(follower.removeprefix("schedule:"))
            below = below | ((F.col("kind") == "schedule") & level & (F.col("queue_offset") < position))
    slot = F.col("due_ms") - at.store.settings["timerPrecisionMs"]
    below = below | (
        (F.col("kind") == "timer")
        & (F.col("queue_offset") < floors.get("timer:queue_offset", 0))
        & (slot < floors.get("timer:read_time_ms", 0))
    )
    return (
        of_import.where(below)
        .select("source_offset")
        .unionByName(_back_in_topic(at, of_import.where(~below)))
    )


def _back_in_topic(at: Snapshot, rows: DataFrame) -> DataFrame:
    """Rows of which a later row of their real topic has the unique key, stored when they were due or later."""
    followed = remembered(at, MESSAGE_INDEX)
    entries = at.read(MESSAGE_INDEX).where(F.col("append_seq") <= followed)
    if followed < at.number(COMMITLOG):
        entries = entries.unionByName(
            message_index_entries(at.read(COMMITLOG).where(F.col("append_seq") > followed))
        )
    entry, row = entries.alias("entry"), rows.alias("row")
    is_back = (
        (F.col("entry.topic") == F.col("row.real_topic"))
        & (F.col("entry.key") == F.col("row.unique_key"))
        & (F.col("entry.physical_offset") > F.col("row.source_offset"))
        & (F.col("entry.store_timestamp") >= F.col("row.due_ms"))
    )
    return row.join(entry, is_back, "left_semi").select("source_offset")


def _some_have_lists(at: Snapshot, parked: pa.Table) -> bool:
    """Whether one of some parked rows may go on to a further level.

    Looked at first because it is rare, and what goes on is worked out by more code than Java compiles at once.
    """
    scheduled = parked.filter(pc.equal(parked.column("kind"), "schedule")).column("source_offset")
    if not len(scheduled):
        return False
    spans = spans_of_offsets(scheduled.to_numpy())
    log = at.read(COMMITLOG).where(lies_in("physical_offset", spans) & (F.col("topic") == SCHEDULE_TOPIC))
    return not log.where(F.col("properties").contains(f"{LEVEL_LIST}{NAME_END}")).isEmpty()


def delivered_copies(
    rows: DataFrame, now_ms: int, levels_ms: Sequence[int] | None, precision_ms: int = 1_000
) -> DataFrame:
    """Copies of due rows: back in their topics (columns D and W of 0.5), or on to the next level of their list (3.4).

    rows       rows of the log with `order` and `is_settled`; the copy of a settled one, or of one without REAL_TOPIC or
               REAL_QID, has no purpose
    levels_ms  how long each level waits; None: no row has a list
    """
    properties = F.col("properties")
    topic, queue_id = real_place(properties)
    returning = rows.withColumns({"real_topic": topic, "real_queue_id": queue_id, "claim": F.lit(SETTLE)})
    has_place = F.col("real_topic").isNotNull() & F.col("real_queue_id").isNotNull()
    goes_on = ~F.col("is_settled") & has_place
    enqueued = F.col("store_timestamp") - F.pmod(F.col("store_timestamp"), F.lit(precision_ms))
    timed = F.concat(
        without(properties, "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"),
        property_pair("TIMER_ENQUEUE_MS", enqueued.cast("string")),
        property_pair("TIMER_DEQUEUE_MS", F.lit(now_ms).cast("string")),
    )
    back = F.when(F.col("topic") == TIMER_TOPIC, timed)
    if levels_ms is None:
        return copies_of(
            returning.withColumn("purpose", F.when(goes_on, DELIVER)),
            {
                "topic": F.col("real_topic"),
                "queue_id": F.col("real_queue_id"),
                "properties": back.otherwise(properties),
                "due_ms": F.lit(None).cast("long"),
            },
        )
    steps = _next_levels(returning, now_ms, levels_ms)
    is_hop = F.col("hop") > 0
    level = clamped_level(F.get("left_levels", F.col("hop") - 1), levels_ms)
    rest = rest_of(F.col("left_levels"), F.col("hop"))
    hopping = delayed_properties(properties, level, rest, F.col("real_topic"), F.col("real_queue_id"))
    return copies_of(
        steps.withColumn("purpose", F.when(goes_on, F.when(is_hop, HOP).otherwise(DELIVER))),
        {
            "topic": F.when(is_hop, SCHEDULE_TOPIC).otherwise(F.col("real_topic")),
            "queue_id": F.when(is_hop, level - 1).otherwise(F.col("real_queue_id")),
            "properties": F.when(is_hop, hopping).otherwise(
                back.when(F.size("left_levels") > 0, without(properties, LEVEL_LIST)).otherwise(properties)
            ),
            "due_ms": F.when(is_hop, F.get("left_due_ms", F.col("hop") - 1)),
        },
    )


def _next_levels(rows: DataFrame, now_ms: int, levels_ms: Sequence[int]) -> DataFrame:
    """Adds `left_levels`, when each of them would be over (`left_due_ms`), and `hop`: the place of the one to wait for.

    A list goes on from when its last level was due, also when no run came by then; levels that are past by now are
    passed. hop counts from 1 and is 0 when none is left.
    """
    of_list = levels_of(property_value(F.col("properties"), LEVEL_LIST))
    left = F.coalesce(F.when(F.col("topic") == SCHEDULE_TOPIC, of_list), F.array().cast("array<int>"))
    delays = F.transform(F.col("left_levels"), lambda level: level_delay_ms(level, levels_ms))
    since = F.least(F.col("due_ms"), F.lit(now_ms))

    def over_at(place: Column) -> Column:
        waits = F.slice(delays, 1, place + 1)
        return since + F.aggregate(waits, F.lit(0).cast("long"), lambda total, delay: total + delay)

    is_ahead = F.transform(F.col("left_due_ms"), lambda due: due > now_ms)
    return (
        rows.withColumn("left_levels", left)
        .withColumn("left_due_ms", F.transform(delays, lambda _, place: over_at(place)))
        .withColumn("hop", F.array_position(is_ahead, F.lit(True)).cast("int"))
    )


def next_due_ms(at: Snapshot, now_ms: int) -> int | None:
    """When the next waiting message is due, after now; None when none waits."""
    after = now_ms
    while True:
        waiting = parked_rows(at, F.col("due_ms") > after).where(F.col("kind").isin(*WAITING_KINDS))
        page = waiting.orderBy("due_ms").limit(NEXT_DUE_PAGE).select(*to_settle()).toArrow()
        if not page.num_rows:
            return None
        left = with_rules(at, page).where(~F.col("is_settled"))
        found = left.agg(F.min("due_ms").alias("due_ms")).toArrow()
        due_ms: int | None = found.column("due_ms")[0].as_py()
        if due_ms is not None:
            return due_ms
        after = pc.max(page.column("due_ms")).as_py()


def to_settle() -> list[Column]:
    """Of a parked row what tells whether it is settled, in few bytes.

    `source_offset`, `claim`, `due_ms`, `kind`, `goes_nowhere` (boolean), `named` (of a timer: hash of the name a cancel
    knows it by), `cancels` (of a timer: hash of the name it cancels)
    """
    is_timer = F.col("kind") == "timer"
    name = F.concat(F.col("real_topic"), F.lit("+"), F.col("unique_key"))
    return [
        F.col("physical_offset").alias("source_offset"),
        F.lit(SETTLE).alias("claim"),
        F.col("due_ms"),
        F.col("kind"),
        (F.col("real_topic").isNull() | (F.col("real_topic") == HALF_TOPIC)).alias("goes_nowhere"),
        F.when(is_timer & name.isNotNull(), F.xxhash64(name)).alias("named"),
        F.when(is_timer & F.col("cancels").isNotNull(), F.xxhash64("cancels")).alias("cancels"),
    ]
