"""From which copy of a store a group reads its messages (docs/rocketmq/consume-filter-ha.md 5.6).

Offsets and failures always go to the master: it has the messages at the same offsets. Only where the master cannot be
reached a group's offsets are the slave's own.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import functions as F

from pipelines.consume.offsets import read_offsets
from pipelines.errors import BadInput
from pipelines.reports.copies import AUTO, allows_consumers, first_that_serves, master_store, named_copy
from pipelines.rocketmq.names import RETRY_PREFIX
from pipelines.store.groups import SubscriptionGroupConfig, read_groups
from pipelines.store.head import head_as_found
from pipelines.store.progress import followed_rows
from pipelines.store.replicas import MASTERS_ID, Replica, read_slaves
from pipelines.store.role import settings_now
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from schemas import CONSUME_QUEUE


@dataclass(frozen=True)
class Copies:
    """The stores of a run of a group.

    home    has its offsets and takes its failures
    source  has the messages it reads
    """

    home: Store
    source: Store


def copies_for(store: Store, replica: str | None, group: str, topic: str | None) -> Copies:
    """The stores that a group reads from and reports to; without --replica both are the store itself.

    Raises BadInput for a replica that is not there, and for a slave that consumers may not read from.
    """
    if replica is None:
        return Copies(store, store)
    if replica == AUTO:
        home = master_store(store) or store
        return Copies(home, _suggested(home, group, topic))
    source = named_copy(store, replica)
    master = master_store(source) or source
    if not allows_consumers(source, master.uri):
        raise BadInput(
            f"--replica is {replica}, and the slave at {source.uri} serves no consumers (slaveReadEnable is false there); "
            "`settings set slaveReadEnable=true` there allows it"
        )
    return Copies(master, source)


def _suggested(home: Store, group: str, topic: str | None) -> Store:
    """The copy that a master suggests to a group: a slave where the group lags far, if slaves serve (5.6, 1 and 2)."""
    at = home.snapshot()
    settings = settings_now(at)
    if not settings["slaveReadEnable"]:
        return home
    config = read_groups(at).get(group, SubscriptionGroupConfig(group))
    position = position_of(at, group, topic)
    lag = head_as_found(at).next_offset - position
    is_slow = lag > memory_bytes() * settings["accessMessageInMemoryMaxRatio"] / 100
    wanted = config.which_broker_when_consume_slowly if is_slow else config.broker_id
    slaves = read_slaves(at)
    uris = (slaves[name].uri for name in _in_turn(str(wanted), slaves))
    # A slave that began later lacks what the group has still to read.
    return first_that_serves(home.spark, uris, home.uri, position) or home


def _in_turn(wanted: str, slaves: Mapping[str, Replica]) -> list[str]:
    """Ids of slaves to ask, the wanted one first, then the next number, then any (5.6, 4); none for the master's id.

    >>> _in_turn("1", dict.fromkeys(["7", "2", "x"])), _in_turn("0", dict.fromkeys(["1"]))
    (['2', '7', 'x'], [])
    """
    if wanted == MASTERS_ID:
        return []
    first = [name for name in (wanted, str(int(wanted) + 1)) if name in slaves]
    return first + sorted(name for name in slaves if name not in first)


def position_of(at: Snapshot, group: str, topic: str | None) -> int:
    """The physical offset of the first message that a group has still to read; where the log begins without offsets.

    With a topic: of that one, and of those that are sent back to the group. A queue that is read to its end does not count.
    """
    head = head_as_found(at)
    offsets = {
        queue: known.next_offset
        for queue, known in read_offsets(at, group).items()
        if topic is None or queue[0] in (topic, RETRY_PREFIX + group)
    }
    if not any(topic in (None, name) for name, _ in offsets):
        return head.min_offset
    waiting = {queue: offset for queue, offset in offsets.items() if offset < head.next_of(*queue)}
    if not waiting:
        return head.next_offset
    offset = F.col("queue_offset")
    places = [
        F.struct(
            F.lit(name).alias("topic"),
            F.lit(number).alias("queue_id"),
            F.lit(next_).cast("long").alias("queue_offset"),
        )
        for (name, number), next_ in waiting.items()
    ]
    entries = followed_rows(at, CONSUME_QUEUE).where(
        F.col("topic").isin(*{name for name, _ in waiting})
        & offset.between(min(waiting.values()), max(waiting.values()))
        & F.struct("topic", "queue_id", "queue_offset").isin(*places)
    )
    found = entries.agg(F.min("physical_offset")).collect()[0][0]
    return head.min_offset if found is None else max(found, head.min_offset)


def memory_bytes() -> int:
    """The memory of this machine, bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
