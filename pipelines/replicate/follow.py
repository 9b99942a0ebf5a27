"""One run of a slave: it joins its master, is cut to what they share, takes over what is new, and reports how far it is."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pipelines.errors import BadInput
from pipelines.replicate import copy_log
from pipelines.replicate.acks import plan_ack, plan_first_ack, plan_set, replica_id_of
from pipelines.replicate.copy_log import as_the_master_has_it, next_part, plan_copy, plan_start, start_of
from pipelines.replicate.fence import plan_fence_of_whole
from pipelines.replicate.join import expect_joins, plan_role, settings_of_slave
from pipelines.replicate.master import Master, open_master
from pipelines.replicate.metadata import offset_planners, plan_epochs, plan_metadata
from pipelines.replicate.truncate import cut_not_reported, finish_truncation, truncate
from pipelines.store.beside import beside
from pipelines.store.commit import commit
from pipelines.store.commit_in_parts import commit_in_parts
from pipelines.store.create import make_store, make_tables
from pipelines.store.head import has_begun, head_as_found
from pipelines.store.holes import holes_of_log, joined
from pipelines.store.plan import Plan
from pipelines.store.replicas import has_followed
from pipelines.store.role import follows, is_slave, master_of, settings_now
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from pipelines.store.work import Work


@dataclass(frozen=True)
class Following:
    """Options of a run: the master's URI, else the one followed before; the slave's id there; where a new log begins."""

    master_uri: str | None
    replica_id: str | None = None
    from_last_file: bool = False


def expect_named(slave: Store, master_uri: str | None) -> str:
    """The URI of the master. Raises BadInput where none is given and the slave has followed none yet."""
    if master_uri is not None:
        return master_uri
    known = master_of(slave.snapshot()) if slave.exists() else None
    if known is None:
        raise BadInput(f"--master is missing: the store that {slave.uri} is to follow")
    return known


@dataclass(frozen=True)
class Joined:
    """A slave and its master: the slave's id there, and where a cut was made on the way that an earlier run had recorded."""

    master: Master
    replica_id: str
    cut_from: int | None = None


def join_master(slave: Store, options: Following, now_ms: int) -> Joined:
    """The store and its master, once the store exists and is its slave.

    Raises BadInput where it cannot be; nothing of the log is written then.
    """
    named, exists = open_master(slave, expect_named(slave, options.master_uri)), slave.exists()
    if exists and is_slave(named.snapshot()):
        _expect_no_half_promotion(slave.snapshot(), named.snapshot())
    master = Master.read(named)
    broker_id = slave.settings["brokerId"] if exists else 0
    replica_id = replica_id_of(master.at, slave, options.replica_id, broker_id)
    first_ack = partial(plan_first_ack, replica_id=replica_id, uri=slave.uri, now_ms=now_ms)
    if not exists:
        make_store(slave, settings_of_slave(master, replica_id))
        commit(master.store, partial(first_ack, has_log=False))
        return Joined(master, replica_id)
    make_tables(slave)  # of a newer version, or deleted
    at = slave.snapshot()
    known = settings_now(at)
    known_master = master if follows(at, master.uri) else None  # another store may be named by mistake
    cuts = [finish_truncation(slave, known_master) if is_slave(at) else None]
    expect_joins(slave.snapshot(), master)
    commit(master.store, partial(first_ack, has_log=has_begun(slave.snapshot())))
    taken = commit(slave, lambda at: plan_role(at, master, replica_id, known, now_ms))
    # Until a run has ended well: one that was killed may have taken the role and no more.
    is_new = taken.plan.writes or not has_followed(slave.snapshot(), master.uri)
    if is_new:
        cuts.append(_fence(slave, master))
    return Joined(master, replica_id, _first_of(cuts))


def _expect_no_half_promotion(at: Snapshot, other: Snapshot) -> None:
    """Raises BadInput where a promotion of one of two stores was stopped halfway: neither is a master then."""
    for new, old in ((other, at), (at, other)):
        # Of two that name each other the one that has followed the other is to be the master.
        if follows(old, new.store.uri) and has_followed(new, old.store.uri):
            raise BadInput(
                f"the stores at {at.store.uri} and {other.store.uri} are slaves both: a promotion was stopped halfway. End "
                f"it with `commitlake promote --store {new.store.uri} --old-master {old.store.uri}`, then run this again"
            )


def _first_of(cuts: Iterable[int | None]) -> int | None:
    return min((cut for cut in cuts if cut is not None), default=None)


