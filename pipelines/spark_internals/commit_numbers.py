"""Commit numbers put where Delta keeps those that it has found, so that it need not look for them.

Read from Delta 4.4.0: a numbered commit needs all numbers of the Snapshot (its lazy value `transactions`). Delta replays the
table's log for them: two Spark jobs, a quarter of a second or more for a table of ten rows, once a version.
"""

import json
from collections.abc import Mapping
from typing import Any

# The version of which Snapshot's fields are known, and the bit that says that `transactions` was found.
_DELTA_READ, _IS_FOUND = "4.4.0", 1 << 19


def put_numbers(java: Any, snapshot: Any, numbers: Mapping[str, int]) -> bool:
    """Whether Delta's Snapshot has these numbers now; False, with nothing done, for another version of Delta.

    numbers  all numbers of the snapshot's version, by application id

    Where another thread has Delta find another lazy value meanwhile, its bit may be lost: then Delta finds that value again.
    """
    if java.io.delta.package.VERSION() != _DELTA_READ:
        return False
    value, bits = (_field(snapshot, name) for name in ("transactions", "bitmap$0"))
    found = bits.getInt(snapshot)
    if not found & _IS_FOUND:
        value.set(snapshot, _scala_map(java, numbers))
        bits.setInt(snapshot, found | _IS_FOUND)
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
