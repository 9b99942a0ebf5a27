"""Random histories of puts, clock steps, failures, ends and questions: the log is the one of the plain model.

Jobs read clocks that differ, some write a few rows an append, and some are overtaken: after their start, or between two of
their appends, another job puts messages by a clock of its own.
"""

import importlib
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from jobs.launch.run import Run
from pipelines.delay import deliver
from tests.life import B, Life
from tests.model.life import HALF_TOPIC, Store
from tests.model.log import Log, read_properties

STEPS, STEPS_BETWEEN_LOOKS = 30, 5

ANSWERS = """
from pipelines.transaction import TransactionState

def by_key(message):
    return {"0": TransactionState.COMMIT, "1": TransactionState.ROLLBACK}.get(message.unique_key[-1])
"""


def story(row: Any) -> tuple:
    return (
        row.topic, row.queue_id, row.physical_offset, row.queue_offset, row.size_bytes, row.flag, row.sys_flag,
        row.born_timestamp, row.store_timestamp, row.reconsume_times, row.prepared_transaction_offset, bytes(row.body),
        read_properties(row.properties), row.due_ms, row.source_offset, row.origin_offset, row.purpose, row.claim,
    )  # fmt: skip


def told(store: Store) -> list[tuple]:
    records = {record.physical_offset: record for record in store.log.records}
    return [
        (
            row.message.topic, row.message.queue_id, row.physical_offset, row.queue_offset,
            records[row.physical_offset].size_bytes, row.message.flag, row.message.sys_flag, row.message.born_timestamp,
            row.store_timestamp, row.message.reconsume_times, row.message.prepared_transaction_offset, row.message.body,
            row.properties, row.due_ms, row.source_offset, row.origin_offset, row.purpose, row.claim,
        )
        for row in store.rows
    ]  # fmt: skip


