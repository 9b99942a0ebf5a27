"""Fence a log: whoever has planned an append to it plans again, and finds that the store's role has changed."""

from pipelines.store.plan import Plan, Planned
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG


def plan_fence(at: Snapshot, master_uri: str) -> Plan:
    """The plan of an append without rows, which takes the next number; for a store that is a slave by now.

    master_uri  the master it follows, '' for none

    A cut that is recorded and not made may have that number: whoever fences calls finish_truncation after it.
    """
    nothing = at.read(COMMITLOG).limit(0)
    return Plan((at.append(COMMITLOG, nothing, planned=Planned(0)),), follows_master=master_uri)
