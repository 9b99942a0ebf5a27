"""The table `replicas` of a master: who follows it and how far each has come (docs/rocketmq/consume-filter-ha.md 6, R2)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from pipelines.errors import BadInput
from pipelines.replicate.master import is_same_directory
from pipelines.store.plan import Plan
from pipelines.store.role import SLAVE, settings_now
from pipelines.store.small_tables import write_if_changed
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from schemas import REPLICAS

# A slave that has nothing new reports so often, milliseconds, as RocketMQ's slaves send heartbeats.
HEARTBEAT_MS = 60_000


@dataclass(frozen=True)
class Replica:
    """A slave as its master knows it.

    acked_offset  up to where it has the log, bytes
    in_sync       whether it lacked no more than haMaxGapNotInSync when it last reported
    """

    replica_id: str
    uri: str
    role: str
    acked_offset: int
    in_sync: bool
    updated_timestamp: int


def read_replicas(at: Snapshot) -> Mapping[str, Replica]:
    """The replicas that have reported to a master, by id."""
    return {row.replica_id: Replica(**row.asDict()) for row in at.rows(REPLICAS)}


def is_in_sync(at: Snapshot, acked_offset: int, log_end: int) -> bool:
    """Whether a replica that has the log up to `acked_offset` counts as a copy of it (5.4, R7)."""
    return bool(log_end - acked_offset <= settings_now(at)["haMaxGapNotInSync"])


def replica_id_of(at: Snapshot, slave: Store, given: str | None, broker_id: int) -> str:
    """The id of a slave at its master: the one given, the one it has there, its brokerId, or the next that is free.

    at  a snapshot of the master

    Raises BadInput for an id that another store has there, and for the master's own.
    """
    known = read_replicas(at)
    mine = [each.replica_id for each in known.values() if is_same_directory(each.uri, slave.uri)]
    replica_id = given or (mine[0] if mine else None) or (str(broker_id) if broker_id > 0 else None)
    if replica_id is None:
        return str(next(number for number in range(1, len(known) + 2) if str(number) not in known))
    other = known.get(replica_id)
    if replica_id == "0" or not replica_id.strip():
        raise BadInput(
            f"--replica-id is {replica_id!r}; 0 is the master's. Choose a number from 1, or a name"
        )
    if other is not None and replica_id not in mine and Store(slave.spark, other.uri).exists():
        raise BadInput(
            f"--replica-id is {replica_id}, and that is the store at {other.uri}; choose another for {slave.uri}"
        )
    return replica_id


def plan_ack(at: Snapshot, replica_id: str, uri: str, acked_offset: int, log_end: int, now_ms: int) -> Plan:
    """The plan by which a master records up to where a slave has its log; empty for the same as a moment ago.

    A slave that reports under another id than before has one row.
    """
    known = read_replicas(at)
    in_sync = is_in_sync(at, acked_offset, log_end)
    now = Replica(replica_id, uri, SLAVE, acked_offset, in_sync, now_ms)
    before = known.get(replica_id)
    if before is not None:
        is_news = asdict(before) | {"updated_timestamp": now_ms} != asdict(now)
        if not is_news and now_ms - before.updated_timestamp < HEARTBEAT_MS:
            return Plan()
    others = {name: each for name, each in known.items() if each.uri != uri}
    return Plan(write_if_changed(at, REPLICAS, known, {**others, replica_id: now}))
