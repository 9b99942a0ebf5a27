"""The head of the log: bounds, and the appends since."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import HeadMoved, StoreError
from pipelines.quality.caches import plan_bounds
from pipelines.store.commit import commit
from pipelines.store.head import APPENDS_BETWEEN_BOUNDS, LogHead, bounds_write, read_head
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from pipelines.store.sql_text import delta_table
from pipelines.store.store import Store
from pipelines.store.upkeep import pack
from schemas import COMMITLOG, Table
from tests.conftest import JobRun, write_jsonl
from tests.dispatch.log_rows import append
from tests.life import B, Life


def test_an_empty_store_starts_at_byte_0(store: Store) -> None:
    assert read_head(store.snapshot()) == LogHead(-1, 0, 0, 0, {}, {}, -1)


def test_the_head_is_the_same_from_bounds_and_from_the_appends(
    commitlake: Callable[..., JobRun], store: Store, tmp_path: Path
) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", [{"topic": "T", "body": str(n)} for n in range(5)])
    for number in range(2):
        commitlake(
            "put_messages",
            "--store",
            store.uri,
            "--input",
            source,
            "--batch-id",
            number,
            "--now",
            1000 - number,
        )
    before = read_head(store.snapshot())
    assert before.bounds_append_seq == -1
    assert before.last_store_timestamp == 1000
    assert sum(before.next_queue_offsets.values()) == 10
    commit(store, lambda at: Plan((bounds_write(at, read_head(at)),)))
    assert read_head(store.snapshot()) == replace(before, bounds_append_seq=before.append_seq)


@pytest.mark.slow
def test_bounds_of_appends_that_the_log_does_not_have_stop_whoever_appends(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    """A copy in the order of names: its log is older than its bounds, from which offsets would be given twice."""
    first = life()
    first.put(B, {"topic": "T", "queue_id": 0, "body": "kept"})
    shutil.copytree(first.store.path(COMMITLOG), tmp_path / "older")
    first.put(B, *[{"topic": "T", "queue_id": 0, "body": "lost"}] * 3)
    first.put(B, {"topic": "lost", "queue_id": 0})
    commit(first.store, lambda at: Plan((bounds_write(at, read_head(at)),)))
    copy = Life(first.commitlake, Store(first.store.spark, str(tmp_path / "copy")), tmp_path)
    shutil.copytree(first.store.uri, copy.store.uri)
    shutil.rmtree(copy.store.path(COMMITLOG))
    shutil.copytree(tmp_path / "older", copy.store.path(COMMITLOG))

    source = copy.input({"topic": "T", "queue_id": 0, "body": "new"})
    refused = copy.job("put_messages", B, "--input", source, exit_status=1)
    assert "queue_bounds is as of append 2, but the log's last append is 0" in refused.stderr
    assert "validate" in refused.stderr
    assert [bytes(row.body) for row in copy.rows()] == [b"kept"]

    copy.job("validate", B, "--suite", "caches", "--repair")
    for number in range(4):
        copy.job("put_messages", B, "--input", source, "--batch-id", f"b{number}")
    copy.expect_promises()
    assert [row.queue_offset for row in copy.rows()] == list(range(5))


def test_bounds_that_are_newer_than_a_snapshots_log_are_anothers_append(life: Callable[..., Life]) -> None:
    store = life()
    store.put(B, {"topic": "T"})
    at = store.store.snapshot()
    assert at.number(COMMITLOG) == 0  # pinned: another writer comes now
    store.put(B, {"topic": "T"})
    commit(store.store, lambda now: Plan((bounds_write(now, read_head(now)),)))
    assert read_head(at).bounds_append_seq == 1
    with pytest.raises(HeadMoved):
        commit(store.store, lambda _: Plan((at.append(COMMITLOG, at.read(COMMITLOG)),)), attempts=1)


@pytest.mark.slow
@pytest.mark.quick
def test_a_log_that_has_lost_rows_to_a_restore_is_refused_until_they_are_back(store: Store) -> None:
    versions = []
    for _ in range(3):
        append(store, {})
        versions.append(store.snapshot().version(COMMITLOG))
    late = store.snapshot()
    beside = late.append(COMMITLOG, late.read(COMMITLOG).limit(1))  # another writer, which is about to commit
    assert pack(store, COMMITLOG) == 3
    restore(store, COMMITLOG, versions[2])  # to before the packing: no row is lost
    assert read_head(store.snapshot()).next_offset == 300
    restore(store, COMMITLOG, versions[1])
    with pytest.raises(
        StoreError, match=r"the log has lost rows: .* a RESTORE, .* VERSION AS OF (\d+)"
    ) as refused:
        read_head(store.snapshot())
    with pytest.raises(StoreError, match="the log has lost rows"):
        commit(store, lambda _: Plan((beside,)), attempts=1)
    with pytest.raises(StoreError, match="the log has lost rows"):  # which would record the earlier end
        plan_bounds(store.snapshot(), store.settings)
    (before,) = re.findall(r"VERSION AS OF (\d+)", str(refused.value))
    restore(store, COMMITLOG, int(before))
    assert read_head(store.snapshot()).next_offset == 300
    append(store, {})
    assert read_head(store.snapshot()).next_offset == 400


def test_bounds_are_of_the_log_or_older_whatever_is_appended_while_they_are_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(store, {})
    at, look = store.snapshot(), Snapshot.lost_rows

    def beside_an_append(*arguments: Any) -> Any:
        monkeypatch.setattr(Snapshot, "lost_rows", look)
        found = look(*arguments)
        append(store, {})
        commit(store, lambda now: Plan((bounds_write(now, read_head(now)),)))
        return found

    monkeypatch.setattr(Snapshot, "lost_rows", beside_an_append)
    head = read_head(at)
    assert Snapshot.lost_rows is look
    assert (head.append_seq, head.next_offset) == (0, 100)


def restore(store: Store, table: Table, version: int) -> None:
    store.spark.sql(f"RESTORE TABLE {delta_table(store.path(table))} TO VERSION AS OF {version}")


def test_open_and_rolled_back_rows_take_no_place_in_their_queue(store: Store) -> None:
    append(
        store,
        {"queue_offset": 7},
        {"queue_id": 1, "queue_offset": 40, "sys_flag": 4},
        {"queue_id": 2, "queue_offset": 41, "sys_flag": 12},
        {"queue_offset": 8, "sys_flag": 8},
    )
    head = LogHead(0, 0, 400, 2_000, {("orders", 0): 9}, {("orders", 0): 7})
    assert read_head(store.snapshot()) == head


def test_bounds_are_followed_by_the_appends_since_and_another_writer_may_bring_them_up(store: Store) -> None:
    append(store, {"queue_offset": 7}, {"queue_offset": 8})
    at = store.snapshot()
    late = bounds_write(at, read_head(at))
    append(store, {"queue_offset": 9, "store_timestamp": 1_500})
    commit(store, lambda now: Plan((bounds_write(now, read_head(now)),)))
    commit(store, lambda _: Plan((late,)), attempts=1)
    append(store, {"queue_offset": 10, "store_timestamp": 1_500}, {"queue_id": 1, "queue_offset": 3})
    starts, ends = {("orders", 0): 7, ("orders", 1): 3}, {("orders", 0): 11, ("orders", 1): 4}
    assert read_head(store.snapshot()) == LogHead(2, 0, 500, 2_000, ends, starts, bounds_append_seq=1)


@pytest.mark.slow
def test_whoever_appends_brings_the_bounds_up(
    commitlake: Callable[..., JobRun], store: Store, tmp_path: Path
) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", [{"topic": "T", "body": ""}])
    for number in range(APPENDS_BETWEEN_BOUNDS + 1):
        run = commitlake("put_messages", "--store", store.uri, "--input", source, "--batch-id", number)
        assert run.exit_status == 0, run.stderr
    head = read_head(store.snapshot())
    assert head.append_seq - head.bounds_append_seq < APPENDS_BETWEEN_BOUNDS
    assert sum(head.next_queue_offsets.values()) == APPENDS_BETWEEN_BOUNDS + 1