class History:
    """A store and its model, to which the same things happen."""

    def __init__(self, store: Life, seed: int) -> None:
        self.store, self.model, self.chance = store, Store(Log(6000)), random.Random(seed)
        self.now = B
        self.number = 0
        self.timers: dict[str, tuple[str, int]] = {}  # topic and time of those that can be taken back
        self.told = [f"seed {seed}"]

    def note(self, what: str) -> None:
        self.told.append(f"{len(self.told)}. {what}")

    def clock(self) -> int:
        """Some job's clock: behind the others, or a little ahead."""
        return self.now + self.chance.choice([0, 0, 0, 0, 1_500, -400, -15_000])

    def step(self) -> None:
        chance, model = self.chance, self.model
        self.now += chance.choice([0, 700, 5_000, 11_000, 40_000])
        clock = self.clock()
        step = chance.choice(["put", "put", "deliver", "deliver", "send_back", "end", "check", "dispatch"])
        # A few rows an append, or all.
        limit = chance.choice([None, 1, 2, 3])
        # At which of its appends another job comes first, and what it puts.
        at = chance.choice([None, 1, 2]) if model.rows and step == "deliver" else None
        late = [] if at is None else self.rows(late_clock := self.clock())
        plain = [row for row in model.rows if row.message.topic in ("T", "U", "%RETRY%g")]
        halves = [row for row in model.rows if row.message.topic == HALF_TOPIC]
        if step == "put" or not model.rows:
            rows = self.rows(clock)
            self.note(f"put at {clock - B}: {rows}")
            self.store.put(clock, *rows)
            model.put(rows, clock)
        elif step == "deliver":
            said = f", {late} put at {late_clock - B} before append {at}" if late else ""
            self.note(f"deliver at {clock - B}, {limit} an append{said}")

            def meanwhile(number: int) -> None:
                if number == at:
                    self.store.put(late_clock, *late)

            def then(number: int) -> None:
                if number == at:
                    model.put(late, late_clock)

            # At every second step claims are looked up as where many rows are due.
            many = patch.object(deliver, "MANY", 0 if len(self.told) % 2 else deliver.MANY)
            with many, few_an_append("jobs.deliver", "plan_deliver", limit), overtaken("deliver", meanwhile):
                delivered = self.store.deliver(clock)["delivered"]
            assert delivered == model.deliver(clock, limit or 10**6, then)
        elif step == "send_back" and plain:
            offsets = [row.physical_offset for row in chance.sample(plain, min(3, len(plain)))]
            self.note(f"send back at {clock - B}, {limit} an append: {offsets}")
            path = self.store.input(*[{"physical_offset": offset} for offset in offsets])
            with few_an_append("jobs.send_back", "plan_send_back", limit):
                self.store.job("send_back", clock, "--group", "g", "--input", path)
            model.send_back("g", offsets, clock)
        elif step == "end" and halves:
            ends = [
                (row.physical_offset, chance.choice(["COMMIT", "ROLLBACK"]))
                for row in chance.choices(halves, k=3)
            ]
            self.note(f"end at {clock - B}, {limit} an append: {ends}")
            asked = [
                {"producer_group": "pg", "physical_offset": offset, "state": state} for offset, state in ends
            ]
            with few_an_append("jobs.end_transactions", "plan_end", limit):
                self.store.job("end_transactions", clock, "--input", self.store.input(*asked))
            model.end(ends, clock)
        elif step == "check":
            self.note(f"check at {clock - B}, {limit} an append")
            with few_an_append("jobs.check_transactions", "plan_check", limit):
                self.store.job("check_transactions", clock, "--checker", "answers_of_random:by_key")
            model.check(clock, {key: word for n in range(self.number) for key, word in answer(f"k{n}")})
        elif step == "dispatch":
            self.note("dispatch")
            self.store.job("dispatch", clock)

    def rows(self, now: int) -> list[dict[str, Any]]:
        return [self.row(now) for _ in range(self.chance.randint(3, 12))]

    def row(self, now: int) -> dict[str, Any]:
        chance = self.chance
        key = f"k{self.number}"
        self.number += 1
        row: dict[str, Any] = {"topic": chance.choice("TU"), "body": "b" * chance.randint(0, 9)}
        row["unique_key"] = key
        if chance.random() < 0.3:
            row["queue_id"] = chance.randrange(4)
        kind = chance.choice(["plain", "level", "level", "list", "timer", "delay", "cancel", "half", "half"])
        due = {key: time for key, (_, time) in self.timers.items() if time > now}
        if kind == "level":
            row["delay_level"] = chance.randint(1, 6)
        elif kind == "list":
            row["deliver_through"] = [chance.randint(1, 4) for _ in range(chance.randint(1, 3))]
        elif kind in ("timer", "cancel") and not (kind == "cancel" and due):
            row["deliver_at_ms"] = now + chance.randrange(-2, 12) * 3_500
            self.timers[key] = row["topic"], row["deliver_at_ms"]
        elif kind == "cancel":
            cancelled = chance.choice(sorted(due))
            topic, time = self.timers[cancelled]
            # In the slot of what it takes back, or in another one, where it takes nothing back.
            row |= {"topic": topic, "deliver_at_ms": time + chance.choice([0, 0, 0, 5_000])}
            row["cancel_unique_key"] = cancelled
        elif kind == "delay":
            row["delay_ms"] = chance.choice([0, 400, 9_000])
        elif kind == "half":
            row |= {"transaction": True, "producer_group": "pg", "flag": chance.randrange(3)}
            row["born_timestamp"] = now - chance.choice([0, 5_000, 60_000, -30_000])
        return row


def few_an_append(module: str, plan: str, limit: int | None) -> AbstractContextManager[Any]:
    """A job that plans `limit` rows an append."""
    planner = getattr(importlib.import_module(module), plan)
    return nullcontext() if limit is None else patch(f"{module}.{plan}", partial(planner, limit=limit))


def overtaken(job: str, meanwhile: Callable[[int], None]) -> AbstractContextManager[Any]:
    """A job that others are before: `meanwhile` is called with the number of each of its commits."""
    commit, begun = Run.commit, list[None]()

    def overtaken_commit(run: Run, planner: Any) -> Any:
        if run.job == job:
            begun.append(None)
            meanwhile(len(begun))
        return commit(run, planner)

    return patch.object(Run, "commit", overtaken_commit)


def answer(key: str) -> list[tuple[str, str]]:
    word = {"0": "COMMIT", "1": "ROLLBACK"}.get(key[-1])
    return [(key, word)] if word else []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "steps"),
    [(1, STEPS // 3), *(pytest.param(seed, STEPS, marks=pytest.mark.nightly) for seed in range(2, 7))],
)
def test_random_histories(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, steps: int
) -> None:
    (tmp_path / "answers_of_random.py").write_text(ANSWERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    history = History(life(mappedFileSizeCommitLog="6000"), seed)
    try:
        for number in range(1, steps + 1):
            history.step()
            if number % STEPS_BETWEEN_LOOKS == 0:
                assert [story(row) for row in history.store.rows()] == told(history.model)
        history.store.expect_promises()
    except BaseException:
        print("\n".join(history.told))
        raise
