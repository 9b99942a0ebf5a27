"""Set a consumer group's offsets: to a time, an offset, the end, or another group's."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.consume.offsets import Queue, plan_reset, read_offsets
from pipelines.errors import BadInput
from pipelines.reports.offset_by_time import offset_by_time
from pipelines.reports.queues import Queue as Bounds
from pipelines.reports.queues import expect_topic, read_queues
from pipelines.rocketmq.names import group_name_complaint
from pipelines.store.role import expect_master
from pipelines.store.snapshot import Snapshot
from pipelines.store.topics import read_topics

QUEUES_LISTED = 50


@job
def reset_offsets(
    run: Run,
    group: Annotated[str, typer.Option(help="The consumer group.")],
    topic: Annotated[
        str | None,
        typer.Option(help="Of this topic; --clone-from without it: of all topics of the other group."),
    ] = None,
    queue_id: Annotated[int | None, typer.Option(min=0, help="Of this queue; else of all.")] = None,
    to_timestamp: Annotated[
        int | None,
        typer.Option(metavar="MS", help="To the first message stored then or later; below 0: the end."),
    ] = None,
    to_offset: Annotated[int | None, typer.Option(help="To this offset.")] = None,
    skip_accumulation: Annotated[
        bool, typer.Option("--skip-accumulation", help="To the end: what waits is skipped.")
    ] = False,
    clone_from: Annotated[
        str | None, typer.Option(metavar="GROUP", help="To where another group is.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report what would be set, and set nothing.")
    ] = False,
) -> dict[str, Any]:
    """Set how far a consumer group has read."""
    ways = {
        "--to-timestamp": to_timestamp is not None,
        "--to-offset": to_offset is not None,
        "--skip-accumulation": skip_accumulation,
        "--clone-from": clone_from is not None,
    }
    if sum(ways.values()) != 1:
        raise BadInput(f"give one of {', '.join(ways)}: the target of the offsets")
    expect_master(run.store.snapshot())
    complaint = group_name_complaint(group)
    if complaint is not None:
        raise BadInput(f"--group: {complaint}")
    at = run.store.snapshot()
    if clone_from is not None:
        targets = _cloned(at, clone_from, topic, queue_id)
    elif topic is None:
        raise BadInput("--topic is missing: the topic whose offsets to set")
    else:
        timestamp = -1 if skip_accumulation else to_timestamp
        targets = _targets(at, topic, queue_id, partial(_target, at, timestamp=timestamp, offset=to_offset))
    before = read_offsets(at, group)
    for queue in sorted(targets)[:QUEUES_LISTED]:
        known = before[queue].next_offset if queue in before else "none"
        run.say(f"{queue[0]} queue {queue[1]}: {known} -> {targets[queue]}")
    if len(targets) > QUEUES_LISTED:
        run.say(f"… and {len(targets) - QUEUES_LISTED:,} more queues")
    if not dry_run:
        run.commit(partial(plan_reset, group=group, targets=targets, now_ms=run.now_ms))
    return {"queues": len(targets)}


def _targets(
    at: Snapshot, topic: str, queue_id: int | None, target: Callable[[Bounds], int]
) -> dict[Queue, int]:
    expect_topic(at, topic)
    config = read_topics(at).get(topic)
    queues = config.read_queue_nums if config is not None else 0
    if queue_id is not None and queue_id >= queues:
        raise BadInput(f"--queue-id is {queue_id}; topic {topic} has queues 0 to {queues - 1}")
    asked = [(topic, number) for number in range(queues)] if queue_id is None else [(topic, queue_id)]
    return {queue: target(bounds) for queue, bounds in read_queues(at, asked).items()}


def _target(at: Snapshot, queue: Bounds, timestamp: int | None, offset: int | None) -> int:
    """The offset to set for a queue (docs/rocketmq/consume-filter-ha.md 3.3): --to-offset may also be its end."""
    if offset is None:
        assert timestamp is not None, "one of the two is given"
        return queue.max_offset if timestamp < 0 else offset_by_time(at, queue, timestamp, "lower")
    if not queue.min_offset <= offset <= queue.max_offset + 1:
        raise BadInput(
            f"--to-offset is {offset}; queue {queue.queue_id} of {queue.topic} has offsets {queue.min_offset} to "
            f"{queue.max_offset}; nothing was set"
        )
    return min(offset, queue.max_offset)


def _cloned(at: Snapshot, source: str, topic: str | None, queue_id: int | None) -> dict[Queue, int]:
    found = {
        queue: offset.next_offset
        for queue, offset in read_offsets(at, source).items()
        if (topic is None or queue[0] == topic) and (queue_id is None or queue[1] == queue_id)
    }
    if not found:
        of_topic = f" of topic {topic}" if topic is not None else ""
        raise BadInput(f"--clone-from {source}: that group has no offsets{of_topic} to take over")
    return found


if __name__ == "__main__":
    main(reset_offsets)
