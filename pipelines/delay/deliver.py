"""Deliver: bring parked messages back to their own topics when they are due, each once.

docs/rocketmq/delay-retry-transaction.md 1.3 to 1.5, 2.3, 2.4 and 3. Due messages are read from `parked`, which is sorted by
due time, and from the appends it has not followed. A claim shows that one is settled; the floors of an imported broker, and
the rows it delivered, show what that broker had settled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.delay.level_lists import levels_of, rest_of
from pipelines.dispatch.entries import message_index_entries
from pipelines.log.claims import SETTLE, lies_in, spans_of, spans_of_offsets, unclaimed, unclaimed_of_many
from pipelines.log.copies import COPIES_OF_AN_APPEND, copies_of, plan_copies
from pipelines.log.park import (
    LEVEL_LIST,
    clamped_level,
    delayed_properties,
    level_delay_ms,
    parked_messages,
    parked_rows,
    real_place,
)
from pipelines.rocketmq.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from pipelines.rocketmq.properties import NAME_END, property_value, without
from pipelines.rocketmq.record import property_pair
from pipelines.rocketmq.times import FARTHEST_MS, within_reach
from pipelines.store.floors import IMPORT_PREFIX, OF_AN_EXPORT, read_floors
from pipelines.store.head import read_head
from pipelines.store.plan import Plan
from pipelines.store.progress import Seen, covered, followed_rows, seen_by, seen_write
from pipelines.store.snapshot import Snapshot
from pipelines.views.waiting import RETURNED_BY_BROKER, RETURNED_COLUMNS, is_returned_sql
from schemas import COMMITLOG, MESSAGE_INDEX, PROGRESS

# The job's row in `progress`: of the appends up to `append_seq`, all that was due at `clock_ms` is settled.
FOLLOWER = "deliver"

# Purposes of copies: back in the topic; on to the next level of a list.
DELIVER, HOP = "deliver", "hop"
WAITING_KINDS = ("schedule", "timer")
# Claims on more rows than this are looked up in a query of their own: a join in that of the copies would take longer.
MANY = 500_000
# Waiting rows that are read at a time to find the next one due.
NEXT_DUE_PAGE = 1_000


@dataclass(frozen=True)
class Stopped:
    """Where an append of a job run stopped: all that is due up to (due_ms, physical_offset) is settled.

    first_append  the last append of the log in the snapshot of the job run's first plan: what is appended later may be due
                  before the time that the job run has reached, and is for the next job run
    """

    due_ms: int
    physical_offset: int
    first_append: int


def plan_deliver(
    at: Snapshot, now_ms: int, run_id: str, after: Stopped | None = None, limit: int = COPIES_OF_AN_APPEND
) -> Plan:
    """The plan that appends copies of what is due and not settled, by (due_ms, physical_offset), at most `limit`.

    after  where an earlier append of the same job run stopped

    The result: `delivered`, `hops` (to the next level of a list), `skipped` (due, but settled by rule or without a topic
    to go to, or `too_large`), `too_large` (as of CopyPlan: a copy that fits no segment, which all others would wait for),
    `stopped` (where the next append goes on; None when nothing is left).
    """
    known = seen_by(at, FOLLOWER)
    candidates = due_messages(at, now_ms, known)
    if after is not None:
        candidates = candidates.where(_follows(after.due_ms, after.physical_offset))
    # About 40 bytes a row; one row more than the limit shows whether this append is the last.
    found = candidates.orderBy("due_ms", "source_offset").limit(limit + 1).toArrow()
    is_last = found.num_rows <= limit
    first_append = at.number(COMMITLOG) if after is None else after.first_append
    all_seen = partial(seen_write, job=FOLLOWER, seen=Seen(first_append, now_ms))
    chunk = found.slice(0, limit)
    if not chunk.num_rows:
        # Without an earlier append of this job run nothing was due: progress can stay, the next job run reads as little.
        writes = () if after is None else (all_seen(at),)
        return Plan(writes, {"delivered": 0, "hops": 0, "skipped": 0, "too_large": (), "stopped": None})
    at.preload(PROGRESS)
    # Earlier job runs have read nothing due after their clock: the only append of this one has all rows of such times.
    is_whole = after is None and is_last and chunk.column("due_ms")[0].as_py() > known.clock_ms
    chosen, left = _decided(chunk), None
    if chunk.num_rows > MANY and _only_claims_settle(at, chunk, is_whole):
        chosen = unclaimed_of_many(at, chosen, SETTLE)
    else:
        left = with_rules(at, chunk, is_whole).select(
            "source_offset", F.col("due_ms").alias("order"), "is_settled"
        )
    settings = at.store.settings
    levels = settings.delay_levels_ms if _some_have_lists(at, chunk) else None
    precision_ms = settings["timerPrecisionMs"]
    planned = plan_copies(
        at,
        chosen,
        lambda rows: delivered_copies(rows, now_ms, levels, precision_ms),
        now_ms,
        run_id,
        left,
        leaves_out_too_large=True,
    )
    stopped = None
    if not is_last:
        last = chunk.slice(limit - 1).to_pylist()[0]
        stopped = Stopped(last["due_ms"], last["source_offset"], first_append)
    by_purpose = planned.rows_by_purpose
    return Plan(
        planned.writes,
        {
            "delivered": by_purpose.get(DELIVER, 0),
            "hops": by_purpose.get(HOP, 0),
            "skipped": planned.passed_over + len(planned.too_large),
            "too_large": planned.too_large,
            "stopped": stopped,
        },
        afterwards=all_seen if is_last else None,
    )


def due_messages(at: Snapshot, now_ms: int, since: Seen) -> DataFrame:
    """Parked rows that are due now and not known to be settled by earlier job runs; some may be, as claims show.

    Columns: those of to_settle.
    """
    waits = F.col("kind").isin(*WAITING_KINDS)
    is_new = (F.col("due_ms") > since.clock_ms) | (F.col("append_seq") > since.append_seq)
    due = parked_rows(at, is_new & (F.col("due_ms") <= now_ms)).where(waits)
    log_ms = log_time_ms(at, now_ms)
    if log_ms > now_ms:
        due = due.unionByName(_due_by_log_time(at, now_ms, log_ms))
    if since.append_seq < at.number(COMMITLOG) and read_floors(at):
        due = due.unionByName(_too_far(at, log_ms, since))
    return due.select(*to_settle())


def log_time_ms(at: Snapshot, now_ms: int) -> int:
    """The clock, or the log's last store time where that is later, ms: the next row is stored no earlier."""
    return max(now_ms, read_head(at).last_store_timestamp)


