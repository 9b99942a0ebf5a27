"""A consumer beside a cut of the log: what it has read is not recorded, as other messages come to those offsets."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Row

from pipelines.errors import StoreError, TableMissing
from pipelines.store.head import head_as_found
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG, CUTS


@dataclass(frozen=True)
class KnownCuts:
    """The cuts that were made before a run read the log.

    at    the snapshot that the run reads
    rows  (commit number, physical offset) of each
    """

    at: Snapshot
    rows: frozenset[Row]

    @classmethod
    def before(cls, at: Snapshot) -> "KnownCuts":
        """Those of a snapshot whose log has not been read yet."""
        recorded = _recorded(at)
        # A cut is recorded before it is made: one that is still to be made is not known.
        to_come = Snapshot(at.store).number(COMMITLOG) + 1 if recorded else None
        return cls(at, frozenset(row for row in recorded if row.append_seq != to_come))

    def expect_no_other(self, now: Snapshot, group: str) -> None:
        """Raises StoreError where the log that was read has been cut since."""
        others = frozenset(_recorded(now)) - self.rows
        if others and min(cut.physical_offset for cut in others) < head_as_found(self.at).next_offset:
            raise StoreError(
                f"the log of {now.store.uri} was cut while group {group} read it, or a run of `replicate` is still to cut "
                "it. What the group has read is not recorded, as other messages come to those offsets. End that run, then "
                "run this again"
            )


def _recorded(at: Snapshot) -> Sequence[Row]:
    try:
        return at.rows(CUTS)
    except TableMissing:  # nothing can be recorded there before it is made again
        return ()
