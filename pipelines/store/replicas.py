"""The table `replicas`: the copies of a store and how far each has come (docs/rocketmq/consume-filter-ha.md 6, R2, R4).

A master has a row for each slave that has reported. A slave has its master's rows and one about the master, as of its last
run: so it knows the others when the master is gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipelines.errors import StoreError
from pipelines.store.head import head_as_found
from pipelines.store.lock import is_same_directory
from pipelines.store.plan import Plan, Write
from pipelines.store.role import NO_MASTER, is_slave, settings_now
from pipelines.store.small_tables import write_if_changed
from pipelines.store.snapshot import Snapshot
from schemas import REPLICAS

MASTERS_ID = "0"


@dataclass(frozen=True)
class Replica:
    """A copy of the log.

    acked_offset  up to where it has the log, bytes; of the master's own row in a slave: up to where consumers may read
    in_sync       whether it lacked no more than haMaxGapNotInSync when it last reported
    """

    replica_id: str
    uri: str
    role: str
    acked_offset: int
    in_sync: bool
    updated_timestamp: int


def read_replicas(at: Snapshot) -> Mapping[str, Replica]:
    """All rows of the table, by id."""
    return {row.replica_id: Replica(**row.asDict()) for row in at.rows(REPLICAS)}


def read_slaves(at: Snapshot) -> Mapping[str, Replica]:
    """The slaves of a set, by id; a master is none of its own, also where it was one when the rows were written."""
    slaves = {name: each for name, each in read_replicas(at).items() if name != MASTERS_ID}
    if is_slave(at):
        return slaves
    return {name: each for name, each in slaves.items() if not is_same_directory(each.uri, at.store.uri)}


def has_followed(at: Snapshot, master_uri: str) -> bool:
    """Whether a slave has ended a run with its master since it took the role.

    Until then its log may still have what that master never had.
    """
    known = read_replicas(at).get(MASTERS_ID)
    return known is not None and known.uri != NO_MASTER and is_same_directory(known.uri, master_uri)


def is_in_sync(at: Snapshot, acked_offset: int, log_end: int) -> bool:
    """Whether a replica that has the log up to `acked_offset` counts as a copy of it (5.4, R7).

    With allAckInSyncStateSet it has all that consumers may have seen: the confirm offset does not go back for it (5.5).
    """
    settings = settings_now(at)
    if settings["allAckInSyncStateSet"] and acked_offset < confirm_offset(at, log_end):
        return False
    return bool(log_end - acked_offset <= settings["haMaxGapNotInSync"])


def in_sync_copies(at: Snapshot) -> int:
    """How many stores of a set are in sync, the master included (SyncStateSet, 5.5)."""
    return 1 + sum(each.in_sync for each in read_slaves(at).values())


def expect_enough_copies(at: Snapshot) -> None:
    """Raises StoreError for a SYNC_MASTER with fewer copies in sync than minInSyncReplicas: nothing is appended (5.4)."""
    settings = settings_now(at)
    if settings["brokerRole"] != "SYNC_MASTER":
        return
    copies, need = in_sync_copies(at), settings["minInSyncReplicas"]
    if copies < need:
        raise StoreError(
            f"IN_SYNC_REPLICAS_NOT_ENOUGH: {copies} of the store's copies are in sync, this one included; expected at least "
            f"{need} (minInSyncReplicas). Nothing was written; run `commitlake replicate` for its slaves, then this again"
        )


def is_acknowledged(at: Snapshot, offset: int) -> bool:
    """Whether as many copies as a put waits for have the log up to an offset (5.4).

    They are `inSyncReplicas`, this one included; with allAckInSyncStateSet also all that are in sync.
    """
    settings, slaves = settings_now(at), read_slaves(at).values()
    copies = 1 + sum(each.acked_offset >= offset for each in slaves)
    is_lacking = any(each.in_sync and each.acked_offset < offset for each in slaves)
    return copies >= settings["inSyncReplicas"] and not (settings["allAckInSyncStateSet"] and is_lacking)


def confirm_offset(at: Snapshot, log_end: int) -> int:
    """Up to where consumers may read the log, bytes (5.5, R4): its end, unless allAckInSyncStateSet is on.

    Then it is what all copies in sync have. A slave knows how far that was at its last run, and nothing before the first.
    """
    if is_slave(at):
        master = read_replicas(at).get(MASTERS_ID)
        return 0 if master is None else min(log_end, master.acked_offset)
    if not settings_now(at)["allAckInSyncStateSet"]:
        return log_end
    return min([log_end, *(each.acked_offset for each in read_slaves(at).values() if each.in_sync)])


def acks_within_log(at: Snapshot) -> tuple[Write, ...]:
    """The write that comes before an append and takes back what slaves have reported beyond the log's end; none without.

    The log was put back as it was earlier, or was cut: what a slave has there is not what comes there now.
    """
    settings = settings_now(at)
    if settings["inSyncReplicas"] <= 1 and not settings["allAckInSyncStateSet"]:  # nothing waits for a report
        return ()
    log_end = head_as_found(at).next_offset
    if all(each.acked_offset <= log_end for each in read_replicas(at).values()):
        return ()
    # Read again: a slave may have reported what was appended since the log was pinned.
    return acks_up_to(at, head_as_found(Snapshot(at.store)).next_offset)


def acks_up_to(at: Snapshot, offset: int) -> tuple[Write, ...]:
    """The write after which no copy has the log beyond an offset; none where that is so."""
    known = read_replicas(at)
    within = {
        name: replace(each, acked_offset=min(each.acked_offset, offset)) for name, each in known.items()
    }
    return write_if_changed(at, REPLICAS, known, within)


def plan_forget(at: Snapshot, replica_id: str) -> Plan:
    """The plan that takes a slave off the list, so that nothing waits for it; empty where it is not on it."""
    known = read_replicas(at)
    kept = {name: each for name, each in known.items() if name != replica_id}
    return Plan(write_if_changed(at, REPLICAS, known, kept))
