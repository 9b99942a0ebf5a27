"""`commitlake export_store`: what a real broker wrote, imported and exported, is that broker's bytes again."""

import fcntl
import json
import shutil
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.errors import StoreError
from pipelines.export import record_bytes, segments
from pipelines.export.config import broker_conf
from pipelines.export.directory import ExportDirectory
from pipelines.export.index import HEADER, ITEM
from pipelines.store.floors import OF_AN_EXPORT
from pipelines.store.store import Store
from tests.broker_files.test_import_store import SEGMENT_BYTES, small_log, write_broker
from tests.conftest import JobRun, MadeOnce, run_job, write_jsonl


@pytest.fixture(scope="module", params=["a", pytest.param("b", marks=pytest.mark.nightly)])
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
    floors = {k: v for k, v in found.floors.items() if not k.startswith("timer:")}
    note = json.loads((export / "commitlake-export.json").read_text())
    assert floors.pop(OF_AN_EXPORT) == note["end_offset"]
    assert floors == {k: v for k, v in expected.floors.items() if not k.startswith("timer:")}


def test_nothing_is_left_of_the_way(broker_and_export: tuple[Path, Path, JobRun]) -> None:
    _, export, run = broker_and_export
    names = {entry.name for entry in export.iterdir()} - {"timerlog", "timerwheel"}
    written = {
        "broker.conf",
        "checkpoint",
        "commitlake-export.json",
        "commitlog",
        "config",
        "consumequeue",
        "index",
    }
    assert names == {*written, "lock"}
    assert run.result["files"] == sum(1 for file in export.rglob("*") if file.is_file()) - 1


