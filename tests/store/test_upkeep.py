"""Vacuum: what no version of the last seven days needs goes, everything else stays."""

import os
import re
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipelines.store.commit import commit
from pipelines.store.plan import Plan
from pipelines.store.progress import progress_write
from pipelines.store.store import Store
from pipelines.store.upkeep import COMMITS_READ, KEPT_HOURS, checkpoint, pack, vacuum
from schemas import COMMITLOG, PROGRESS
from tests.conftest import JobRun
from tests.dispatch.log_rows import append
from tests.newest_of_log import newest_of_log
from tests.store.test_backup import copy

DAY = 86_400


def aged(store: Store, days: float, *files: Path) -> None:
    then = time.time() - days * DAY
    for file in files:
        os.utime(file, (then, then))


def remove_days_ago(log: Path, days: float, name: str) -> None:
    """Make it so that a data file was removed some days ago."""
    for commit_file in log.glob("*.json"):
        lines = commit_file.read_text().splitlines(keepends=True)
        deleted = f'"deletionTimestamp":{int((time.time() - days * DAY) * 1_000)}'
        earlier = [
            re.sub(r'"deletionTimestamp":\d+', deleted, line) if name in line else line for line in lines
        ]
        if earlier != lines:
            commit_file.write_text("".join(earlier))
            (log / f".{commit_file.name}.crc").unlink()


@pytest.fixture
def old(store: Store, tmp_path: Path) -> Store:
    """Ten days old: progress was written three times; the first version's file went nine days ago, the second's five."""
    append(store, {})
    for append_seq in range(3):
        commit(store, lambda at, seq=append_seq: Plan((progress_write(at, {"deliver": seq}),)))
    copy(store, tmp_path / "old")  # only the newest files
    directory = tmp_path / "old" / "progress"
    for file in Path(store.path(PROGRESS)).glob("*.parquet"):
        (directory / file.name).write_bytes(file.read_bytes())
    removed = [
        re.search(r'"remove":\{"path":"([^"]+)"', commit_file.read_text())
        for commit_file in sorted((directory / "_delta_log").glob("*.json"))
    ]
    first, second = (found.group(1) for found in removed if found is not None)
    remove_days_ago(directory / "_delta_log", 9, first)
    remove_days_ago(directory / "_delta_log", 5, second)
    (directory / "left-by-a-killed-run.parquet").write_bytes(b"x" * 1000)
    (directory / "being-written.parquet").write_bytes(b"x" * 1000)
    aged(store, 10, *directory.rglob("*"))
    aged(store, 6, directory / "being-written.parquet")
    return Store(store.spark, str(tmp_path / "old"))


@pytest.mark.nightly
def test_maintain_deletes_it_too(old: Store, commitlake: Callable[..., JobRun]) -> None:
    directory = Path(old.path(PROGRESS))
    before = set(directory.glob("*.parquet"))
    maintain = ("maintain", "--store", old.uri)
    would = commitlake(*maintain, "--dry-run").result["bytes_freed"]
    assert set(directory.glob("*.parquet")) == before
    freed = commitlake(*maintain)
    assert (freed.exit_status, freed.result["bytes_freed"]) == (0, would), freed.stderr
    assert directory / "left-by-a-killed-run.parquet" in before - set(directory.glob("*.parquet"))
    assert [row.append_seq for row in old.progress.collect()] == [2]


@pytest.mark.slow
def test_what_nobody_needs_is_deleted_and_the_rest_stays(old: Store) -> None:
    directory = Path(old.path(PROGRESS))
    before = {file.name: file.stat().st_size for file in directory.glob("*.parquet")}
    assert len(before) == 5
    now_ms = int(time.time() * 1_000)
    would = vacuum(old, PROGRESS, dry_run=True, now_ms=now_ms)
    assert {file.name for file in directory.glob("*.parquet")} == set(before)
    freed = vacuum(old, PROGRESS, dry_run=False, now_ms=now_ms)
    after = {file.name for file in directory.glob("*.parquet")}
    gone = set(before) - after
    assert len(gone) == 2
    assert "left-by-a-killed-run.parquet" in gone
    assert "being-written.parquet" in after
    assert would == sum(before[name] for name in gone)
    assert freed == would
    assert [row.append_seq for row in old.progress.collect()] == [2]


def test_a_table_of_this_week_is_not_looked_through(old: Store) -> None:
    written_ms = int(time.time() * 1_000) - 10 * DAY * 1_000
    assert vacuum(old, PROGRESS, dry_run=True, now_ms=written_ms + (KEPT_HOURS - 1) * 3_600_000) == 0


@pytest.mark.slow
def test_a_table_with_many_commits_after_its_checkpoint_gets_one(store: Store) -> None:
    table = store.delta(PROGRESS)
    while table.update().version < COMMITS_READ:
        assert not checkpoint(store, PROGRESS)
        commit(store, lambda at: Plan((progress_write(at, {"deliver": at.version(PROGRESS)}),)))
    assert checkpoint(store, PROGRESS)
    newest = table.update()
    assert newest.checkpoint()[0] == newest.version == COMMITS_READ
    assert not checkpoint(store, PROGRESS)
    # A session that opens the table reads the checkpoint, and commits follow it.
    table.java.org.apache.spark.sql.delta.DeltaLog.clearCache()
    again = Store(store.spark, store.uri)
    assert [row.append_seq for row in again.progress.collect()] == [COMMITS_READ - 1]
    commit(again, lambda at: Plan((progress_write(at, {"deliver": 77}),)))
    assert [row.append_seq for row in again.progress.collect()] == [77]


def test_a_log_that_does_not_add_up_gets_none_and_delta_says_why(store: Store) -> None:
    """Delta asks for the active session to say it. A thread that has run no query has none."""
    table = store.delta(PROGRESS)
    while table.update().version < COMMITS_READ:
        commit(store, lambda at: Plan((progress_write(at, {"deliver": at.version(PROGRESS)}),)))
    log = Path(store.path(PROGRESS), "_delta_log")
    newest = max(log.glob("*.json"))
    lines = newest.read_text().splitlines(keepends=True)
    newest.write_text("".join(line for line in lines if '"add"' not in line))
    newest.with_name(f".{newest.name}.crc").unlink()

    def first_of_a_thread() -> bool:
        table.java.org.apache.spark.sql.classic.SparkSession.clearActiveSession()
        return checkpoint(store, PROGRESS)

    with ThreadPoolExecutor(1) as pool, pytest.raises(Exception, match="failed integrity checks"):
        pool.submit(first_of_a_thread).result()
    assert not list(log.glob("*.checkpoint*"))


def test_a_small_table_is_packed_as_delta_packs_it(store: Store, tmp_path: Path) -> None:
    """Delta is given the files of the version, and need not replay the log for them: its commit is the same."""
    for _ in range(3):
        append(store, {})
    plain = tmp_path / "plain"
    shutil.copytree(store.path(COMMITLOG), plain)
    store.spark.sql(f"OPTIMIZE delta.`{plain}`")
    before = store.commitlog.collect()
    assert pack(store, COMMITLOG) == 3
    assert pack(store, COMMITLOG) == 0
    assert sorted(store.commitlog.collect()) == sorted(before)
    for suffix in (".json", ".crc"):
        assert newest_of_log(Path(store.path(COMMITLOG)), suffix) == newest_of_log(plain, suffix)
    # After it, Delta replays the log: the files removed are there for a VACUUM.
    assert store.delta(COMMITLOG).newest()._snapshot.tombstones().count() == 3
