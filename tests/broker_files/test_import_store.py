"""Imports that follow a broker: again, further on, cut short, into the wrong store."""

import json
import shutil
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.broker_files.broker_config import BrokerConfig
from pipelines.broker_files.broker_log import BrokerLog
from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.import_log import BrokerStore, import_next, plan_broker_state
from pipelines.store.commit import commit
from pipelines.store.head import read_head
from pipelines.store.plan import Plan
from pipelines.store.store import Store
from schemas import COMMITLOG, CONSUMER_OFFSETS, QUEUE_BOUNDS
from tests.conftest import JobRun
from tests.model.records import Record, place, write_commitlog, write_queue

SEGMENT_BYTES = 1_024
STORED = 1_700_000_000_000
Commitlake = Callable[..., JobRun]


def small_log(count: int) -> list[Record]:
    """Records of 217 bytes, four to a segment, in two queues."""
    records = [
        Record(
            body=b"%120d" % index,
            queue_id=index % 2,
            queue_offset=index // 2,
            store_timestamp=STORED + index * 1_000,
        )
        for index in range(count)
    ]
    return place(records, SEGMENT_BYTES)


def write_broker(root: Path, records: Sequence[Record]) -> Path:
    write_commitlog(root, records, SEGMENT_BYTES)
    for queue_id in (0, 1):
        queue = [record for record in records if record.queue_id == queue_id]
        write_queue(root, "orders", queue_id, [(one.physical_offset, one.size_bytes, 0) for one in queue])
    return root


@pytest.fixture
def store(new_store: Callable[..., Store]) -> Store:
    return new_store(mappedFileSizeCommitLog=str(SEGMENT_BYTES))


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    return write_broker(tmp_path / "broker", small_log(10))


def bodies(store: Store) -> list[int]:
    return [int(row.body) for row in store.commitlog.orderBy("physical_offset").collect()]


@pytest.mark.slow
def test_an_import_follows_a_log_that_grows_in_its_last_segment_and_beyond(
    commitlake: Commitlake, store: Store, broker: Path
):
    first = commitlake("import_store", "--store", store.uri, "--from", broker)
    assert (first.exit_status, first.result["messages"], first.result["segments"]) == (0, 10, 3), first.stderr
    write_broker(broker, small_log(19))
    second = commitlake("import_store", "--store", store.uri, "--from", broker)
    assert (second.exit_status, second.result["messages"], second.result["segments"]) == (0, 9, 3), (
        second.stderr
    )
    assert bodies(store) == list(range(19))
    rows = store.commitlog.orderBy("physical_offset").collect()
    assert [row.physical_offset for row in rows] == [record.physical_offset for record in small_log(19)]
    assert [row.append_seq for row in rows] == [0] * 10 + [1] * 9
    head = read_head(store.snapshot())
    assert (head.next_of("orders", 0), head.next_of("orders", 1)) == (10, 9)


@pytest.mark.slow
def test_several_appends_and_a_run_that_is_cut_short_between_them(store: Store, broker: Path):
    def run(appends: int) -> None:
        log = BrokerLog.read(store.spark, BrokerDirectory(str(broker)), {}, piece_bytes=300)
        source = BrokerStore(log, BrokerConfig.read(log.directory))
        commit(store, lambda at: plan_broker_state(at, source, now_ms=1))
        for _ in range(appends):
            import_next(lambda planner: commit(store, planner), source, append_bytes=SEGMENT_BYTES)

    run(appends=0)
    assert read_head(store.snapshot()).next_of("orders", 0) == 0
    run(appends=2)
    assert bodies(store) == list(range(8))
    # As if the run had ended before it wrote the bounds: the head is found from the rows.
    shutil.rmtree(Path(store.path(QUEUE_BOUNDS)))
    Store.create(store.spark, store.uri, {"mappedFileSizeCommitLog": str(SEGMENT_BYTES)})
    run(appends=3)
    assert bodies(store) == list(range(10))
    assert [row.append_seq for row in store.commitlog.orderBy("physical_offset").collect()] == [0] * 4 + [
        1
    ] * 4 + [2] * 2
    head = read_head(store.snapshot())
    assert (head.min_offset, head.next_of("orders", 0), head.next_of("orders", 1)) == (0, 5, 5)


