"""What a run finds when it joins a group: the group's config, and what the group has subscribed."""

import dataclasses

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
from pipelines.retry.send_back import plan_group
from pipelines.store.groups import SubscriptionGroupConfig, read_groups
from pipelines.store.work import Work


def class_filter_of(run: Work, one: Subscription) -> ClassFilter | None:
    """The class filter a subscription names. Raises BadInput where there is none of that name."""
    if one.expression_type != CLASS:
        return None
    return find_class_filter(run.store.snapshot(), one.group, one.topic, one.expression)


def group_of(run: Work, options: Options) -> SubscriptionGroupConfig:
    """The group's config, made where it is not there yet. Raises BadInput where the group may not read like that."""
    groups = read_groups(run.store.snapshot())
    if options.group not in groups:
        run.commit(lambda at: plan_group(at, options.group))
        groups = read_groups(run.store.snapshot())
    group = groups[options.group]
    if not group.consume_enable:
        raise BadInput(
            f"group {options.group} may not consume; `topics update-group {options.group} --consume-enable` allows it"
        )
    if options.is_broadcasting and not group.consume_broadcast_enable:
        raise BadInput(
            f"group {options.group} may not broadcast; `topics update-group {options.group} --broadcast-enable` allows it"
        )
    limit = options.max_reconsume_times
    return group if limit is None else dataclasses.replace(group, retry_max_times=limit)


def subscriptions_of(run: Work, options: Options) -> list[Subscription]:
    """What the run reads: what the command says, recorded as the group's, or what is recorded."""
    at = run.store.snapshot()
    known = [one for one in read_subscriptions(at) if one.group == options.group]
    if options.topic is None:
        if options.filter is not None:
            raise BadInput("--filter needs --topic: what it selects from")
        if not known:
            raise BadInput(
                f"group {options.group} has subscribed nothing; give --topic, or run `subscribe` first"
            )
        return known
    expect_topic(at, options.topic)
    found = next((one for one in known if one.topic == options.topic), None)
    if options.filter is None and found is not None:
        return [found]
    filter_type = (options.filter_type or TAG).upper()
    expression = "*" if options.filter is None else options.filter
    made = Subscription(options.group, options.topic, filter_type, expression, run.now_ms)
    expect_subscription(made, run.store.settings)
    class_filter_of(run, made)  # refused before it is recorded
    run.commit(lambda at: plan_subscribe(at, made))
    return [made]
