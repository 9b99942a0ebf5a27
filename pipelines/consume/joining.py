"""How a run joins a group: it finds the group's config and its subscriptions, or makes them."""

import dataclasses
from collections.abc import Mapping, Sequence

from pipelines.consume.class_pages import find_class_filter
from pipelines.consume.options import Options
from pipelines.consume.subscriptions import (
    CLASS,
    TAG,
    Subscription,
    expect_subscription,
    plan_subscribe,
    read_subscriptions,
)
from pipelines.errors import BadInput
from pipelines.filter.class_filters import ClassFilter
from pipelines.reports.queues import expect_topic
from pipelines.retry.send_back import expect_retries_writable, group_config, plan_group
from pipelines.rocketmq.names import retry_topic
from pipelines.rocketmq.settings import INT_MAX
from pipelines.store.groups import SubscriptionGroupConfig, read_groups
from pipelines.store.permissions import expect_readable
from pipelines.store.role import is_slave
from pipelines.store.snapshot import Snapshot
from pipelines.store.work import Work


@dataclasses.dataclass(frozen=True)
class Joined:
    """The group and subscriptions of a run; new ones are not written before `record`.

    subscriptions  what the run reads
    made           the one of them that the command line defines and `record` writes; None without
    class_filters  the class filters, by subscription
    """

    group: SubscriptionGroupConfig
    subscriptions: Sequence[Subscription]
    made: Subscription | None
    class_filters: Mapping[Subscription, ClassFilter]

    def record(self, work: Work) -> None:
        """Commit the group where the store does not have it yet, and the new subscription.

        At a slave a group reads by what its master has, or by its command line alone: only its offsets are recorded.
        """
        if is_slave(work.store.snapshot()):
            return
        if self.group.group not in read_groups(work.store.snapshot()):
            work.commit(lambda at: plan_group(at, self.group.group))
        if self.made is not None:
            made = self.made
            work.commit(lambda at: plan_subscribe(at, made))


def join(at: Snapshot, options: Options, now_ms: int) -> Joined:
    """What a run reads as a group: the subscription of its command line, else those that are recorded.

    Raises BadInput for a group that may not be made or may not read like this, for a subscription that is refused, and where
    permissions do not allow to read the topics or to write the group's retries.
    """
    group = _group_of(at, options)
    known = [one for one in read_subscriptions(at) if one.group == options.group]
    made = None
    if options.topic is None:
        if options.filter is not None:
            raise BadInput("--filter needs --topic: what it selects from")
        if not known:
            raise BadInput(
                f"group {options.group} has subscribed nothing; give --topic, or run `subscribe` first"
            )
    else:
        expect_topic(at, options.topic)
        known = [one for one in known if one.topic == options.topic]
        if options.filter is not None or not known:
            made = _subscription(at, options, options.topic, now_ms)
            known = [made]
    read = [one.topic for one in known]
    if options.is_broadcasting:
        expect_readable(at, read)
    else:
        expect_readable(at, [*read, retry_topic(group.group)])
        expect_retries_writable(at, group)
    filters = {
        one: find_class_filter(at, one.group, one.topic, one.expression)
        for one in known
        if one.expression_type == CLASS
    }
    return Joined(group, known, made, filters)


def _group_of(at: Snapshot, options: Options) -> SubscriptionGroupConfig:
    group = group_config(at, options.group)
    if not group.consume_enable:
        raise BadInput(
            f"group {options.group} may not consume; `topics update-group {options.group} --consume-enable` allows it"
        )
    if options.is_broadcasting and not group.consume_broadcast_enable:
        raise BadInput(
            f"group {options.group} may not broadcast; `topics update-group {options.group} --broadcast-enable` allows it"
        )
    limit = options.max_reconsume_times
    if limit is None:
        # In order, RocketMQ gives no message up by itself (docs/rocketmq/delay-retry-transaction.md 4.7).
        limit = INT_MAX if options.of_group(group).orderly else group.retry_max_times
    return dataclasses.replace(group, retry_max_times=limit)


def _subscription(at: Snapshot, options: Options, topic: str, now_ms: int) -> Subscription:
    filter_type = (options.filter_type or TAG).upper()
    expression = "*" if options.filter is None else options.filter
    made = Subscription(options.group, topic, filter_type, expression, now_ms)
    expect_subscription(made, at.store.settings)
    return made