def test_a_store_that_was_written_to_is_not_gone_on_with(commitlake: Commitlake, store: Store, broker: Path):
    assert commitlake("import_store", "--store", store.uri, "--from", broker).exit_status == 0
    row = store.commitlog.limit(1).collect()[0].asDict()
    put = {
        **row,
        "append_id": "batch:0-1",
        "append_seq": 1,
        "physical_offset": 3 * SEGMENT_BYTES,
        "segment": 3 * SEGMENT_BYTES,
    }
    rows = store.spark.createDataFrame([put], COMMITLOG.columns)
    commit(store, lambda at: Plan((at.append(COMMITLOG, rows),)))
    refused = commitlake("import_store", "--store", store.uri, "--from", broker)
    assert refused.exit_status == 2
    assert "an import goes on only while the last append is an import's" in refused.stderr


def test_another_broker_s_log_is_refused(commitlake: Commitlake, store: Store, broker: Path, tmp_path: Path):
    assert commitlake("import_store", "--store", store.uri, "--from", broker).exit_status == 0

    def told(directory: Path) -> str:
        refused = commitlake("import_store", "--store", store.uri, "--from", directory)
        assert refused.exit_status == 2
        return refused.stderr

    shorter = write_broker(tmp_path / "shorter", small_log(9))
    assert "it was recovered to less than was imported" in told(shorter)
    *same, last = small_log(10)
    other = write_broker(tmp_path / "other", [*same, replace(last, body=b"%120d" % 11)])
    assert "is not what the broker has there" in told(other)
    expired = write_broker(tmp_path / "expired", small_log(20))
    for start in (0, 1_024, 2_048):
        (expired / "commitlog" / f"{start:020d}").unlink()
    assert "those between have expired" in told(expired)
    large = tmp_path / "large"
    write_commitlog(large, place(small_log(4), 2 * SEGMENT_BYTES), 2 * SEGMENT_BYTES)
    assert "the store's segments have 1024 bytes" in told(large)


def test_a_cut_is_said_and_nothing_else_is_lost(commitlake: Commitlake, store: Store, broker: Path):
    last = small_log(10)[9]
    file = broker / "commitlog" / f"{2 * SEGMENT_BYTES:020d}"
    content = bytearray(file.read_bytes())
    content[last.physical_offset % SEGMENT_BYTES + 100] ^= 0xFF
    file.write_bytes(content)
    (broker / "config").mkdir()
    (broker / "config" / "delayOffset.json").write_text('{"offsetTable":{1:7}}')
    write_queue(broker, "SCHEDULE_TOPIC_XXXX", 0, [(0, 217, 0), (last.physical_offset, 217, 0)])
    run = commitlake("import_store", "--store", store.uri, "--from", broker, "--quiet")
    assert (run.exit_status, run.result["messages"], run.result["truncated_at"]) == (
        0,
        9,
        last.physical_offset,
    )
    assert f"the log is cut at {last.physical_offset}" in run.stderr
    assert "its CRC does not match" in run.stderr
    assert bodies(store) == list(range(9))
    head = read_head(store.snapshot())
    assert (head.next_offset, head.next_of("orders", 1)) == (last.physical_offset, 4)
    # The level had delivered more than what is left of its queue: what comes there next is not delivered yet.
    assert [row.position for row in store.floors.where("follower = 'schedule:1'").collect()] == [1]
    again = commitlake("import_store", "--store", store.uri, "--from", broker)
    assert (again.exit_status, again.result["messages"], again.result["truncated_at"]) == (
        0,
        0,
        last.physical_offset,
    )


def test_a_file_that_changes_between_the_look_and_the_reading_stops_the_import(
    commitlake: Commitlake, store: Store, broker: Path, monkeypatch: pytest.MonkeyPatch
):
    file = broker / "commitlog" / f"{2 * SEGMENT_BYTES:020d}"
    sound = file.read_bytes()
    changed = bytearray(sound)
    changed[small_log(10)[9].physical_offset % SEGMENT_BYTES + 4] ^= 0xFF
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("jobs.import_store.tell_end", lambda run, log: file.write_bytes(changed))
        stopped = commitlake("import_store", "--store", store.uri, "--from", broker, "--quiet")
    assert stopped.exit_status == 1
    (told,) = stopped.stderr.splitlines()
    assert told.startswith(f"error: import_store failed: commitlog/{file.name} changed while it was read: ")
    assert "at 2265, expected records up to 2482; nothing of this append was written, import again" in told
    assert bodies(store) == []
    file.write_bytes(sound)
    assert commitlake("import_store", "--store", store.uri, "--from", broker).exit_status == 0
    assert bodies(store) == list(range(10))


