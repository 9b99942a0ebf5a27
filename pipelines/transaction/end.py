"""End transactions: commit or roll back half messages as their producer says, each once.

docs/rocketmq/delay-retry-transaction.md 5.3 to 5.5. A commit appends the message and an op mark side by side, a rollback the
mark alone, which settles the half. An end that names an older copy of a half settles its newest one.
"""

from collections.abc import Mapping

import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pipelines.log.claims import MARK, SETTLE, lies_in, spans_of
from pipelines.log.copies import COPIES_OF_AN_APPEND, copies_of, kept_body_bytes, plan_copies
from pipelines.log.park import immunity_ms, immunity_seconds, real_place
from pipelines.log.requests import missing_message
from pipelines.rocketmq.flags import BORN_HOST_IPV6, COMMITTED, STORE_HOST_IPV6, TRANSACTION_BITS
from pipelines.rocketmq.names import HALF_TOPIC, OP_TOPIC
from pipelines.rocketmq.properties import property_value
from pipelines.rocketmq.settings import Settings
from pipelines.rocketmq.times import FARTHEST_MS
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from pipelines.transaction.halves import (
    COMMIT,
    ROLLBACK,
    halves,
    has_imports,
    settled_before_import,
    settling_claims,
)

# Columns of a request to end a half message, and their types.
REQUEST_COLUMNS: Mapping[str, str] = {
    "producer_group": "string",
    "physical_offset": "long",
    "message_id": "string",
    "queue_offset": "long",
    "state": "string",
}
REASONS_SHOWN = 20


def ends_of(at: Snapshot, requests: DataFrame, now_ms: int) -> DataFrame:
    """One row an end request that is not UNKNOWN, with its outcome.

    requests  `request`, `state`, `producer_group` (null: not checked), `asked_queue_offset` (null: not checked),
              `from_check` (boolean), and the slim columns of the row it names, as with_rows returns them
    adds      the row's `source_offset` (null where the log lacks it); `newest` (long): the half's newest copy; `outcome`:
              `do` (to be carried out), `same` (it has ended like that), `refused`; `reason` where refused
    """
    properties = F.col("properties")
    limit_ms = F.greatest(
        immunity_ms(immunity_seconds(properties)),
        F.lit(min(at.store.settings["transactionTimeOut"], FARTHEST_MS)).cast("long"),
    )
    is_late = (
        ~F.col("from_check")
        & immunity_seconds(properties).isNotNull()
        & (F.col("born_timestamp") < now_ms - limit_ms)
    )
    group = property_value(properties, "PGROUP")
    is_end = F.coalesce(F.col("state").isin("COMMIT", "ROLLBACK"), F.lit(False))
    wrong = F.coalesce(
        # A state that is not known must never end a half: readers of requests refuse it, and so does this.
        F.when(
            ~is_end,
            F.format_string(
                "its state is %s; expected COMMIT or ROLLBACK", F.coalesce("state", F.lit("missing"))
            ),
        ),
        missing_message(),  # before the others: they are about the message's row
        F.when(
            F.col("topic") != HALF_TOPIC,
            F.format_string("it lies in topic %s, not among half messages", "topic"),
        ),
        F.when(is_late, F.lit("its immunity is over; it is for the check to end it")),
        F.when(
            F.col("producer_group").isNotNull() & ~F.col("producer_group").eqNullSafe(group),
            F.format_string(
                "its producer group is %s, not %s", F.coalesce(group, F.lit("missing")), "producer_group"
            ),
        ),
        F.when(
            F.col("asked_queue_offset").isNotNull() & (F.col("asked_queue_offset") != F.col("queue_offset")),
            F.format_string("its queue offset is %d, not %d", "queue_offset", "asked_queue_offset"),
        ),
    )
    ends = (
        requests.where(~F.col("state").eqNullSafe("UNKNOWN"))
        .withColumn("wrong", wrong)
        .withColumn("origin", F.coalesce("origin_offset", "source_offset"))
        .select(
            "request",
            "state",
            "source_offset",
            "asked_offset",
            "queue_offset",
            "append_id",
            "wrong",
            "origin",
            "due_ms",
        )
    )
    # All copies of a half have its due time, so only that part of `parked` is read.
    due = ends.agg(F.min("due_ms").alias("first"), F.max("due_ms").alias("last")).first()
    assert due is not None, "an aggregate has one row"
    is_near = F.lit(False) if due["first"] is None else F.col("due_ms").between(due["first"], due["last"])
    near = halves(at, is_near)
    spans = spans_of(near, "physical_offset")
    newest = (
        near.join(
            F.broadcast(ends.select(F.col("origin").alias("origin_offset")).distinct()),
            "origin_offset",
            "left_semi",
        )
        .groupBy(F.col("origin_offset").alias("origin"))
        .agg(F.max("physical_offset").alias("newest"))
    )
    known = ends.join(newest, "origin", "left")
    claims = settling_claims(at).drop("origin_offset").where(lies_in("source_offset", spans))
    claims = claims.withColumnsRenamed({"source_offset": "newest", "purpose": "settled_as"})
    known = known.join(claims, "newest", "left")
    if has_imports(at):
        imported = settled_before_import(at, ends).withColumnRenamed("settled_as", "imported_as")
        known = known.join(imported, "source_offset", "left").withColumn(
            "settled_as", F.coalesce("settled_as", "imported_as")
        )
    wanted = F.when(F.col("state") == "COMMIT", COMMIT).when(F.col("state") == "ROLLBACK", ROLLBACK)
    settled = F.col("settled_as")
    # Of several requests for one half in the same input the first counts, and the others are judged by it.
    good = known.withColumn("wanted", wanted).withColumn(
        "first_wanted", F.min_by(F.when(F.col("wrong").isNull(), wanted), "request").over(_of_one_half())
    )
    good = good.withColumn("is_first", F.col("request") == F.min("request").over(_of_one_half()))
    ended = F.coalesce(settled, F.when(~F.col("is_first"), F.col("first_wanted")))
    outcome = (
        F.when(F.col("wrong").isNotNull(), "refused")
        .when(ended.isNull(), "do")
        .when(ended == F.col("wanted"), "same")
        .otherwise("refused")
    )
    reason = F.coalesce("wrong", F.when(ended.isNotNull(), F.format_string("it has ended before: %s", ended)))
    return good.select(
        "request",
        "source_offset",
        "asked_offset",
        "newest",
        "wanted",
        outcome.alias("outcome"),
        F.when(outcome == "refused", reason).alias("reason"),
    )


