"""Random lives of a group: clients come and go, messages fail, offsets are reset; a plain model says what is handed over."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.consume import allocate
from tests.consume.listeners import Listeners
from tests.life import B, Life
from tests.model.group import LEVELS_MS, RETRY, GroupModel

QUEUES = [("T", number) for number in range(4)]
STEPS = 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 2))
def test_random_groups(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    listeners = Listeners(tmp_path, monkeypatch)
    store = life(messageDelayLevel="1s 5s 10s 30s 1m 2m")
    assert list(store.store.settings.delay_levels_ms) == LEVELS_MS
    model = GroupModel({queue: [] for queue in [*QUEUES, RETRY]}, most_times=2)
    now, number = B, 0
    for _ in range(STEPS):
        now += chance.choice([1_000, 12_000, 40_000])
        rows = []
        for _ in range(chance.randint(3, 8)):
            queue = chance.choice(QUEUES)
            model.put(queue, number)
            rows.append({"topic": "T", "queue_id": queue[1], "body": str(number)})
            number += 1
        store.put(now, *rows)
        store.deliver(now)
        model.deliver(now)
        store.job("dispatch", now)
        if chance.random() < 0.4 and model.offsets:
            _, queue_id = queue = chance.choice(QUEUES)
            offset = chance.randint(0, len(model.queues[queue]))
            at = ("--topic", "T", "--queue-id", queue_id, "--to-offset", offset)
            store.job("reset_offsets", now, "--group", "g", *at)
            model.offsets[queue] = offset
        arguments, mine = some_clients(chance)
        options = ("--group", "g", "--topic", "T", "--max-reconsume-times", 2)
        run = store.job("consume", now, *options, "--listener", listeners.name("by_number"), *arguments)
        handed = model.consume(mine, now)
        assert sorted((int(body), times) for _, _, _, body, times in listeners.handed()) == sorted(handed)
        assert run.result["consumed"] + run.result["failed"] == len(handed)
    offsets = {(row.topic, row.queue_id): row.next_offset for row in store.store.consumer_offsets.collect()}
    assert {queue: offsets[queue] for queue in model.offsets if queue in offsets} == {
        queue: offset for queue, offset in model.offsets.items() if queue in offsets
    }
    dead = [int(bytes(row.body)) for row in store.rows() if row.topic == "%DLQ%g"]
    assert sorted(dead) == sorted(model.dead)
    store.expect_promises()


def some_clients(chance: random.Random) -> tuple[list[str], list[tuple[str, int]]]:
    """Who reads this time, as options, and which queues are theirs."""
    clients = sorted(chance.sample(["a", "b", "c"], chance.randint(1, 3)))
    reader = chance.choice([None, *clients])
    if reader is None:
        return ["--clients", ",".join(clients)], [*QUEUES, RETRY]
    owned = allocate("AVG", [f"broker:{number}" for _, number in QUEUES], clients)[reader]
    mine = [("T", int(queue.partition(":")[2])) for queue in owned]
    return ["--clients", ",".join(clients), "--client-id", reader], mine + (
        [RETRY] if reader == clients[0] else []
    )
