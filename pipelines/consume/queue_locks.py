"""Queue locks: rows that let one run at a time read a queue of a group (docs/rocketmq/consume-filter-ha.md 2.4).

RocketMQ's brokers lock a queue for the client that reads it in order, and a lock that is not renewed ends. Here a run locks
its queues in one commit and unlocks them in another. In between it renews the locks with an empty file whose name is the
new end (epoch milliseconds): a commit would need a Spark task, and the listener may keep all task slots busy for longer
than a lock lasts.

A lock counts until a minute after its end, so that clocks may be a minute apart. It ends at once when its holder was a JVM
that read on this machine alone and is gone.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from pipelines.consume.offsets import Queue, keyed_write
from pipelines.spark_internals.files import hadoop_path
from pipelines.spark_internals.process import is_gone
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from schemas import QUEUE_LOCKS

# A lock lasts as long as a broker's (rebalance.lockMaxLiveTime) and is renewed as often as by a client (lockInterval).
LOCK_MS = 60_000
RENEWED_AFTER_SECONDS = 20.0
# How far the clocks of two machines may be apart.
CLOCKS_APART_MS = 60_000

# The directory of the store that holds the renewals: a directory for each holder, in it a file named after the new end.
RENEWALS = "_queue_locks"


@dataclass(frozen=True)
class Lock:
    """A row of `queue_locks`, without its group and queue.

    holder      id of the run that holds it
    process     the JVM of a run that reads on one machine alone; None for another
    expires_ms  its end when it was taken, epoch milliseconds
    """

    holder: str
    process: str | None
    expires_ms: int

    def has_ended(self, now_ms: int) -> bool:
        """Whether the lock counts no more by this clock: it ended, or its end was written by a clock too far ahead."""
        return not -CLOCKS_APART_MS <= self.expires_ms - now_ms <= LOCK_MS + CLOCKS_APART_MS


Locks = Mapping[Queue, Lock]


def read_locks(at: Snapshot, group: str) -> Locks:
    """The locks of a group, also those that have ended."""

    def find() -> Locks:
        rows = at.rows(QUEUE_LOCKS, group=group)  # a row a queue that is being read
        return {(row.topic, row.queue_id): Lock(row.holder, row.process, row.expires_ms) for row in rows}

    return at.cached(f"locks of {group}", (QUEUE_LOCKS,), find)


def plan_lock(
    at: Snapshot, group: str, queues: Collection[Queue], mine: Lock, is_held: Callable[[Lock], bool]
) -> Plan:
    """A plan that locks those of the queues that no other run holds.

    is_held  whether a lock still counts

    Its result: `held`, the queues that it locks; `left`, the others with their locks.
    """
    known = read_locks(at, group)
    others = {queue: lock for queue, lock in known.items() if lock.holder != mine.holder and is_held(lock)}
    held = [queue for queue in queues if queue not in others]
    left = {queue: others[queue] for queue in queues if queue in others}
    result = {"held": held, "left": left}
    if not held:
        return Plan((), result)
    return _plan(at, group, known, {**others, **dict.fromkeys(held, mine)}, result)


def plan_unlock(at: Snapshot, group: str, holder: str) -> Plan:
    """A plan that removes the locks of a run."""
    known = read_locks(at, group)
    return _plan(
        at, group, known, {queue: lock for queue, lock in known.items() if lock.holder != holder}, {}
    )


def _plan(at: Snapshot, group: str, known: Locks, after: Locks, result: Mapping[str, object]) -> Plan:
    if after == known:
        return Plan((), result)
    rows = [
        (group, topic, queue_id, lock.holder, lock.process, lock.expires_ms)
        for (topic, queue_id), lock in sorted(after.items())
    ]
    return Plan((keyed_write(at, QUEUE_LOCKS, rows, group, None, is_first=not known),), result)


def is_held(store: Store, lock: Lock, now_ms: int) -> bool:
    """Whether a lock still counts, by its row or its last renewal."""
    if lock.process is not None and is_gone(lock.process):
        return False
    if not lock.has_ended(now_ms):
        return True
    renewed = renewed_until(store, lock.holder)
    return renewed is not None and not replace(lock, expires_ms=renewed).has_ended(now_ms)


def renew(store: Store, holder: str, until_ms: int) -> None:
    """Move the end of all locks of a run to `until_ms`: a file of this name is created, then those before it removed."""
    path = f"{store.path_of(RENEWALS)}/{holder}"
    target, files = hadoop_path(store.spark, f"{path}/{until_ms}")
    before = [name for name in _names(store, path) if name != str(until_ms)]
    files.create(target, True).close()
    for name in before:
        store.remove(f"{path}/{name}")


def renewed_until(store: Store, holder: str) -> int | None:
    """The end of a run's locks by its last renewal, epoch milliseconds; None for a run that has not renewed."""
    ends = [int(name) for name in _names(store, f"{store.path_of(RENEWALS)}/{holder}") if name.isdigit()]
    return max(ends, default=None)


def forget_renewals(store: Store, holder: str) -> None:
    """Remove the renewals of a run."""
    store.remove(f"{store.path_of(RENEWALS)}/{holder}")


def _names(store: Store, path: str) -> list[str]:
    directory, files = hadoop_path(store.spark, path)
    if not files.exists(directory):
        return []
    return [str(each.getPath().getName()) for each in files.listStatus(directory)]
