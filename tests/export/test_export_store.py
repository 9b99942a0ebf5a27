"""`commitlake export_store`: what a real broker wrote, imported and exported, is that broker's bytes again."""

import fcntl
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipelines.errors import StoreError
from pipelines.export.export import Export
from pipelines.export.index import HEADER, ITEM
from pipelines.store.commit import commit
from pipelines.store.plan import Plan
from pipelines.store.store import Store
from schemas import CUTS
from tests.conftest import JobRun, MadeOnce, run_job, write_jsonl
from tests.scenes.processes import end, start


@pytest.fixture(scope="module", params=["a", pytest.param("b", marks=pytest.mark.slow)])
def broker_and_export(
    request: pytest.FixtureRequest,
    golden_broker: Callable[[str], Path],
    imported_broker: Callable[[str], tuple[Path, JobRun]],
    made_once: MadeOnce,
) -> tuple[Path, Path, JobRun]:
    def make(directory: Path) -> None:
        shutil.copytree(imported_broker(request.param)[0], directory / "store")
        arguments = ["--store", str(directory / "store"), "--to", str(directory / "export")]
        exported = run_job(["export_store", *arguments])
        assert exported.exit_status == 0, exported.stderr
        exported.save(directory / "run.json")

    made = made_once(f"exported-{request.param}", make)
    return golden_broker(request.param), made / "export", JobRun.load(made / "run.json")


def files_of(directory: Path) -> dict[str, bytes]:
    """Files with something in them; a broker makes the next file before it needs it."""
    contents = {
        str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()
    }
    return {name: content for name, content in contents.items() if any(content)}


def test_the_log_has_the_brokers_bytes(broker_and_export: tuple[Path, Path, JobRun]) -> None:
    broker, export, run = broker_and_export
    assert files_of(export / "commitlog") == files_of(broker / "commitlog")
    assert run.result["segments"] == len(files_of(broker / "commitlog"))


def test_the_consume_queues_have_the_brokers_bytes(broker_and_export: tuple[Path, Path, JobRun]) -> None:
    broker, export, _ = broker_and_export
    assert files_of(export / "consumequeue") == files_of(broker / "consumequeue")


def test_the_index_files_have_the_brokers_items(broker_and_export: tuple[Path, Path, JobRun]) -> None:
    broker, export, _ = broker_and_export
    written, expected = (
        [content for _, content in sorted(files_of(root / "index").items())] for root in (export, broker)
    )
    assert written == expected


def test_the_config_says_what_the_brokers_says(broker_and_export: tuple[Path, Path, JobRun]) -> None:
    from pipelines.broker_files.broker_config import BrokerConfig
    from pipelines.broker_files.directory import BrokerDirectory

    broker, export, _ = broker_and_export
    found, expected = (BrokerConfig.read(BrokerDirectory(str(root))) for root in (export, broker))
    assert found.topics is not None
    assert expected.topics is not None
    assert {name: found.topics[name] for name in expected.topics} == expected.topics
    # This store has a timer, also where the broker had switched it off.
    assert set(found.topics) - set(expected.topics) <= {"rmq_sys_wheel_timer"}
    assert found.groups == expected.groups
    assert found.consumer_offsets == expected.consumer_offsets
    assert found.subscriptions == expected.subscriptions
    assert {k: v for k, v in found.floors.items() if not k.startswith("timer:")} == {
        k: v for k, v in expected.floors.items() if not k.startswith("timer:")
    }


def test_nothing_is_left_of_the_way(broker_and_export: tuple[Path, Path, JobRun]) -> None:
    _, export, run = broker_and_export
    names = {entry.name for entry in export.iterdir()} - {"timerlog", "timerwheel"}
    written = {"checkpoint", "commitlake-export.json", "commitlog", "config", "consumequeue", "index"}
    assert names == {*written, "lock"}
    assert run.result["files"] == sum(1 for file in export.rglob("*") if file.is_file()) - 1


