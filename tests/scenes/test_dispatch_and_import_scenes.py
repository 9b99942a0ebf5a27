"""Dispatches and imports that are killed: run again, nothing is lost and nothing is there twice."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.store.store import Store
from tests.conftest import JobRun, write_jsonl
from tests.scenes.processes import kill_when, start

Commitlake = Callable[..., JobRun]
SEEDS = range(1, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_dispatch_killed_at_any_moment_gives_each_entry_once(
    commitlake: Commitlake, store: Store, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    rows = [{"topic": f"T{number % 3}", "body": "", "keys": f"k{number}"} for number in range(60)]
    put = commitlake("put_messages", "--store", store.uri, "--input", write_jsonl(tmp_path / "a.jsonl", rows))
    assert put.exit_status == 0, put.stderr
    process = start("dispatch", "--store", store.uri)
    table = chance.choice(["consume_queue", "message_index", "progress"])
    commits = Path(store.uri) / table / "_delta_log" / "*.json"
    kill_when(process, commits, 2, chance.random() / 2, with_jvm=seed % 2 == 1)
    again = commitlake("dispatch", "--store", store.uri)
    assert again.exit_status == 0, again.stderr
    assert store.consume_queue.count() == 60
    assert store.consume_queue.select("physical_offset").distinct().count() == 60
    assert store.message_index.count() == 120
    assert store.message_index.select("physical_offset", "key").distinct().count() == 120


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_an_import_killed_at_any_moment_goes_on_where_it_stopped(
    commitlake: Commitlake,
    spark: object,
    golden_broker: Callable[[str], Path],
    tmp_path: Path,
    seed: int,
) -> None:
    chance = random.Random(seed)
    directory = tmp_path / "store"
    arguments = ["import_store", "--store", directory, "--from", golden_broker("a")]
    process = start(*arguments)
    if chance.random() < 0.5:  # while the tables are made, or while rows are appended
        kill_when(process, directory / "*" / "_delta_log", chance.randint(1, 20), 0, with_jvm=True)
    else:
        kill_when(
            process,
            directory / "topics" / "_delta_log" / "*.json",
            2,
            2 * chance.random(),
            with_jvm=seed % 2 == 1,
        )
    again = commitlake(*arguments)
    assert again.exit_status == 0, again.stderr
    log = Store(spark, str(directory)).commitlog  # type: ignore[arg-type]
    assert log.count() == 958
    assert log.select("physical_offset").distinct().count() == 958
    assert commitlake(*arguments).result["messages"] == 0
