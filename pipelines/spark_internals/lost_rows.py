"""Whether some commits of a Delta table, together, have taken rows out of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LostRows:
    """Rows that a commit without a number has taken out of a table.

    version    the commit's; the version before has the rows
    operation  what it was, by its own information, such as RESTORE
    """

    version: int
    operation: str


def loses_rows(actions: Sequence[Mapping[str, Any]], column: str) -> bool:
    """Whether a partition is left with fewer rows, or with a lower greatest value of the column; true where it is not known.

    A file that is both removed and added is as it was.
    """
    added, removed = dict[str, Mapping[str, Any]](), dict[str, Mapping[str, Any]]()
    for action in actions:
        for kind, these, others in (("add", added, removed), ("remove", removed, added)):
            file = action.get(kind)
            if file:
                name = json.dumps([file["path"], file.get("deletionVector")])
                if others.pop(name, None) is None:
                    these[name] = file
    left: dict[str, tuple[int, int]] = {}
    for file in added.values():
        _add_up(left, file, column)
    lost: dict[str, tuple[int, int]] = {}
    for file in removed.values():
        if not _add_up(lost, file, column):
            return True
    none = (0, -1)
    return any(
        rows > left.get(partition, none)[0] or greatest > left.get(partition, none)[1]
        for partition, (rows, greatest) in lost.items()
    )


def _add_up(found: dict[str, tuple[int, int]], file: Mapping[str, Any], column: str) -> bool:
    """Add a file's rows, and the greatest value of a column, to its partition's. False where it has no statistics."""
    stats = json.loads(file.get("stats") or "{}")
    if "numRecords" not in stats:
        return False
    count = stats["numRecords"] - (file.get("deletionVector") or {}).get("cardinality", 0)
    partition = json.dumps(file.get("partitionValues"), sort_keys=True)
    rows, greatest = found.get(partition, (0, -1))
    found[partition] = rows + count, max(greatest, stats.get("maxValues", {}).get(column, -1))
    return True
