"""An export is made again: after more appends, a cut, an interruption, or a broker that has gone on with it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.broker_files.export_note import NOTE
from pipelines.errors import BadInput, StoreError
from pipelines.export import index
from pipelines.export.directory import ExportDirectory
from pipelines.export.export import Export, Note
from pipelines.export.index import KnownIndex
from pipelines.spark_internals.delta_files import forget_logs
from pipelines.store.commit import commit
from pipelines.store.head import read_head
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from schemas import CUTS
from tests.conftest import JobRun, write_jsonl
from tests.export.test_export_store import files_of
from tests.life import B
from tests.quality.damages import lose_data
from tests.scenes.processes import end, start


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


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"append_seq": "1"}, 'has append_seq "1", expected a whole number'),
        ({"last_record": {}}, "has last_record {}, expected a list that begins with an offset"),
        ({"index_files": {"0": ["name"]}}, "has index_files .*, expected name and items by number"),
        ({"index_files": {"a": ["name", 1]}}, "has index_files .*, expected name and items by number"),
        ({"index_segments": [1]}, r"has index_segments \[1\], expected whole numbers by segment"),
        ({"index_files": ...}, "lacks index_files. Restore the file"),
        ({"of_later": 1}, "has of_later, which this version does not know"),
    ],
)
def test_a_note_that_no_export_writes_is_refused(changed: dict[str, Any], complaint: str) -> None:
    note = Note(
        "id",
        1,
        9,
        KnownIndex({0: ("name", 3)}, {0: 3}, 7, 4),
        0,
        [5, 4, "T"],
        20,
        [1, 2],
        [["g", "t", "*"]],
        "a",
    )
    assert Note.of(note.content(), "/e") == note
    content = {
        name: value for name, value in (json.loads(note.content()) | changed).items() if value is not ...
    }
    with pytest.raises(BadInput, match=f"^/e/{NOTE} {complaint}"):
        Note.of(json.dumps(content).encode(), "/e")


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


def test_an_export_whose_groups_have_read_on_with_a_broker_is_refused(
    commitlake: Callable[..., JobRun], store: Store, tmp_path: Path
) -> None:
    """Reading appends nothing; a broker writes the file again also where nobody has read."""
    at, to = ("--store", store.uri), ("--to", tmp_path / "export")
    commitlake(
        "put_messages", *at, "--input", write_jsonl(tmp_path / "m.jsonl", [{"topic": "T", "body": "a"}])
    )
    assert commitlake("export_store", *at, *to).exit_status == 0
    offsets = tmp_path / "export" / "config" / "consumerOffset.json"
    offsets.write_text('{"dataVersion":{"counter":7},"offsetTable":{}}')
    assert commitlake("export_store", *at, *to).exit_status == 0
    read = '{"dataVersion":{"counter":7},"offsetTable":{"T@g":{0:1}}}'
    offsets.write_text(read)
    refused = commitlake("export_store", *at, *to)
    assert refused.exit_status == 2
    assert "groups have read on with a broker" in refused.stderr
    assert offsets.read_text() == read


@pytest.mark.nightly
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


@pytest.mark.slow
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


@pytest.mark.nightly
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


@pytest.mark.slow
@pytest.mark.parametrize("is_first", [True, False])
def test_an_export_that_was_cut_short_and_that_a_broker_was_started_on_is_refused(
    commitlake: Callable[..., JobRun],
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_first: bool,
) -> None:
    """A broker of 5.x has its process id in `abort`, which goes when it ends in order; one of 4.x has a checkpoint."""
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
    abort.touch()
    (export / "checkpoint").write_bytes(bytes(4096))
    running_4 = commitlake(*arguments)
    (export / "checkpoint").unlink()
    for run in (running, ended, running_4):
        assert run.exit_status == 2, run.stderr
        assert "a broker has been started on it" in run.stderr
    assert files_of(export / "commitlog") == log
    assert commitlake(*arguments).exit_status == 0
    assert (export / "checkpoint").stat().st_size > 0


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


def test_an_export_whose_last_segment_a_broker_has_let_expire_is_refused(
    commitlake: Callable[..., JobRun], new_store: Callable[..., Store], tmp_path: Path
) -> None:
    store = new_store(mappedFileSizeCommitLog="4096")
    at, to = ("--store", store.uri), ("--to", tmp_path / "export")
    rows = [{"topic": "T", "queue_id": 0, "body": "a"}]
    commitlake("put_messages", *at, "--input", write_jsonl(tmp_path / "a.jsonl", rows))
    assert commitlake("export_store", *at, *to).exit_status == 0
    log = tmp_path / "export" / "commitlog"
    for segment in (4096, 8192):
        (log / f"{segment:020d}").write_bytes(b"\1" * 4096)
    (log / f"{0:020d}").unlink()
    refused = commitlake("export_store", *at, *to)
    assert refused.exit_status == 2
    assert "a broker has appended to it" in refused.stderr
    assert sorted(path.name for path in log.iterdir()) == [f"{segment:020d}" for segment in (4096, 8192)]


@pytest.mark.slow
def test_an_export_again_reads_only_keys_of_index_files_that_it_writes(
    commitlake: Callable[..., JobRun],
    new_store: Callable[..., Store],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = new_store(mappedFileSizeCommitLog="2048", maxIndexNum="8", maxHashSlotNum="5")
    sort, read = index._sorted_items, []

    def sorted_items(at: Snapshot, to: ExportDirectory, segment: int) -> list[tuple[int, int]]:
        read.append(segment)
        return sort(at, to, segment)

    monkeypatch.setattr(index, "_sorted_items", sorted_items)
    at = ("--store", store.uri)
    keys_of_puts = ["a", "b c d e f g h", "", "i", "j k l m n o p q r s t u v w x y", "", "z"]
    for number, keys in enumerate([*keys_of_puts, "other files", ""]):
        if keys == "other files":
            commitlake("settings", *at, "set", "maxIndexNum=12")
        rows = [
            {"topic": "T", "body": "b" * 400, "keys": keys, "unique_key": f"{number}{row}"}
            for row in range(3)
        ]
        commitlake(
            "put_messages", *at, "--input", write_jsonl(tmp_path / "m.jsonl", rows), "--now", B + number
        )
        assert commitlake("export_store", *at, "--to", tmp_path / "again").exit_status == 0
        assert commitlake("export_store", *at, "--to", tmp_path / f"fresh-{number}").exit_status == 0
        again, fresh = (
            {path.name: path.read_bytes() for path in (tmp_path / name / "index").iterdir()}
            for name in ("again", f"fresh-{number}")
        )
        assert again == fresh
        notes = [json.loads((tmp_path / name / NOTE).read_text()) for name in ("again", f"fresh-{number}")]
        assert notes[0] == notes[1]
    later, whole = read[::2], read[1::2]
    assert whole == [0] * len(whole)
    assert later[len(keys_of_puts)] == 0
    # A file is of eleven items, about as many as a segment has.
    assert later[-1] >= read_head(store.snapshot()).next_offset - 4 * 2048


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


@pytest.mark.slow
def test_an_export_whose_last_record_is_given_up_in_the_log_stays(
    commitlake: Callable[..., JobRun], store: Store, tmp_path: Path
) -> None:
    at, to = ("--store", store.uri), ("--to", tmp_path / "export")
    for name in ("first", "second"):
        rows = [{"topic": "T", "queue_id": 0, "body": name}]
        commitlake("put_messages", *at, "--input", write_jsonl(tmp_path / f"{name}.jsonl", rows))
    assert commitlake("export_store", *at, *to).exit_status == 0
    log = files_of(tmp_path / "export" / "commitlog")
    lose_data("commitlog", -1)(Path(store.uri))
    forget_logs(store.spark)
    assert commitlake("validate", *at, "--cut-damaged").exit_status == 0
    again = commitlake("export_store", *at, *to)
    assert (again.exit_status, again.result["messages"]) == (0, 0), again.stderr
    assert files_of(tmp_path / "export" / "commitlog") == log
