"""The note that an export leaves in its directory, as an import reads it: what a broker's files have no place for.

A broker that runs on the directory leaves the note as it is: what it says is compared with the broker's own files.
"""

import json
from typing import Any

from pipelines.broker_files.directory import BrokerDirectory

NOTE = "commitlake-export.json"
# Files under way, until an export is complete: a broker does not start with a file among its own whose name it cannot read.
UNDER_WAY = "_export"
# The store's settings, as a broker reads them too.
SETTINGS_FILE = "broker.conf"


def read_export_note(directory: BrokerDirectory) -> dict[str, Any]:
    """The note of the export that a directory is; empty where it is none, or one of an earlier version."""
    content = directory.read(NOTE)
    try:
        found = {} if content is None else json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
