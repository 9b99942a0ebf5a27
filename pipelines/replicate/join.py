"""A store becomes a slave: a new one, an empty one, or one whose log is a part of the master's."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as F

from pipelines.errors import BadInput, StoreError
from pipelines.log.one_row import begin_apart, last_row, record_apart
from pipelines.replicate.acks import before_the_role
from pipelines.replicate.master import Master, queues_from, rows_from
from pipelines.rocketmq.settings import LONG_MAX, Settings
from pipelines.store.epochs import LOG_BEGINS, Epoch, Epochs, consistent_point, read_epochs
from pipelines.store.head import has_begun, head_as_found
from pipelines.store.holes import holes_of_log
from pipelines.store.lock import is_same_directory
from pipelines.store.plan import Plan
from pipelines.store.replicas import read_replicas
from pipelines.store.role import SLAVE, follows, settings_now, without_role
from pipelines.store.small_tables import whole_table_write
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG, CUTS, STORE_SETTINGS


def settings_of_slave(master: Master, replica_id: str) -> dict[str, str]:
    """The settings a new slave is made with: the master's, but for those of each broker."""
    return {**without_role(master.store.settings.given), **_role(master, replica_id)}


def _role(master: Master, replica_id: str) -> dict[str, str]:
    number = replica_id if _is_number(replica_id) else "1"
    return {"brokerRole": SLAVE, "haMasterAddress": master.uri, "brokerId": number}


def _role_in(settings: Settings | Mapping[str, str]) -> tuple[Any, Any]:
    return settings["brokerRole"], settings["haMasterAddress"]


def _is_number(replica_id: str) -> bool:
    """Whether an id can be a brokerId, which is a Java long."""
    return replica_id.isascii() and replica_id.isdecimal() and int(replica_id) <= LONG_MAX


def plan_role(at: Snapshot, master: Master, replica_id: str, known: Settings, now_ms: int) -> Plan:
    """The plan that makes a store the slave of a master; empty where it is.

    known  the settings by which that was decided

    Raises StoreError where the store's role is another by now.
    """
    own = settings_now(at)
    wanted = _role(master, replica_id)
    if follows(at, master.uri):  # perhaps by another path
        wanted["haMasterAddress"] = str(own["haMasterAddress"])
    # Another run may have made it the slave of this very master.
    if _role_in(own) not in (_role_in(known), _role_in(wanted)):
        raise StoreError(
            f"the store at {at.store.uri} was promoted or follows another master since this began. Nothing was changed; "
            "look at `commitlake settings` before you run it again"
        )
    if own["brokerId"] > 0 and not _is_number(replica_id):
        wanted.pop("brokerId")
    if all(own.given.get(name) == value for name, value in wanted.items()):
        return Plan()
    role = whole_table_write(at, STORE_SETTINGS, sorted({**own.given, **wanted}.items()))
    return Plan((*before_the_role(at, now_ms), role))


def expect_joins(at: Snapshot, master: Master) -> int:
    """Up to where the slave's log is the master's, bytes: rows from there on are to be cut off.

    Raises BadInput where the store cannot follow this master: its segments have another size, its log is another's or has
    gone another way and no promotion says why, or what it lacks has expired there.
    """
    head = head_as_found(at)
    master = master.reaching(head.next_offset)
    point = joining_point(at, master)
    if point < head.next_offset:
        _expect_nothing_owed(at, point, master)
    return point


def _expect_nothing_owed(at: Snapshot, point: int, master: Master) -> None:
    """Raises BadInput where a cut would take what has become of a message that has expired here, and not at the master.

    The message would be owed again, and this store has it no more.
    """
    begins, masters = head_as_found(at).min_offset, master.head.min_offset
    source = F.col("source_offset")
    is_owed = F.col("claim").isNotNull() & (source >= masters) & (source < begins)
    owed = rows_from(at, point).where(is_owed).agg(F.min(source).alias("first")).first()
    if owed is not None and owed["first"] is not None:
        raise BadInput(
            f"the store at {at.store.uri} is to be cut at byte {point}. That takes what has become of the message at byte "
            f"{owed['first']}, which has expired here and which the master at {master.uri} still has to deliver or to end. "
            f"{_new_slave()}"
        )


