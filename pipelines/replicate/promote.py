"""Promote a slave: from its log's end on it is the master (docs/rocketmq/consume-filter-ha.md 5.5).

Each step is a commit that may be made again: the old master is made a slave of this store and its log is fenced, so that
an append planned before is refused; this store lets go of its master and fences its own log, so that nothing is copied to
it any more; the new epoch begins where its log ends; then it takes messages.

Who promotes two slaves of one master at once finds that the old master follows the other already, where both name it.
"""

from dataclasses import asdict, dataclass, replace
from functools import partial

from pipelines.errors import BadInput, in_words
from pipelines.log.one_row import last_row, record_apart
from pipelines.replicate.acks import before_the_role
from pipelines.replicate.fence import plan_fence_of_whole
from pipelines.replicate.join import expect_compared, joining_point
from pipelines.replicate.master import Master
from pipelines.replicate.truncate import finish_truncation
from pipelines.reports.copies import open_copy
from pipelines.rocketmq.settings import SETTINGS
from pipelines.store.commit import commit
from pipelines.store.create import make_table
from pipelines.store.cut import cut_damaged_append
from pipelines.store.epochs import (
    FIRST_EPOCH,
    MOST_CHOSEN,
    Epoch,
    Epochs,
    read_epochs,
    with_promotion,
)
from pipelines.store.head import head_as_found, read_head
from pipelines.store.holes import holes_of_log
from pipelines.store.lock import is_same_directory
from pipelines.store.plan import Plan
from pipelines.store.replicas import MASTERS_ID, has_followed, read_replicas
from pipelines.store.role import NO_MASTER, SLAVE, expect_master, follows, is_slave, master_of, settings_now
from pipelines.store.small_tables import whole_table_write, write_if_changed
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from pipelines.store.work import Work
from schemas import CUT_ROWS, CUTS, EPOCHS, REPLICAS, STORE_SETTINGS


@dataclass(frozen=True)
class Promoted:
    """The new master's epoch, and where its log ended when the epoch began, bytes."""

    epoch: int
    max_offset: int


def promote_slave(run: Work, epoch: int | None, old: Store | None) -> Promoted:
    """Make the run's store a master.

    epoch  number of the new epoch, greater than any before; None: the next one
    old    the master so far, which is fenced; None where it cannot be reached

    A master begins a later epoch where that is given: another store that was promoted too can then follow it.

    Raises BadInput for any other store that is a master, unless this very promotion has made it one, for another store's
    master, and where another store was promoted first or this one has not followed the old master since that was promoted.
    """
    store = run.store
    _expect_room_after(epoch)
    at = store.snapshot()
    if not is_slave(at):
        run.commit(_plan_no_master)
        if epoch is not None and old is None and epoch > max(read_epochs(at)).epoch:
            run.commit(partial(_plan_later_epoch, number=epoch))
            run.warn(
                f"the store at {store.uri} was a master already: epoch {epoch} begins, and nothing else has changed"
            )
            return _promoted(store.snapshot())
        return _promoted_before(at, epoch, old)
    _finish_truncation(run)
    at = store.snapshot()
    for hole in holes_of_log(at):
        run.warn(
            f"the store at {store.uri} has lost bytes {hole.from_offset} to {hole.to_offset} of the log ({hole.reason}): "
            "its slaves and the old master may have them"
        )
    number, role = epoch, _role_of_master(at)
    if old is None:
        _expect_not_promoted_elsewhere(at)
    else:
        _expect_its_master(at, old)
        before = old.snapshot()
        _expect_later(epoch, before)
        if not is_slave(before):
            role = str(settings_now(before)["brokerRole"])
        last = max(read_epochs(at)).epoch, max(read_epochs(before)).epoch
        number = max(last) + 1 if epoch is None else epoch
    # A number that is refused is refused before the first step.
    epochs = _promotion(at, number)
    if old is not None:
        _expect_one_log(run, Master(store, at, read_head(at), epochs), old)
        _depose(run, old, settings_now(at)["brokerId"] or 1)
    run.commit(_plan_letting_go)
    run.commit(partial(plan_fence_of_whole, master_uri=NO_MASTER))
    _finish_truncation(run)
    run.commit(partial(_plan_epoch, number=number, of=NO_MASTER))
    run.commit(_plan_no_replicas)
    run.commit(partial(_plan_master, role=role))
    run.commit(_plan_no_master)
    if old is None:
        _warn_of_old_master(run, at)
    return _promoted(store.snapshot())


