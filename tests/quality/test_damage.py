"""A store whose files are missing or damaged: validate says which, repairs what the rest tells, and gives up the least."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from pipelines.log import append
from pipelines.spark_internals.delta_files import forget_logs
from pipelines.store.damaged import damaged_tables
from pipelines.store.head import LogHead, read_head
from pipelines.store.store import Store
from pipelines.store.upkeep import pack
from schemas import COMMITLOG
from tests.conftest import JobRun, run_job, write_jsonl
from tests.life import B
from tests.quality.damages import (
    Damage,
    and_checksums_without_files,
    commits,
    cut_checkpoint,
    cut_commit,
    cut_data,
    empty_commit,
    lose_checkpoint,
    lose_commit,
    lose_data,
    lose_table,
)
from tests.store.earlier_versions import forget_tables

# A segment holds two appends: the third begins the second one.
SEGMENT_BYTES = 2_500


def job(store: Path, name: str, *arguments: Any, exit_status: int = 0) -> JobRun:
    done = run_job([name, "--store", str(store), "--now", str(B + 60_000), "--quiet", *map(str, arguments)])
    assert done.exit_status == exit_status, done.stderr
    for word in ("Exception", "Traceback", "org.apache", "java."):
        assert word not in done.stderr, done.stderr
    return done


def findings(done: JobRun) -> dict[str, Any]:
    told = {found["expectation"]: found for found in map(json.loads, done.lines)}
    return {sentence: found["complaints"] for sentence, found in told.items() if found["broken"]}


def validate(store: Path, *arguments: str, exit_status: int = 0) -> dict[str, Any]:
    return findings(job(store, "validate", "--output", "json", *arguments, exit_status=exit_status))


def complaints(store: Path, *arguments: str) -> list[str]:
    """What validate says of files; nothing else is checked then."""
    (said,) = validate(store, *arguments, exit_status=3).values()
    return list(said)


@pytest.fixture(scope="module")
def whole(
    spark: SparkSession, store_template: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Four appends of eight messages in two queues, followed and read by a group; the third append's file is its own."""
    directory = tmp_path_factory.mktemp("whole")
    store = directory / "store"
    shutil.copytree(store_template(mappedFileSizeCommitLog=str(SEGMENT_BYTES)), store)
    for number in range(4):
        rows = [
            {"topic": "orders", "queue_id": row % 2, "keys": f"k{number}-{row}", "body": f"{number}-{row}"}
            for row in range(8)
        ]
        source = write_jsonl(directory / f"{number}.jsonl", rows)
        job(store, "put_messages", "--input", source)
        if number == 1:
            job(store, "reset_offsets", "--group", "g", "--topic", "orders", "--to-offset", 0)
    job(store, "dispatch")
    for queue_id in (0, 1):
        reset = ("--group", "g", "--topic", "orders", "--queue-id", queue_id, "--to-offset", 3)
        job(store, "reset_offsets", *reset)
    log = Store(spark, str(store)).delta(COMMITLOG)
    log.update()
    log.delta_log.checkpoint()
    return store


@pytest.fixture
def damaged(spark: SparkSession, whole: Path, tmp_path: Path) -> Callable[..., Path]:
    def copy_with(damage: Damage) -> Path:
        store = tmp_path / "store [1]"  # which Spark could take for a pattern
        shutil.copytree(whole, store)
        damage(store)
        return store

    return copy_with


def without_checkpoint(damage: Damage) -> Damage:
    """Damage of commits that no checkpoint has."""

    def both(store: Path) -> None:
        log = store / "commitlog" / "_delta_log"
        for file in (*log.glob("*.checkpoint.parquet"), log / "_last_checkpoint"):
            file.unlink()
        damage(store)

    return both


def mostly_nightly(cases: dict[str, tuple[Damage, str]]) -> list[Any]:
    """Parameters of a test: the first case runs with every change, the second with the slow tests, the others at night."""
    marks = [(), (pytest.mark.slow,), *[(pytest.mark.nightly,)] * (len(cases) - 2)]
    return [
        pytest.param(*case, id=name, marks=marks)
        for (name, case), marks in zip(cases.items(), marks, strict=True)
    ]