@pytest.mark.slow
def test_exported_again_only_what_is_new_is_written(
    commitlake: Callable[..., JobRun], new_store: Callable[..., Store], tmp_path: Path
) -> None:
    store = new_store(
        mappedFileSizeCommitLog="4096", mappedFileSizeConsumeQueue="200", maxIndexNum="8", maxHashSlotNum="4"
    )
    at, to = ("--store", store.uri), ("--to", tmp_path / "export")

    def put(name: str, rows: int) -> None:
        messages = [
            {
                "topic": "T",
                "queue_id": row % 2,
                "keys": f"k{row % 5}",
                "tags": "a",
                "body": f"{name}{row}" * 9,
            }
            for row in range(rows)
        ]
        run = commitlake("put_messages", *at, "--input", write_jsonl(tmp_path / f"{name}.jsonl", messages))
        assert run.exit_status == 0, run.stderr

    put("first", 25)
    first = commitlake("export_store", *at, *to)
    assert (first.exit_status, first.result["messages"]) == (0, 25), first.stderr
    untouched = {file: file.stat().st_ino for file in (tmp_path / "export" / "commitlog").iterdir()}
    put("second", 25)
    second = commitlake("export_store", *at, *to)
    assert second.exit_status == 0, second.stderr
    assert second.result["messages"] < 50  # the whole segments stay as they are
    kept = [file for file, inode in untouched.items() if file.stat().st_ino == inode]
    assert len(kept) == len(untouched) - 1

    assert commitlake("export_store", *at, "--to", tmp_path / "whole").exit_status == 0
    names = ("commitlog", "consumequeue", "index")
    for name in names:
        assert files_of(tmp_path / "export" / name) == files_of(tmp_path / "whole" / name), name
    nothing = commitlake("export_store", *at, *to)
    assert (nothing.exit_status, nothing.result["messages"]) == (0, 0)

    # What was exported imports as the same log.
    again = tmp_path / "again"
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeConsumeQueue=200\nmaxIndexNum=8\nmaxHashSlotNum=4\n")
    back = commitlake("import_store", "--store", again, "--from", tmp_path / "export", "--broker-conf", conf)
    assert (back.exit_status, back.result["messages"]) == (0, 50), back.stderr
    columns = [name for name in store.commitlog.columns if name not in ("append_seq", "append_id")]
    log, imported = (
        Store(store.spark, uri).commitlog.select(columns).orderBy("physical_offset").collect()
        for uri in (store.uri, str(again))
    )
    assert imported == log


