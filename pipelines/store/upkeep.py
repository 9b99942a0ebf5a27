"""Keeping a table's files few and its directory clean. No row changes."""

from pyspark.sql import functions as F

from pipelines.store.jvm import hadoop_path
from pipelines.store.lock import writing
from pipelines.store.store import Store
from schemas import Table

# Files smaller than this are packed together, up to files of the other size; Delta's own limits are a gigabyte, more than
# a segment's file needs.
SMALL_FILE_BYTES = 64 * 1024**2
PACKED_FILE_BYTES = 256 * 1024**2

# Delta's own: a reader of a version of the last seven days finds its files.
KEPT_HOURS = 168


def small_files(store: Store, table: Table) -> int:
    """Files that packing would put together: small ones that are not alone in their partition."""
    at = store.snapshot()
    if at.file_count(table) < 2:
        return 0
    small = at.files(table).where(F.col("size") < SMALL_FILE_BYTES)
    of_partition = small.groupBy(F.to_json("partitionValues").alias("partition")).count()
    found = of_partition.where("count > 1").agg(F.sum("count")).first()
    return int(found[0] or 0) if found is not None else 0


def pack(store: Store, table: Table, dry_run: bool = False) -> int:
    """Put small files together, partition by partition; how many were, or would be."""
    packed = small_files(store, table)
    if dry_run or not packed:
        return packed
    session = store.spark.newSession()
    session.conf.set("spark.databricks.delta.optimize.minFileSize", str(SMALL_FILE_BYTES))
    session.conf.set("spark.databricks.delta.optimize.maxFileSize", str(PACKED_FILE_BYTES))
    with writing(store.spark, store.uri):
        metrics = (
            session.sql(f"OPTIMIZE delta.`{store.path(table)}`").select("metrics.numFilesRemoved").first()
        )
    return int(metrics[0]) if metrics is not None else 0


def vacuum(store: Store, table: Table, dry_run: bool, now_ms: int) -> int:
    """Remove files that no version of the last seven days has; the bytes they took.

    now_ms  a table younger than that has no such files and is not looked through
    """
    path = store.path(table)
    if now_ms - store.delta(table).first_commit_ms() < KEPT_HOURS * 3_600_000:
        return 0
    if dry_run:
        leftovers = store.spark.sql(f"VACUUM delta.`{path}` RETAIN {KEPT_HOURS} HOURS DRY RUN").collect()
        return sum(_length(store, row[0]) for row in leftovers)
    before = _length(store, path)
    with writing(store.spark, store.uri):
        store.spark.sql(f"VACUUM delta.`{path}` RETAIN {KEPT_HOURS} HOURS")
    return max(0, before - _length(store, path))


def _length(store: Store, path: str) -> int:
    target, files = hadoop_path(store.spark, path)
    return int(files.getContentSummary(target).getLength())
