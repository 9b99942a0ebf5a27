"""Floors: how far an imported broker had come when its store was imported."""

from collections.abc import Mapping

from pipelines.store.snapshot import Snapshot
from schemas import FLOORS

# An append of an import is called so, and the bytes of the broker's log it holds.
IMPORT_PREFIX = "import:"


def read_floors(at: Snapshot) -> Mapping[str, int]:
    """Follower -> position, a row a delay level and a few more; empty for a store that no broker was imported into."""
    return {row.follower: row.position for row in at.rows(FLOORS)}