def joining_point(at: Snapshot, master: Master) -> int:
    """As expect_joins, of the master as it was read, whatever it has appended since."""
    _expect_same_segments(at, master)
    head = head_as_found(at)
    if not has_begun(at):
        return head.next_offset
    if at.is_empty(COMMITLOG) and not holes_of_log(at):
        _expect_not_expired(at, head.next_offset, master)
        return head.next_offset
    point = _point(at, head.next_offset, master)
    difference = _difference(at, point, master)
    if difference:
        point = _where_both_were_promoted(at, point, master, difference)
    if point < head.min_offset:
        raise BadInput(
            f"{_them(at, master)} part at byte {point}, and the slave's begins at {head.min_offset}: it has nothing of what "
            f"they share. {_new_slave()}"
        )
    _expect_not_expired(at, point, master)
    return point


def _difference(at: Snapshot, point: int, master: Master) -> str | None:
    """What is not the same in the last record before a point, in words; None where the master has it too, or no longer."""
    own = last_row(at, point)
    if own is not None and own.physical_offset + own.size_bytes > point:
        return (
            f"{_them(at, master)} part at byte {point}, which is inside the record at byte {own.physical_offset}: one of "
            f"them is not what its epochs say. {_new_slave()}"
        )
    apart = record_apart(at, point, master.at)
    if apart is None:
        return None
    return (
        f"the store at {at.store.uri} has a log of its own: its record at byte {apart.physical_offset} is not what "
        f"the master at {master.uri} has there. {_new_slave()}"
    )


def _where_both_were_promoted(at: Snapshot, point: int, master: Master, difference: str) -> int:
    """The offset at which two slaves of one master were promoted under one number: there their logs part.

    Raises BadInput with the difference where no epoch that both have begins at such an offset, and where the master has not
    been given a later epoch since.
    """
    both = _shared_epoch(at, point, master)
    if both is None:
        raise BadInput(difference)
    if not _is_later(at, master):
        raise BadInput(_both_promoted(at, both, master, both))
    return both.start_offset


def _shared_epoch(at: Snapshot, point: int, master: Master) -> Epoch | None:
    """The last epoch that two logs have and before which they are one; not the first of all."""
    own = read_epochs(at)
    shared = [each for each in own if each in master.epochs and LOG_BEGINS < each.start_offset < point]
    is_one = (
        each for each in sorted(shared, reverse=True) if _difference(at, each.start_offset, master) is None
    )
    return next(is_one, None)


def _is_later(at: Snapshot, master: Master) -> bool:
    """Whether the master was promoted since the store was, or followed it."""
    return max(master.epochs).epoch > max(read_epochs(at)).epoch


def _expect_not_expired(at: Snapshot, end: int, master: Master) -> None:
    """Raises BadInput where the master no longer has what comes after the slave's log."""
    if end < master.head.min_offset and not _is_blank(at, end, master):
        raise BadInput(
            f"the slave's log ends at byte {end}, and the master's begins at {master.head.min_offset}: what lies between "
            f"has expired there. {_new_slave()}"
        )


def _is_blank(at: Snapshot, end: int, master: Master) -> bool:
    """Whether only the rest of a segment lies between an offset of a slave's log and where the master's begins.

    A record that does not fit opens the next segment. Then no message lies between: each queue goes on there.
    """
    begins, segment_bytes = master.head.min_offset, settings_now(master.at).segment_bytes
    if begins % segment_bytes or begins - end >= segment_bytes:
        return False
    own, masters = queues_from(at, head_as_found(at), end), master.queues_from(begins)
    return all(own.get(queue, 0) == masters.get(queue, 0) for queue in {**own, **masters})