def _fence(slave: Store, master: Master) -> int | None:
    """Have what was planned while the store was a master, or followed another one, lose the race; also a first message.

    The fence may take the number of a cut that another run has recorded: the offset of that, which is made then.
    """
    commit(slave, partial(plan_fence_of_whole, master_uri=master.uri))
    return finish_truncation(slave, master)


def follow(run: Work, joined: Joined, from_last_file: bool) -> dict[str, Any]:
    """Take over all that the master has as of its snapshot; the counts of replicate."""
    slave = run.store
    master = joined.master.reaching(head_as_found(slave.snapshot()).next_offset)
    truncated_from = _cut_to_master(run, master, joined.cut_from)
    part_bytes = copy_log.PART_BYTES
    start = start_of(slave.snapshot(), master, from_last_file)
    with beside(run.spark) as thread:
        first_part = thread.submit(next_part, master, start, part_bytes)
        run.commit(lambda at: _plan_before_rows(at, master, from_last_file))
    with (
        run.progress("copying", max(0, master.end - start), "bytes") as advance,
        as_the_master_has_it(master),
    ):
        ahead, reached = first_part.result(), start

        def count(part: Any) -> None:
            nonlocal reached
            advance(part["reached"] - reached)
            reached = part["reached"]

        result = commit_in_parts(
            run.commit, lambda at, _: plan_copy(at, master, part_bytes, ahead), ("copied",), after_each=count
        )
    for planner in offset_planners(slave.snapshot(), master):
        run.commit(planner)
    ack = partial(
        plan_ack,
        replica_id=joined.replica_id,
        uri=slave.uri,
        acked_offset=result["reached"],
        now_ms=run.now_ms,
        is_whole=not _lost_here(run, master),
    )
    commit(master.store, ack)
    run.commit(partial(plan_set, master=master.store.snapshot(), now_ms=run.now_ms))
    return {
        "copied": result["copied"],
        "max_offset": result["reached"],
        "truncated_from": truncated_from,
    }


def _lost_here(run: Work, master: Master) -> bool:
    """Whether the slave has lost a part of its log that the master has; says so."""
    masters = joined([(row.from_offset, row.to_offset) for row in holes_of_log(master.at)])
    own = [
        (row.from_offset, row.to_offset)
        for row in holes_of_log(run.store.snapshot())
        if row.to_offset > master.head.min_offset
        and not any(begin <= row.from_offset and row.to_offset <= end for begin, end in masters)
    ]
    if own:
        begin, end = own[0]
        run.warn(
            f"this slave has lost bytes {begin} to {end} of its log (table holes), which the master has: it does not count "
            f"as a copy in sync. `commitlake replicate --store NEW --master {master.uri}` makes a whole one"
        )
    return bool(own)


def _plan_before_rows(at: Snapshot, master: Master, from_last_file: bool) -> Plan:
    """The plan of what a slave has before its first row, or before the next ones; empty where it has it.

    The epochs too: a run that is killed while it copies has only rows of epochs that it knows.
    """
    parts = plan_metadata(at, master), plan_start(at, master, from_last_file), plan_epochs(at, master)
    writes = tuple(write for part in parts for write in part.writes)
    return Plan(writes, side_by_side=len(writes), follows_master=master.uri)


def _cut_to_master(run: Work, master: Master, made_before: int | None) -> int | None:
    """Cut off what the master never had; its offset, None where there is nothing. A run that was killed may have cut it off.

    made_before  offset of a cut that this run has made already, as an earlier one had not got so far
    """
    # Another run may have recorded a cut since this one joined.
    cuts = [made_before, finish_truncation(run.store, master)]
    at = run.store.snapshot()
    if has_begun(at) and expect_joins(at, master) < head_as_found(at).next_offset:
        point = partial(expect_joins, master=master)
        cuts.append(truncate(run.store, point, master.uri, master))
    cut_from = _first_of(cuts)
    if cut_from is None:
        cut_from = cut_not_reported(run.store.snapshot())
    if cut_from is not None:
        run.wrote = True
        run.warn(
            f"the master never had what this store's log held from byte {cut_from} on: it is no longer in the log, and its "
            "rows are kept in cut_rows"
        )
    return cut_from


def settings_apart(slave: Store, master: Master) -> list[str]:
    """Where the slave's settings differ from its master's, but for those of each broker, in words."""
    own = settings_now(slave.snapshot())
    of_a_broker = ("broker", "haMasterAddress", "storeHost", "listenPort")
    return [each for each in own.differences(settings_now(master.at)) if not each.startswith(of_a_broker)]
