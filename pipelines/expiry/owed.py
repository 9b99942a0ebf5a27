"""What the store still owes from the segments that expire: messages that wait for their time, open half messages.

They are rolled: a copy that waits for the same time goes to the end of the log and settles its source, as a broker's timer
puts back what waits longer than its wheel reaches (docs/rocketmq/delay-retry-transaction.md 2.5).
"""

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.delay.deliver import (
    FOLLOWER,
    WAITING_KINDS,
    is_too_far,
    log_time_ms,
    roll_times,
    to_settle,
    with_rules,
)
from pipelines.log.claims import SETTLE, Span, lies_in, spans_of, spans_of_offsets, unclaimed
from pipelines.log.copies import CopyPlan, copies_of, plan_copies
from pipelines.log.park import parked_rows
from pipelines.rocketmq.names import TIMER_TOPIC
from pipelines.rocketmq.properties import LONGEST, without
from pipelines.rocketmq.record import property_pair
from pipelines.store.head import read_head
from pipelines.store.progress import seen_by
from pipelines.store.snapshot import Snapshot
from pipelines.transaction.halves import ROLL, halves, has_imports, settled_before_import
from schemas import COMMITLOG

# Waiting rows that rules are applied to at a time.
PAGE = 1_000_000


def next_owed(at: Snapshot, log_start: int, limit: int) -> pa.Table:
    """Rows of the log before `log_start` that are not settled, at most `limit`: `source_offset`, `order`.

    Empty when none is left.
    """
    waiting = _next_waiting(at, log_start, limit)
    if waiting.num_rows:
        return waiting
    open_halves = _open_halves(at, log_start)
    return open_halves.withColumn("order", F.col("source_offset")).orderBy("order").limit(limit).toArrow()


def count_owed(at: Snapshot, log_start: int, limit: int) -> int:
    """How many rows before `log_start` are not settled; of those that wait for their time at most `limit` are counted."""
    return _next_waiting(at, log_start, limit).num_rows + _open_halves(at, log_start).count()


def _next_waiting(at: Snapshot, log_start: int, limit: int) -> pa.Table:
    """The first page of waiting rows, by due time, in which some are owed."""
    waits = F.col("kind").isin(*WAITING_KINDS)
    waiting = parked_rows(at, _expires(at, log_start)).where(waits).select(*to_settle(), "append_seq")
    candidates = unclaimed(at, waiting, [(0, log_start - 1)])
    due, offset = F.col("due_ms"), F.col("source_offset")
    after = F.lit(True)
    while True:
        page = candidates.where(after).orderBy("due_ms", "source_offset").limit(min(PAGE, limit)).toArrow()
        if not page.num_rows:
            return page
        # Not all rows of their times are in the page: all cancels of these times are read.
        left = with_rules(at, page, is_whole=False)
        owed = left.where(~F.col("is_settled")).select("source_offset", F.col("due_ms").alias("order"))
        needed = owed.unionByName(_cancels_needed(at, left, log_start))
        spans = spans_of_offsets(page.column("source_offset").to_numpy())
        found = _in_log(at, needed, spans).toArrow()
        if found.num_rows:
            return found
        last = page.slice(page.num_rows - 1).to_pylist()[0]
        is_later = (due == last["due_ms"]) & (offset > last["source_offset"])
        after = (due > last["due_ms"]) | is_later


def _cancels_needed(at: Snapshot, rows: DataFrame, log_start: int) -> DataFrame:
    """Cancels among `rows` that are not over: their slot is to come, or holds a timer that stays in the log."""
    seen = seen_by(at, FOLLOWER)
    cancels = rows.where(F.col("cancels").isNotNull())
    is_to_come = (F.col("due_ms") > seen.clock_ms) | (F.col("append_seq") > seen.append_seq)
    staying = (
        parked_rows(at, (F.col("kind") == "timer") & (F.col("segment") >= log_start))
        .select(*to_settle())
        .where(F.col("named").isNotNull())
        .select("due_ms", F.col("named").alias("cancels"), F.lit(True).alias("is_named"))
        .distinct()
    )
    marked = cancels.join(staying, ["due_ms", "cancels"], "left")
    is_needed = is_to_come | F.coalesce("is_named", F.lit(False))
    return marked.where(is_needed).select("source_offset", F.col("due_ms").alias("order"))