def test_the_log_s_end_behind_a_blank_is_kept(commitlake: Commitlake, store: Store, broker: Path):
    last = small_log(10)[9]
    end = last.physical_offset + last.size_bytes
    file = broker / "commitlog" / f"{2 * SEGMENT_BYTES:020d}"
    content = bytearray(file.read_bytes())
    content[end % SEGMENT_BYTES : end % SEGMENT_BYTES + 8] = struct.pack(
        ">iI", 3 * SEGMENT_BYTES - end, 0xCBD43194
    )
    file.write_bytes(content)
    (broker / "commitlog" / f"{3 * SEGMENT_BYTES:020d}").write_bytes(bytes(SEGMENT_BYTES))
    assert commitlake("import_store", "--store", store.uri, "--from", broker).exit_status == 0
    assert read_head(store.snapshot()).next_offset == 3 * SEGMENT_BYTES


def test_offsets_of_groups_go_forward_only(commitlake: Commitlake, store: Store, broker: Path):
    config = broker / "config"
    config.mkdir()

    def offsets(first: int, second: int) -> dict[tuple[str, int], int]:
        (config / "consumerOffset.json").write_text(
            f'{{"offsetTable":{{"orders@G":{{0:{first},1:{second}}}}}}}'
        )
        run = commitlake("import_store", "--store", store.uri, "--from", broker)
        assert run.exit_status == 0, run.stderr
        return {(row.group, row.queue_id): row.next_offset for row in store.consumer_offsets.collect()}

    assert offsets(2, 3) == {("G", 0): 2, ("G", 1): 3}
    ours = store.spark.createDataFrame([("mine", "orders", 0, "", 1, 0, 1)], CONSUMER_OFFSETS.columns)
    commit(store, lambda at: Plan((at.append(CONSUMER_OFFSETS, ours),)))
    assert offsets(4, 1) == {("G", 0): 4, ("G", 1): 3, ("mine", 0): 1}


def test_a_broker_without_a_log_gives_its_config(commitlake: Commitlake, store: Store, tmp_path: Path):
    broker = tmp_path / "broker"
    (broker / "commitlog").mkdir(parents=True)
    (broker / "config").mkdir()
    topic = {"topicName": "T", "perm": 6, "readQueueNums": 3, "writeQueueNums": 3}
    (broker / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"T": topic}}))
    run = commitlake("import_store", "--store", store.uri, "--from", broker)
    assert (run.exit_status, run.result["messages"], run.result["truncated_at"]) == (0, 0, None), run.stderr
    assert "T" in {row.topic for row in store.topics.collect()}


@pytest.mark.parametrize(
    ("conf", "complaint"),
    [
        ("mappedFileSizeCommitLgo=1024", "the nearest known name is mappedFileSizeCommitLog"),
        ("mappedFileSizeConsumeQueue=4000", "consume queue files have 6000 bytes, its settings say 4000"),
        ("mappedFileSizeCommitLog=big", 'setting mappedFileSizeCommitLog is "big"'),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_made(
    commitlake: Commitlake, broker: Path, tmp_path: Path, conf: str, complaint: str
):
    (tmp_path / "broker.conf").write_text(conf)
    run = commitlake(
        "import_store",
        "--store",
        tmp_path / "new",
        "--from",
        broker,
        "--broker-conf",
        tmp_path / "broker.conf",
    )
    assert run.exit_status == 2
    assert complaint in run.stderr
    assert not (tmp_path / "new").exists()


def test_a_missing_broker_conf(commitlake: Commitlake, broker: Path, tmp_path: Path):
    run = commitlake(
        "import_store", "--store", tmp_path / "new", "--from", broker, "--broker-conf", tmp_path / "none"
    )
    assert run.exit_status == 2
    assert "there is no file" in run.stderr
