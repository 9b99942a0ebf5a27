"""The session: that it has Delta, and Python workers that can run this project's code."""

import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from pipelines.health.check import Check, Look, bad, ok, warn
from pipelines.health.machine import SET_UP
from pipelines.spark_internals.process import has_mapped

ROWS = 100


def session_looks(spark: SparkSession, archive: Path) -> list[tuple[str, Look]]:
    """
    archive  where `make setup` puts the JVM's archive of Spark's classes
    """
    return [
        ("class archive", partial(class_archive, spark, archive)),
        ("delta", partial(delta, spark)),
        ("python workers", partial(python_workers, spark)),
    ]


def class_archive(spark: SparkSession, archive: Path) -> Check:
    """The session's JVM uses the archive of Spark's classes; without it commands start later, and that is all."""
    name = "class archive"
    if not archive.exists():
        return warn(name, f"{archive} is missing, so commands start later", SET_UP)
    is_used = has_mapped(spark, archive)
    if is_used is None:
        return ok(name, f"{archive}; whether Java uses it cannot be read on this system")
    if is_used:
        return ok(name, f"Java uses {archive}")
    found = f"Java does not use {archive}, so commands start later: another Java or other jars have made it"
    return warn(name, found, f"{SET_UP} with this Java; with spark-submit, take .venv/bin/spark-submit")


def delta(spark: SparkSession) -> Check:
    """A table can be written, written again and read as it was."""
    master = spark.sparkContext.master or ""
    if not master.startswith("local"):
        # A temporary directory of this machine is not one of the executors'.
        return warn("delta", f"not tried on {master}", "put a message into a store of your own to try")
    with tempfile.TemporaryDirectory(prefix="commitlake-doctor-") as directory:
        path = str(Path(directory) / "table")
        for mode in ("append", "append"):
            spark.range(ROWS).write.format("delta").mode(mode).save(path)
        newest = spark.read.format("delta").load(path).count()
        first = spark.read.format("delta").option("versionAsOf", 0).load(path).count()
    if (first, newest) != (ROWS, 2 * ROWS):
        found = f"wrote {ROWS} rows twice, read {first} and {newest}"
        return bad("delta", found, "run `make setup`; is another Delta on the session's class path?")
    return ok("delta", "a table can be written and read, also as of a past version")


def python_workers(spark: SparkSession) -> Check:
    """This module is known to the workers: they have the project and its packages."""
    found = spark.range(ROWS).mapInArrow(_unchanged, "id long").count()
    if found != ROWS:
        return bad("python workers", f"sent {ROWS} rows, got {found}", "look into the workers' log")
    return ok("python workers", "they start and run this project's code")


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    return batches
