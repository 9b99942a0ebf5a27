"""Random lives of a group: clients come and go, messages fail, offsets are reset; a plain model says what is handed over.

Jobs read clocks that differ, some write a few rows an append, and while a client reads, others put, deliver and reset.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from pipelines.consume import allocate
from pipelines.consume.failures import plan_send_back
from pipelines.consume.reader import Reader
from pipelines.delay.deliver import plan_deliver
from tests.consume.listeners import Listeners
from tests.life import B, Life
from tests.model.group import LADDER_MS, RETRY, GroupModel

QUEUES = [("T", number) for number in range(4)]
STEPS = 30

# When others come first: before a reader's failures are in the log, and before its offsets are recorded.
FAILURES, OFFSETS = "send_back", "record"
# What is done to the store, and what to the model.
Happening = tuple[Callable[[], object], Callable[[], object]]


class History:
    """A store and its model, to which the same things happen."""

    def __init__(self, store: Life, listeners: Listeners, seed: int) -> None:
        self.store, self.listeners, self.chance = store, listeners, random.Random(seed)
        self.model = GroupModel({queue: [] for queue in [*QUEUES, RETRY]}, most_times=2)
        self.now = B
        self.number = 0
        self.told = [f"seed {seed}"]
        self.happen(self.put())  # which makes the topic

    def note(self, what: str) -> None:
        self.told.append(f"{len(self.told)}. {what}")

    def step(self) -> None:
        self.now += self.chance.choice([0, 1_000, 12_000, 40_000])
        happens = [self.put, self.put, self.deliver, self.deliver, self.reset, self.consume, self.consume]
        self.happen(self.chance.choice(happens)())

    def happen(self, acts: Iterable[Callable[[], object]]) -> None:
        for act in acts:
            act()

    def clock(self) -> int:
        """Some job's clock: behind the others, or a little ahead."""
        return self.now + self.chance.choice([0, 0, 0, 1_500, -400, -15_000])

    # Each of these decides what happens, and says how it happens to the store and to the model.

    def put(self) -> Happening:
        clock, chosen = self.clock(), self.chance.choices(QUEUES, k=self.chance.randint(3, 8))
        numbered = list(enumerate(chosen, self.number))
        self.number += len(numbered)
        rows = [{"topic": "T", "queue_id": queue[1], "body": str(number)} for number, queue in numbered]
        self.note(f"put at {clock - B}: {rows}")

        def into_the_model() -> None:
            for number, queue in numbered:
                self.model.put(queue, number, clock)

        return lambda: self.store.put(clock, *rows), into_the_model

    def deliver(self) -> Happening:
        clock, limit = self.clock(), self.chance.choice([1, 2, 1_000])
        self.note(f"deliver at {clock - B}, {limit} an append")

        def from_the_store() -> None:
            with patch("jobs.deliver.plan_deliver", partial(plan_deliver, limit=limit)):
                self.store.deliver(clock)

        return from_the_store, lambda: self.model.deliver(clock)

    def reset(self) -> Happening:
        clock, queue = self.clock(), self.chance.choice(QUEUES)
        offset = self.chance.randint(0, len(self.model.queues[queue]))
        if not self.model.offsets:
            return self.put()
        self.note(f"reset {queue} to {offset}")
        arguments = ("--group", "g", "--topic", "T", "--queue-id", queue[1], "--to-offset", offset)

        def in_the_store() -> None:
            self.store.job("dispatch", clock)  # a queue ends where dispatch has come
            self.store.job("reset_offsets", clock, *arguments)

        return in_the_store, lambda: self.model.reset(queue, offset)

    def consume(self) -> tuple[Callable[[], object]]:
        clock, limit = self.clock(), self.chance.choice([1, 3, 1_000])
        arguments, mine, is_one = self.some_clients()
        self.note(f"consume at {clock - B}, {limit} an append, {arguments}")
        # What others do while one client reads: before its failures are in the log, or before its offsets are recorded.
        moments: dict[str, list[Happening]] = {FAILURES: [], OFFSETS: []}
        if is_one and self.chance.random() < 0.7:
            moment = self.chance.choice([FAILURES, OFFSETS])
            self.note(f"before its {moment}:")
            moments[moment] = [self.chance.choice([self.put, self.deliver, self.reset])()]
        options = ("--group", "g", "--topic", "T", "--max-reconsume-times", 2, "--listener")

        def do(moment: str, which: int) -> None:
            for happens in moments[moment]:
                happens[which]()

        def both() -> None:
            self.store.job("dispatch", clock)
            with ExitStack() as stack:
                few = partial(plan_send_back, limit=limit)
                stack.enter_context(patch("pipelines.consume.failures.plan_send_back", few))
                seen = stack.enter_context(overtaken(lambda moment: do(moment, 0)))
                name = self.listeners.name("by_number")
                run = self.store.job("consume", clock, *options, name, *arguments)
            if OFFSETS not in seen:  # nothing to record: then it comes after
                do(OFFSETS, 0)
            handed = self.model.consume(mine, clock, lambda: do(FAILURES, 1), lambda: do(OFFSETS, 1))
            found = [(int(body), times) for _, _, _, body, times in self.listeners.handed()]
            assert sorted(found) == sorted(handed)
            assert run.result["consumed"] + run.result["failed"] == len(handed)
            assert (FAILURES in seen) == any(sum(one) % 3 == 0 for one in handed)

        return (both,)

    def some_clients(self) -> tuple[list[str], list[tuple[str, int]], bool]:
        """Who reads this time, as options; which queues are theirs; whether they read at once, as one."""
        clients = sorted(self.chance.sample(["a", "b", "c"], self.chance.randint(1, 3)))
        reader = self.chance.choice([None, *clients])
        if reader is None:
            return ["--clients", ",".join(clients)], [*QUEUES, RETRY], len(clients) == 1
        owned = allocate("AVG", [f"broker:{number}" for _, number in QUEUES], clients)[reader]
        mine = [("T", int(queue.partition(":")[2])) for queue in owned]
        retries = [RETRY] if reader == clients[0] else []
        return ["--clients", ",".join(clients), "--client-id", reader], mine + retries, True

    def expect_agreement(self) -> None:
        offsets = {
            (row.topic, row.queue_id): row.next_offset for row in self.store.store.consumer_offsets.collect()
        }
        known = {queue: offset for queue, offset in self.model.offsets.items() if queue in offsets}
        assert {queue: offsets[queue] for queue in known} == known
        dead = [int(bytes(row.body)) for row in self.store.rows() if row.topic == "%DLQ%g"]
        assert sorted(dead) == sorted(self.model.dead)
        self.store.expect_promises()


