"""Listeners of the tests: each notes what it was handed in a file, since it runs in a worker's process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SOURCE = """
import json, time
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pipelines.consume import ConsumeStatus

NOTES = {notes!r}

def note(*messages):
    with open(NOTES, "a") as file:
        for message in messages:
            file.write(json.dumps([message.topic, message.queue_id, message.queue_offset, message.body.decode(),
                                   message.reconsume_times]) + "\\n")

def accept(message):
    note(message)
    return ConsumeStatus.CONSUME_SUCCESS

def by_place(message):
    with open(NOTES, "a") as file:
        file.write(json.dumps([message.topic, message.queue_id, message.queue_offset]) + "\\n")
    return ConsumeStatus.CONSUME_SUCCESS

def by_body(message, context):
    note(message)
    word, _, level = message.body.decode().partition(" ")
    if word == "raises":
        raise ValueError("no idea")
    if word == "hangs":
        time.sleep(60)
    if word == "wrong":
        return "yes"
    if level:
        context.delay_level_when_next_consume = int(level)
    return {{"ok": ConsumeStatus.CONSUME_SUCCESS, "later": ConsumeStatus.RECONSUME_LATER}}.get(word)

def tells(message):
    started = message.properties.get("CONSUME_START_TIME")
    raise ValueError([message.segment, message.append_seq, message.append_id, message.claim, started])

def by_number(message):
    note(message)
    fails = (int(message.body) + message.reconsume_times) % 3 == 0
    return ConsumeStatus.RECONSUME_LATER if fails else ConsumeStatus.CONSUME_SUCCESS

def first_two(messages, context):
    note(*messages)
    context.ack_index = 1
    return ConsumeStatus.CONSUME_SUCCESS

def in_order(message):
    note(message)
    if message.body == b"stuck" and message.reconsume_times < 2:
        return ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
    return ConsumeStatus.SUCCESS

def never(message):
    note(message)
    return ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT

def never_any(messages):
    note(*messages)
    return ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT

def as_table(messages: DataFrame) -> DataFrame:
    status = F.when(F.col("body_text") == "later", "RECONSUME_LATER").otherwise("CONSUME_SUCCESS")
    return messages.where("body_text != 'silent'").select("physical_offset", status.alias("status"))

def as_table_twice(messages: DataFrame) -> DataFrame:
    # As a join does on a key that two rows have.
    return as_table(messages).unionAll(as_table(messages).where("status = 'RECONSUME_LATER'"))

class Even:
    def match(self, message, context):
        return int(message.body) % 2 == 0

class Hook:
    def consume_message_before(self, context):
        context.props["seen"] = len(context.messages)

    def consume_message_after(self, context):
        with open(NOTES, "a") as file:
            file.write(json.dumps(["hook", context.props["seen"], context.return_type, context.success]) + "\\n")
        raise RuntimeError("a hook's own affair")
"""


class Listeners:
    """The module `listeners_of_a_test`, and what its listeners were handed."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._notes = directory / "handed.jsonl"
        (directory / "listeners_of_a_test.py").write_text(SOURCE.format(notes=str(self._notes)))
        monkeypatch.syspath_prepend(str(directory))
        monkeypatch.delitem(__import__("sys").modules, "listeners_of_a_test", raising=False)

    def name(self, listener: str) -> str:
        return f"listeners_of_a_test:{listener}"

    def handed(self) -> list[Any]:
        """What was handed over since the last look, in no order: [topic, queue, offset, body, reconsume times]."""
        if not self._notes.exists():
            return []
        found = [json.loads(line) for line in self._notes.read_text().splitlines()]
        self._notes.unlink()
        return sorted(found, key=str)


Make = Callable[[], Listeners]
