"""What a slave takes over of its master beside the log (docs/rocketmq/consume-filter-ha.md 5.3).

Topics, groups and their subscriptions become the master's, deletions too. Consumer offsets are overwritten where the master
has one and never deleted, as RocketMQ does it: a group that reads at both is set back to the master's. `floors`, which are
RocketMQ's delayOffset.json and timer checkpoint, follow the master too. How far jobs have delivered needs no copy: claims
are rows of the log. Settings are each store's own.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import Row

from pipelines.consume.offsets import keyed_write
from pipelines.replicate.master import Master
from pipelines.store.epochs import read_epochs
from pipelines.store.plan import Plan, Write
from pipelines.store.small_tables import whole_table_write, write_if_changed
from pipelines.store.snapshot import Snapshot
from schemas import (
    CONSUMER_OFFSETS,
    EPOCHS,
    FILTER_CLASSES,
    FLOORS,
    SUBSCRIPTION_GROUPS,
    SUBSCRIPTIONS,
    TOPICS,
    Table,
)

LIKE_THE_MASTER = (TOPICS, SUBSCRIPTION_GROUPS, SUBSCRIPTIONS, FILTER_CLASSES, FLOORS)


def plan_metadata(at: Snapshot, master: Master) -> Plan:
    """The plan that makes topics, groups, subscriptions and floors the master's; empty where they are.

    The master's snapshot reads them after its log, so that all copied messages lie in topics that are known.
    """
    writes: list[Write] = []
    for table in LIKE_THE_MASTER:
        writes += write_if_changed(at, table, _by_key(at, table), _by_key(master.at, table))
    return Plan(tuple(writes), follows_master=master.uri)


def _by_key(at: Snapshot, table: Table) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    return {tuple(row[name] for name in table.key): row.asDict() for row in at.rows(table)}


def plan_epochs(at: Snapshot, master: Master) -> Plan:
    """The plan that records the master's epochs, also those of which the slave has no message yet; empty where known."""
    if list(read_epochs(at)) == list(master.epochs):
        return Plan()
    rows = [(epoch.epoch, epoch.start_offset) for epoch in master.epochs]
    return Plan((whole_table_write(at, EPOCHS, rows),), follows_master=master.uri)


Key = tuple[str, int, str]  # topic, queue, client
Offsets = Mapping[Key, Row]


def groups_behind(at: Snapshot, master: Master) -> dict[str, Offsets]:
    """Group -> the master's offsets of it, for each group of which the slave has others."""
    own = _offsets_by_group(at.read(CONSUMER_OFFSETS).collect())  # a row a group, queue and client
    masters = _offsets_by_group(master.at.read(CONSUMER_OFFSETS).collect())
    return {
        group: offsets for group, offsets in sorted(masters.items()) if _differ(own.get(group, {}), offsets)
    }


def _offsets_by_group(rows: Sequence[Row]) -> dict[str, dict[Key, Row]]:
    groups: dict[str, dict[Key, Row]] = {}
    for row in rows:
        groups.setdefault(row.group, {})[row.topic, row.queue_id, row.client_id] = row
    return groups


def _differ(own: Offsets, masters: Offsets) -> bool:
    return any(own.get(key) != row for key, row in masters.items())


def plan_offsets(at: Snapshot, master: Master, group: str, masters: Offsets) -> Plan:
    """The plan that overwrites a group's offsets by the master's, and keeps those of which the master has none."""
    own = _offsets_by_group(at.rows(CONSUMER_OFFSETS, group=group)).get(group, {})
    if not _differ(own, masters):
        return Plan()
    rows = [tuple(row[name] for name in CONSUMER_OFFSETS.names) for row in {**own, **masters}.values()]
    return Plan(
        (keyed_write(at, CONSUMER_OFFSETS, rows, group, None, is_first=not own),), follows_master=master.uri
    )


def offset_planners(at: Snapshot, master: Master) -> list[Any]:
    """A planner for each group whose offsets are to be overwritten."""
    return [
        partial(plan_offsets, master=master, group=group, masters=offsets)
        for group, offsets in groups_behind(at, master).items()
    ]
