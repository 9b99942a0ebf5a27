"""A commit that replaces all rows of a table of few files, by a transaction of Delta's own.

Delta's writer finds the files to remove by queries over the table's log, half of the time such a commit takes. Here they
come from the version's checksum file.
"""

import time
from typing import Any

from pyspark.sql import DataFrame

from pipelines.spark_internals.jvm import jvm
from pipelines.spark_internals.snapshot_state import is_known


def replace_rows(
    snapshot: Any, checksum: Any, rows: DataFrame, metadata: str, number: tuple[str, int]
) -> bool:
    """Commit rows in place of all rows of a version; False, with nothing done, where only Delta's own writer can.

    snapshot  Delta's Snapshot of the version. Where a later one has other rows, columns or properties, Delta refuses the
              commit by an exception
    checksum  the VersionChecksum of the version, with all its files
    metadata  the user metadata of the commit
    number    the application id and the number of the commit. Where the number is taken nothing is committed, and True is
              returned: the caller looks for its commit in any case

    Read from Delta 4.4.0. Other than WriteIntoDelta it does not change the table's columns, does not count what is removed
    (`numRemovedFiles`), and keeps the statistics of removed files in the log.
    """
    java = jvm(rows.sparkSession)
    if not is_known(java) or rows._jdf.schema().catalogString() != snapshot.schema().catalogString():
        return False
    none, some, as_java = (
        java.scala.Option.empty(),
        java.scala.Some,
        java.scala.jdk.javaapi.CollectionConverters,
    )
    transaction = snapshot.deltaLog().startTransaction(none, some(snapshot))
    transaction.readWholeTable()
    if transaction.txnVersion(number[0]) >= number[1]:
        return True
    numbered = java.org.apache.spark.sql.delta.actions.SetTransaction(
        *number, some(time.time_ns() // 1_000_000)
    )
    actions = java.java.util.ArrayList([numbered])
    actions.addAll(as_java.asJava(transaction.writeFiles(rows._jdf, none)))
    for file in as_java.asJava(checksum.allFiles().get()):
        actions.add(file.remove())
    no_columns = some(java.PythonUtils.toSeq(java.java.util.List.of()))
    operation = getattr(java.org.apache.spark.sql.delta, "DeltaOperations$Write")(
        java.org.apache.spark.sql.SaveMode.Overwrite,
        no_columns,
        none,
        some(metadata),
        *[none] * 5,
    )
    transaction.commit(java.PythonUtils.toSeq(actions), operation)
    return True
