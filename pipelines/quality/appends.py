"""The log as its writers leave it: its last append is the one that was planned, and rows only come."""

from pyspark.sql import functions as F

from pipelines.quality.promise import Check, Promise, check
from pipelines.spark_internals.arrow import frame_of
from pipelines.store.cut import APPEND_ONLY as PROPERTY
from pipelines.store.cut import is_append_only
from pipelines.store.planned import damage_of, lost_in_words
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG

PLANNED = Promise("planned", "the last append holds what was planned", "critical")
APPEND_ONLY = Promise("append_only", "rows are added to the log and never taken out", "warning")


def last_append(at: Snapshot) -> Check:
    """The log's last append, and what Delta lets be done to the log."""
    damage = damage_of(at)
    complaints = (
        lost_in_words(at) if damage is None else str(damage),
        None if is_append_only(at) else f"commitlog has {PROPERTY} off",
    )
    rows = frame_of(
        at.store.spark,
        [(at.number(COMMITLOG), *complaints)],
        "append_seq long, planned string, append_only string",
    )
    columns = {PLANNED: F.col("planned"), APPEND_ONLY: F.col("append_only")}
    return check("log", rows, F.col("append_seq"), columns)