def test_a_directory_that_holds_something_else_is_refused(
    commitlake: Callable[..., JobRun], store: Store, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    run = commitlake("export_store", "--store", store.uri, "--to", tmp_path / "mine")
    assert run.exit_status == 2
    assert "letter.txt" in run.stderr
    assert [entry.name for entry in (tmp_path / "mine").iterdir()] == ["letter.txt"]


def test_a_directory_that_a_broker_or_another_export_has_open_is_refused(
    commitlake: Callable[..., JobRun], store: Store, tmp_path: Path
) -> None:
    at, to, export = ("--store", store.uri), ("--to", tmp_path / "export"), tmp_path / "export"
    export.mkdir()
    with (export / "lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX, 1, 0)  # as a broker does: one byte
        run = commitlake("export_store", *at, *to)
        assert run.exit_status == 1
        assert "its file lock is locked" in run.stderr
        assert [entry.name for entry in export.iterdir()] == ["lock"]
    assert commitlake("export_store", *at, *to).exit_status == 0
    assert (export / "commitlake-export.json").exists()


def test_a_directory_is_the_same_for_the_job_its_jvm_and_its_executors(
    commitlake: Callable[..., JobRun],
    new_store: Callable[..., Store],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = new_store(mappedFileSizeCommitLog="4096")
    source = write_jsonl(tmp_path / "m.jsonl", [{"topic": "T", "body": "a"}])
    assert commitlake("put_messages", "--store", store.uri, "--input", source).exit_status == 0
    (tmp_path / "broker.conf").write_text("mappedFileSizeCommitLog=4096")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")  # the JVM and its executors stay where they are
    for number, (to, name) in enumerate((("beside", "beside"), (f"file:{tmp_path}/here/a%20b", "a b"))):
        assert commitlake("export_store", "--store", store.uri, "--to", to).exit_status == 0
        names = {entry.name for entry in (tmp_path / "here" / name).iterdir()}
        assert {"commitlog", "consumequeue", "config", "commitlake-export.json", "lock"} <= names
        imported = commitlake(
            "import_store",
            *("--store", tmp_path / f"imported-{number}", "--from", to),
            *("--broker-conf", tmp_path / "broker.conf"),
        )
        assert imported.result["messages"] == 1, imported.stderr
    assert sorted(entry.name for entry in (tmp_path / "here").iterdir()) == ["a b", "beside"]


def test_an_export_that_has_changed_since_it_was_looked_at_is_refused(
    commitlake: Callable[..., JobRun], store: Store, tmp_path: Path
) -> None:
    late = Export(store, str(tmp_path / "export"), 0)
    assert commitlake("export_store", "--store", store.uri, "--to", tmp_path / "export").exit_status == 0
    whole = files_of(tmp_path / "export")
    with pytest.raises(StoreError, match="another export has written to"):
        late.write(lambda _: None)
    assert files_of(tmp_path / "export") == whole


def test_an_export_that_a_broker_went_on_with_is_refused(
    commitlake: Callable[..., JobRun], new_store: Callable[..., Store], tmp_path: Path
) -> None:
    store = new_store(mappedFileSizeCommitLog="4096")
    at, to = ("--store", store.uri), ("--to", tmp_path / "export")
    commitlake(
        "put_messages", *at, "--input", write_jsonl(tmp_path / "m.jsonl", [{"topic": "T", "body": "a"}])
    )
    assert commitlake("export_store", *at, *to).exit_status == 0
    segment = tmp_path / "export" / "commitlog" / f"{0:020d}"
    content = bytearray(segment.read_bytes())
    end = json.loads((tmp_path / "export" / "commitlake-export.json").read_text())["end_offset"]
    content[end] = 1
    segment.write_bytes(content)
    run = commitlake("export_store", *at, *to)
    assert run.exit_status == 2
    assert "a broker has appended to it" in run.stderr


def test_an_index_file_read_back_has_its_chains() -> None:
    from pipelines.export.index import FileEnd, file_content

    hashes, offsets = np.array([7, 3, 7, 11]), np.array([0, 100, 200, 300])
    header, slots, items = file_content(
        hashes, offsets, np.array([5_000, 5_000, 7_500, 8_000]), 4, FileEnd(3_000, 0)
    )
    assert np.frombuffer(slots, ">i4").tolist() == [0, 0, 0, 4]
    found = np.frombuffer(items, ITEM)[1:]
    assert found["previous"].tolist() == [0, 1, 2, 3]
    assert found["seconds"].tolist() == [2, 0, 2, 3]  # the first counts from the end of the file before
    assert np.frombuffer(header, HEADER)[0].tolist() == (5_000, 8_000, 0, 300, 1, 5)


@pytest.mark.slow
def test_a_half_made_export_goes_on(commitlake: Callable[..., JobRun], store: Store, tmp_path: Path) -> None:
    at, to = ("--store", store.uri), ("--to", tmp_path / "export")
    commitlake(
        "put_messages", *at, "--input", write_jsonl(tmp_path / "m.jsonl", [{"topic": "T", "body": "a"}])
    )
    assert commitlake("export_store", *at, *to).exit_status == 0
    whole = files_of(tmp_path / "export" / "commitlog")
    shutil.rmtree(tmp_path / "export" / "commitlog")
    (tmp_path / "export" / "commitlake-export.json").unlink()
    (tmp_path / "export" / "_export").mkdir()
    (tmp_path / "export" / "_export" / "part").write_text("half a file")
    assert commitlake("export_store", *at, *to).exit_status == 0
    assert files_of(tmp_path / "export" / "commitlog") == whole
    assert not (tmp_path / "export" / "_export").exists()


def test_a_timer_that_is_exported_has_what_waits() -> None:
    """Three messages in two slots, and the unit that names the queue's last row."""
    import pyarrow as pa

    from pipelines.export.timer import LAST_SLOT, SLOT, UNIT, TimerFiles, log_bytes

    files: dict[str, bytes] = {}

    class Kept:
        def write(self, path: str, parts: list[bytes], size_bytes: int | None = None) -> None:
            files[path] = b"".join(parts)

    rows = pa.record_batch(
        [[5_000, 5_000, 9_000, LAST_SLOT], [1, 1, 3, 1], [0, 100, 200, 300], [90] * 4, [7] * 4],
        names=["slot", "magic", "physical_offset", "size_bytes", "topic_hash"],
    )
    written = list(TimerFiles(Kept(), 1_000, 4_000).write([rows]))  # type: ignore[arg-type]
    assert written[0].to_pydict() == {"units": [4]}
    units = np.frombuffer(files[f"timerlog/{0:020d}"], UNIT)
    assert log_bytes(4) == len(units) * UNIT.itemsize
    assert units["previous"].tolist() == [-1, 0, -1, -1]
    assert (units["write_time"] + units["delay"]).tolist() == [5_000, 5_000, 9_000, 3_000]
    wheel = np.frombuffer(files["timerwheel"], SLOT)
    assert wheel[[5, 9]].tolist() == [(5, 0, 52, 2, 0), (9, 104, 104, 1, 0)]
    assert np.count_nonzero(wheel["time"]) == 2


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_rows_of_a_part_are_put_elsewhere_as_they_were(
    format: str, commitlake: Callable[..., JobRun], new_store: Callable[..., Store], tmp_path: Path
) -> None:
    store, other = new_store(), new_store()
    rows = [
        {
            "topic": topic,
            "queue_id": 1,
            "body_base64": "/wBh",
            "tags": "a",
            "keys": "k",
            "properties": {"colour": "blue"},
        }
        for topic in ("T", "U", "T")
    ]
    rows.append({"topic": "T", "body": "later", "delay_level": 3})
    put = commitlake(
        "put_messages",
        "--store",
        store.uri,
        "--input",
        write_jsonl(tmp_path / "in.jsonl", rows),
        "--now",
        "1000",
    )
    assert put.exit_status == 0, put.stderr
    assert commitlake("deliver", "--store", store.uri, "--now", "90000000").result["delivered"] == 1
    part = ("--format", format, "--topic", "T", "--begin", "1000")
    # Spark takes a path for a pattern: this one would have the other directory counted too.
    to = tmp_path / "part *[1] {a}"
    (tmp_path / "part x1 a").mkdir()
    run = commitlake("export_store", "--store", store.uri, "--to", to, *part)
    assert (run.exit_status, run.result["messages"]) == (0, 3), run.stderr
    refused = commitlake("export_store", "--store", store.uri, "--to", to, *part)
    assert refused.exit_status == 2
    back = commitlake(
        "put_messages",
        "--store",
        other.uri,
        "--input",
        to,
        "--format",
        format,
        "--now",
        "90000001",
    )
    assert (back.exit_status, back.result["appended"]) == (0, 3), back.stderr
    columns = ("topic", "queue_id", "body", "born_timestamp", "born_host", "sys_flag", "due_ms")
    of_t = store.commitlog.where("topic = 'T'").orderBy("physical_offset")
    found = other.commitlog.orderBy("physical_offset")
    assert found.select(*columns).collect() == of_t.select(*columns).collect()
    names = ("TAGS", "KEYS", "colour", "UNIQ_KEY")
    properties = [
        {name: row.properties[name] for name in names if name in row.properties}
        for row in other.messages.collect()
    ]
    assert sorted(map(str, properties)) == sorted(
        str({name: row.properties[name] for name in names if name in row.properties})
        for row in store.messages.where("topic = 'T'").collect()
    )


def test_options_that_choose_rows_are_refused_for_a_broker(
    commitlake: Callable[..., JobRun], store: Store, tmp_path: Path
) -> None:
    run = commitlake("export_store", "--store", store.uri, "--to", tmp_path / "x", "--topic", "T")
    assert run.exit_status == 2
    assert not (tmp_path / "x").exists()


def test_after_a_cut_all_is_written_again(
    commitlake: Callable[..., JobRun], store: Store, tmp_path: Path
) -> None:
    at, to = ("--store", store.uri), ("--to", tmp_path / "export")
    rows = [{"topic": "T", "queue_id": 0, "body": "a"}]
    commitlake("put_messages", *at, "--input", write_jsonl(tmp_path / "a.jsonl", rows))
    assert commitlake("export_store", *at, *to).exit_status == 0
    stale = tmp_path / "export" / "consumequeue" / "gone" / "0" / f"{0:020d}"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"entries of rows that were cut off")
    cut = store.spark.createDataFrame([(1, 0)], CUTS.columns)
    commit(store, lambda snapshot: Plan((snapshot.replace(CUTS, cut, where="append_seq = 1"),)))
    again = commitlake("export_store", *at, *to)
    assert (again.exit_status, again.result["messages"]) == (0, 1), again.stderr
    assert not stale.exists()


def test_an_export_that_lacks_a_segment_is_written_again_also_after_it_was_cut_short(
    commitlake: Callable[..., JobRun], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, export = ("--store", store.uri), tmp_path / "export"
    rows = [{"topic": "T", "queue_id": 0, "body": "a"}]
    commitlake("put_messages", *at, "--input", write_jsonl(tmp_path / "a.jsonl", rows))
    assert commitlake("export_store", *at, "--to", export).exit_status == 0
    first = {path: path.read_bytes() for path in (export / "commitlog").iterdir()}
    for path in first:
        path.unlink()
    with monkeypatch.context() as killed:
        killed.setattr("pipelines.export.export.write_segments", lambda *_: 1 // 0)
        assert commitlake("export_store", *at, "--to", export).exit_status == 1
    again = commitlake("export_store", *at, "--to", export)
    assert (again.exit_status, again.result["messages"]) == (0, 1), again.stderr
    assert {path: path.read_bytes() for path in (export / "commitlog").iterdir()} == first


def test_a_directory_in_the_store_is_refused(commitlake: Callable[..., JobRun], store: Store) -> None:
    run = commitlake("export_store", "--store", store.uri, "--to", f"{store.uri}/export")
    assert run.exit_status == 2
    assert "lies in the store itself" in run.stderr


@pytest.mark.slow
def test_a_second_export_that_was_cut_short_goes_on(
    commitlake: Callable[..., JobRun], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, to = ("--store", store.uri), ("--to", tmp_path / "export")
    for name in ("first", "second"):
        rows = [{"topic": "T", "queue_id": 0, "body": name, "deliver_through": "3,4"}]
        commitlake("put_messages", *at, "--input", write_jsonl(tmp_path / f"{name}.jsonl", rows))
        with monkeypatch.context() as killed:
            if name == "second":
                killed.setattr("pipelines.export.export.read_settled", lambda *_: 1 // 0)
            run = commitlake("export_store", *at, *to)
            assert run.exit_status == (1 if name == "second" else 0), run.stderr
    assert (tmp_path / "export" / "abort").exists()
    again = commitlake("export_store", *at, *to)
    assert again.exit_status == 0, again.stderr
    assert "2 waiting messages are due at another time" in again.stderr
    assert not (tmp_path / "export" / "abort").exists()


@pytest.mark.parametrize("is_first", [True, False])
def test_an_export_that_was_cut_short_and_that_a_broker_was_started_on_is_refused(
    commitlake: Callable[..., JobRun],
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_first: bool,
) -> None:
    """A broker writes its process id into `abort`, and takes the file away when it ends in order."""
    export = tmp_path / "export"
    arguments = ("export_store", "--store", store.uri, "--to", export)
    for body in ("first", "second"):
        rows = [{"topic": "T", "queue_id": 0, "body": body}]
        commitlake(
            "put_messages", "--store", store.uri, "--input", write_jsonl(tmp_path / f"{body}.jsonl", rows)
        )
        if body == "first" and not is_first:
            assert commitlake(*arguments).exit_status == 0
    with monkeypatch.context() as killed:
        killed.setattr("pipelines.export.export.read_settled", lambda *_: 1 // 0)
        assert commitlake(*arguments).exit_status == 1
    abort = export / "abort"
    log = files_of(export / "commitlog")
    assert abort.read_bytes() == b""
    abort.write_text("4711")
    running = commitlake(*arguments)
    abort.unlink()
    ended = commitlake(*arguments)
    for run in (running, ended):
        assert run.exit_status == 2, run.stderr
        assert "a broker has been started on it" in run.stderr
    assert files_of(export / "commitlog") == log
    abort.touch()
    assert commitlake(*arguments).exit_status == 0


def test_an_export_from_which_rows_were_cut_off_is_refused_where_a_broker_went_on_with_it(
    commitlake: Callable[..., JobRun], store: Store, tmp_path: Path
) -> None:
    export = tmp_path / "export"
    at = ("--store", store.uri)
    rows = [{"topic": "T", "queue_id": 0, "body": "a"}]
    commitlake("put_messages", *at, "--input", write_jsonl(tmp_path / "a.jsonl", rows))
    assert commitlake("export_store", *at, "--to", export).exit_status == 0
    cut = store.spark.createDataFrame([(1, 0)], CUTS.columns)
    commit(store, lambda snapshot: Plan((snapshot.replace(CUTS, cut, where="append_seq = 1"),)))
    end = json.loads((export / "commitlake-export.json").read_text())["end_offset"]
    with (export / "commitlog" / f"{0:020d}").open("r+b") as segment:
        segment.seek(end)
        segment.write(b"appended")
    refused = commitlake("export_store", *at, "--to", export)
    assert refused.exit_status == 2
    assert "a broker has appended to it" in refused.stderr


def test_rows_are_not_written_over_a_table(
    commitlake: Callable[..., JobRun], store: Store, new_store: Callable[..., Store]
) -> None:
    for to in (f"{new_store().uri}/topics", f"{store.uri}/topics"):
        run = commitlake("export_store", "--store", store.uri, "--to", to, "--format", "parquet")
        assert run.exit_status == 2, run.stderr
        assert (Path(to) / "_delta_log").exists()


# Ends itself and its JVM, as if killed, once the log's segments are written and its queues are not.
DIES_BEFORE_THE_QUEUES = """
import os, signal
import pipelines.export.export as module
module.write_queues = lambda *_: os.killpg(os.getpgid(0), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_second_export_that_is_killed_goes_on(
    commitlake: Callable[..., JobRun], new_store: Callable[..., Store], tmp_path: Path
) -> None:
    store = new_store(mappedFileSizeCommitLog="4096", mappedFileSizeConsumeQueue="200")
    at, export, whole = ("--store", store.uri), tmp_path / "export", tmp_path / "whole"
    for name in ("first", "second"):
        rows = [{"topic": "T", "queue_id": row % 2, "body": f"{name}{row}" * 9} for row in range(20)]
        commitlake("put_messages", *at, "--input", write_jsonl(tmp_path / f"{name}.jsonl", rows))
        if name == "first":
            assert commitlake("export_store", *at, "--to", export).exit_status == 0
    killed = end(start("export_store", *at, "--to", export, before=DIES_BEFORE_THE_QUEUES))
    assert killed[0] < 0, killed
    assert (export / "abort").exists()
    assert commitlake("export_store", *at, "--to", export).exit_status == 0
    assert commitlake("export_store", *at, "--to", whole).exit_status == 0
    for name in ("commitlog", "consumequeue", "index"):
        assert files_of(export / name) == files_of(whole / name), name
