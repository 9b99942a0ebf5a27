"""A commit that replaces all rows of a small table, by a transaction of Delta's own.

Delta's writer finds the files to remove by queries over the table's log, half of the time such a commit takes. Here they
come from the version's checksum file.
"""

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from pipelines.spark_internals.jvm import jvm
from pipelines.spark_internals.snapshot_state import is_known


def replace_rows(
    snapshot: Any, checksum: Any, rows: DataFrame, metadata: str, number: tuple[str, int] | None
) -> bool:
    """Commit rows in place of all rows of a version; False, with nothing done, where only Delta's own writer can.

    snapshot  Delta's Snapshot of the version. Where it is no longer the newest, and rows were changed since, Delta refuses
              the commit by an exception
    checksum  the VersionChecksum of the version, with all its files
    metadata  the user metadata of the commit
    number    the application id and the number of the commit. Nothing is committed where the number is taken

    Read from Delta 4.4.0: WriteIntoDelta does the same, and gives the table the columns of the rows where they differ.
    """
    java = jvm(rows.sparkSession)
    if not is_known(java) or rows._jdf.schema().catalogString() != snapshot.schema().catalogString():
        return False
    none, some, actions = java.scala.Option.empty(), java.scala.Some, java.java.util.ArrayList()
    transaction = snapshot.deltaLog().startTransaction(none, some(snapshot))
    transaction.readWholeTable()
    if number is not None:
        if transaction.txnVersion(number[0]) >= number[1]:
            return True
        now_ms = some(time.time_ns() // 1_000_000)
        actions.add(java.org.apache.spark.sql.delta.actions.SetTransaction(*number, now_ms))
    for written in _each(transaction.writeFiles(rows._jdf, none)):
        actions.add(written)
    for file in _each(checksum.allFiles().get()):
        actions.add(file.remove())
    overwrite = java.org.apache.spark.sql.SaveMode.Overwrite
    no_columns = some(java.PythonUtils.toSeq(java.java.util.List.of()))
    operation = getattr(java.org.apache.spark.sql.delta, "DeltaOperations$Write")(
        overwrite, no_columns, none, some(metadata), none, none, none, none, none
    )
    transaction.commit(java.PythonUtils.toSeq(actions), operation)
    return True


def _each(sequence: Any) -> Iterator[Any]:
    """The elements of a Seq of Scala's."""
    return (sequence.apply(index) for index in range(sequence.size()))
