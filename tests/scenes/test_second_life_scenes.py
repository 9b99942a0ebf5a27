"""Delivering, sending back and checking, killed and raced: run until quiet, every promise holds."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.life import B, Life
from tests.scenes.processes import end, kill_when, start

KEPT_WAITING = 30


def fill(store: Life) -> None:
    store.put(
        B,
        *[
            {"topic": f"T{n % 3}", "unique_key": f"k{n}", "delay_level": 1 + n % 4}
            for n in range(KEPT_WAITING)
        ],
    )


def delivered(store: Life) -> list[int]:
    return [row.source_offset for row in store.rows() if row.purpose == "deliver"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_a_deliver_killed_at_any_moment_brings_each_back_once(life: Callable[..., Life], seed: int) -> None:
    chance = random.Random(seed)
    store = life()
    fill(store)
    process = start("deliver", "--store", store.store.uri, "--now", B + 30_000)
    commits = Path(store.store.uri) / chance.choice(["commitlog", "progress"]) / "_delta_log" / "*.json"
    kill_when(process, commits, 2, chance.random(), with_jvm=seed % 2 == 0)
    store.deliver(B + 30_000)
    assert sorted(delivered(store)) == sorted(set(delivered(store)))
    assert len(delivered(store)) == KEPT_WAITING
    assert store.deliver(B + 40_000)["delivered"] == 0
    store.expect_promises()


@pytest.mark.slow
def test_two_delivers_at_once_and_one_with_the_clock_set_back(life: Callable[..., Life]) -> None:
    store = life()
    fill(store)
    runs = [start("deliver", "--store", store.store.uri, "--now", B + now) for now in (30_000, 30_500)]
    for process in runs:
        status, said = end(process)
        assert status == 0, said
    assert len(delivered(store)) == KEPT_WAITING
    assert store.deliver(B + 1_000)["delivered"] == 0
    store.store.spark.sql(
        f"DELETE FROM delta.`{store.store.uri}/progress`"
    )  # a cache: nothing is lost with it
    assert store.deliver(B + 60_000)["delivered"] == 0
    store.expect_promises()


def test_two_threads_send_back_the_same_failures_and_each_counts_once(life: Callable[..., Life]) -> None:
    store = life()
    rows = store.append(*[{"reconsume_times": n % 2 * 16} for n in range(6)])
    path = store.input(*[{"physical_offset": row.physical_offset} for row in rows])
    store.job("topics", B, "create-group", "g")

    def once(_: int) -> dict[str, int]:
        from jobs.job import Run
        from jobs.send_back import send_failures

        return send_failures(Run("send_back", store.store.uri, B, quiet=True), "g", str(path))

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(once, range(2)))
    assert sum(result["sent_back"] for result in results) == 3
    assert sum(result["dead_lettered"] for result in results) == 3
    assert sum(result["already"] for result in results) == 6
    store.expect_promises()