def _due_by_log_time(at: Snapshot, now_ms: int, log_ms: int) -> DataFrame:
    """Rows delayed by level that were stored later than this clock and, by the clock that stored them, have waited.

    Clocks of two machines differ: rows that the faster one stored are timed by it, and the log's last store time shows how
    far it is.
    """
    is_ahead = (F.col("topic") == SCHEDULE_TOPIC) & (F.col("store_timestamp") > now_ms)
    is_due = (F.col("due_ms") > now_ms) & (F.col("due_ms") <= log_ms)
    return parked_messages(at.read(COMMITLOG).where(is_ahead & is_due))


def _too_far(at: Snapshot, log_ms: int, since: Seen) -> DataFrame:
    """New imported rows that are due at once because their time is too far away: the columns of `parked`."""
    is_new = F.col("append_seq") > since.append_seq
    far = is_too_far(at, log_ms)
    return parked_messages(at.read(COMMITLOG).where(is_new & far))


def is_too_far(at: Snapshot, log_ms: int) -> Column:
    """Whether an imported row delayed by level has a time further away than its level waits: it is due at once (1.3).

    The broker's level table was another one. Its clock may have been ahead of this job's, so the time of the log counts
    where that is later. A row of this store keeps its due time: its level table may change, not how long it waits. So does
    one that an export wrote, whose times a store gave: there, what is too far away is due when it was stored.

    log_ms  as of log_time_ms
    """
    levels_ms = at.store.settings.delay_levels_ms
    is_scheduled = (F.col("topic") == SCHEDULE_TOPIC) & (F.col("due_ms") > log_ms)
    delay = level_delay_ms(F.try_add("queue_id", F.lit(1)), levels_ms)
    is_further = F.col("due_ms") > min(log_ms, FARTHEST_MS) + delay
    is_of_a_broker = F.col("append_id").startswith(IMPORT_PREFIX) & (
        F.col("physical_offset") >= read_floors(at).get(OF_AN_EXPORT, 0)
    )
    return is_scheduled & is_of_a_broker & is_further