LOST_COMMITS = {
    "the last commit is cut short": (cut_commit("commitlog", -1), "0004.json is cut short"),
    "a commit of a long log is cut short": (
        and_checksums_without_files(cut_commit("commitlog", -1)),
        "0004.json is cut short",
    ),
    "the last commit is empty": (empty_commit("commitlog", -1), "0004.json is cut short"),
    "the last commit is missing": (lose_commit("commitlog", -1), "0004.json is missing"),
    "an earlier commit is missing": (lose_commit("commitlog", 2), "0002.json is missing"),
    "an earlier commit is cut short": (cut_commit("commitlog", 2), "0002.json is cut short"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "said"), mostly_nightly(LOST_COMMITS))
def test_a_commit_of_the_log_that_is_lost_is_written_again(
    spark: SparkSession, whole: Path, damaged: Callable[..., Path], damage: Damage, said: str
) -> None:
    store = damaged(without_checkpoint(damage))
    (told,) = complaints(store)
    assert told.startswith("commitlog: _delta_log/")
    assert said in told
    assert "--repair writes" in told
    assert validate(store, "--suite", "caches", "--repair") == {}
    before, after = Store(spark, str(whole)), Store(spark, str(store))
    assert after.commitlog.exceptAll(before.commitlog).isEmpty()
    assert after.commitlog.count() == 32
    assert read_head(after.snapshot()) == read_head(before.snapshot())
    assert job(store, "dispatch").result["queue_entries"] == 0  # the commit is proven to be the one it was


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [lose_checkpoint("commitlog"), pytest.param(cut_checkpoint("commitlog"), marks=pytest.mark.nightly)],
    ids=["lost", "cut"],
)
def test_a_checkpoint_that_is_lost_is_done_without(
    spark: SparkSession, damaged: Callable[..., Path], damage: Damage
) -> None:
    store = damaged(damage)
    (told,) = complaints(store)
    assert "0004.checkpoint.parquet is" in told
    assert validate(store, "--suite", "caches", "--repair") == {}
    assert Store(spark, str(store)).commitlog.count() == 32


@pytest.mark.slow
def test_a_lost_commit_that_packed_the_log_has_lost_no_rows(
    spark: SparkSession, damaged: Callable[..., Path], tmp_path: Path
) -> None:
    def pack_and_lose(store: Path) -> None:
        assert pack(Store(spark, str(store)), COMMITLOG)
        forget_logs(spark)
        lose_commit("commitlog", -1)(store)

    store = damaged(pack_and_lose)
    assert "0005.json is missing" in complaints(store)[0]
    assert validate(store, "--suite", "caches", "--repair") == {}
    more = write_jsonl(tmp_path / "more.jsonl", [{"topic": "orders", "queue_id": 0, "body": "more"}])
    assert job(store, "put_messages", "--input", more).result["appended"] == 1


DERIVED_DAMAGE = {
    "a queue's data": (lose_data("consume_queue", 0), "consume_queue: the file"),
    "progress": (lose_table("progress"), "progress: the table's directory is gone"),
    "the index's data": (cut_data("message_index", 0), "bytes and must have"),
    "a queue's commit": (cut_commit("consume_queue", -1), "consume_queue: _delta_log/"),
    "the queues": (lose_table("consume_queue"), "consume_queue: the table's directory is gone"),
    "data of progress": (lose_data("progress", -1), "progress: the file"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "said"), mostly_nightly(DERIVED_DAMAGE))
def test_what_is_derived_is_built_again(
    spark: SparkSession, whole: Path, damaged: Callable[..., Path], damage: Damage, said: str
) -> None:
    store = damaged(damage)
    told = complaints(store)
    assert any(said in each and "--repair" in each for each in told)
    assert validate(store, "--suite", "queues", "--suite", "index", "--repair") == {}
    queues, before = Store(spark, str(store)).consume_queue, Store(spark, str(whole)).consume_queue
    assert queues.count() == before.count()
    assert queues.exceptAll(before).isEmpty()


