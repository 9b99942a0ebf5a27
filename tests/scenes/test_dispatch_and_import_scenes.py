"""Dispatches and imports that are killed: run again, nothing is lost and nothing is there twice."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.store.store import Store
from tests.conftest import JobRun, write_jsonl
from tests.scenes.processes import Moment, kill_at, kill_when, start

Commitlake = Callable[..., JobRun]


@pytest.mark.slow
def test_a_dispatch_killed_at_any_moment_gives_each_entry_once(
    commitlake: Commitlake, store: Store, tmp_path: Path
) -> None:
    def put(name: str) -> None:
        rows = [{"topic": f"T{n % 3}", "body": "", "keys": f"{name}{n}"} for n in range(20)]
        source = write_jsonl(tmp_path / f"{name}.jsonl", rows)
        run = commitlake("put_messages", "--store", store.uri, "--input", source)
        assert run.exit_status == 0, run.stderr

    # Tables are written side by side, so what a kill leaves of the others differs. Each run finds new messages.
    for name, table, moment, with_jvm in [
        ("a", "consume_queue", Moment.BEFORE, True),
        ("b", "message_index", Moment.DURING, True),
        ("c", "consume_queue", Moment.DURING, False),
        ("d", "message_index", Moment.AFTER, False),
    ]:
        put(name)
        kill_at(moment, Path(store.uri) / table, "dispatch", "--store", store.uri, with_jvm=with_jvm)
    again = commitlake("dispatch", "--store", store.uri)
    assert again.exit_status == 0, again.stderr
    assert store.consume_queue.count() == 80
    assert store.consume_queue.select("physical_offset").distinct().count() == 80
    assert store.message_index.count() == 160
    assert store.message_index.select("physical_offset", "key").distinct().count() == 160


@pytest.mark.nightly
def test_an_import_killed_at_any_moment_goes_on_where_it_stopped(
    commitlake: Commitlake,
    spark: object,
    golden_broker: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    directory = tmp_path / "store"
    arguments = ["import_store", "--store", directory, "--from", golden_broker("a")]
    # While the tables are made; then around the commit of the rows, before what follows from them is written.
    kill_when(start(*arguments), directory / "*" / "_delta_log", 10, with_jvm=True)
    kill_at(Moment.BEFORE, directory / "commitlog", *arguments, with_jvm=True)
    kill_at(Moment.DURING, directory / "commitlog", *arguments, with_jvm=True)
    kill_at(Moment.AFTER, directory / "commitlog", *arguments, with_jvm=False)
    again = commitlake(*arguments)
    assert again.exit_status == 0, again.stderr
    log = Store(spark, str(directory)).commitlog  # type: ignore[arg-type]
    assert log.count() == 958
    assert log.select("physical_offset").distinct().count() == 958
    assert commitlake(*arguments).result["messages"] == 0
