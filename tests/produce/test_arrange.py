"""An input that is arranged: rows in order of arrival, in files that begin at the same rows each time."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipelines.log.count import CountedSplit
from pipelines.produce import arrange, counted_input, put
from pipelines.produce.arrange import file_borders
from pipelines.store.store import Store
from tests.conftest import JobRun, write_jsonl
from tests.scenes.processes import SMALL_APPENDS, kill_when, start

Commitlake = Callable[..., JobRun]
ROWS = 700

SMALL_FILES = (
    "import pipelines.produce.arrange as arrange; arrange.FILE_BYTES = arrange.SMALL_FILE_BYTES = 4096"
)


def out_of_order(directory: Path) -> tuple[Path, list[str]]:
    """Three files of messages whose arrivals go to and fro, many of them the same; and their bodies in order."""
    chance = random.Random(7)
    arrivals = [chance.choice([5, chance.randrange(20)]) for _ in range(ROWS)]
    rows = [{"topic": "T", "body": f"{n}", "arrival": arrival} for n, arrival in enumerate(arrivals)]
    source = directory / "input"
    source.mkdir()
    for file, (first, end) in enumerate(((0, 150), (150, 151), (151, ROWS))):
        write_jsonl(source / f"{file}.jsonl", rows[first:end])
    return source, [str(n) for n in sorted(range(ROWS), key=lambda n: (arrivals[n], n))]


def bodies(store: Store) -> list[str]:
    return [bytes(row.body).decode() for row in store.commitlog.orderBy("physical_offset").collect()]


def in_small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrange, "FILE_BYTES", 4096)
    monkeypatch.setattr(arrange, "SMALL_FILE_BYTES", 4096)
    monkeypatch.setattr(counted_input, "APPEND_BYTES", 1)
    monkeypatch.setattr(counted_input, "PARTS_OF_A_FILE", 2**40)


class CutShort(Exception):
    """What a test's put dies of."""


def dies_after(monkeypatch: pytest.MonkeyPatch, appends: int) -> None:
    go_on, left = put.Found.and_also, [None] * appends

    def dying(self: put.Found, placement: put.Placement, has_written_bounds: bool) -> put.Found:
        left.pop()
        if not left:
            raise CutShort
        return go_on(self, placement, has_written_bounds)

    monkeypatch.setattr(put.Found, "and_also", dying)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [(), ("--batch-id", "mine"), ("--selector", "random", "--batch-id", "mine")]
)
def test_an_arranged_put_that_was_cut_short_goes_on(
    commitlake: Commitlake,
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
) -> None:
    source, in_order = out_of_order(tmp_path)
    in_small_files(monkeypatch)
    arguments = ["put_messages", "--store", store.uri, "--input", source, *options]
    with monkeypatch.context() as cut:
        dies_after(cut, 2)
        assert commitlake(*arguments).exit_status == 1
    there = store.commitlog.count()
    assert 0 < there < ROWS
    again = commitlake(*arguments)
    assert again.exit_status == 0, again.stderr
    assert (again.result["appended"], again.result["already"]) == (ROWS - there, there)
    assert bodies(store) == in_order
    assert store.commitlog.select("append_seq").distinct().count() > 3
    assert commitlake(*arguments).result["already"] == ROWS


def test_a_put_whose_parts_end_elsewhere_is_not_told_to_put_its_messages_twice(
    commitlake: Commitlake, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _ = out_of_order(tmp_path)
    in_small_files(monkeypatch)
    with monkeypatch.context() as cut:
        dies_after(cut, 2)
        commitlake("put_messages", "--store", store.uri, "--input", source)
    there = store.commitlog.count()
    monkeypatch.setattr(arrange, "FILE_BYTES", 2**40)
    monkeypatch.setattr(arrange, "SMALL_FILE_BYTES", 2**40)
    elsewhere = commitlake("put_messages", "--store", store.uri, "--input", source)
    assert elsewhere.exit_status == 2
    assert f"put only the rows from {there} on" in elsewhere.stderr
    assert store.commitlog.count() == there


@pytest.mark.quick
def test_files_begin_about_equally_many_rows_apart() -> None:
    arrivals = np.arange(1_000, dtype=np.int64)[::-1]
    falling = CountedSplit((1, 0), rows=1_000, arrivals=[arrivals[:300:100], arrivals[300::100]])
    tiny = CountedSplit((2, 0), rows=1, arrivals=[np.array([-5], np.int64)])
    by_arrival = file_borders([falling, tiny], True, 4)
    assert list(by_arrival[0]) == sorted(by_arrival[0])
    assert len(by_arrival[0]) == 3
    assert [list(numbers) for numbers in file_borders([falling, tiny], False, 3)] == [[0, 0], [400, 700]]
    assert [len(numbers) for numbers in file_borders([tiny], True, 5)] == [0, 0]


def test_batches_that_are_arranged_stay_whole(
    commitlake: Commitlake, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every batch takes one turn over the queues, also where the input is large enough for several files."""
    in_small_files(monkeypatch)
    rows = [{"topic": "T", "body": f"{n}", "batch": f"b{n // 60}", "arrival": -(n // 60)} for n in range(360)]
    source = write_jsonl(tmp_path / "input.jsonl", rows)
    run = commitlake("put_messages", "--store", store.uri, "--input", source)
    assert run.exit_status == 0, run.stderr
    queues = [row.queue_id for row in store.commitlog.orderBy("physical_offset").collect()]
    assert queues == [batch % 4 for batch in range(6) for _ in range(60)]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("appends", [1, 3])
def test_an_arranged_put_killed_between_two_appends_goes_on(
    commitlake: Commitlake,
    new_store: Callable[..., Store],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    appends: int,
) -> None:
    store = new_store()
    source, in_order = out_of_order(tmp_path)
    arguments = ["put_messages", "--store", store.uri, "--input", source]
    commits = Path(store.uri) / "commitlog" / "_delta_log" / "*.json"
    process = start(*arguments, before=f"{SMALL_APPENDS}\n{SMALL_FILES}")
    kill_when(process, commits, 1 + appends, with_jvm=True)
    assert 0 < store.commitlog.count() < ROWS
    in_small_files(monkeypatch)
    again = commitlake(*arguments)
    assert again.exit_status == 0, again.stderr
    assert bodies(store) == in_order
