"""Keeping a table's files few and its directory clean. No row changes."""

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from pipelines.spark_internals.conflicts import is_conflict
from pipelines.spark_internals.files import hadoop_path
from pipelines.store.lock import under_lock
from pipelines.store.sql_text import delta_table
from pipelines.store.store import Store
from schemas import Table

# Files smaller than the first are packed together, into files of up to the second. Delta's own limits are a gigabyte, more
# than a segment's file needs.
SMALL_FILE_BYTES = 64 * 1024**2
PACKED_FILE_BYTES = 256 * 1024**2

# A table with fewer commits after its last checkpoint gets none: a listing and as many small reads open it.
COMMITS_READ = 10

# Delta's own default: a reader of a version of the last seven days finds its files.
KEPT_HOURS = 168


def small_files(store: Store, table: Table) -> int:
    """The number of files that packing would put together: small ones that are not alone in their partition."""
    at = store.snapshot()
    if at.file_count(table) < 2:
        return 0
    small = at.files(table).where(F.col("size") < SMALL_FILE_BYTES)
    of_partition = small.groupBy(F.to_json("partitionValues").alias("partition")).count()
    found = of_partition.where("count > 1").agg(F.sum("count")).first()
    return int(found[0] or 0) if found is not None else 0


def pack(store: Store, table: Table, dry_run: bool = False) -> int:
    """The number of small files that were put together, partition by partition, or would be in a dry run."""
    packed = small_files(store, table)
    if dry_run or not packed:
        return packed
    session = store.spark.newSession()
    session.conf.set("spark.databricks.delta.optimize.minFileSize", str(SMALL_FILE_BYTES))
    session.conf.set("spark.databricks.delta.optimize.maxFileSize", str(PACKED_FILE_BYTES))
    try:
        metrics = under_lock(store.spark, store.uri, lambda: _optimize(store, table, session))
    except Exception as failure:
        # Another run has packed these files, or is about to.
        if not is_conflict(failure):
            raise
        return 0
    return int(metrics[0]) if metrics is not None else 0


def _optimize(store: Store, table: Table, session: SparkSession) -> Row | None:
    newest = store.delta(table).newest()
    newest.load_state()
    with newest.with_files(session):
        done = session.sql(f"OPTIMIZE {delta_table(store.path(table))}")
        return done.select("metrics.numFilesRemoved").first()


def checkpoint(store: Store, table: Table) -> bool:
    """Whether a checkpoint was written: the next session that opens the table then reads it in place of the commits."""
    return under_lock(store.spark, store.uri, lambda: _checkpoint(store, table))


def _checkpoint(store: Store, table: Table) -> bool:
    newest = store.delta(table).update()
    if newest.version - max(newest.checkpoint()[0], 0) < COMMITS_READ:
        return False
    newest.write_checkpoint()
    return True


def vacuum(store: Store, table: Table, dry_run: bool, now_ms: int) -> int:
    """The bytes of the files that are removed, or would be in a dry run: no version of the last seven days has them.

    now_ms  the clock, epoch milliseconds; a table younger than seven days has no such files and is not searched
    """
    path = store.path(table)
    if now_ms - store.delta(table).first_commit_ms() < KEPT_HOURS * 3_600_000:
        return 0
    statement = f"VACUUM {delta_table(path)} RETAIN {KEPT_HOURS} HOURS"
    if dry_run:
        leftovers = store.spark.sql(f"{statement} DRY RUN").collect()
        return sum(_length(store, row[0]) for row in leftovers)
    before = _data_length(store, path)
    under_lock(store.spark, store.uri, lambda: store.spark.sql(statement))
    return max(0, before - _data_length(store, path))


def _data_length(store: Store, path: str) -> int:
    """Bytes of a table without its Delta log, to which VACUUM itself adds."""
    return _length(store, path) - _length(store, f"{path}/_delta_log")


def _length(store: Store, path: str) -> int:
    target, files = hadoop_path(store.spark, path)
    return int(files.getContentSummary(target).getLength())
