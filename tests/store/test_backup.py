"""Backups: a copy made while others write is a store that keeps every promise, and goes on."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.dispatch.follow import plan_dispatch
from pipelines.errors import BadInput, StoreError
from pipelines.store import backup as module
from pipelines.store.backup import Backup
from pipelines.store.commit import commit
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import BACKUP_FILE, Store
from schemas import COMMITLOG, CONSUME_QUEUE, PROGRESS, QUEUE_BOUNDS, TABLES, Table
from tests.conftest import JobRun
from tests.dispatch.log_rows import append
from tests.life import B, Life

MESSAGE = {"properties": "UNIQ_KEY\x01u\x02"}
Backed = Callable[..., JobRun]


def offsets(store: Store, table: Table) -> list[int]:
    return sorted(row.physical_offset for row in store.read(table).select("physical_offset").collect())


def statuses(directory: Path) -> str:
    return json.loads((directory / BACKUP_FILE).read_text())["status"]


def copy(store: Store, to: Path) -> module.Copied:
    return Backup(store, str(to), B).copy(lambda _: None)


@pytest.fixture
def filled(life: Callable[..., Life]) -> Life:
    store = life()
    store.put(B, {"topic": "T", "keys": "k"}, {"topic": "T", "delay_level": 2}, {"topic": "%RETRY%g"})
    store.job("topics", B, "create-group", "g")
    store.job("dispatch", B)
    return store


@pytest.mark.nightly
@pytest.mark.slow
def test_a_backup_is_a_store_that_goes_on_and_takes_what_is_new(filled: Life, tmp_path: Path) -> None:
    to = tmp_path / "backup"
    first = filled.job("backup", B, "--to", to).result
    assert (first["tables"], first["already"], first["append_seq"]) == (len(TABLES), 0, 0)
    again = filled.job("backup", B, "--to", to).result
    assert (again["bytes"] < first["bytes"], again["append_seq"]) == (True, 0)
    filled.put(B + 1, {"topic": "T"})
    later = filled.job("backup", B, "--to", to).result
    assert later["append_seq"] == 1
    assert 0 < later["files"] < first["files"]

    restored = tmp_path / "restored"
    copied = Life(filled.commitlake, Store(filled.store.spark, str(to)), tmp_path)
    copied.job("backup", B, "--to", restored)
    life = Life(filled.commitlake, Store(filled.store.spark, str(restored)), tmp_path)
    assert life.job("validate", B, "--full").result["broken"] == 0
    assert life.rows() == filled.rows()
    life.put(B + 2, {"topic": "T"})
    assert life.job("dispatch", B).result["queue_entries"] == 2
    assert life.deliver(B + 10_000)["delivered"] == 1
    life.expect_promises()
    onward = life.job("backup", B, "--to", to).result  # a copy that went on is the same store with more in it
    assert onward["append_seq"] == 3
    other = filled.job("backup", B, "--to", to, exit_status=2)
    assert "went different ways" in other.stderr


@pytest.mark.nightly
@pytest.mark.slow
def test_whenever_others_commit_while_tables_are_pinned_the_copy_is_as_after_a_crash(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, MESSAGE)
    commit(store, plan_dispatch)
    version = Snapshot.version
    moments = iter([PROGRESS, CONSUME_QUEUE, QUEUE_BOUNDS, COMMITLOG])
    moment = next(moments)

    def pinned_and_overtaken(at: Snapshot, table: Table) -> int:
        nonlocal moment
        found = version(at, table)
        if table == moment and table.name not in seen:
            seen.add(table.name)
            moment = next(moments, None)
            with monkeypatch.context() as others:
                others.setattr(Snapshot, "version", version)
                append(store, MESSAGE)
                commit(store, plan_dispatch)
        return found

    seen: set[str] = set()
    monkeypatch.setattr(Snapshot, "version", pinned_and_overtaken)
    planned = Backup(store, str(tmp_path / "backup"), B)
    monkeypatch.undo()
    assert len(seen) == 4
    planned.copy(lambda _: None)
    copied = Store(store.spark, str(tmp_path / "backup"))
    assert planned.append_seq == 3  # all but the append after the log was pinned
    commit(copied, plan_dispatch)
    append(copied, MESSAGE)
    commit(copied, plan_dispatch)
    assert offsets(copied, CONSUME_QUEUE) == offsets(copied, COMMITLOG) == [0, 100, 200, 300, 400]


@pytest.mark.slow
def test_a_backup_that_was_killed_is_no_store_until_it_is_run_again(
    filled: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "backup"
    copy_file = Backup.copy_one

    def killed_after(files: int) -> Callable[[Backup, module.File], bool]:
        left = iter(range(files))

        def copy_or_die(backup: Backup, file: module.File) -> bool:
            if next(left, None) is None:
                raise StoreError("killed")
            return copy_file(backup, file)

        return copy_or_die

    for files in (3, 30):  # among the data files, and among the logs
        with monkeypatch.context() as killing:
            killing.setattr(Backup, "copy_one", killed_after(files))
            filled.job("backup", B, "--to", to, exit_status=1)
        for job in ("dispatch", "create_store"):
            refused = filled.commitlake(job, "--store", to)
            assert refused.exit_status == 2
            assert f"the backup at {to} is not complete" in refused.stderr
    assert statuses(to) == "copying"
    cut = next((to / "commitlog").glob("*/*.parquet"), None) or next((to / "commitlog").glob("*.parquet"))
    cut.write_bytes(cut.read_bytes()[:10])  # a file that was cut short
    filled.job("backup", B, "--to", to)
    assert statuses(to) == "complete"
    assert Store.open(filled.store.spark, str(to)).commitlog.count() == 3


@pytest.mark.slow
def test_a_long_log_is_copied_from_its_checkpoint_and_progress_still_counts(
    store: Store, tmp_path: Path
) -> None:
    append(store, MESSAGE)
    commit(store, plan_dispatch)
    often = "SET TBLPROPERTIES ('delta.checkpointInterval' = '2')"
    store.spark.sql(f"ALTER TABLE delta.`{store.path(COMMITLOG)}` {often}")
    for _ in range(3):
        append(store, MESSAGE)
    log = "commitlog/_delta_log"
    Path(store.uri, log, f"{0:020d}.json").unlink()  # as Delta does after a month
    assert list(Path(store.uri, log).glob("*4.checkpoint*.parquet"))
    copy(store, tmp_path / "backup")
    copied = Store(store.spark, str(tmp_path / "backup"))
    assert offsets(copied, COMMITLOG) == [0, 100, 200, 300]
    assert commit(copied, plan_dispatch).counts["consume_queue"] == 3
    assert offsets(copied, CONSUME_QUEUE) == [0, 100, 200, 300]


@pytest.mark.slow
def test_files_that_were_copied_by_other_means_are_there_already(filled: Life, tmp_path: Path) -> None:
    """docs/operations.md: the data files of a large store go ahead, without the logs."""
    to = tmp_path / "backup"
    shutil.copytree(filled.store.uri, to, ignore=shutil.ignore_patterns("_delta_log"))
    done = filled.job("backup", B, "--to", to).result
    assert 0 < done["already"] < done["files"] + done["already"]
    copied = Life(filled.commitlake, Store(filled.store.spark, str(to)), tmp_path)
    assert copied.rows() == filled.rows()
    assert copied.job("validate", B, "--full").result["broken"] == 0


def test_a_copy_with_its_logs_is_no_place_for_a_backup(filled: Life, tmp_path: Path) -> None:
    shutil.copytree(filled.store.uri, tmp_path / "copy")
    run = filled.job("backup", B, "--to", tmp_path / "copy", exit_status=2)
    assert "is not empty and holds no backup" in run.stderr


@pytest.mark.parametrize("to", ["store1/inside", "", "full"])
def test_a_directory_that_holds_something_else_is_refused(store: Store, commitlake: Backed, to: str) -> None:
    directory = Path(store.uri).parent / to
    (directory.parent / "full").mkdir(exist_ok=True)
    (directory.parent / "full" / "mine.txt").write_text("x")
    run = commitlake("backup", "--store", store.uri, "--to", directory)
    assert run.exit_status == 2
    assert "expected a directory apart" in run.stderr or "is not empty and holds no backup" in run.stderr


def test_a_backup_of_another_store_is_not_written_over(store: Store, tmp_path: Path) -> None:
    copy(store, tmp_path / "backup")
    note = tmp_path / "backup" / BACKUP_FILE
    said = json.loads(note.read_text())
    said["tables"]["commitlog"]["id"] = "another"
    note.write_text(json.dumps(said))
    note.with_name(f".{BACKUP_FILE}.crc").unlink()
    with pytest.raises(BadInput, match="holds a backup of another store"):
        copy(store, tmp_path / "backup")