def _of_one_half() -> WindowSpec:
    return Window.partitionBy("origin", F.col("wrong").isNull())


def plan_end(
    at: Snapshot, requests: DataFrame, now_ms: int, append_id: str, limit: int = COPIES_OF_AN_APPEND // 2
) -> Plan:
    """The plan that carries out the end requests that are not refused, at most `limit` of them, in their order.

    requests  as ends_of takes them

    The result: `committed`, `rolled_back`, `refused` (how many), `reasons` (of the first of them), `more`.
    """
    ends = ends_of(at, requests, now_ms)
    refused = ends.where(F.col("outcome") == "refused")
    reasons = [
        row.reason if row.source_offset is None else f"message at {row.asked_offset}: {row.reason}"
        for row in refused.orderBy("request").limit(REASONS_SHOWN).collect()
    ]
    settles, marks = _copy(0, SETTLE), _copy(1, MARK)
    copies = F.when(F.col("wanted") == COMMIT, F.array(settles, marks)).otherwise(F.array(_copy(1, SETTLE)))
    todo = ends.where(F.col("outcome") == "do").orderBy("request").limit(limit + 1)
    chosen = (
        todo.withColumn("copy", F.explode(copies))
        .select(
            F.col("newest").alias("source_offset"),
            F.col("request").alias("order"),
            F.col("wanted").alias("purpose"),
            F.col("asked_offset"),
            "copy.rank",
            "copy.claim",
        )
        .toArrow()
        .sort_by([("order", "ascending"), ("rank", "ascending")])
    )
    requests_left = chosen.column("order").unique()
    more = len(requests_left) > limit
    if more:
        chosen = chosen.filter(pc.is_in(chosen.column("order"), requests_left[:limit]))
    settings = at.store.settings
    planned = plan_copies(at, chosen, lambda rows: ending_rows(rows, now_ms, settings), now_ms, append_id)
    counts = planned.rows_by_purpose
    return Plan(
        planned.writes,
        {
            # A commit is two rows: the message and its mark.
            "committed": counts.get(COMMIT, 0) // 2,
            "rolled_back": counts.get(ROLLBACK, 0),
            "refused": refused.count() if reasons else 0,
            "reasons": reasons,
            "more": more,
        },
    )


def _copy(rank: int, claim: str) -> Column:
    return F.struct(F.lit(rank).alias("rank"), F.lit(claim).alias("claim"))


def ending_rows(rows: DataFrame, now_ms: int, settings: Settings) -> DataFrame:
    """Committed messages (column F of 0.5, `rank` 0) and op marks (5.5, `rank` 1).

    rows  halves with `order`, `purpose`, `claim`, `rank`, `asked_offset`: the copy the request names
    """
    is_mark = F.col("rank") == 1
    topic, queue_id = real_place(F.col("properties"))
    mark = F.encode(F.concat(F.col("queue_offset").cast("string"), F.lit(",")), "UTF-8")
    hosts = (BORN_HOST_IPV6 | STORE_HOST_IPV6) if settings.store_host.startswith("[") else 0
    own_host = F.lit(settings.store_host)

    def of_mark(mark: Column, message: Column) -> Column:
        return F.when(is_mark, mark).otherwise(message)

    return copies_of(
        rows,
        {
            "topic": of_mark(F.lit(OP_TOPIC), topic),
            "queue_id": of_mark(F.col("queue_id"), queue_id),
            "flag": of_mark(F.lit(0), F.col("flag")),
            "sys_flag": of_mark(
                F.lit(hosts), F.col("sys_flag").bitwiseAND(~TRANSACTION_BITS).bitwiseOR(F.lit(COMMITTED))
            ),
            "born_timestamp": of_mark(F.lit(now_ms), F.col("born_timestamp")),
            "born_host": of_mark(own_host, F.col("born_host")),
            "store_host": of_mark(own_host, F.col("store_host")),
            "reconsume_times": of_mark(F.lit(0), F.col("reconsume_times")),
            "prepared_transaction_offset": of_mark(F.lit(0), F.col("asked_offset")),
            "properties": of_mark(F.lit("TAGS\x01d\x02WAIT\x01true\x02"), F.col("properties")),
            "body": of_mark(mark, F.col("body")),
            "body_bytes": of_mark(F.octet_length(mark), kept_body_bytes()),
        },
    )