def test_a_directory_that_holds_something_else_is_refused(
    commitlake: Callable[..., JobRun], store: Store, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    run = commitlake("export_store", "--store", store.uri, "--to", tmp_path / "mine")
    assert run.exit_status == 2
    assert "letter.txt" in run.stderr
    assert [entry.name for entry in (tmp_path / "mine").iterdir()] == ["letter.txt"]


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_an_index_file_read_back_has_its_chains() -> None:
    from pipelines.export.index import Message, file_content

    hashes, offsets = np.array([7, 3, 7, 11]), np.array([0, 100, 200, 300])
    header, slots, items = file_content(
        hashes, offsets, np.array([5_000, 5_000, 7_500, 8_000]), 4, Message(3_000, 0)
    )
    assert np.frombuffer(slots, ">i4").tolist() == [0, 0, 0, 4]
    found = np.frombuffer(items, ITEM)[1:]
    assert found["previous"].tolist() == [0, 1, 2, 3]
    assert found["seconds"].tolist() == [2, 0, 2, 3]  # the first counts from the end of the file before
    assert np.frombuffer(header, HEADER)[0].tolist() == (5_000, 8_000, 0, 300, 1, 5)


def test_a_timer_that_is_exported_has_what_waits() -> None:
    """Three messages in two slots, and the unit that names the queue's last row."""
    import pyarrow as pa

    from pipelines.export.timer import LAST_SLOT, SLOT, UNIT, TimerFiles, log_bytes

    files: dict[str, bytes] = {}

    class Kept:
        def write(self, path: str, parts: list[bytes], size_bytes: int | None = None) -> None:
            files[path] = b"".join(parts)

    rows = pa.record_batch(
        [
            [5_000, 5_000, 9_000, LAST_SLOT],
            [1, 1, 3, 1],
            [0, 100, 200, 300],
            [90] * 4,
            [7] * 4,
            [5_000, 2_000, 9_000, LAST_SLOT],  # the second is overdue
        ],
        names=["slot", "magic", "physical_offset", "size_bytes", "topic_hash", "own_slot"],
    )
    written = list(TimerFiles(Kept(), 1_000, 4_000).write([rows]))  # type: ignore[arg-type]
    assert written[0].to_pydict() == {"units": [4], "first_slot": [2_000]}
    units = np.frombuffer(files[f"timerlog/{0:020d}"], UNIT)
    assert log_bytes(4) == len(units) * UNIT.itemsize
    assert units["previous"].tolist() == [-1, 0, -1, -1]
    assert (units["write_time"] + units["delay"]).tolist() == [5_000, 5_000, 9_000, 3_000]
    wheel = np.frombuffer(files["timerwheel"], SLOT)
    assert wheel[[5, 9]].tolist() == [(5, 0, 52, 2, 0), (9, 104, 104, 1, 0)]
    assert np.count_nonzero(wheel["time"]) == 2


@pytest.mark.slow
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


def test_a_directory_in_the_store_is_refused(commitlake: Callable[..., JobRun], store: Store) -> None:
    encoded = f"file:{store.uri[:-1]}%{ord(store.uri[-1]):02x}/export"
    for to in (f"{store.uri}/export", encoded):
        for more in ((), ("--format", "jsonl")):
            run = commitlake("export_store", "--store", store.uri, "--to", to, *more)
            assert run.exit_status == 2
            assert "lies in the store itself" in run.stderr


def test_rows_are_not_written_over_a_table(
    commitlake: Callable[..., JobRun], store: Store, new_store: Callable[..., Store]
) -> None:
    for to in (f"{new_store().uri}/topics", f"{store.uri}/topics"):
        run = commitlake("export_store", "--store", store.uri, "--to", to, "--format", "parquet")
        assert run.exit_status == 2, run.stderr
        assert (Path(to) / "_delta_log").exists()


@pytest.mark.slow
def test_rows_go_where_the_uri_says_and_one_run_writes_them(
    commitlake: Callable[..., JobRun], store: Store, tmp_path: Path
) -> None:
    source = write_jsonl(tmp_path / "m.jsonl", [{"topic": "T", "body": "a"}])
    assert commitlake("put_messages", "--store", store.uri, "--input", source).exit_status == 0
    to = tmp_path / "a b"
    arguments = ("export_store", "--store", store.uri, "--to", f"file:{tmp_path}/a%20b", "--format", "jsonl")
    to.mkdir()
    with (to / "_lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX, 1, 0)
        refused = commitlake(*arguments)
    assert refused.exit_status == 1
    assert "another export is writing" in refused.stderr
    written = commitlake(*arguments)
    assert (written.exit_status, written.result["messages"]) == (0, 1), written.stderr
    assert [path.name for path in tmp_path.glob("a*")] == ["a b"]
    assert len([path for path in to.iterdir() if path.name.startswith("part-")]) == 1
    assert commitlake(*arguments).exit_status == 2  # it is not empty


@pytest.mark.slow
def test_rows_that_were_cut_short_are_written_again_and_nothing_else_is_deleted(
    commitlake: Callable[..., JobRun], store: Store, tmp_path: Path
) -> None:
    source = write_jsonl(tmp_path / "m.jsonl", [{"topic": "T", "body": "a"}])
    assert commitlake("put_messages", "--store", store.uri, "--input", source).exit_status == 0
    to, left = tmp_path / "out", f"part-00000-{uuid.uuid4()}-c000.json"
    for directory in ("_temporary/0", "_export", "mine"):
        (to / directory).mkdir(parents=True)
    for file in (
        "_commitlake-rows",
        left,
        f".{left}.crc",
        "_SUCCESS",
        "._SUCCESS.crc",
        "_temporary/0/x",
        "part-2.txt",
    ):
        (to / file).write_bytes(b"x")
    arguments = ("export_store", "--store", store.uri, "--to", to, "--format", "jsonl")
    for name in ("mine", "part-2.txt"):
        before = sorted(to.rglob("*"))
        refused = commitlake(*arguments)
        assert refused.exit_status == 2, refused.stderr
        assert f"has {name} beside what" in refused.stderr
        assert sorted(to.rglob("*")) == before
        (to / name).rename(tmp_path / name)
    written = commitlake(*arguments)
    assert (written.exit_status, written.result["messages"]) == (0, 1), written.stderr
    (part,) = to.glob("part-*")
    assert part.name != left
    assert not any((to / name).exists() for name in ("_commitlake-rows", "_temporary", "_export"))


@pytest.mark.parametrize(("length", "is_refused"), [(32_767, False), (32_768, True)])
def test_properties_that_no_broker_reads_are_refused(length: int, is_refused: bool) -> None:
    """A message that came back to its group has more of them: a broker would cut its log at such a record."""
    host = "1.2.3.4:5"
    numbers = dict.fromkeys(record_bytes.COLUMNS, 0) | {"size_bytes": 91 + 1 + length, "physical_offset": 7}
    row = numbers | {
        "topic": "T",
        "born_host": host,
        "store_host": host,
        "body": b"",
        "properties": "x" * length,
    }
    expected = pytest.raises(StoreError, match=f"byte 7 of the log has {length} bytes of properties")
    with expected if is_refused else nullcontext():
        (record,) = record_bytes.record_bytes(pa.RecordBatch.from_pylist([row]))
        assert len(record.as_py()) == row["size_bytes"]


def log_row(number: int, body_bytes: int = 20) -> dict[str, object]:
    """A row of a log whose records all have the same size."""
    size, host = 91 + 1 + body_bytes, "1.2.3.4:5"
    row = dict.fromkeys(record_bytes.COLUMNS, 0) | {"size_bytes": size, "physical_offset": number * size}
    return row | {
        "topic": "T", "born_host": host, "store_host": host, "body": b"%d" % (number % 10) * body_bytes, "properties": ""
    }  # fmt: skip


def segment_file(directory: Path, rows: list[dict[str, object]], log_end: int) -> bytes:
    """The file of a log's first segment, whose rows are in one file of the log in this order."""
    pq.write_table(pa.Table.from_pylist(rows), directory / "rows.parquet")
    to = ExportDirectory(str(directory / "export"))
    segments.SegmentFiles(to, str(directory), 10_000, log_end).write(0, ["rows.parquet"])
    return (directory / "export" / segments.segment_path(0)).read_bytes()


@pytest.mark.parametrize(
    "order",
    [
        pytest.param([*range(6, 12), *range(6)], id="the first rows come last"),
        pytest.param([*range(4), *range(8, 12), *range(4, 8)], id="a batch jumps ahead"),
        pytest.param([0, 1, *range(6, 12), *range(2, 6)], id="a row jumps ahead"),
        pytest.param([*reversed(range(12))], id="backwards"),
    ],
)
def test_a_packed_file_of_the_log_is_read_in_the_logs_order(
    order: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OPTIMIZE puts the largest file first: batches ascend, and what comes between them follows later in the file."""
    rows = [log_row(number) for number in range(12)]
    size = int(str(rows[0]["size_bytes"]))
    (tmp_path / "sorted").mkdir()
    expected = segment_file(tmp_path / "sorted", rows, 12 * size)
    monkeypatch.setattr(segments, "BATCH_BYTES", 4 * size)
    assert segment_file(tmp_path, [rows[number] for number in order], 12 * size) == expected
    with pytest.raises(StoreError, match=f"no record from byte {3 * size} to {4 * size}"):
        segment_file(tmp_path, [rows[number] for number in order if number != 3], 12 * size)


@pytest.mark.slow
def test_a_segment_without_a_record_is_a_gap(
    commitlake: Callable[..., JobRun], new_store: Callable[..., Store], tmp_path: Path
) -> None:
    """An import steps over one that is damage from end to end, and a broker's log has each of its segments."""
    broker, at = write_broker(tmp_path / "broker", small_log(40)), ("--store", tmp_path / "store")
    (broker / "commitlog" / f"{SEGMENT_BYTES:020d}").write_bytes(bytes(SEGMENT_BYTES))
    assert commitlake("import_store", *at, "--from", broker).exit_status == 0
    run = commitlake("export_store", *at, "--to", tmp_path / "export")
    assert run.exit_status == 1
    assert f"no record from byte {SEGMENT_BYTES} to {2 * SEGMENT_BYTES}" in run.stderr


def test_the_settings_of_another_kind_of_store_are_not_exported(new_store: Callable[..., Store]) -> None:
    """A broker with RocksDB would not look at the queue files."""
    store = new_store(storeType="defaultRocksDB", messageIndexEnable="false")
    assert broker_conf(store.snapshot()) == b"messageIndexEnable=false\n"