def _expect_room_after(epoch: int | None) -> None:
    if epoch is not None and epoch > MOST_CHOSEN:
        raise BadInput(
            f"--epoch is {epoch}; expected at most {MOST_CHOSEN}, as each later promotion needs a greater number. Give a "
            "smaller one, or none"
        )


def _depose(run: Work, old: Store, broker_id: int) -> None:
    """Make the old master a slave and fence its log; say what it has that this store lacks.

    Its last append is set aside first where it is damaged: with the fence after it that would never be seen again.
    """
    new_uri = run.store.uri
    for table in (CUTS, CUT_ROWS):
        make_table(old, table)
    damage = cut_damaged_append(old)
    if damage is not None:
        run.warn(f"the old master at {old.uri} was damaged: {damage}. Its rows are kept in cut_rows there")
    commit(old, partial(_plan_demotion, new_uri=new_uri, broker_id=broker_id, now_ms=run.now_ms))
    commit(old, partial(plan_fence_of_whole, master_uri=new_uri))
    begins, ends = (head_as_found(store.snapshot()).next_offset for store in (run.store, old))
    if begins < ends:
        run.warn(
            f"the old master at {old.uri} has {ends - begins} bytes from byte {begins} on that were not copied here. Once "
            "it follows this store they are cut off its log, and kept in cut_rows there: put their input again here"
        )


def _old_master(at: Snapshot) -> str | None:
    """The master that a slave follows, or had followed when a promotion that was killed let go of it."""
    itself = read_replicas(at).get(MASTERS_ID)
    return master_of(at) or (itself.uri if itself is not None else None) or None


def _warn_of_old_master(run: Work, before: Snapshot) -> None:
    """Say that the old master takes messages still, unless it is known to follow this store.

    before  a snapshot from before this store was made a master
    """
    uri = _old_master(before)
    known = None if uri is None else open_copy(run.spark, uri)
    if known is None or not follows(known.snapshot(), run.store.uri):
        run.warn(
            f"the old master{f' at {uri}' if uri else ''} is not fenced: it takes messages until it is, and they will be "
            f"cut off. Where it can be reached, run `commitlake replicate --store {uri or 'OLD'} --master {run.store.uri}`"
        )


def _role_of_master(at: Snapshot) -> str:
    """The role that the slave's master had when the slave last followed it; without one that of a new store."""
    known = read_replicas(at).get(MASTERS_ID)
    return str(SETTINGS["brokerRole"].default) if known is None or known.role == SLAVE else known.role


def _finish_truncation(run: Work) -> None:
    """Make the cut that a run of `replicate` has recorded and not made, and say so: its rows are no longer in the log."""
    cut_from = finish_truncation(run.store)
    if cut_from is not None:
        run.warn(
            f"a run of replicate was to cut the log at byte {cut_from}, as the master it followed never had what came after "
            "it: that has left the log and is kept in cut_rows"
        )


def _promoted(at: Snapshot) -> Promoted:
    last = max(read_epochs(at))
    return Promoted(last.epoch, last.start_offset)


def _promoted_before(at: Snapshot, epoch: int | None, old: Store | None) -> Promoted:
    """What a promotion that is made again reports."""
    last = max(read_epochs(at))
    is_fenced = old is not None and follows(old.snapshot(), at.store.uri)
    is_of_this_number = epoch == last.epoch or (epoch is None and is_fenced)
    if is_of_this_number and (old is None or is_fenced):
        return _promoted(at)
    to_do = "promote one of its slaves"
    if old is not None and not is_fenced:
        to_do += (
            f". The store at {old.uri} does not follow it and is not fenced: `commitlake replicate --store {old.uri} "
            f"--master {at.store.uri}` has it follow"
        )
    raise BadInput(
        f"the store at {at.store.uri} is a master already (brokerRole {settings_now(at)['brokerRole']}, epoch "
        f"{last.epoch}); {to_do}"
    )