def _decided(chunk: pa.Table) -> pa.Table:
    """What is decided about rows with the columns of to_settle where only claims settle others than those that go nowhere.

    `source_offset`, `order`, `is_settled`
    """
    columns = {"source_offset": "source_offset", "order": "due_ms", "is_settled": "goes_nowhere"}
    return pa.table({name: chunk.column(column) for name, column in columns.items()})


def _only_claims_settle(at: Snapshot, chunk: pa.Table, is_whole: bool) -> bool:
    """Whether no rule of with_rules settles a row of `chunk`, but that one goes nowhere: no cancel, no imported broker."""
    if read_floors(at) or chunk.column("cancels").null_count < chunk.num_rows:
        return False
    return is_whole or _cancels_in_time_of(at, chunk).isEmpty()


def with_rules(at: Snapshot, chunk: pa.Table, is_whole: bool) -> DataFrame:
    """Those of `chunk` that no copy has claimed, with `is_settled`: whether a rule settles them without a claim.

    chunk     rows with the columns of to_settle
    is_whole  whether all rows of its times are among them; if not, others may cancel them

    Settled by rule: a timer that was cancelled in its slot, and its cancel; a row on its way to the half topic; one
    without a topic to go to; what an imported broker had delivered.
    """
    spans = spans_of_offsets(chunk.column("source_offset").to_numpy())
    rows = unclaimed(at, at.store.spark.createDataFrame(chunk), spans)
    settled = F.col("goes_nowhere")
    is_cancel = F.col("cancels").isNotNull()
    cancels = None
    if not is_whole:
        cancels = _cancels_in_time_of(at, chunk)
    elif chunk.column("cancels").null_count < chunk.num_rows:
        cancels = rows.where(is_cancel)
    if cancels is not None:
        cancelled = cancels.select(
            "due_ms", F.col("cancels").alias("named"), F.lit(True).alias("is_cancelled")
        )
        rows = rows.join(cancelled.distinct(), ["due_ms", "named"], "left")
        settled = settled | is_cancel | F.coalesce("is_cancelled", F.lit(False))
    floors = read_floors(at)
    if not floors:
        return rows.withColumn("is_settled", settled)
    delivered = settled_by_import(at, rows, chunk, floors).select(
        "source_offset", F.lit(True).alias("is_back")
    )
    return rows.join(delivered, "source_offset", "left").withColumn(
        "is_settled", settled | F.coalesce("is_back", F.lit(False))
    )


def _cancels_in_time_of(at: Snapshot, chunk: pa.Table) -> DataFrame:
    """All cancels due between the first and the last of some rows in order of time: the columns of to_settle.

    A slot may hold more messages than one append, and messages may come after its cancel was read.
    """
    times = chunk.column("due_ms")
    is_near = F.col("due_ms").between(times[0].as_py(), times[-1].as_py())
    is_cancel = (F.col("kind") == "timer") & F.col("cancels").isNotNull()
    return parked_rows(at, is_near & is_cancel).select(*to_settle())


