"""Create, update, delete and list topics and consumer groups."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.listings import list_groups, list_topics, told_without_effect
from jobs.launch.output import Output
from jobs.launch.run import Run
from pipelines.errors import BadInput
from pipelines.rocketmq.names import RETRY_PREFIX
from pipelines.store.groups import (
    Groups,
    SubscriptionGroupConfig,
    plan_create_group,
    plan_delete_group,
    plan_update_group,
    read_groups,
)
from pipelines.store.head import head_as_found
from pipelines.store.plan import Plan
from pipelines.store.role import expect_master
from pipelines.store.snapshot import Snapshot
from pipelines.store.topics import (
    TopicConfig,
    Topics,
    altered_attributes,
    permission,
    plan_create_topic,
    plan_delete_topic,
    plan_update_topic,
    read_topics,
)


class Action(StrEnum):
    create = "create"
    update = "update"
    delete = "delete"
    list = "list"
    create_group = "create-group"
    update_group = "update-group"
    delete_group = "delete-group"
    list_groups = "list-groups"


# At most this many queues are listed in a warning.
QUEUES_NAMED = 20
# The options of topics and those of groups; an option of the other kind is refused.
TOPIC_OPTIONS = ("queues", "read_queues", "write_queues", "perm", "order", "filter_type", "attributes")
GROUP_OPTIONS = (
    "retry_queues",
    "retry_max_times",
    "consume_enable",
    "broadcast_enable",
    "from_min_enable",
    "orderly",
    "consume_timeout",
    "retry_policy",
    "broker_id",
    "which_broker_when_consume_slowly",
)


@job
def topics(
    run: Run,
    action: Annotated[Action, typer.Argument(help="What to do.", show_choices=True)],
    name: Annotated[str | None, typer.Argument(help="The topic or group.")] = None,
    queues: Annotated[int | None, typer.Option(help="Read and write queues of a topic [16].")] = None,
    read_queues: Annotated[int | None, typer.Option(help="Queues that are read.")] = None,
    write_queues: Annotated[int | None, typer.Option(help="Queues that are written.")] = None,
    perm: Annotated[str | None, typer.Option(help="Letters of RWX or a number from 0 to 7 [RW].")] = None,
    order: Annotated[
        bool | None, typer.Option(help="Whether messages are ordered over all queues; kept, without effect.")
    ] = None,
    filter_type: Annotated[str | None, typer.Option(help="SINGLE_TAG or MULTI_TAG.")] = None,
    attributes: Annotated[
        list[str] | None,
        typer.Option(metavar="+NAME=VALUE|-NAME", help="As +message.type=FIFO; kept, without effect."),
    ] = None,
    retry_queues: Annotated[int | None, typer.Option(help="Queues of a group's retry topic [1].")] = None,
    retry_max_times: Annotated[
        int | None, typer.Option(help="Retries of a message before it is a dead letter [16].")
    ] = None,
    consume_enable: Annotated[bool | None, typer.Option(help="Whether the group may read.")] = None,
    broadcast_enable: Annotated[bool | None, typer.Option(help="Whether it may broadcast.")] = None,
    from_min_enable: Annotated[
        bool | None, typer.Option(help="Whether it may begin at the first message.")
    ] = None,
    orderly: Annotated[
        bool | None, typer.Option(help="Whether it reads in order where consume says nothing.")
    ] = None,
    consume_timeout: Annotated[
        int | None, typer.Option(help="Minutes one call of its listener may take [15].")
    ] = None,
    retry_policy: Annotated[
        str | None, typer.Option(metavar="JSON", help="Of clients that pop; kept, without effect.")
    ] = None,
    broker_id: Annotated[
        int | None, typer.Option(min=0, help="The copy it reads with consume --replica auto; 0: the master.")
    ] = None,
    which_broker_when_consume_slowly: Annotated[
        int | None, typer.Option(min=0, help="The copy it reads instead when it lags far [1].")
    ] = None,
    output: Annotated[Output, typer.Option(help="How a list is printed.")] = Output.table,
) -> dict[str, Any]:
    """Create, update, delete and list topics and consumer groups."""
    topic_changes = _given(
        read_queue_nums=_first(read_queues, queues),
        write_queue_nums=_first(write_queues, queues),
        perm=None if perm is None else permission(perm),
        order=order,
        topic_filter_type=filter_type,
    )
    group_changes = _given(
        retry_queue_nums=retry_queues,
        retry_max_times=retry_max_times,
        consume_enable=consume_enable,
        consume_broadcast_enable=broadcast_enable,
        consume_from_min_enable=from_min_enable,
        consume_message_orderly=orderly,
        consume_timeout_minute=consume_timeout,
        group_retry_policy=retry_policy,
        broker_id=broker_id,
        which_broker_when_consume_slowly=which_broker_when_consume_slowly,
    )
    request = Request(action, name or "", topic_changes, attributes or (), group_changes)
    request.expect_valid()
    if action in (Action.list, Action.list_groups):
        return {"topics": _list(run, action, output)}
    expect_master(run.store.snapshot())
    committed = run.commit(request.planner())
    _tell_outcome(run, request, committed.wrote)
    return {"topics": committed.result["topics"]}


@dataclass(frozen=True)
class Request:
    """What to do with the topic or the group `name`, '' for a list of all.

    topic, group  columns to change
    attributes    of a topic, +NAME=VALUE or -NAME
    """

    action: Action
    name: str
    topic: Mapping[str, Any]
    attributes: Sequence[str]
    group: Mapping[str, Any]

    @property
    def changes_topic(self) -> bool:
        return bool(self.topic or self.attributes)

    def expect_valid(self) -> None:
        """Raises BadInput where the name, or an option of what is changed, is missing or not one of this action."""
        action, name = self.action, self.name
        is_list = action in (Action.list, Action.list_groups)
        if is_list and name:
            raise BadInput(f"{action} takes no name, found {name}; it lists all")
        if not is_list and not name:
            kind = "group" if action.endswith("-group") else "topic"
            raise BadInput(f"{action} needs the name of a {kind}: topics {action} NAME")
        if self.changes_topic and action not in (Action.create, Action.update):
            raise BadInput(f"{action} takes no options of a topic ({_flags(TOPIC_OPTIONS)})")
        if self.group and action not in (Action.create_group, Action.update_group):
            raise BadInput(f"{action} takes no options of a group ({_flags(GROUP_OPTIONS)})")
        if action == Action.update and not self.changes_topic:
            raise BadInput(f"update changes nothing of {name}; name what to change ({_flags(TOPIC_OPTIONS)})")
        if action == Action.update_group and not self.group:
            raise BadInput(
                f"update-group changes nothing of {name}; name what to change ({_flags(GROUP_OPTIONS)})"
            )

    def planner(self) -> Callable[[Snapshot], Plan]:
        name = self.name
        match self.action:
            case Action.create:
                config = TopicConfig(name, **self.topic, attributes=altered_attributes(None, self.attributes))
                return lambda at: plan_create_topic(at, config)
            case Action.update:
                return lambda at: plan_update_topic(at, name, self.topic, self.attributes)
            case Action.delete:
                return lambda at: plan_delete_topic(at, name)
            case Action.create_group:
                return lambda at: plan_create_group(at, SubscriptionGroupConfig(name, **self.group))
            case Action.update_group:
                return lambda at: plan_update_group(at, name, self.group)
            case Action.delete_group:
                return lambda at: plan_delete_group(at, name)
        raise AssertionError(f"{self.action} plans nothing")


def _list(run: Run, action: Action, output: Output) -> int:
    """List all topics or all groups; returns how many."""
    at = run.store.snapshot()
    if action == Action.list_groups:
        groups = read_groups(at)
        count = list_groups(groups.values(), output, run.quiet)
        _tell_without_effect(run, groups)
        return count
    topics = read_topics(at)
    count = list_topics(topics.values(), run.store.settings, output, run.quiet)
    _tell_without_effect(run, topics)
    return count


def _tell_outcome(run: Run, request: Request, wrote: bool) -> None:
    """Say that nothing had to be written, or what of the changes is without effect."""
    if not wrote:
        is_gone = request.action in (Action.delete, Action.delete_group)
        run.say(
            f"there is no {request.name}; nothing to delete"
            if is_gone
            else f"{request.name} is like that already"
        )
    elif request.changes_topic or request.group:
        at = run.store.snapshot()
        known: Topics | Groups = read_topics(at) if request.changes_topic else read_groups(at)
        _tell_without_effect(run, known, request.name)
        if "read_queue_nums" in request.topic:
            _warn_of_unread(run, at, request.name, request.topic["read_queue_nums"])


def _warn_of_unread(run: Run, at: Snapshot, topic: str, read_queue_nums: int) -> None:
    """Warn of queues with messages that no group reads any more, as a broker does not offer them either."""
    if topic.startswith(RETRY_PREFIX):
        return  # a group reads its retries in all queues
    head = head_as_found(at)
    beyond = sorted(
        queue_id
        for (name, queue_id), end in head.next_queue_offsets.items()
        if name == topic
        and queue_id >= read_queue_nums
        and end > head.min_queue_offsets.get((name, queue_id), 0)
    )
    if beyond:
        more = f" and {len(beyond) - QUEUES_NAMED} more" if len(beyond) > QUEUES_NAMED else ""
        run.warn(
            f"groups read the first {read_queue_nums} queues of {topic} from now on: what they have not read of queues "
            f"{', '.join(map(str, beyond[:QUEUES_NAMED]))}{more} stays unread. `commitlake topics update {topic} "
            f"--read-queues {beyond[-1] + 1}` makes them readable again"
        )


def _tell_without_effect(run: Run, configs: Topics | Groups, of: str | None = None) -> None:
    """Say what is kept and no job reads: of all, or of one."""
    chosen = {name: config.without_effect for name, config in configs.items() if of in (None, name)}
    line = told_without_effect(chosen)
    if line is not None:
        run.say(line)


def _given(**options: Any) -> dict[str, Any]:
    return {column: value for column, value in options.items() if value is not None}


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _flags(options: Sequence[str]) -> str:
    return ", ".join(f"--{option.replace('_', '-')}" for option in options)


if __name__ == "__main__":
    main(topics)