def _expect_its_master(at: Snapshot, old: Store) -> None:
    known = master_of(at)
    if is_same_directory(old.uri, at.store.uri):
        raise BadInput(
            f"--old-master is {old.uri}, which is the store to be promoted; name the master it follows"
        )
    if known is not None and not is_same_directory(known, old.uri):
        raise BadInput(f"--old-master is {old.uri}, but the store at {at.store.uri} follows {known}")
    _expect_not_promoted_over(old.snapshot(), at.store.uri)


def _expect_one_log(run: Work, new: Master, old: Store) -> None:
    """Raises BadInput where the old master could not follow this store, or this one has not followed the old master.

    new  this store, as a master with the epochs that it will have
    """
    before = old.snapshot()
    if follows(before, new.uri):  # a promotion is made again
        return
    if master_of(new.at) is None:
        _expect_would_follow(before, new)
    elif has_followed(new.at, old.uri):
        _expect_gone_no_other_way(run, new.at, before)
    else:
        _expect_has_joined(new.at, Master(old, before, head_as_found(before), read_epochs(before)))


def _expect_would_follow(old: Snapshot, new: Master) -> None:
    """Raises BadInput for an old master that a store which follows nobody any more can never have followed."""
    try:
        expect_compared(old, joining_point(old, new), new)
    except BadInput as refusal:
        raise BadInput(
            f"--old-master is {old.store.uri}. The store at {new.uri} follows nobody now, and the two logs are not one: it "
            "never was its master. Nothing was changed; name the master that it followed, or leave --old-master out"
        ) from refusal


def _expect_gone_no_other_way(run: Work, at: Snapshot, old: Snapshot) -> None:
    """Raises BadInput where an old master that was followed has other messages by now: it was put back, and went on.

    One that was put back and no more is shorter, and can follow. One that cannot be read is fenced all the same.
    """
    shared_end = min(head_as_found(each).next_offset for each in (at, old))
    last_row(at, shared_end)  # raises what is wrong with the slave itself
    try:
        apart = record_apart(at, shared_end, old)
    except Exception as failure:  # whatever is raised of a file that is gone
        run.warn(
            f"the log of the old master at {old.store.uri} cannot be compared with this one: {in_words(failure)}"
        )
        return
    if apart is not None:
        raise BadInput(
            f"--old-master is {old.store.uri}, which has another record at byte {apart.physical_offset} than the store at "
            f"{at.store.uri}: it was put back as it was earlier, or its log was cut, and it has taken messages since. "
            f"Nothing was changed. `commitlake replicate --store {at.store.uri}` says how they differ. To go on with what "
            "the slave has, leave --old-master out, and put here again what the old master alone has"
        )


def _expect_has_joined(at: Snapshot, old: Master) -> None:
    """Raises BadInput where a slave has rows that its master lacks: it was made its slave, and has not followed it yet."""
    try:
        is_part = joining_point(at, old) == head_as_found(at).next_offset
    except BadInput:
        is_part = False
    if not is_part:
        raise BadInput(
            f"the store at {at.store.uri} has not followed {old.uri} since it became its slave, and has rows that are not "
            f"there. Nothing was changed; run `commitlake replicate --store {at.store.uri} --master {old.uri}` first, "
            "which cuts them off its log, then this again"
        )


def _expect_not_promoted_elsewhere(at: Snapshot) -> None:
    """Raises BadInput where the master that the store follows was deposed, and its new master can be reached."""
    uri = master_of(at)
    known = None if uri is None else open_copy(at.store.spark, uri)
    if known is None:
        return
    before = known.snapshot()
    new_uri = master_of(before)
    if new_uri is None or open_copy(at.store.spark, new_uri) is not None:
        _expect_not_promoted_over(before, at.store.uri)