def settled_by_import(at: Snapshot, rows: DataFrame, chunk: pa.Table, floors: Mapping[str, int]) -> DataFrame:
    """Those of `rows` that an imported broker had settled: delivered, put back into its timer, or cancelled by its rules.

    rows   `source_offset`, `due_ms`, `kind`
    chunk  the rows of which they are some
    """
    spans = spans_of_offsets(chunk.column("source_offset").to_numpy())
    properties = F.col("properties")
    log = at.read(COMMITLOG).where(F.col("append_id").startswith(IMPORT_PREFIX))
    imported = log.where(lies_in("physical_offset", spans)).select(
        F.col("physical_offset").alias("source_offset"),
        "queue_id",
        "queue_offset",
        property_value(properties, "REAL_TOPIC").alias("real_topic"),
        property_value(properties, "UNIQ_KEY").alias("unique_key"),
        "born_timestamp",
        roll_times().alias("roll_times"),
    )
    of_import = rows.select("source_offset", "due_ms", "kind").join(imported, "source_offset")
    below = F.lit(False)
    for follower, position in floors.items():
        if follower.startswith("schedule:"):
            level = F.col("queue_id") == int(follower.removeprefix("schedule:")) - 1
            below = below | ((F.col("kind") == "schedule") & level & (F.col("queue_offset") < position))
    slot = within_reach(F.col("due_ms")) - at.store.settings["timerPrecisionMs"]
    below = below | (
        (F.col("kind") == "timer")
        & (F.col("queue_offset") < floors.get("timer:queue_offset", 0))
        & (slot < floors.get("timer:read_time_ms", 0))
    )
    beyond = of_import.where(~below)
    settled = of_import.where(below).select("source_offset").unionByName(_back_in_topic(at, beyond))
    slots = chunk.filter(pc.equal(chunk.column("kind"), "timer")).column("due_ms")
    if len(slots):
        times = pc.min_max(slots).as_py()
        timed = log.where(
            (F.col("topic") == TIMER_TOPIC) & F.col("due_ms").between(times["min"], times["max"])
        )
        settled = settled.unionByName(_settled_in_the_timer(timed, beyond.where(F.col("kind") == "timer")))
    return settled.distinct()


def roll_times() -> Column:
    """How often a timed message was put back into its timer, which reaches two days ahead at most at a broker (2.5)."""
    return F.coalesce(property_value(F.col("properties"), "TIMER_ROLL_TIMES").try_cast("int"), F.lit(0))


def _settled_in_the_timer(timed: DataFrame, rows: DataFrame) -> DataFrame:
    """Imported timed rows that a later put-back replaces, or that a cancel names by a bare unique key (2.4, 2.5).

    timed  rows of the log: all imported rows of the same slots
    rows   `source_offset`, `due_ms`, `real_topic`, `unique_key`, `born_timestamp`, `roll_times`
    """
    properties = F.col("properties")
    rolled = timed.where(roll_times() > 0).select(
        F.col("due_ms"),
        property_value(properties, "UNIQ_KEY").alias("unique_key"),
        property_value(properties, "REAL_TOPIC").alias("topic_of_later"),
        "born_timestamp",  # another one's is another message, which was sent with the same key
        roll_times().alias("later_roll_times"),
        F.col("physical_offset").alias("later_offset"),
    )
    is_replaced = (
        (F.col("real_topic") == F.col("topic_of_later"))
        & (F.col("later_roll_times") > F.col("roll_times"))
        & (F.col("later_offset") > F.col("source_offset"))
    )
    cancels = timed.select(
        "due_ms", property_value(properties, "TIMER_DEL_UNIQKEY").alias("unique_key")
    ).where(F.col("unique_key").isNotNull())
    is_rolled = rows.join(rolled, ["due_ms", "unique_key", "born_timestamp"]).where(is_replaced)
    is_cancelled = rows.join(cancels, ["due_ms", "unique_key"], "left_semi")
    return is_rolled.select("source_offset").unionByName(is_cancelled.select("source_offset"))


