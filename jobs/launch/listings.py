"""Lists of topics and of consumer groups, for a person at a terminal and for a program that reads lines."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from jobs.launch.output import Output, terminal
from pipelines.rocketmq.settings import Settings
from pipelines.store.groups import SubscriptionGroupConfig
from pipelines.store.topics import TopicConfig, is_system_topic, permission_letters


def list_topics(configs: Iterable[TopicConfig], settings: Settings, output: Output, quiet: bool) -> int:
    """List topics; returns how many."""
    # The user's own first: a new store has a dozen of its own.
    ordered = sorted(configs, key=lambda config: (is_system_topic(config.topic, settings), config.topic))
    heading = ("topic", "read", "write", "perm", "order", "attributes", "own")
    lines = [
        (
            config.topic,
            str(config.read_queue_nums),
            str(config.write_queue_nums),
            permission_letters(config.perm),
            "yes" if config.order else "",
            ", ".join(f"{key}={value}" for key, value in sorted(config.attributes.items())),
            "yes" if is_system_topic(config.topic, settings) else "",
        )
        for config in ordered
    ]
    _print(output, quiet, heading, lines, [asdict(config) for config in ordered])
    return len(ordered)


def list_groups(configs: Iterable[SubscriptionGroupConfig], output: Output, quiet: bool) -> int:
    """List consumer groups; returns how many."""
    ordered = sorted(configs, key=lambda config: config.group)
    heading = ("group", "retry queues", "retries", "may read", "broadcast", "orderly", "timeout")
    lines = [
        (
            config.group,
            str(config.retry_queue_nums),
            str(config.retry_max_times),
            "yes" if config.consume_enable else "no",
            "yes" if config.consume_broadcast_enable else "no",
            "yes" if config.consume_message_orderly else "",
            f"{config.consume_timeout_minute} min",
        )
        for config in ordered
    ]
    _print(output, quiet, heading, lines, [asdict(config) for config in ordered])
    return len(ordered)


def _print(
    output: Output,
    quiet: bool,
    heading: Sequence[str],
    lines: Sequence[Sequence[str]],
    objects: Sequence[dict[str, Any]],
) -> None:
    """Print JSON to stdout before the result, for programs; or a table to stderr, for a person."""
    if output == Output.json:
        for one in objects:
            print(json.dumps(one, ensure_ascii=False))
    elif not quiet:
        table = Table()
        for place, name in enumerate(heading):
            table.add_column(name, no_wrap=place == 0)  # names are never cut: users copy them
        for line in lines:
            table.add_row(*line)
        terminal().print(table)
