"""Consumer groups: RocketMQ's SubscriptionGroupConfig (docs/rocketmq/store.md 7.4 and 7.5)."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pipelines.errors import BadInput
from pipelines.rocketmq.names import (
    DEFAULT_GROUPS,
    FIRST_GROUPS,
    RESERVED_GROUP_PREFIX,
    group_name_complaint,
    retry_topic,
)
from pipelines.rocketmq.settings import INT_MAX
from pipelines.store.plan import Plan
from pipelines.store.small_tables import write_if_changed
from pipelines.store.snapshot import Snapshot
from pipelines.store.topics import (
    difference,
    expect_few_retry_queues,
    nearest,
    plan_retry_topics,
    read_topics,
)
from schemas import SUBSCRIPTION_GROUPS

# Columns that are kept for whoever moves back to a broker: no job reads them.
NOT_READ = (
    "group_retry_policy",
    "notify_consumer_ids_changed_enable",
    "group_sys_flag",
)


@dataclass(frozen=True)
class SubscriptionGroupConfig:
    """A consumer group as the table keeps it; the defaults are RocketMQ's."""

    group: str
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    group_retry_policy: str = '{"type":"CUSTOMIZED"}'
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "SubscriptionGroupConfig":
        """The config of a row of the table; what an older writer left null has its default."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in row.items() if name in known and value is not None})

    @property
    def without_effect(self) -> list[str]:
        """What it has that no job reads, but for RocketMQ's defaults.

        A retry policy is of clients that pop: a group that is sent back to goes by delay levels
        (docs/rocketmq/delay-retry-transaction.md 4.6).
        """
        default = SubscriptionGroupConfig(self.group)
        columns = [name for name in NOT_READ if getattr(self, name) != getattr(default, name)]
        return columns + sorted(self.attributes)


Groups = Mapping[str, SubscriptionGroupConfig]


def read_groups(at: Snapshot) -> Groups:
    """All groups by name."""
    return {row.group: SubscriptionGroupConfig.of_row(row.asDict()) for row in at.rows(SUBSCRIPTION_GROUPS)}


def plan_create_group(at: Snapshot, config: SubscriptionGroupConfig) -> Plan:
    """The plan that adds a group; the same group again changes nothing."""
    return _with_retry_queues(
        at,
        config.group,
        _plan_groups(at, lambda groups: with_group_created(groups, config)),
        config.retry_queue_nums,
    )


def plan_update_group(at: Snapshot, name: str, changes: Mapping[str, Any]) -> Plan:
    """The plan that changes the columns named in `changes`."""
    plan = _plan_groups(at, lambda groups: with_group_updated(groups, name, changes))
    return _with_retry_queues(at, name, plan, changes.get("retry_queue_nums", 0))


def _with_retry_queues(at: Snapshot, name: str, plan: Plan, queues: int) -> Plan:
    """The plan, preceded by writes that give an existing retry topic as many queues as the group's retries go to."""
    expect_few_retry_queues(name, queues, at.store.settings)
    if queues <= 0 or retry_topic(name) not in read_topics(at):
        return plan
    raised = plan_retry_topics(at, name, queues)
    return Plan((*raised.writes, *plan.writes), {"topics": int(bool(raised.writes or plan.writes))})


def plan_delete_group(at: Snapshot, name: str) -> Plan:
    """The plan that removes a group's config; its offsets stay, so that a group made again goes on."""
    return _plan_groups(at, lambda groups: with_group_deleted(groups, name))


def plan_first_groups(at: Snapshot) -> Plan:
    """The plan that adds the groups of a new store; empty where groups have been written before."""
    if at.number(SUBSCRIPTION_GROUPS) >= 0:
        return Plan()
    return _plan_groups(at, lambda _: {name: SubscriptionGroupConfig(name) for name in FIRST_GROUPS})


def _plan_groups(at: Snapshot, change: Callable[[Groups], Groups]) -> Plan:
    """The plan of a change; no write where it changes nothing. Its result `topics` is the number of writes."""
    before = read_groups(at)
    writes = write_if_changed(at, SUBSCRIPTION_GROUPS, before, change(before))
    return Plan(writes, {"topics": len(writes)})


def with_group_created(groups: Groups, config: SubscriptionGroupConfig) -> Groups:
    _check_group(config)
    old = groups.get(config.group, config)
    if old != config:
        raise BadInput(
            f"group {config.group} exists with {difference(old, config)}; use update-group to change it"
        )
    return {**groups, config.group: config}


def with_group_updated(groups: Groups, name: str, changes: Mapping[str, Any]) -> Groups:
    if name not in groups:
        raise BadInput(f"there is no group {name}{nearest(name, groups)}; create it first")
    new = replace(groups[name], **changes)
    _check_group(new)
    return {**groups, name: new}


def with_group_deleted(groups: Groups, name: str) -> Groups:
    if name in FIRST_GROUPS:
        raise BadInput(f"group {name} is the store's own; it cannot be deleted")
    return {other: config for other, config in groups.items() if other != name}


def _check_group(config: SubscriptionGroupConfig) -> None:
    name = config.group
    complaint = group_name_complaint(name)
    if complaint is None and name.startswith(RESERVED_GROUP_PREFIX) and name not in FIRST_GROUPS:
        complaint = (
            f"group {name} starts with {RESERVED_GROUP_PREFIX}, which is the store's own; choose another name"
        )
    if complaint is None and name in DEFAULT_GROUPS:
        complaint = f"group {name} is a client's default name; choose another name"
    for column, at_least in (
        ("retry_queue_nums", 0),
        ("retry_max_times", 0),
        ("broker_id", 0),
        ("which_broker_when_consume_slowly", 0),
        ("consume_timeout_minute", 1),
    ):
        if complaint is None and not at_least <= getattr(config, column) <= INT_MAX:
            complaint = f"group {name} has {column} {getattr(config, column)}; expected {at_least} or more"
    if complaint is None and not _is_retry_policy(config.group_retry_policy):
        complaint = (
            f"group {name} has retry policy {config.group_retry_policy!r}; "
            'expected JSON with "type" CUSTOMIZED or EXPONENTIAL'
        )
    if complaint is not None:
        raise BadInput(complaint)


def _is_retry_policy(text: str) -> bool:
    try:
        policy = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(policy, dict) and policy.get("type") in ("CUSTOMIZED", "EXPONENTIAL")
