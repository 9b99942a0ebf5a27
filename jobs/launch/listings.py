"""Lists of topics and of consumer groups, for a person at a terminal and for a program that reads lines."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from jobs.launch.output import Output, terminal
from jobs.launch.printable import printable
from pipelines.rocketmq.setting_names import OLD_SPELLINGS
from pipelines.rocketmq.settings import KNOWN_NAMES, OF_AN_IMPORT, SETTINGS, Settings
from pipelines.store.groups import SubscriptionGroupConfig
from pipelines.store.topics import TopicConfig, is_system_topic, permission_letters

# Of those that have a setting without effect.
NAMES_TOLD = 5


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


def list_settings(settings: Settings, names: Iterable[str], output: Output, quiet: bool) -> int:
    """List these settings, or, without names, all that act and all that were given; returns how many.

    Raises BadInput for a name that RocketMQ does not know.
    """
    Settings.of({name: "" for name in names if name not in KNOWN_NAMES})  # is refused
    shown = sorted(names or SETTINGS.keys() | settings.given.keys())
    objects = [
        {
            "name": name,
            "value": settings.text(name),
            "given": name in settings.given,
            "meaning": SETTINGS[name].meaning if name in SETTINGS else _not_acting(name),
        }
        for name in shown
    ]
    lines = [
        (str(each["name"]), str(each["value"]), "yes" if each["given"] else "", str(each["meaning"]))
        for each in objects
    ]
    _print(output, quiet, ("setting", "value", "given", "what it is"), lines, objects)
    return len(shown)


def _not_acting(name: str) -> str:
    if name in OLD_SPELLINGS:
        return f"as {OLD_SPELLINGS[name]}"
    return "read by import_store alone" if name in OF_AN_IMPORT else "without effect here"


def told_without_effect(configs: Mapping[str, Sequence[str]]) -> str | None:
    """A line about what is kept of topics or groups, by name, and no job reads; None where there is nothing.

    >>> told_without_effect({"a": ["order"], "b": [], "c": ["order", "message.type"]})
    'kept, but without effect here: message.type (c), order (a, c)'
    """
    having: dict[str, list[str]] = {}
    for name, kept in configs.items():
        for setting in kept:
            having.setdefault(setting, []).append(name)
    if not having:
        return None
    return "kept, but without effect here: " + ", ".join(
        f"{setting} ({_few(sorted(names))})" for setting, names in sorted(having.items())
    )


def _few(names: Sequence[str]) -> str:
    more = len(names) - NAMES_TOLD
    return ", ".join(names[:NAMES_TOLD]) + (f" and {more:,} more" if more > 0 else "")


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
            table.add_row(*map(printable, line))
        terminal().print(table)
