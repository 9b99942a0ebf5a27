"""The copies of a store, opened: which one to read from, which one would be elected.

Rules: docs/rocketmq/consume-filter-ha.md 5.5 (election), 5.6 (where to read).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from pipelines.errors import BadInput
from pipelines.log.one_row import last_row, record_apart
from pipelines.reports.answer import Answer
from pipelines.rocketmq.settings import LONG_MAX
from pipelines.spark_internals.arrow import frame_of
from pipelines.store.epochs import read_epochs
from pipelines.store.head import head_as_found
from pipelines.store.lock import is_same_directory
from pipelines.store.replicas import MASTERS_ID, Replica, has_followed, read_replicas, read_slaves
from pipelines.store.role import follows, is_slave, master_of, settings_now
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store

MASTER, AUTO = "master", "auto"

ELECTION = (
    "place int, replica_id string, uri string, role string, verdict string, in_sync boolean, epoch int, max_offset long, "
    "priority int"
)


def open_copy(spark: SparkSession, uri: str) -> Store | None:
    """The copy of a store at a URI; None where it cannot be reached, or is none any more."""
    copy = Store(spark, uri)
    try:
        return copy if copy.exists() else None
    except Exception:  # whatever a file system raises that does not answer
        return None


def master_store(store: Store) -> Store | None:
    """The master of a store, or the store itself if it is none's slave; None where the master cannot be reached.

    Raises BadInput where that one is a slave itself by now: its log may have what its new master never had.
    """
    at = store.snapshot()
    if not is_slave(at):
        return store
    uri = master_of(at)
    master = None if uri is None else open_copy(store.spark, uri)
    if master is not None and is_slave(master.snapshot()):
        newer = master_of(master.snapshot())
        if newer is not None and is_same_directory(newer, store.uri):
            raise BadInput(
                f"the store at {uri}, the master of {store.uri}, follows that one by now: its promotion was begun and has "
                f"not ended. Run `commitlake promote --store {store.uri} --old-master {uri}`, then this again; or leave out "
                "--replica to read the store itself"
            )
        of = f", of {newer}" if newer else ""
        raise BadInput(
            f"the store at {uri}, the master of {store.uri}, is a slave itself by now{of}. Have "
            f"this one follow the new master, `commitlake replicate --store {store.uri} --master {newer or 'URI'}`, then "
            "run this again; or leave out --replica to read the store itself"
        )
    return master


def named_copy(store: Store, replica_id: str) -> Store:
    """The copy with an id among the replicas of a store; 0 or `master` is the master.

    Raises BadInput where there is none, where it cannot be reached, and where it does not follow the master.
    """
    if replica_id in (MASTER, MASTERS_ID):
        if (master := master_store(store)) is None:
            raise BadInput(
                f"--replica is {replica_id}, and the master of {store.uri} cannot be reached "
                f"({master_of(store.snapshot()) or 'none is known'}); leave it out to read the store itself"
            )
        return master
    slaves = _known(store)
    if replica_id not in slaves:
        raise BadInput(
            f"--replica is {replica_id}; expected master, auto or one of {', '.join(sorted(slaves)) or 'no slave'}"
        )
    uri = slaves[replica_id].uri
    if (copy := open_copy(store.spark, uri)) is None:
        raise BadInput(
            f"--replica is {replica_id}, and there is no store at {uri} any more; name another copy"
        )
    expect_follows(copy.snapshot(), _master_uri(store))
    return copy


def expect_follows(at: Snapshot, master_uri: str) -> None:
    """Raises BadInput for a copy whose log may have other messages than its master's at the same offsets."""
    if (reason := _why_no_copy(at, master_uri)) is not None:
        raise BadInput(reason)


def _why_no_copy(at: Snapshot, master_uri: str) -> str | None:
    """Why a store may have other messages than a master at the same offsets, in words; None where it has none.

    Of a master that cannot be reached or read it counts that the store has followed it.
    """
    uri = at.store.uri
    if is_same_directory(uri, master_uri):
        return None
    if not follows(at, master_uri):
        return (
            f"the store at {uri} no longer follows {master_uri}: it was promoted, or has another master now, so its log may "
            "be another. Read it as a --store of its own, or name another copy"
        )
    if not has_followed(at, master_uri):
        return (
            f"the store at {uri} has not ended a run with its master at {master_uri} yet, so its log may have what that "
            f"never had. Run `commitlake replicate --store {uri}`, then this again, or name another copy"
        )
    end = head_as_found(at).next_offset
    last_row(at, end)  # raises what is wrong with the copy itself
    # Read after the copy, which may have all that its master has.
    master = open_copy(at.store.spark, master_uri)
    if master is None:
        return None
    theirs = master.snapshot()
    try:
        ends_before = end > head_as_found(theirs).next_offset
        apart = None if ends_before else record_apart(at, end, theirs)
    except Exception:  # whatever a table raises that is gone or damaged
        return None
    if ends_before:
        what = f"goes on to byte {end}, where its master's at {master_uri} has ended before"
    elif apart is not None:
        what = f"has another record at byte {apart.physical_offset} than that of its master at {master_uri}"
    else:
        return None
    return (
        f"the log of the store at {uri} {what}: the master was put back as it was earlier, or the store is still to be cut "
        f"to it. Run `commitlake replicate --store {uri}`, then this again, or name another copy"
    )