@contextmanager
def overtaken(meanwhile: Callable[[str], None]) -> Iterator[set[str]]:
    """Readers that others are before: `meanwhile` is called before the first of each of the MOMENTS of a run."""
    seen = set[str]()

    def after_others(moment: str) -> Any:
        own = getattr(Reader, moment)

        def overtaken_reader(reader: Reader, *arguments: Any) -> Any:
            if moment not in seen:
                seen.add(moment)
                meanwhile(moment)
            return own(reader, *arguments)

        return patch.object(Reader, moment, overtaken_reader)

    with after_others(FAILURES), after_others(OFFSETS):
        yield seen


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "steps"),
    [(1, STEPS // 3), *(pytest.param(seed, STEPS, marks=pytest.mark.nightly) for seed in range(2, 7))],
)
def test_random_groups(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, steps: int
) -> None:
    # Of this table, by which retries do not wait, the third level is the last.
    store = life(messageDelayLevel="1s 2s 3s")
    assert list(store.store.settings.retry_levels_ms[: len(LADDER_MS)]) == LADDER_MS
    history = History(store, Listeners(tmp_path, monkeypatch), seed)
    try:
        for _ in range(steps):
            history.step()
        history.expect_agreement()
    except BaseException:
        print("\n".join(history.told))
        raise
