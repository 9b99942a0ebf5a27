"""Floors: how far an imported broker had come when its store was imported."""

from collections.abc import Mapping

from pipelines.store.snapshot import Snapshot
from schemas import FLOORS

# An append id of an import begins with this; the bytes of the broker's log that it holds follow.
IMPORT_PREFIX = "import:"
# The follower whose position is the end of the broker's log, bytes: what the other floors speak of lies before it.
LOG_OF_FLOORS = "log"
# The follower whose position is the end of an export's log, bytes. Due times of rows before it are trusted: a store of this
# project decided them. Those of rows that a broker has appended to the export are checked against the level table.
OF_AN_EXPORT = "export"


def read_floors(at: Snapshot) -> Mapping[str, int]:
    """Position by follower: one for each delay level and a few more; empty for a store without an import."""
    return {row.follower: row.position for row in at.rows(FLOORS)}
