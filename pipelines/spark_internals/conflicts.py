"""What Delta 4.4.0 raises where another commit came first, in Python and in Java."""

from typing import Any

from delta import exceptions

from pipelines.spark_internals.jvm import is_java, java_causes

# In Java the first is the base class of the others; in Python none is a subclass of another.
CONFLICTS = (
    exceptions.DeltaConcurrentModificationException,
    exceptions.ConcurrentAppendException,
    exceptions.ConcurrentDeleteDeleteException,
    exceptions.ConcurrentDeleteReadException,
    exceptions.ConcurrentTransactionException,
    exceptions.ConcurrentWriteException,
    exceptions.MetadataChangedException,
    exceptions.ProtocolChangedException,
)
JAVA_CONFLICT = "org.apache.spark.sql.delta.DeltaConcurrentModificationException"
# What a log store raises for a commit's file that exists: it puts a file only where there is none.
FILE_EXISTS = (
    "java.nio.file.FileAlreadyExistsException",
    "org.apache.hadoop.fs.FileAlreadyExistsException",
)


def is_conflict(failure: BaseException) -> bool:
    """Whether Delta refused a commit because another one came first."""
    if isinstance(failure, CONFLICTS) or any(_is_java_conflict(cause) for cause in java_causes(failure)):
        return True
    inner = getattr(failure, "_cause", None) or failure.__cause__
    return inner is not None and is_conflict(inner)


def _is_java_conflict(exception: Any) -> bool:
    if is_java(exception, JAVA_CONFLICT):
        return True
    if is_java(exception, "io.delta.storage.commit.CommitFailedException"):
        return bool(exception.getConflict())
    if any(is_java(exception, name) for name in FILE_EXISTS):
        return "_delta_log" in str(exception.getMessage())
    # Delta's own attempts to commit after others are used up.
    is_named = is_java(exception, "org.apache.spark.SparkThrowable")
    return is_named and exception.getCondition() == "DELTA_MAX_COMMIT_RETRIES_EXCEEDED"