def copy_to_query(store: Store, replica: str | None, say: Callable[[str], None]) -> Store:
    """The copy that answers questions; without --replica the store itself.

    `auto` spares the master: where slaveReadEnable is on, the slave in sync that has most of the log answers. Else the
    master does, and where that one cannot be reached the store itself.
    """
    if replica is None:
        return store
    if replica != AUTO:
        return named_copy(store, replica)
    chosen = _least_behind(store) or master_store(store) or store
    if chosen.uri != store.uri:
        say(f"reading the copy at {chosen.uri}")
    return chosen


def _known(store: Store) -> dict[str, Replica]:
    """The slaves of a store's set, as its master knows them where that one can be reached."""
    return dict(read_slaves((master_store(store) or store).snapshot()))


def _least_behind(store: Store) -> Store | None:
    master = master_store(store) or store
    if not settings_now(master.snapshot())["slaveReadEnable"]:
        return None
    in_order = sorted(_known(store).items(), key=lambda item: (-item[1].acked_offset, item[0]))
    return first_that_serves(
        store.spark, (each.uri for _, each in in_order if each.in_sync), _master_uri(store)
    )


def _master_uri(store: Store) -> str:
    """The URI of the master of a store's set: the store's own, where it is none's slave."""
    return master_of(store.snapshot()) or store.uri


def allows_consumers(copy: Store, master_uri: str) -> bool:
    """Whether consumers of a set may read from a copy, as far as it is one: a slave must allow it itself (5.6, 5)."""
    return is_same_directory(copy.uri, master_uri) or bool(settings_now(copy.snapshot())["slaveReadEnable"])


def first_that_serves(
    spark: SparkSession, uris: Iterable[str], master_uri: str, position: int = LONG_MAX
) -> Store | None:
    """The first copy that consumers of a set may read from and whose log has a position; a damaged one is passed over.

    position  physical offset of the first message to read
    """
    copies = (open_copy(spark, uri) for uri in uris)
    return next(
        (copy for copy in copies if copy is not None and _serves_from(copy, master_uri, position)), None
    )


def _serves_from(copy: Store, master_uri: str, position: int) -> bool:
    try:
        at = copy.snapshot()
        begins = head_as_found(at).min_offset
        return (
            allows_consumers(copy, master_uri) and begins <= position and _why_no_copy(at, master_uri) is None
        )
    except Exception:  # whatever a table raises that is gone or damaged
        return False


@dataclass(frozen=True)
class Candidate:
    """One copy in an election; what is not known of a copy that cannot be read is None."""

    replica_id: str
    uri: str
    role: str
    in_sync: bool
    epoch: int | None = None
    max_offset: int | None = None
    priority: int | None = None
    is_damaged: bool = False

    @property
    def is_alive(self) -> bool:
        return self.max_offset is not None

    @property
    def order(self) -> tuple[int, int, int, str]:
        """The sort key of candidates: the later epoch first, then the longer log, then the lower priority."""
        return (-(self.epoch or 0), -(self.max_offset or 0), self.priority or 0, self.replica_id)


def election(at: Snapshot) -> Answer:
    """The copies of a store in the order in which they would be elected master (5.5).

    A master that can be reached stays. Else a slave in sync is elected, and with enableElectUncleanMaster, where none is,
    any that can be reached.
    """
    found = list(_candidates(at))
    alive = [each for each in found if each.is_alive]
    may = [each for each in alive if each.in_sync]
    if not may and settings_now(at)["enableElectUncleanMaster"]:
        may = alive
    chosen = sorted(may, key=lambda each: (each.role == "SLAVE", *each.order))
    rest = sorted((each for each in found if each not in chosen), key=lambda each: each.order)

    def verdict(each: Candidate) -> str:
        if each in chosen:
            return "elected" if each is chosen[0] else "candidate"
        if each.is_alive:
            return "not in sync"
        return "damaged" if each.is_damaged else "cannot be reached"

    rows = [
        (
            place, each.replica_id, each.uri, each.role, verdict(each), each.in_sync, each.epoch, each.max_offset,
            each.priority,
        )
        for place, each in enumerate([*chosen, *rest], 1)
    ]  # fmt: skip
    elected = chosen[0] if chosen else None
    result = {
        "elected": elected.replica_id if elected else None,
        "elected_uri": elected.uri if elected else None,
    }
    return Answer(frame_of(at.store.spark, rows, ELECTION), result=result)


def _candidates(at: Snapshot) -> Iterator[Candidate]:
    replicas = read_replicas(at)
    if not is_slave(at):
        role = str(settings_now(at)["brokerRole"])
        replicas = {MASTERS_ID: Replica(MASTERS_ID, at.store.uri, role, 0, True, 0), **read_slaves(at)}
    for each in replicas.values():
        # Of a store that has not followed its master yet, the row of the master says only what role there is.
        uri = each.uri or master_of(at) or ""
        candidate = Candidate(each.replica_id, uri, each.role, each.in_sync)
        copy = open_copy(at.store.spark, uri) if uri else None
        yield candidate if copy is None else _as_it_is(candidate, copy.snapshot())


def _as_it_is(candidate: Candidate, at: Snapshot) -> Candidate:
    """A candidate by what its own store says: since the row about it was written it may have been promoted, or demoted."""
    try:
        master = master_of(at)
        return replace(
            candidate,
            role=str(settings_now(at)["brokerRole"]),
            # One that has another master, and was not cut to that yet, may have what nobody else has.
            in_sync=candidate.in_sync and (master is None or _why_no_copy(at, master) is None),
            epoch=max(read_epochs(at)).epoch,
            max_offset=head_as_found(at).next_offset,
            priority=settings_now(at)["brokerElectionPriority"],
        )
    except Exception:  # whatever a table raises that is gone or damaged
        return replace(candidate, is_damaged=True)
