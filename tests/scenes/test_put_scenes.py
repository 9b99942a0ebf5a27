"""Puts that are killed, that race, that meet maintenance: every message in the log once, offsets without gap."""

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.store.store import Store
from tests.conftest import JobRun, write_jsonl
from tests.races import in_threads
from tests.scenes.processes import SMALL_APPENDS, Moment, end, kill_at, start, wait_for

Commitlake = Callable[..., JobRun]
SEGMENT_BYTES = 4_096


def write_input(directory: Path, name: str, files: int, rows: int) -> Path:
    source = directory / name
    source.mkdir()
    for file in range(files):
        messages = [{"topic": f"T{row % 2}", "body": f"{name}-{file}-{row}"} for row in range(rows)]
        write_jsonl(source / f"{file}.jsonl", messages)
    return source


def expect_log(store: Store, bodies: list[str]) -> None:
    """Every body once; records lie one behind the other, and queues have no gap."""
    rows = store.commitlog.orderBy("physical_offset").collect()
    assert Counter(bytes(row.body).decode() for row in rows) == Counter(dict.fromkeys(bodies, 1))
    offset = 0
    queues: Counter[tuple[str, int]] = Counter()
    for row in rows:
        if offset % SEGMENT_BYTES + row.size_bytes + 8 > SEGMENT_BYTES:
            offset += SEGMENT_BYTES - offset % SEGMENT_BYTES
        assert row.physical_offset == offset
        assert row.queue_offset == queues[row.topic, row.queue_id]
        offset += row.size_bytes
        queues[row.topic, row.queue_id] += 1
    seqs = [row.append_seq for row in rows]
    assert seqs == sorted(seqs)


def bodies_of(name: str, files: int, rows: int) -> list[str]:
    return [f"{name}-{file}-{row}" for file in range(files) for row in range(rows)]


@pytest.mark.slow
def test_a_put_killed_at_any_moment_goes_on_where_it_stopped(
    commitlake: Commitlake, new_store: Callable[..., Store], tmp_path: Path
) -> None:
    store = new_store(mappedFileSizeCommitLog=str(SEGMENT_BYTES))
    source = write_input(tmp_path, "a", 6, 20)
    arguments = ["put_messages", "--store", store.uri, "--input", source]
    log = Path(store.uri) / "commitlog"
    kill_at(Moment.BEFORE, log, *arguments, with_jvm=True, before=SMALL_APPENDS)
    kill_at(Moment.DURING, log, *arguments, with_jvm=True, before=SMALL_APPENDS)
    kill_at(Moment.DURING, log, *arguments, with_jvm=False, before=SMALL_APPENDS)
    kill_at(Moment.AFTER, log, *arguments, with_jvm=False, nth=2, before=SMALL_APPENDS)
    again = commitlake(*arguments)
    assert again.exit_status == 0, again.stderr
    # Two appends of a file each are from the last run that was killed, one perhaps from the JVM before it.
    assert again.result["already"] in (40, 60)
    expect_log(store, bodies_of("a", 6, 20))
    assert commitlake(*arguments).result["already"] == 120


@pytest.mark.nightly
def test_control_c_ends_a_put_with_one_sentence(new_store: Callable[..., Store], tmp_path: Path) -> None:
    store = new_store(mappedFileSizeCommitLog=str(SEGMENT_BYTES))
    source = write_input(tmp_path, "a", 6, 20)
    process = start("put_messages", "--store", store.uri, "--input", source, before=SMALL_APPENDS)
    wait_for(process, Path(store.uri) / "commitlog" / "_delta_log" / "*.json", 2)
    process.send_signal(signal.SIGINT)
    status, said = end(process)
    assert status == 1
    assert '"job": "put_messages", "status": "failed"' in said
    assert "error: put_messages was interrupted; nothing is lost, it is safe to run again" in said
    assert "Traceback" not in said


@pytest.mark.nightly
def test_two_processes_put_at_once_and_both_are_in_the_log(
    new_store: Callable[..., Store], tmp_path: Path
) -> None:
    store = new_store(mappedFileSizeCommitLog=str(SEGMENT_BYTES))
    processes = [
        start(
            "put_messages",
            "--store",
            store.uri,
            "--input",
            write_input(tmp_path, name, 3, 10),
            before=SMALL_APPENDS,
        )
        for name in ("a", "b")
    ]
    for process in processes:
        status, said = end(process)
        assert status == 0, said
    expect_log(store, bodies_of("a", 3, 10) + bodies_of("b", 3, 10))


def put_in_thread(store: Store, source: Path, batch_id: str | None = None) -> Callable[[], dict[str, Any]]:
    from jobs.launch.run import Run
    from pipelines.produce.put_input import PutOptions, put_input

    return lambda: put_input(
        Run("put_messages", store.uri, 1_000, quiet=True), PutOptions(str(source), batch_id=batch_id)
    )


def test_two_threads_put_at_once_and_both_are_in_the_log(
    new_store: Callable[..., Store], tmp_path: Path
) -> None:
    store = new_store(mappedFileSizeCommitLog=str(SEGMENT_BYTES))
    sources = [write_input(tmp_path, name, 1, 25) for name in ("a", "b")]
    in_threads(*[put_in_thread(store, source) for source in sources])
    expect_log(store, bodies_of("a", 1, 25) + bodies_of("b", 1, 25))


def test_the_same_input_put_by_two_at_once_goes_in_once(
    new_store: Callable[..., Store], tmp_path: Path
) -> None:
    store = new_store(mappedFileSizeCommitLog=str(SEGMENT_BYTES))
    source = write_input(tmp_path, "a", 1, 25)
    results = in_threads(put_in_thread(store, source, "B"), put_in_thread(store, source, "B"))
    assert sum(result["appended"] for result in results) == 25
    expect_log(store, bodies_of("a", 1, 25))


@pytest.mark.nightly
def test_a_put_of_many_appends_ends_beside_small_ones_and_compaction(
    new_store: Callable[..., Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pipelines.produce.counted_input as module

    monkeypatch.setattr(module, "APPEND_BYTES", 1)
    monkeypatch.setattr(module, "PARTS_OF_A_FILE", 2**40)
    store = new_store(mappedFileSizeCommitLog=str(SEGMENT_BYTES))
    large = write_input(tmp_path, "large", 5, 10)
    small = [write_input(tmp_path, f"small{number}", 1, 2) for number in range(3)]

    def tick() -> None:
        for source in small:
            put_in_thread(store, source)()

    def optimize() -> None:
        for _ in range(2):
            store.spark.sql(f"OPTIMIZE delta.`{store.uri}/commitlog`")

    in_threads(put_in_thread(store, large), tick, optimize)
    expect_log(
        store, bodies_of("large", 5, 10) + [body for n in range(3) for body in bodies_of(f"small{n}", 1, 2)]
    )
