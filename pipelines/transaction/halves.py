"""Half messages and their copies: which one is the newest, and how it was settled.

A half that is put back by a check, or kept alive past retention, is copied; the copies of one half form a list, each
settling the one before. All share the origin_offset, and the newest stands for the half.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.log.claims import SETTLE, claims_taken
from pipelines.log.park import parked_rows
from pipelines.rocketmq.flags import COMMITTED, TRANSACTION_BITS
from pipelines.rocketmq.names import OP_TOPIC
from pipelines.store.floors import IMPORT_PREFIX, read_floors
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG

# Purposes of the rows that settle a half or a copy of it.
COMMIT, ROLLBACK, CHECK, ROLL, DISCARD = "commit", "rollback", "check", "roll", "discard"


def halves(at: Snapshot, condition: Column) -> DataFrame:
    """Rows of `parked` that are halves or copies of halves, dispatched or not, and meet a condition on its columns."""
    return parked_rows(at, (F.col("kind") == "half") & condition)


def settling_claims(at: Snapshot) -> DataFrame:
    """Every settled row: its `source_offset`, the `origin_offset` of its half, the `purpose` of the row that settled it."""
    settling = claims_taken(at).where(F.col("claim") == SETTLE)
    return settling.select("source_offset", "origin_offset", "purpose")


def settled_before_import(at: Snapshot, rows: DataFrame) -> DataFrame:
    """Those of `rows` that an imported broker had settled, with `settled_as`: commit, or rollback for all other ends.

    rows  halves: `source_offset`, `queue_offset`, `append_id`; of several rows about one half, one comes back

    Below the floor every half is settled; from there on a half is settled that a committed row names or an op mark lists,
    which may list many (docs/rocketmq/delay-retry-transaction.md 5.5).
    """
    # Several requests may name one half; its state is found once.
    imported = (
        rows.where(F.col("append_id").startswith(IMPORT_PREFIX))
        .select("source_offset", "queue_offset")
        .distinct()
    )
    log = at.read(COMMITLOG).where(F.col("append_id").startswith(IMPORT_PREFIX))
    committed = (
        log.where(F.col("sys_flag").bitwiseAND(TRANSACTION_BITS) == COMMITTED)
        .select(
            F.col("prepared_transaction_offset").alias("source_offset"), F.lit(True).alias("is_committed")
        )
        .distinct()
    )
    marks = log.where(F.col("topic") == OP_TOPIC).select(
        F.explode(F.split(F.col("body").cast("string"), ",")).alias("mark")
    )
    marked = marks.select(
        F.col("mark").try_cast("long").alias("queue_offset"), F.lit(True).alias("is_marked")
    ).distinct()
    floor = read_floors(at).get("half", 0)
    found = imported.join(committed, "source_offset", "left").join(
        marked.where(F.col("queue_offset").isNotNull()), "queue_offset", "left"
    )
    is_settled = F.col("is_committed") | F.col("is_marked") | (F.col("queue_offset") < floor)
    settled_as = F.when(F.col("is_committed"), COMMIT).otherwise(ROLLBACK)
    return found.where(is_settled).select("source_offset", settled_as.alias("settled_as"))


def has_imports(at: Snapshot) -> bool:
    return bool(read_floors(at))