def _open_halves(at: Snapshot, log_start: int) -> DataFrame:
    """`source_offset` of the newest copies of half messages that have not ended."""
    rows = halves(at, _expires(at, log_start)).select(
        "segment", F.col("physical_offset").alias("source_offset"), F.lit(SETTLE).alias("claim")
    )
    left = unclaimed(at, rows, [(0, log_start - 1)])
    if has_imports(at):
        log = at.read(COMMITLOG).where(lies_in("physical_offset", spans_of(rows)))
        placed = log.select(F.col("physical_offset").alias("source_offset"), "queue_offset", "append_id")
        ended = settled_before_import(at, left.join(placed, "source_offset"))
        left = left.join(ended, "source_offset", "left_anti")
    return _in_log(at, left.select("source_offset"), [(read_head(at).min_offset, log_start - 1)])


def _expires(at: Snapshot, log_start: int) -> Column:
    """Whether a row of `parked` lies in a segment that expires now.

    Rows of segments that expired earlier may stay in a large sorted run while their claims leave. They are settled, but
    look as if they were not.
    """
    start = read_head(at).min_offset
    return F.col("segment").between(start - start % at.store.settings.segment_bytes, log_start - 1)


def _in_log(at: Snapshot, rows: DataFrame, spans: Sequence[Span]) -> DataFrame:
    """Those of `rows` that are in the log: of others, which a table that is ahead of it has, nothing can be copied.

    A page of others alone must not look as if nothing were owed: what comes after it would expire.

    rows   `source_offset` and any others
    spans  where they lie
    """
    log = at.read(COMMITLOG).where(lies_in("physical_offset", spans))
    return rows.join(
        log.select(F.col("physical_offset").alias("source_offset")), "source_offset", "left_semi"
    )


def plan_rolls(at: Snapshot, owed: pa.Table, now_ms: int, run_id: str) -> CopyPlan:
    """The plan that appends copies of what is owed, in the order in which it is due."""
    log_ms = log_time_ms(at, now_ms)
    copies = partial(rolled_copies, log_ms=log_ms, is_far=is_too_far(at, log_ms))
    return plan_copies(at, owed, copies, now_ms, run_id)


def rolled_copies(rows: DataFrame, log_ms: int, is_far: Column) -> DataFrame:
    """Copies that differ from their sources in little but their offsets and their store timestamp.

    That of a timed message says how often it was rolled, as a broker's does: a store that is made from an export has no
    claims, and knows by it which of two rows is left (2.5).

    An imported row whose time is too far away is due at once. Its copy does not count as imported, so it gets such a time.

    rows    rows of the log with `order`
    log_ms  as of log_time_ms
    is_far  as of is_too_far
    """
    rolled = rows.withColumns({"purpose": F.lit(ROLL), "claim": F.lit(SETTLE)})
    due_ms = F.when(is_far, F.lit(log_ms)).otherwise(F.col("due_ms"))
    properties = F.col("properties")
    times = F.coalesce(F.try_add(roll_times(), F.lit(1)), roll_times())
    again = F.concat(
        without(properties, "TIMER_ROLL_TIMES"), property_pair("TIMER_ROLL_TIMES", times.cast("string"))
    )
    # A message whose properties have no room for it stays as it is.
    of_timer = F.when((F.col("topic") == TIMER_TOPIC) & (F.octet_length(again) <= LONGEST), again)
    return copies_of(rolled, {"due_ms": due_ms, "properties": of_timer.otherwise(properties)})