@pytest.mark.slow
def test_bounds_go_back_to_an_earlier_append_and_the_head_does_not(
    spark: SparkSession, damaged: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append, "ROWS_BETWEEN_BOUNDS", 1)  # each append brings them up to the log's end

    def lose_the_last(store: Path) -> None:
        for body in "xy":
            rows = [{"topic": "orders", "queue_id": 1, "body": body}]
            job(store, "put_messages", "--input", write_jsonl(tmp_path / f"{body}.jsonl", rows))
        heads.append(read_head(Store(spark, str(store)).snapshot()))
        forget_logs(spark)
        lose_data("queue_bounds", -1)(store)

    heads: list[LogHead] = []
    store = damaged(lose_the_last)
    assert "queue_bounds: the file" in complaints(store)[0]
    assert validate(store, "--suite", "caches", "--repair") == {}
    found = read_head(Store(spark, str(store)).snapshot())
    assert (found.next_offset, found.next_queue_offsets) == (
        heads[0].next_offset,
        heads[0].next_queue_offsets,
    )
    assert found.bounds_append_seq < heads[0].bounds_append_seq


@pytest.mark.slow
def test_bounds_do_not_go_back_before_messages_that_were_cut_out(
    spark: SparkSession, damaged: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(store: Path, queue_id: int) -> None:
        rows = [{"topic": "orders", "queue_id": queue_id, "body": "x"}]
        job(store, "put_messages", "--input", write_jsonl(tmp_path / f"{queue_id}.jsonl", rows))

    def lose_the_last_append(store: Path) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(append, "ROWS_BETWEEN_BOUNDS", 1)
            put(store, 0)
        put(store, 1)
        put(store, 2)  # a queue of its own
        job(store, "dispatch")
        forget_logs(spark)
        lose_data("commitlog", -1)(store)

    store = damaged(lose_the_last_append)
    validate(store, "--cut-damaged")
    head = read_head(Store(spark, str(store)).snapshot())
    assert head.next_of("orders", 2) == 1
    forget_logs(spark)
    lose_data("queue_bounds", -1)(store)
    assert [*validate(store, "--suite", "caches", "--repair")] == ["no part of the log is lost"]
    found = read_head(Store(spark, str(store)).snapshot())
    assert (found.next_offset, found.next_queue_offsets) == (head.next_offset, head.next_queue_offsets)


@pytest.mark.slow
@pytest.mark.parametrize(
    "index", [0, pytest.param(-1, marks=pytest.mark.nightly)], ids=["the first append", "the last append"]
)
def test_bounds_that_are_gone_with_a_file_of_the_log_are_written_again_when_it_is_cut_out(
    spark: SparkSession, whole: Path, damaged: Callable[..., Path], index: int
) -> None:
    def lose_both(store: Path) -> None:
        lose_table("queue_bounds")(store)
        lose_data("commitlog", index)(store)

    store = damaged(lose_both)
    validate(store, "--repair", exit_status=3)
    assert not (store / "queue_bounds").exists()
    would = validate(store, "--cut-damaged", "--dry-run", exit_status=3)
    assert "8 messages are lost" in str(would["nothing is given up by --cut-damaged"])
    assert [*validate(store, "--repair", "--cut-damaged")] == ["no part of the log is lost"]
    found, before = (read_head(Store(spark, str(each)).snapshot()) for each in (store, whole))
    kept = ("min_offset", "next_offset", "min_queue_offsets", "next_queue_offsets", "last_store_timestamp")
    assert [getattr(found, name) for name in kept] == [getattr(before, name) for name in kept]
    assert [*validate(store, "--full")] == ["no part of the log is lost"]


@pytest.mark.slow
def test_bounds_ahead_of_a_log_without_messages_are_put_right_and_it_is_written_to(
    spark: SparkSession,
    store_template: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, source = tmp_path / "store", tmp_path / "input.jsonl"
    shutil.copytree(store_template(), store)
    shutil.copytree(store / "commitlog", tmp_path / "before")
    write_jsonl(source, [{"topic": "orders", "queue_id": 0, "body": "x"}])
    monkeypatch.setattr(append, "ROWS_BETWEEN_BOUNDS", 1)
    job(store, "put_messages", "--input", source)
    shutil.rmtree(store / "commitlog")
    shutil.copytree(tmp_path / "before", store / "commitlog")
    forget_logs(spark)
    assert "validate --store" in job(store, "put_messages", "--input", source, exit_status=1).stderr
    assert validate(store, "--repair") == {}
    job(store, "put_messages", "--input", source)
    (row,) = Store(spark, str(store)).commitlog.collect()
    assert (row.physical_offset, row.queue_offset) == (0, 1)  # offset 0 may have been read
    assert validate(store, "--full") == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [lose_data("commitlog", 2), pytest.param(cut_data("commitlog", 2), marks=pytest.mark.nightly)],
    ids=["lost", "cut short"],
)
def test_jobs_name_the_file_they_cannot_read_and_write_nothing(
    spark: SparkSession, damaged: Callable[..., Path], damage: Damage
) -> None:
    store = damaged(damage)
    before = {table: commits(store, table) for table in ("commitlog", "consume_queue", "consumer_offsets")}
    for name, arguments in (
        ("dispatch", ["--rebuild"]),
        ("sql", ["SELECT max(body) FROM commitlog"]),
        ("consume", ["--group", "g", "--topic", "orders", "--listener", "tests.quality.damages:accept"]),
    ):
        said = job(store, name, *arguments, exit_status=1).stderr
        assert "commitlog: the file segment=2500/part-" in said
        assert "8 rows from byte" in said
        assert "validate --store" in said
    assert {table: commits(store, table) for table in before} == before


@pytest.mark.slow
def test_bounds_do_not_go_back_before_messages_that_have_expired(
    spark: SparkSession, damaged: Callable[..., Path]
) -> None:
    """Offsets of their queues would be given again."""

    def expire_and_lose(store: Path) -> None:
        assert job(store, "maintain", "--retention-hours", 0, "--force").result["segments_expired"]
        forget_logs(spark)
        lose_data("queue_bounds", -1)(store)

    store = damaged(expire_and_lose)
    refused = job(store, "validate", "--repair", exit_status=1)
    assert "messages that came after its newest version that is whole have expired" in refused.stderr
    assert complaints(store)


@pytest.mark.slow
@pytest.mark.parametrize(
    "index", [2, pytest.param(-1, marks=pytest.mark.nightly)], ids=["in the middle", "at the end"]
)
def test_messages_whose_file_is_lost_are_cut_out_and_the_rest_is_read(
    spark: SparkSession, whole: Path, damaged: Callable[..., Path], index: int, tmp_path: Path
) -> None:
    head, rows = read_head(Store(spark, str(whole)).snapshot()), Store(spark, str(whole)).commitlog.collect()
    store = damaged(lose_data("commitlog", index))
    gone = [row for row in rows if row.append_seq == {2: 2, -1: 3}[index]]
    lost = sorted(row.physical_offset for row in gone)
    offsets = sorted(row.queue_offset for row in gone if row.queue_id == 0)

    (told,) = complaints(store)
    assert f"is missing: 8 rows from byte {lost[0]} to the record at byte {lost[-1]}" in told
    assert "--cut-damaged" in told
    assert complaints(store, "--repair") == [told]  # nothing can tell what was in it

    dry = validate(store, "--cut-damaged", "--dry-run", exit_status=3)
    said = dry["nothing is given up by --cut-damaged"]
    assert said[0].startswith("commitlog: 8 messages are lost")
    assert f"queue orders:0: offsets {offsets[0]} to {offsets[-1]} will have no message" in said
    assert complaints(store) == [told]  # it was only a try

    with mock.patch("pipelines.store.cut_out._take_out", side_effect=KeyboardInterrupt):
        job(
            store, "validate", "--cut-damaged", exit_status=1
        )  # all is recorded, and the file is still in the log
    told = validate(store, "--full", "--cut-damaged")
    assert [*told] == ["no part of the log is lost"]
    assert f"bytes {lost[0]} to " in told["no part of the log is lost"][0]
    after = read_head(Store(spark, str(store)).snapshot())
    assert (after.next_offset, after.next_queue_offsets) == (head.next_offset, head.next_queue_offsets)
    assert after.append_seq > head.append_seq

    # What is left is read; a gap has its reason.
    pulled = job(
        store, "query", "pull", "--topic", "orders", "--queue-id", 0, "--offset", 0, "--output", "json"
    )
    assert [json.loads(line)["queue_offset"] for line in pulled.lines] == [
        offset for offset in range(16) if offset not in offsets
    ]
    gap = job(
        store, "query", "pull", "--topic", "orders", "--queue-id", 0, "--offset", offsets[0], "--max", 2
    ).result
    assert gap["pull_status"] == "OFFSET_FOUND_NULL"
    assert gap["next_offset"] == offsets[-1] + 1
    assert f"offsets {offsets[0]} to {offsets[-1]} of orders:0 are lost" in gap["remark"]
    group = job(
        store, "consume", "--group", "g", "--topic", "orders", "--listener", "tests.quality.damages:accept"
    )
    assert group.result["consumed"] == 32 - 8 - 6  # it had read three of each queue
    assert "of orders:0 are lost" in group.stderr

    source = write_jsonl(tmp_path / "more.jsonl", [{"topic": "orders", "queue_id": 0, "body": "more"}])
    put = job(store, "put_messages", "--input", source).result
    assert put["first_offset"] == 2 * SEGMENT_BYTES  # it does not fit where the log ended
    assert job(store, "dispatch").result["queue_entries"] == 1
    assert [*validate(store, "--full")] == ["no part of the log is lost"]
    assert [*validate(store, "--repair", "--full")] == ["no part of the log is lost"]
    assert read_head(Store(spark, str(store)).snapshot()).next_of("orders", 0) == 17


@pytest.mark.nightly
def test_an_append_that_nobody_has_followed_takes_its_offsets_with_it(
    spark: SparkSession, whole: Path, damaged: Callable[..., Path], tmp_path: Path
) -> None:
    """Only its plan and its file's statistics know of it: that is enough for no offset to be given twice."""

    def undispatched(store: Path) -> None:
        rows = [
            {"topic": "orders", "queue_id": 1, "body": "x"},
            {"topic": "orders", "queue_id": 1, "body": "y"},
        ]
        job(store, "put_messages", "--input", write_jsonl(tmp_path / "rows.jsonl", rows))
        forget_logs(spark)
        lose_data("commitlog", -1)(store)

    store = damaged(undispatched)
    expected = read_head(Store(spark, str(whole)).snapshot())
    validate(store, "--cut-damaged")
    head = read_head(Store(spark, str(store)).snapshot())
    assert head.next_offset > expected.next_offset
    assert head.next_of("orders", 1) == expected.next_of("orders", 1) + 2
    assert head.next_of("orders", 0) == expected.next_of("orders", 0)


@pytest.mark.slow
def test_offsets_of_a_group_go_back_to_what_they_were_before(
    spark: SparkSession, damaged: Callable[..., Path]
) -> None:
    store = damaged(lose_data("consumer_offsets", -1))
    assert "consumer_offsets: the file" in complaints(store)[0]
    assert "--cut-damaged puts back" in complaints(store, "--repair")[0]
    validate(store, "--cut-damaged")
    offsets = Store(spark, str(store)).consumer_offsets.where("topic = 'orders' AND queue_id < 2").collect()
    assert {row.queue_id: row.next_offset for row in offsets} == {0: 3, 1: 0}


@pytest.mark.slow
def test_a_table_of_state_that_is_gone_is_not_made_again_unless_it_is_given_up(
    spark: SparkSession, damaged: Callable[..., Path]
) -> None:
    store = damaged(lose_table("consumer_offsets"))
    (told,) = complaints(store, "--repair")
    assert told == (
        "consumer_offsets: the table's directory is gone; put it back from a backup; else --cut-damaged makes the table "
        "again without rows"
    )
    for name, *arguments in (
        ("create_store", "--set", f"mappedFileSizeCommitLog={SEGMENT_BYTES}"),
        ("reset_offsets", "--group", "g", "--topic", "orders", "--to-offset", 0),
    ):
        said = job(store, name, *arguments, exit_status=1).stderr
        assert "consumer_offsets" in said
        assert "commitlake validate --store" in said
    dry = validate(store, "--cut-damaged", "--dry-run", exit_status=3)
    (would,) = dry["nothing is given up by --cut-damaged"]
    assert would.startswith(
        "consumer_offsets: the table will be made again without rows, and all it held is lost"
    )
    assert complaints(store) == [told]
    assert validate(store, "--cut-damaged") == {}
    assert Store(spark, str(store)).consumer_offsets.isEmpty()


@pytest.mark.slow
def test_bounds_that_are_gone_are_written_again_unless_messages_have_expired(
    spark: SparkSession, whole: Path, damaged: Callable[..., Path]
) -> None:
    store = damaged(lose_table("queue_bounds"))
    assert "queue_bounds: the table's directory is gone" in complaints(store)[0]
    assert validate(store, "--suite", "caches", "--repair") == {}
    found, before = (read_head(Store(spark, str(each)).snapshot()) for each in (store, whole))
    assert (found.next_offset, found.next_queue_offsets) == (before.next_offset, before.next_queue_offsets)
    assert job(store, "maintain", "--retention-hours", 0, "--force").result["segments_expired"]
    forget_logs(spark)
    lose_table("queue_bounds")(store)
    assert "have expired" in job(store, "validate", "--repair", exit_status=1).stderr
    assert not (store / "queue_bounds").exists()


@pytest.mark.slow
def test_tables_that_a_newer_version_has_added_are_made(
    spark: SparkSession, damaged: Callable[..., Path]
) -> None:
    store = damaged(lambda store: forget_tables(Store(spark, str(store)), 2))
    assert damaged_tables(Store(spark, str(store))) == []
    assert validate(store, "--suite", "caches") == {}
    assert Store(spark, str(store)).holes.isEmpty()
    forget_logs(spark)
    lose_table("holes")(store)  # from here on it is one that the store has had
    assert [each.name for each in damaged_tables(Store(spark, str(store)))] == ["holes"]


@pytest.mark.slow
def test_holes_that_are_gone_are_not_made_again_and_no_offset_is_given_again(
    spark: SparkSession, damaged: Callable[..., Path]
) -> None:
    store = damaged(lose_data("commitlog", -1))
    validate(store, "--cut-damaged")
    head = read_head(Store(spark, str(store)).snapshot())
    forget_logs(spark)
    lose_table("holes")(store)
    (told,) = complaints(store, "--full", "--repair")
    assert told.startswith("holes: the table's directory is gone; put it back from a backup")
    assert not (store / "holes").exists()
    assert read_head(Store(spark, str(store)).snapshot()) == head


@pytest.mark.slow
def test_settings_without_an_earlier_version_are_refused_in_words(damaged: Callable[..., Path]) -> None:
    store = damaged(lose_data("store_settings", -1))
    said = job(store, "validate", "--cut-damaged", exit_status=1).stderr
    assert "store_settings" in said
    assert "backup" in said


@pytest.mark.nightly
def test_a_run_that_was_recorded_in_a_lost_file_is_given_up_alone(
    spark: SparkSession, damaged: Callable[..., Path]
) -> None:
    store = damaged(lose_data("job_runs", 0))
    runs = len(list((store / "job_runs").glob("*.parquet")))
    validate(store, "--cut-damaged")
    assert Store(spark, str(store)).job_runs.count() >= runs


@pytest.mark.slow
def test_a_dry_run_without_damage_writes_nothing(whole: Path) -> None:
    before = sorted(str(file) for file in whole.rglob("*"))
    result = job(whole, "validate", "--cut-damaged", "--dry-run").result
    assert (result["checked"], result["damaged_files"]) == (0, 0)
    assert sorted(str(file) for file in whole.rglob("*")) == before


@pytest.mark.slow
def test_a_sound_store_has_no_damage(spark: SparkSession, whole: Path) -> None:
    assert damaged_tables(Store(spark, str(whole))) == []