def _expect_not_promoted_over(at: Snapshot, new_uri: str) -> None:
    """Raises BadInput where the old master follows another store: that one was promoted first."""
    if is_slave(at) and not follows(at, new_uri):
        raise BadInput(
            f"the old master at {at.store.uri} follows {master_of(at) or 'nobody'} now: another store was promoted. Have "
            f"this one follow it: `commitlake replicate --store {new_uri} --master {master_of(at) or 'URI'}`"
        )


def _expect_later(epoch: int | None, old: Snapshot) -> None:
    last = max(read_epochs(old)).epoch
    if epoch is not None and epoch <= last:
        raise BadInput(
            f"--epoch is {epoch}; the old master's last epoch is {last}: give a greater number, or none"
        )


def _plan_demotion(at: Snapshot, new_uri: str, broker_id: int, now_ms: int) -> Plan:
    """The plan that makes the old master a slave of the new one, with the id that this one had."""
    _expect_not_promoted_over(at, new_uri)
    if is_slave(at):
        return Plan()
    role = _settings(at, {"brokerRole": SLAVE, "haMasterAddress": new_uri, "brokerId": str(broker_id)})
    return Plan((*before_the_role(at, now_ms), *role.writes))


def _plan_letting_go(at: Snapshot) -> Plan:
    if not is_slave(at) or master_of(at) is None:
        return Plan()
    return _settings(at, {"haMasterAddress": NO_MASTER})


def _plan_epoch(at: Snapshot, number: int | None, of: str | None) -> Plan:
    """The plan that begins an epoch where the log ends; empty where it has begun there under this number."""
    epochs = _promotion(at, number)
    if list(epochs) == list(read_epochs(at)):
        return Plan()
    rows = [(each.epoch, each.start_offset) for each in epochs]
    return Plan((whole_table_write(at, EPOCHS, rows),), follows_master=of)


def _promotion(at: Snapshot, number: int | None) -> Epochs:
    """The epochs once the store is promoted; as they are where that was recorded by a run that was killed."""
    epochs, log_end = read_epochs(at), read_head(at).next_offset
    is_recorded = max(epochs) == Epoch(number or 0, log_end) != FIRST_EPOCH
    return epochs if is_recorded else with_promotion(epochs, log_end, number)


def _plan_later_epoch(at: Snapshot, number: int) -> Plan:
    """The plan by which a master begins a later epoch, so that another store that was promoted too can follow it."""
    expect_master(at)
    return _plan_epoch(at, number, of=None)


def _plan_no_replicas(at: Snapshot) -> Plan:
    """The plan that forgets replicas of an earlier time as a master: those that follow now will report.

    What says which role the master had stays, without its URI, until this store has the role.
    """
    known = read_replicas(at)
    kept = {MASTERS_ID: replace(known[MASTERS_ID], uri=NO_MASTER)} if MASTERS_ID in known else {}
    # Written in any case: a run of replicate that is still to write its master's replicas loses the race.
    rows = [asdict(each) for each in kept.values()]
    return Plan((whole_table_write(at, REPLICAS, rows),), follows_master=NO_MASTER)


def _plan_no_master(at: Snapshot) -> Plan:
    """The plan by which a master has no row of a master; also of one whose promotion was killed before this."""
    known = read_replicas(at)
    kept = {name: each for name, each in known.items() if name != MASTERS_ID}
    return Plan() if is_slave(at) else Plan(write_if_changed(at, REPLICAS, known, kept))


def _plan_master(at: Snapshot, role: str) -> Plan:
    if not is_slave(at):
        return Plan()
    plan = _settings(at, {"brokerRole": role, "haMasterAddress": NO_MASTER, "brokerId": "0"})
    return Plan(plan.writes, follows_master=NO_MASTER)


def _settings(at: Snapshot, changes: dict[str, str]) -> Plan:
    given = {**settings_now(at).given, **changes}
    if not given["haMasterAddress"]:
        del given["haMasterAddress"]
    return Plan((whole_table_write(at, STORE_SETTINGS, sorted(given.items())),))
