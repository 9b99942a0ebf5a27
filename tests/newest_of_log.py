"""What Delta's log says of a table's last commit, to be compared with the same commit made in another way."""

import json
from pathlib import Path
from typing import Any

# Fields of Delta's log that differ from commit to commit.
NAMES_AND_TIMES = (
    "path",
    "txnId",
    "id",
    "createdTime",
    "timestamp",
    "lastUpdated",
    "modificationTime",
    "deletionTimestamp",
)


def newest_of_log(table: Path, suffix: str) -> list[Any]:
    """The newest file of a table's log with a suffix, without names and times."""

    def without_names(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: without_names(each, key) for key, each in sorted(value.items())}
        if isinstance(value, list):
            each = [without_names(each) for each in value]
            return sorted(each, key=str) if name == "allFiles" else each
        return "" if name in NAMES_AND_TIMES else value

    newest = max((table / "_delta_log").glob(f"0*{suffix}"))
    return sorted((without_names(json.loads(line)) for line in newest.read_text().splitlines()), key=str)
