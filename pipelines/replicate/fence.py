"""Fence a log: an append or a cut of it that was planned before is planned again, and finds that the role has changed."""

from pipelines.spark_internals.arrow import frame_of
from pipelines.store.plan import Plan, Planned
from pipelines.store.planned import expect_whole
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG, CUTS


def plan_fence(at: Snapshot, master_uri: str) -> Plan:
    """The plan of commits without rows, which take the next numbers of `cuts` and of the log; for a slave.

    master_uri  the master it follows, '' for none

    A cut that is recorded and not made may have the log's number: finish_truncation must be called after it.
    """
    no_cut = at.append(CUTS, frame_of(at.store.spark, [], CUTS.columns))
    nothing = at.append(COMMITLOG, at.read(COMMITLOG).limit(0), planned=Planned(0))
    return Plan((no_cut, nothing), follows_master=master_uri)


def plan_fence_of_whole(at: Snapshot, master_uri: str) -> Plan:
    """As plan_fence, for a log that rows are appended to after it.

    Raises StoreError where the last append is not as planned: with another commit after it that would never be seen again.
    """
    expect_whole(at)
    return plan_fence(at, master_uri)
