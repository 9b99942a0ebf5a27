"""The state of a table's version put where Delta keeps what it has found, so that Delta finds it there.

Read from Delta 4.4.0: a numbered commit needs all commit numbers of the Snapshot, one that replaces rows its domain
metadata. Both are in its lazy value `computedState`, for which Delta replays the table's log: two Spark jobs, a quarter of a
second or more for a table of ten rows, once a version. One that replaces rows also needs the version's files, from its lazy
value `cachedState`: a replay again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from pipelines.spark_internals.jvm import java_session

# The version of which Snapshot's fields are known, and the bits that say that a lazy value was found.
_DELTA_READ, _STATE_FOUND, _FILES_FOUND = "4.4.0", 1 << 20, 1 << 4


def put_state(java: Any, snapshot: Any, checksum: Any) -> bool:
    """Whether Delta's Snapshot has its state now; False, with nothing done, for another version of Delta.

    checksum  the VersionChecksum of the snapshot's version, with commit numbers and domain metadata

    Where another thread has Delta find another lazy value meanwhile, its bit may be lost: then Delta finds that value again.
    Delta compares state and checksum before it writes a checkpoint, so a snapshot that gets one must forget the state first.
    """
    if not is_known(java):
        return False
    if not _found(snapshot) & _STATE_FOUND:
        _put(snapshot, "computedState", _state(java, snapshot, checksum), _STATE_FOUND)
    return True


@contextmanager
def put_files(spark: SparkSession, java: Any, snapshot: Any, checksum: Any) -> Iterator[bool]:
    """A context in which Delta's Snapshot has the version's files and need not replay the log for them; whether it has.

    checksum  as for put_state, which comes first, and with the files

    Only in the context: the tombstones, which a VACUUM needs, are not among the actions put. So not for a version of which
    Delta writes a checkpoint, as another thread may be writing it.
    """
    if (
        not is_known(java)
        or _gets_checkpoint(snapshot)
        or _found(snapshot) & (_FILES_FOUND | _STATE_FOUND) != _STATE_FOUND
    ):
        yield False
        return
    actions = java.java.util.ArrayList()
    for each in (snapshot.protocol(), snapshot.metadata()):
        actions.add(each.wrap())
    for some in (checksum.setTransactions(), checksum.domainMetadata(), checksum.allFiles()):
        listed = some.get()
        for index in range(listed.size()):
            actions.add(listed.apply(index).wrap())
    implicits = getattr(getattr(java.org.apache.spark.sql.delta.implicits, "package$"), "MODULE$")
    rows = java_session(spark).createDataset(actions, implicits.singleActionEncoder())
    try:
        state = snapshot.cacheDS(rows, f"version {snapshot.version()}")
        _put(snapshot, "cachedState", state, _FILES_FOUND)
        yield True
    finally:
        _forget(snapshot, _FILES_FOUND)


def _gets_checkpoint(snapshot: Any) -> bool:
    version, interval = snapshot.version(), snapshot.deltaLog().checkpointInterval(snapshot.metadata())
    return bool(version > 0 and version % interval == 0)


def forget_state(java: Any, snapshot: Any) -> None:
    """Have Delta replay the log for the Snapshot's state when it next needs it, whatever was put."""
    if is_known(java):
        _forget(snapshot, _STATE_FOUND | _FILES_FOUND)


def is_known(java: Any) -> bool:
    """Whether Delta is the version of which Snapshot's fields are known."""
    return bool(java.io.delta.package.VERSION() == _DELTA_READ)


def _found(snapshot: Any) -> int:
    return int(_field(snapshot, "bitmap$0").getInt(snapshot))


def _put(snapshot: Any, name: str, value: Any, bit: int) -> None:
    _field(snapshot, name).set(snapshot, value)
    _field(snapshot, "bitmap$0").setInt(snapshot, _found(snapshot) | bit)


def _forget(snapshot: Any, bits: int) -> None:
    # Another thread that sets another bit meanwhile may put these back.
    while (found := _found(snapshot)) & bits:
        _field(snapshot, "bitmap$0").setInt(snapshot, found & ~bits)


def _state(java: Any, snapshot: Any, checksum: Any) -> Any:
    numbers = checksum.setTransactions().get()
    # Tombstones are not counted there; Delta asks for their number only to split a checkpoint.
    files, removed = checksum.numFiles(), 0
    return java.org.apache.spark.sql.delta.SnapshotState(
        checksum.tableSizeBytes(), numbers.size(), files, removed,
        checksum.numDeletedRecordsOpt(), checksum.numDeletionVectorsOpt(),
        checksum.numMetadata(), checksum.numProtocol(), numbers,
        checksum.domainMetadata().get(), snapshot.metadata(), snapshot.protocol(),
        checksum.fileSizeHistogram(), checksum.deletedRecordCountsHistogramOpt(),
    )  # fmt: skip


def _field(snapshot: Any, name: str) -> Any:
    field = snapshot.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field
