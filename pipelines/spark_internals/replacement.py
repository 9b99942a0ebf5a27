"""A commit that replaces all rows of a table of few files, or of some of its partitions, by a transaction of Delta's own.

Delta's writer finds the files to remove by queries over the table's log, half of the time such a commit takes, and more
where they are those of a predicate. Here they come from the version's checksum file.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from pipelines.errors import StoreError
from pipelines.spark_internals.jvm import java_session, jvm
from pipelines.spark_internals.snapshot_state import is_known


@dataclass(frozen=True)
class Replaced:
    """What a commit takes out: all rows of a table, or of some of its partitions.

    partitions  partition column -> the values in it; {} for all of the table
    where       the same as a predicate, 'true' for all
    """

    partitions: Mapping[str, Sequence[str]]
    where: str

    def covers(self, partition: Mapping[str, str | None]) -> bool:
        """Whether the rows of a partition (column -> value) are among what is taken out."""
        return all(partition[column] in values for column, values in self.partitions.items())


def replace_rows(
    snapshot: Any,
    replaced: Replaced,
    files: Iterable[Any],
    rows: DataFrame,
    metadata: str,
    number: tuple[str, int],
) -> bool:
    """Commit rows in place of others of a version; False, with nothing done, where only Delta's own writer can.

    snapshot  Delta's Snapshot of the version. Where a later one has other rows in what is replaced, other columns or other
              properties, Delta refuses the commit by an exception
    files     Delta's AddFile of each file that the version has of what is replaced
    metadata  the user metadata of the commit
    number    the application id and the number of the commit. Where the number is taken nothing is committed, and True is
              returned: the caller looks for its commit in any case

    Raises StoreError for rows outside of what is replaced. Read from Delta 4.4.0. Other than WriteIntoDelta it does not
    change the table's columns, does not count what is removed (`numRemovedFiles`), and keeps the statistics of removed files
    in the log.
    """
    spark, java = rows.sparkSession, jvm(rows.sparkSession)
    if not is_known(java) or rows._jdf.schema().catalogString() != snapshot.schema().catalogString():
        return False
    none, some, as_java, to_seq = (
        java.scala.Option.empty(),
        java.scala.Some,
        java.scala.jdk.javaapi.CollectionConverters.asJava,
        java.PythonUtils.toSeq,
    )
    transaction = snapshot.deltaLog().startTransaction(none, some(snapshot))
    if not replaced.partitions:
        transaction.readWholeTable()
    else:
        predicate = java_session(spark).sessionState().sqlParser().parseExpression(replaced.where)
        transaction.trackReadPredicates(to_seq(java.java.util.List.of(predicate)), True, True)
    if transaction.txnVersion(number[0]) >= number[1]:
        return True
    numbered = java.org.apache.spark.sql.delta.actions.SetTransaction(
        *number, some(time.time_ns() // 1_000_000)
    )
    actions = java.java.util.ArrayList([numbered])
    written = as_java(transaction.writeFiles(rows._jdf, none))
    _expect_covered(java, written, replaced)
    actions.addAll(written)
    for file in files:
        actions.add(file.remove())
    operation = getattr(java.org.apache.spark.sql.delta, "DeltaOperations$Write")(
        java.org.apache.spark.sql.SaveMode.Overwrite,
        some(to_seq(java.java.util.List.of())),
        some(replaced.where) if replaced.partitions else none,
        some(metadata),
        *[none] * 5,
    )
    transaction.commit(to_seq(actions), operation)
    return True


def _expect_covered(java: Any, written: Any, replaced: Replaced) -> None:
    """Raises StoreError for files written into partitions that are not replaced: their rows would be there twice."""
    if not replaced.partitions:
        return
    mapper = java.org.apache.spark.sql.delta.util.JsonUtils.mapper()
    outside = [
        file["partitionValues"]
        for file in json.loads(mapper.writeValueAsString(written))
        if not replaced.covers(file["partitionValues"])
    ]
    if outside:
        raise StoreError(
            f"expected rows of {replaced.where}, found some of {outside[0]}. Nothing was committed; please report this with "
            "what --debug shows"
        )