def _point(at: Snapshot, own_end: int, master: Master) -> int:
    """The consistent point of the two logs. Raises BadInput where nothing says that the slave's rows after it may go."""
    epochs, masters = read_epochs(at), master.epochs
    point = consistent_point(epochs, own_end, masters, master.end)
    if point is None:
        raise BadInput(
            f"{_them(at, master)} share no epoch ({_in_words(epochs)}; the master's: {_in_words(masters)}): they were never "
            f"one log. {_new_slave()}"
        )
    if max(masters).epoch < max(epochs).epoch:
        raise BadInput(
            f"the master at {master.uri} has epoch {max(masters).epoch} and the store at {at.store.uri} has epoch "
            f"{max(epochs).epoch}: the store was promoted after that master. Have the master follow it instead: "
            f"`commitlake replicate --store {master.uri} --master {at.store.uri}`"
        )
    if _is_later(at, master):
        expect_compared(at, point, master)
        return point
    # The master may have cut its log at an append that the slave had copied before.
    cuts = _cuts_of(at, own_end, master)
    if point < own_end and not cuts:
        if max(epochs) != max(masters):
            raise BadInput(_both_promoted(at, max(epochs), master, max(masters)))
        if _difference(at, point, master) and (both := _shared_epoch(at, point, master)):
            raise BadInput(_both_promoted(at, both, master, both))
        raise BadInput(
            f"the slave's log ends at byte {own_end}, the master's at {master.end}, and no promotion or cut says why: the "
            f"master at {master.uri} is another one, or was put back as it was earlier. Nothing was changed; to go on with "
            f"what the slave has, promote it: `commitlake promote --store {at.store.uri}`"
        )
    return min([point, *cuts])


def expect_compared(at: Snapshot, point: int, master: Master) -> None:
    """Raises BadInput where a store has nothing to do with a master whose log has nothing before the point where they part.

    It was promoted while its log was empty, or all before has expired: no byte shows whether they ever were one log.
    """
    if point > master.head.min_offset:
        return
    known = (each.uri for each in read_replicas(at).values() if each.uri)
    if not follows(at, master.uri) and not any(is_same_directory(uri, master.uri) for uri in known):
        raise BadInput(
            f"the log of the master at {master.uri} has nothing before byte {point}, where its epoch begins, and the store "
            f"at {at.store.uri} has never known it (its table replicas does not name it): they may never have been one log. "
            f"{_new_slave()}"
        )


def _both_promoted(at: Snapshot, own: Epoch, master: Master, masters: Epoch) -> str:
    return (
        f"{_them(at, master)} are of two stores that were promoted: epoch {own.epoch} begins at byte "
        f"{own.start_offset} here and at byte {masters.start_offset} there. Nothing was changed. Choose the one that is "
        f"to go on, and give it a later epoch: `commitlake promote --store {master.uri} --epoch {own.epoch + 1}`. Then "
        "have the other follow it: what that alone has is cut off its log, and kept in cut_rows"
    )


def _cuts_of(at: Snapshot, own_end: int, master: Master) -> list[int]:
    """Offsets at which the master has cut its log below the slave's end, and the slave has another row there.

    A master that was put back as it was earlier is shorter, and has the same row there. Of a cut before the first row of
    either log, as rows expire, or a slave begins with the last segment, nothing can be compared: whether the logs are one
    then shows in the slave's last row.
    """
    begins = max(head_as_found(at).min_offset, master.head.min_offset)
    cuts = [row.physical_offset for row in master.at.rows(CUTS) if begins <= row.physical_offset < own_end]
    return [cut for cut in cuts if begin_apart(at, cut, master.at)]


def _expect_same_segments(at: Snapshot, master: Master) -> None:
    own, theirs = settings_now(at).segment_bytes, settings_now(master.at).segment_bytes
    if own != theirs:
        raise BadInput(
            f"the slave's segments have {own} bytes (mappedFileSizeCommitLog), the master's {theirs}: records would not lie "
            f"at the same offsets. {_new_slave()}"
        )


def _them(at: Snapshot, master: Master) -> str:
    return f"the logs of {at.store.uri} and of the master at {master.uri}"


def _in_words(epochs: Epochs) -> str:
    return ", ".join(f"{each.epoch} from byte {each.start_offset}" for each in epochs)


def _new_slave() -> str:
    return "Nothing was changed; name a new directory for --store, and the slave is made there"
