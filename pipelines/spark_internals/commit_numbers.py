"""Commit numbers, and the rest of a version's state, put where Delta keeps what it has found, so that it finds it there.

Read from Delta 4.4.0: a numbered commit needs all numbers of the Snapshot (its lazy value `transactions`), one that replaces
rows also its `computedState`. Delta replays the table's log for each: two Spark jobs, a quarter of a second or more for a
table of ten rows, once a version.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

# The version of which Snapshot's fields are known, and the bits that say that `transactions` and `computedState` were found.
_DELTA_READ, _NUMBERS_FOUND, _STATE_FOUND = "4.4.0", 1 << 19, 1 << 20


def put_numbers(java: Any, snapshot: Any, numbers: Mapping[str, int]) -> bool:
    """Whether Delta's Snapshot has these numbers now; False, with nothing done, for another version of Delta.

    numbers  all numbers of the snapshot's version, by application id

    Where another thread has Delta find another lazy value meanwhile, its bit may be lost: then Delta finds that value again.
    """
    return _is_read(java) and _put(
        snapshot, "transactions", _NUMBERS_FOUND, lambda: _scala_map(java, numbers)
    )


def put_state(java: Any, snapshot: Any, checksum: Any) -> bool:
    """Whether Delta's Snapshot has the state now that its version's checksum file says; False as in `put_numbers`.

    checksum  Delta's VersionChecksum, with commit numbers and domain metadata

    Delta compares the two when it writes a checkpoint: of the version just committed, whose state nobody has put.
    """

    def state() -> Any:
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

    return _is_read(java) and _put(snapshot, "computedState", _STATE_FOUND, state)


def _is_read(java: Any) -> bool:
    return bool(java.io.delta.package.VERSION() == _DELTA_READ)


def _put(snapshot: Any, name: str, is_found: int, value: Callable[[], Any]) -> bool:
    field, bits = (_field(snapshot, each) for each in (name, "bitmap$0"))
    found = bits.getInt(snapshot)
    if not found & is_found:
        field.set(snapshot, value())
        bits.setInt(snapshot, bits.getInt(snapshot) | is_found)
    return True


def _field(snapshot: Any, name: str) -> Any:
    field = snapshot.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field


def _scala_map(java: Any, numbers: Mapping[str, int]) -> Any:
    """An immutable Map of Long by String. Python's numbers would get there as Integer, so they go as JSON."""
    longs = java.com.fasterxml.jackson.databind.DeserializationFeature.USE_LONG_FOR_INTS
    immutable = java.java.lang.Class.forName("scala.collection.immutable.Map")
    reader = java.org.apache.spark.sql.delta.util.JsonUtils.mapper().reader(longs)
    return reader.forType(immutable).readValue(json.dumps(numbers))
