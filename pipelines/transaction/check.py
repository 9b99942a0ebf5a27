"""Check transactions: check half messages that have waited too long with their producers, and discard old ones.

docs/rocketmq/delay-retry-transaction.md 5.7, with 5.8 corrected: immunity delays the first check and uses up none, and an
end settles the newest copy, whichever it names. A check first puts the half back, as a copy with one more
TRANSACTION_CHECK_TIMES, and only then the producer checks the copy.

A broker passes once every transactionCheckInterval, so that its checks are that far apart (5.6). Here the job may run at any
time, so the copy itself decides when the half may be checked again: an interval after the copy was stored.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.log.claims import SETTLE, lies_in, spans_of, unclaimed
from pipelines.log.copies import COPIES_OF_AN_APPEND, copies_of, plan_copies
from pipelines.log.message import Message, StoredMessage, message_columns, messages_of
from pipelines.log.park import immunity_seconds, parked_messages
from pipelines.log.python_code import expect_no_control_c
from pipelines.rocketmq.names import DISCARD_TOPIC, HALF_TOPIC
from pipelines.rocketmq.properties import property_value, without
from pipelines.rocketmq.record import property_pair
from pipelines.rocketmq.settings import MAX_UNPACKED_BYTES
from pipelines.store.head import read_head
from pipelines.store.plan import Plan
from pipelines.store.progress import Seen, seen_by, seen_write
from pipelines.store.snapshot import Snapshot
from pipelines.transaction.halves import CHECK, DISCARD, halves, has_imports, settled_before_import
from pipelines.transaction.state import TransactionState
from schemas import COMMITLOG, PROGRESS

Checker = Callable[[Message], TransactionState | None]

CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
HOUR_MS = 3_600_000
# The job's row in `progress`: of the appends up to `append_seq`, halves due at `clock_ms` are settled, or put back since.
FOLLOWER = "check_transactions"


def plan_check(
    at: Snapshot, now_ms: int, run_id: str, last_append: int, limit: int = COPIES_OF_AN_APPEND
) -> Plan:
    """The plan that puts back the halves to be checked, and discards those that are checked often enough or too old.

    A half is due when it is older than its limit, or born in the future; one stored at this clock or later waits for the
    next job run. One that was checked before waits until transactionCheckInterval has passed since its newest copy was
    stored, also to be discarded. The result: `checked`, `discarded`, `more`.

    last_append  halves of later appends wait, so that the parts and rounds of one step do not check a half twice
    """
    settings = at.store.settings
    seen = seen_by(at, FOLLOWER)
    # A half that is due at that very clock was not checked yet: it has to be older than its limit.
    is_new = (F.col("append_seq") > seen.append_seq) | (F.col("due_ms") >= seen.clock_ms)
    due = halves(at, is_new & (F.col("due_ms") < now_ms)).unionByName(
        _born_in_the_future(at, now_ms, seen.append_seq)
    )
    if read_head(at).last_store_timestamp > now_ms or seen.clock_ms > now_ms:
        due = halves(at, F.lit(True))  # the clock went back: some may be born in the future
    candidates = due.select(
        "segment", F.col("physical_offset").alias("source_offset"), F.lit(SETTLE).alias("claim")
    )
    spans = spans_of(candidates)
    nothing = {"checked": 0, "discarded": 0, "too_large": (), "more": False}
    if not spans:
        return Plan((), nothing)
    slim = (
        at.read(COMMITLOG)
        .where(lies_in("physical_offset", spans))
        .select(
            F.col("physical_offset").alias("source_offset"),
            "queue_offset",
            "append_id",
            "append_seq",
            "store_timestamp",
            "born_timestamp",
            "due_ms",
            property_value(F.col("properties"), CHECK_TIMES).try_cast("int").alias("times"),
            immunity_seconds(F.col("properties")).isNotNull().alias("is_immune"),
        )
    )
    waiting = unclaimed(at, candidates, spans).drop("segment").join(slim, "source_offset")
    if has_imports(at):
        waiting = waiting.join(settled_before_import(at, waiting), "source_offset", "left_anti")
    # Born timestamps are compared, not subtracted: that of an imported half may be any 64 bits.
    born = F.col("born_timestamp")
    times = F.coalesce("times", F.lit(0))
    is_old = (times >= settings["transactionCheckMax"]) | (
        born < now_ms - settings["fileReservedTime"] * HOUR_MS
    )
    is_due = (F.col("due_ms") < now_ms) | ((born > now_ms) & ~F.col("is_immune"))
    # What this step has put back is of a later append. The id of the job run would not do: with `run_cycle --every` one
    # job run takes this step for days.
    is_there = (F.col("store_timestamp") < now_ms) & (F.col("append_seq") <= last_append)
    was_checked_lately = (times > 0) & (
        F.col("store_timestamp") > now_ms - settings["transactionCheckInterval"]
    )
    is_ready = is_there & ~was_checked_lately & (is_old | is_due)
    decided = waiting.select(
        "source_offset",
        "claim",
        F.col("source_offset").alias("order"),
        F.when(is_ready, F.when(is_old, DISCARD).otherwise(CHECK)).alias("purpose"),
        times.alias("times"),
        "append_seq",
        is_due.alias("is_due"),
    ).toArrow()
    ready = decided.filter(decided.column("purpose").is_valid()).sort_by("order")
    chosen = ready.slice(0, limit).drop_columns(["append_seq", "is_due"])
    planned = plan_copies(at, chosen, checked_copies, now_ms, run_id, leaves_out_too_large=True)
    if not planned.writes:
        return Plan((), {**nothing, "too_large": planned.too_large})
    at.preload(PROGRESS)
    all_seen = None
    more = ready.num_rows > limit
    if not more:
        # Halves that are due and wait for the next job run must be read again by it.
        too_large = pa.array([offset for offset, _ in planned.too_large], pa.int64())
        is_left = pa.compute.or_(
            pa.compute.and_(decided.column("is_due"), decided.column("purpose").is_null()),
            pa.compute.is_in(decided.column("source_offset"), too_large),
        )
        left = decided.filter(is_left)
        first_left = pa.compute.min(left.column("append_seq")).as_py()
        covered = at.number(COMMITLOG) if first_left is None else min(at.number(COMMITLOG), first_left - 1)
        all_seen = partial(seen_write, job=FOLLOWER, seen=Seen(covered, now_ms))
    counts = planned.rows_by_purpose
    return Plan(
        planned.writes,
        {
            "checked": counts.get(CHECK, 0),
            "discarded": counts.get(DISCARD, 0),
            "too_large": planned.too_large,
            "more": more,
        },
        afterwards=all_seen,
    )


def _born_in_the_future(at: Snapshot, now_ms: int, seen_appends: int) -> DataFrame:
    """Halves of the appends after one, born later than now and not due, with the columns of `parked`."""
    is_such = (
        (F.col("topic") == HALF_TOPIC) & (F.col("born_timestamp") > now_ms) & (F.col("due_ms") >= now_ms)
    )
    log = at.read(COMMITLOG).where(F.col("append_seq") > seen_appends)
    return parked_messages(log.where(is_such))


def checked_copies(rows: DataFrame) -> DataFrame:
    """Copies as column C of 0.5 (put back, one check more) or column X (discarded).

    rows  halves with `order`, `purpose`, `claim`, `times`: how often they have been checked
    """
    is_discarded = F.col("purpose") == DISCARD
    properties = F.col("properties")
    checked = F.concat(
        without(properties, CHECK_TIMES), property_pair(CHECK_TIMES, (F.col("times") + 1).cast("string"))
    )
    return copies_of(
        rows,
        {
            "topic": F.when(is_discarded, DISCARD_TOPIC).otherwise(HALF_TOPIC),
            "queue_id": F.when(is_discarded, 0).otherwise(F.col("queue_id")),
            "flag": F.when(is_discarded, F.col("flag")).otherwise(0),
            "reconsume_times": F.when(is_discarded, F.col("reconsume_times")).otherwise(0),
            "properties": F.when(is_discarded, properties).otherwise(checked),
            "due_ms": F.when(~is_discarded, F.col("due_ms")),
        },
    )


def answers(
    halves_asked: DataFrame, check: Checker, max_unpacked_bytes: int = MAX_UNPACKED_BYTES
) -> DataFrame:
    """The states that `check` returns for rows of the log, on the executors: `physical_offset`, `state`.

    A state is UNKNOWN where `check` raises or returns nothing.
    """

    def checked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            states = [_state(check, message) for message in messages_of(batch)]
            yield pa.RecordBatch.from_pydict(
                {"physical_offset": batch.column("physical_offset"), "state": pa.array(states, pa.string())}
            )

    columns = message_columns(max_unpacked_bytes)
    return halves_asked.select(*columns).mapInArrow(checked, "physical_offset long, state string")


def _state(check: Checker, half: StoredMessage) -> str:
    """What `check` returns for a half, which it gets as it was sent: with its own topic and queue."""
    try:
        state = check(
            half.placed(
                half.properties.get("REAL_TOPIC", half.topic),
                int(half.properties.get("REAL_QID", half.queue_id or 0)),
            )
        )
    except BaseException as failure:
        expect_no_control_c(failure)
        return TransactionState.UNKNOWN.value
    return state.value if isinstance(state, TransactionState) else TransactionState.UNKNOWN.value
