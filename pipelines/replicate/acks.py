"""What a slave reports to its master, and what it keeps of the set (docs/rocketmq/consume-filter-ha.md 6, R2).

Both are rows of the table `replicas`, the one in the master, the other in the slave.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from pipelines.errors import BadInput
from pipelines.reports.copies import AUTO, MASTER
from pipelines.store.head import head_as_found, read_head
from pipelines.store.lock import is_same_directory
from pipelines.store.plan import Plan, Write
from pipelines.store.replicas import MASTERS_ID, Replica, confirm_offset, is_in_sync, read_replicas
from pipelines.store.role import NO_MASTER, SLAVE, is_slave, settings_now
from pipelines.store.small_tables import write_if_changed
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from schemas import REPLICAS

# A slave that has nothing new reports so often, milliseconds, as RocketMQ's slaves send heartbeats.
HEARTBEAT_MS = 60_000


def replica_id_of(at: Snapshot, slave: Store, given: str | None, broker_id: int) -> str:
    """The id of a slave at its master: the one given, the one it has there, its brokerId, or the next that is free.

    at  a snapshot of the master

    Raises BadInput for an id that another store has there, and for one that is not valid.
    """
    if given is not None:
        _expect_valid(given)
    known = read_replicas(at)
    mine = [each.replica_id for each in known.values() if is_same_directory(each.uri, slave.uri)]
    replica_id = given or (mine[0] if mine else None) or (str(broker_id) if broker_id > 0 else None)
    if replica_id is None:
        return str(next(number for number in range(1, len(known) + 2) if str(number) not in known))
    _expect_of_no_other(at, known, replica_id, slave.uri)
    return replica_id


def _expect_valid(replica_id: str) -> None:
    """Raises BadInput for an id that --replica would take for something else, or that is written as no brokerId is."""
    is_odd_number = replica_id.isdecimal() and replica_id.startswith("0")
    if is_odd_number or replica_id in (MASTER, AUTO) or not replica_id.strip():
        raise BadInput(
            f"--replica-id is {replica_id!r}; expected a number from 1, without a zero before it, or a name. 0 and {MASTER} "
            f"are the master, and {AUTO} leaves the choice to consume"
        )


def _expect_of_no_other(at: Snapshot, known: Mapping[str, Replica], replica_id: str, uri: str) -> None:
    """Raises BadInput where an id is that of another store, and that store is still there."""
    other = known.get(replica_id)
    if other is None or is_same_directory(other.uri, uri) or not Store(at.store.spark, other.uri).exists():
        return
    raise BadInput(
        f"the replica id {replica_id} is that of the store at {other.uri}; run this again with another --replica-id for "
        f"{uri}"
    )


def plan_ack(
    at: Snapshot, replica_id: str, uri: str, acked_offset: int, now_ms: int, is_whole: bool = True
) -> Plan:
    """The plan by which a master records up to where a slave has its log; empty for the same as a moment ago.

    is_whole  whether the slave has all of it; one that has lost a part which the master has is no copy in sync

    A slave that reports under another id than before has one row. Raises BadInput where the id is another slave's by now:
    two that were made at the same time may have been given one.
    """
    known = read_replicas(at)
    _expect_of_no_other(at, known, replica_id, uri)
    # Its end now: the master may have taken messages since the slave began.
    in_sync = is_whole and is_in_sync(at, acked_offset, head_as_found(at).next_offset)
    now = Replica(replica_id, uri, SLAVE, acked_offset, in_sync, now_ms)
    others = {name: each for name, each in known.items() if not is_same_directory(each.uri, uri)}
    return Plan(_write_news(at, known, {**others, replica_id: now}))


def plan_first_ack(at: Snapshot, replica_id: str, uri: str, now_ms: int, has_log: bool) -> Plan:
    """The plan by which a master records a slave before that copies anything; empty for one that it has.

    It counts as in sync once it reports; one that has no log (any more) does not count until it reports again. Raises
    BadInput for the id of another store: of two that are made at the same time the second is refused before it has begun.
    """
    known = read_replicas(at)
    _expect_of_no_other(at, known, replica_id, uri)
    before = [each for each in known.values() if is_same_directory(each.uri, uri)]
    if before and (has_log or not any(each.acked_offset for each in before)):
        return Plan()
    others = {name: each for name, each in known.items() if each not in before}
    new = Replica(replica_id, uri, SLAVE, 0, False, now_ms)
    return Plan(write_if_changed(at, REPLICAS, known, {**others, replica_id: new}))


def before_the_role(at: Snapshot, now_ms: int) -> tuple[Write, ...]:
    """The write after which has_followed() is false, before a store takes the role of a slave; none where it is.

    The offset up to which consumers may read stays known. A store that was a master keeps its role: promoted again before it
    has followed another, it has that role again.
    """
    known = read_replicas(at)
    if not is_slave(at):
        confirmed = confirm_offset(at, head_as_found(at).next_offset)
        before = Replica(MASTERS_ID, NO_MASTER, str(settings_now(at)["brokerRole"]), confirmed, True, now_ms)
    elif MASTERS_ID in known:
        before = replace(known[MASTERS_ID], uri=NO_MASTER)
    else:
        return ()
    return write_if_changed(at, REPLICAS, known, {**known, MASTERS_ID: before})


def plan_set(at: Snapshot, master: Snapshot, now_ms: int) -> Plan:
    """The plan by which a slave keeps its master's replicas, and up to where consumers may read there.

    master  a snapshot of the master after this slave has reported
    """
    confirmed = confirm_offset(master, read_head(master).next_offset)
    role = str(settings_now(master)["brokerRole"])
    itself = Replica(MASTERS_ID, master.store.uri, role, confirmed, True, now_ms)
    writes = _write_news(at, read_replicas(at), {**read_replicas(master), MASTERS_ID: itself})
    return Plan(writes, follows_master=master.store.uri)


def _write_news(
    at: Snapshot, before: Mapping[str, Replica], after: Mapping[str, Replica]
) -> tuple[Write, ...]:
    """The write of what has changed; none for the same as less than HEARTBEAT_MS ago."""

    def said(replicas: Mapping[str, Replica]) -> list[dict[str, Any]]:
        return [asdict(replicas[name]) | {"updated_timestamp": 0} for name in sorted(replicas)]

    is_recent = all(
        abs(after[name].updated_timestamp - each.updated_timestamp) < HEARTBEAT_MS
        for name, each in before.items()
        if name in after
    )
    if is_recent and said(before) == said(after):
        return ()
    return write_if_changed(at, REPLICAS, before, after)