def _back_in_topic(at: Snapshot, rows: DataFrame) -> DataFrame:
    """`source_offset` of imported rows that their broker had delivered: by the rule of the view `scheduled_messages`.

    The key index, in which messages appended since the import and the words of KEYS are too, only shows where in the log
    to look.

    rows  `source_offset`, `due_ms`, `real_topic`, `unique_key`
    """
    followed = covered(at, MESSAGE_INDEX)
    entries = followed_rows(at, MESSAGE_INDEX)
    if followed < at.number(COMMITLOG):
        entries = entries.unionByName(message_index_entries(at.read_after(COMMITLOG, followed)))
    # The index has a unique key with spaces word by word.
    first_word = F.regexp_extract("row.unique_key", "[^ ]+", 0)
    entry, row = entries.alias("entry"), rows.alias("row")
    may_be_back = (
        (F.col("entry.topic") == F.col("row.real_topic"))
        & (F.col("entry.key") == first_word)
        & (F.col("entry.physical_offset") > F.col("row.source_offset"))
        & (F.col("entry.store_timestamp") >= F.col("row.due_ms"))
    )
    spans = spans_of(entry.join(row, may_be_back, "left_semi"), "physical_offset")
    returned = (
        at.read(COMMITLOG)
        .where(lies_in("physical_offset", spans))
        .alias("log")
        .where(RETURNED_BY_BROKER)
        .selectExpr(*RETURNED_COLUMNS)
    )
    is_back = F.expr(is_returned_sql("real_topic", "unique_key", "source_offset", "due_ms"))
    return rows.join(returned, is_back, "left_semi").select("source_offset")


def _some_have_lists(at: Snapshot, parked: pa.Table) -> bool:
    """Whether one of some parked rows may go on to a further level.

    Checked first because it is rare, and the copies that go on take more code than Java compiles at once.
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
    has_target = F.col("real_topic").isNotNull() & F.col("real_queue_id").isNotNull()
    goes_on = ~F.col("is_settled") & has_target
    stored = within_reach(F.col("store_timestamp"))
    enqueued = stored - F.pmod(stored, F.lit(precision_ms))
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
    """Rows with `left_levels`, `left_due_ms` (when each of them is over), and `hop`: the position of the one to wait for.

    A list goes on from when its last level was due, even if no job run came then; levels that are over by now are
    skipped. `hop` counts from 1 and is 0 when no level is left.
    """
    of_list = levels_of(property_value(F.col("properties"), LEVEL_LIST))
    left = F.coalesce(F.when(F.col("topic") == SCHEDULE_TOPIC, of_list), F.array().cast("array<int>"))
    delays = F.transform(F.col("left_levels"), lambda level: level_delay_ms(level, levels_ms))
    since = F.least(F.col("due_ms"), F.lit(now_ms))

    def over_at(index: Column) -> Column:
        waits = F.slice(delays, 1, index + 1)
        return since + F.aggregate(waits, F.lit(0).cast("long"), lambda total, delay: total + delay)

    is_ahead = F.transform(F.col("left_due_ms"), lambda due: due > now_ms)
    return (
        rows.withColumn("left_levels", left)
        .withColumn("left_due_ms", F.transform(delays, lambda _, index: over_at(index)))
        .withColumn("hop", F.array_position(is_ahead, F.lit(True)).cast("int"))
    )


def next_due_ms(at: Snapshot, now_ms: int) -> int | None:
    """When the next waiting message is due after now, ms; None when none waits."""
    after = (now_ms, 2**63 - 1)
    while True:
        waiting = parked_rows(at, F.col("due_ms") >= after[0]).where(F.col("kind").isin(*WAITING_KINDS))
        following = waiting.select(*to_settle()).where(_follows(*after))
        page = following.orderBy("due_ms", "source_offset").limit(NEXT_DUE_PAGE).toArrow()
        if not page.num_rows:
            return None
        left = with_rules(at, page, page.num_rows < NEXT_DUE_PAGE).where(~F.col("is_settled"))
        found = left.agg(F.min("due_ms").alias("due_ms")).toArrow()
        due_ms: int | None = found.column("due_ms")[0].as_py()
        if due_ms is not None:
            return due_ms
        last = page.slice(page.num_rows - 1).to_pylist()[0]
        after = (last["due_ms"], last["source_offset"])


def _follows(due_ms: int, physical_offset: int) -> Column:
    """Whether a row comes after another one in the order in which rows are due."""
    due, offset = F.col("due_ms"), F.col("source_offset")
    return (due > due_ms) | ((due == due_ms) & (offset > physical_offset))


def to_settle() -> list[Column]:
    """Columns of a parked row that show whether it is settled, in few bytes.

    `source_offset`, `claim`, `due_ms`, `kind`, `goes_nowhere` (boolean), `named` (of a timer: hash of the name by which
    a cancel names it), `cancels` (of a timer: hash of the name it cancels)
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
