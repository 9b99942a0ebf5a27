"""Queue files of an export that is made again: what they hold is taken from themselves, if it is there and of this log."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from pipelines.broker_files.queue_files import UNIT
from pipelines.export import queues
from pipelines.export.directory import ExportDirectory
from pipelines.store.store import Store
from tests.conftest import JobRun, write_jsonl
from tests.export.test_export_store import files_of

PUT = Callable[[str, str], None]


@pytest.fixture
def put(commitlake: Callable[..., JobRun], tmp_path: Path) -> PUT:
    """Puts seven messages into each of four queues."""

    def put_messages(uri: str, name: str) -> None:
        rows = [{"topic": "T", "queue_id": row % 4, "body": f"{name}{row}" * 9} for row in range(28)]
        run = commitlake(
            "put_messages", "--store", uri, "--input", write_jsonl(tmp_path / f"{name}.jsonl", rows)
        )
        assert run.exit_status == 0, run.stderr

    return put_messages


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether files went on from what they had, for each time that queue files are written."""
    went_on: list[bool] = []

    make = queues.QueueFiles

    def noted(to: ExportDirectory, file_bytes: int, from_offset: int | None = None) -> queues.QueueFiles:
        went_on.append(from_offset is not None)
        return make(to, file_bytes, from_offset)

    monkeypatch.setattr(queues, "QueueFiles", noted)
    return went_on


def expect_like_a_new_one(commitlake: Callable[..., JobRun], uri: str, export: Path, whole: Path) -> None:
    for to in (export, whole):
        run = commitlake("export_store", "--store", uri, "--to", to)
        assert run.exit_status == 0, run.stderr
    for name in ("commitlog", "consumequeue", "index"):
        assert files_of(export / name) == files_of(whole / name), name


def zeros_at(path: Path, unit: int) -> None:
    units = np.frombuffer(path.read_bytes(), UNIT).copy()
    units[unit] = np.zeros(1, UNIT)
    path.write_bytes(units.tobytes())


DAMAGES: Sequence[Callable[[Path], object]] = (
    lambda path: path.unlink(),
    lambda path: path.write_bytes(path.read_bytes()[:10]),
    lambda path: path.write_bytes(b""),
    lambda path: zeros_at(path, 1),
)


@pytest.mark.slow
def test_only_new_entries_are_read_where_the_files_have_the_earlier_ones(
    commitlake: Callable[..., JobRun],
    new_store: Callable[..., Store],
    put: PUT,
    written: list[bool],
    tmp_path: Path,
) -> None:
    store = new_store(mappedFileSizeConsumeQueue="200")
    export, files = tmp_path / "export", tmp_path / "export" / "consumequeue" / "T"
    put(store.uri, "first")
    expect_like_a_new_one(commitlake, store.uri, export, tmp_path / "whole-1")
    written.clear()
    put(store.uri, "second")
    expect_like_a_new_one(commitlake, store.uri, export, tmp_path / "whole-2")
    assert written == [True, False]  # the new one, and the comparison's
    for queue, damage in enumerate(DAMAGES):
        damage(files / str(queue) / f"{200:020d}")
    put(store.uri, "third")
    written.clear()
    expect_like_a_new_one(commitlake, store.uri, export, tmp_path / "whole-3")
    assert written == [True, False, False]
    commitlake("settings", "--store", store.uri, "set", "mappedFileSizeConsumeQueue=400")
    expect_like_a_new_one(commitlake, store.uri, export, tmp_path / "whole-4")


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_store_that_was_put_back_and_has_gone_on_is_not_added_to_an_export(
    commitlake: Callable[..., JobRun],
    store: Store,
    put: PUT,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_killed: bool,
) -> None:
    """A run that is killed has written queue entries of rows that the store then lacks."""
    export, earlier = tmp_path / "export", str(tmp_path / "earlier")
    put(store.uri, "first")
    if is_killed:
        assert commitlake("export_store", "--store", store.uri, "--to", export).exit_status == 0
    shutil.copytree(store.uri, earlier)
    put(store.uri, "second")
    with monkeypatch.context() as killed:
        if is_killed:
            killed.setattr("pipelines.export.export.write_index", lambda *_: 1 // 0)
        run = commitlake("export_store", "--store", store.uri, "--to", export)
        assert run.exit_status == (1 if is_killed else 0), run.stderr
    whole = files_of(export)
    put(earlier, "Second")  # as long as what the export has
    put(earlier, "third")
    refused = commitlake("export_store", "--store", earlier, "--to", export)
    assert refused.exit_status == 2
    assert "was put back as it was earlier, and has gone on since" in " ".join(refused.stderr.split())
    assert files_of(export) == whole
    assert commitlake("export_store", "--store", store.uri, "--to", export).exit_status == 0
