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
from pipelines.spark_internals.delta_files import forget_logs
from pipelines.store.commit import commit
from pipelines.store.create import make_again
from pipelines.store.head import LogHead, bounds_write, read_head
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
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
        commit(store, lambda at: plan_broker_state(at, source))
        for _ in range(appends):
            import_next(lambda planner: commit(store, planner), source, append_bytes=SEGMENT_BYTES)

    run(appends=0)
    assert read_head(store.snapshot()).next_of("orders", 0) == 0
    run(appends=2)
    assert bodies(store) == list(range(8))
    # As if the run had ended before it wrote the bounds: the head is found from the rows.
    shutil.rmtree(Path(store.path(QUEUE_BOUNDS)))
    make_again(Store(store.spark, store.uri), [QUEUE_BOUNDS])
    run(appends=3)
    assert bodies(store) == list(range(10))
    assert [row.append_seq for row in store.commitlog.orderBy("physical_offset").collect()] == [0] * 4 + [
        1
    ] * 4 + [2] * 2
    head = read_head(store.snapshot())
    assert (head.min_offset, head.next_of("orders", 0), head.next_of("orders", 1)) == (0, 5, 5)


@pytest.mark.slow
def test_an_import_keeps_the_logs_start_where_segments_expire_between_its_appends(
    store: Store, broker: Path
) -> None:
    log = BrokerLog.read(store.spark, BrokerDirectory(str(broker)), {}, piece_bytes=300)
    source = BrokerStore(log, BrokerConfig.read(log.directory))
    commit(store, lambda at: plan_broker_state(at, source))

    def append() -> LogHead:
        import_next(lambda planner: commit(store, planner), source, append_bytes=SEGMENT_BYTES)
        return read_head(store.snapshot())

    def begin_later(at: Snapshot) -> Plan:
        """As an expiry does: a commit of the bounds alone."""
        found = read_head(at)
        starts = dict.fromkeys(found.min_queue_offsets, 2)
        return Plan((bounds_write(at, replace(found, min_offset=SEGMENT_BYTES, min_queue_offsets=starts)),))

    append()
    commit(store, begin_later)
    for _ in range(2):
        head = append()
        assert (head.min_offset, set(head.min_queue_offsets.values())) == (SEGMENT_BYTES, {2})
        # What the import itself has written it knows.
        assert source.heads[head.append_seq, store.snapshot().version(QUEUE_BOUNDS)] == head


@pytest.mark.slow
@pytest.mark.parametrize("appends", [0, 1])
def test_nothing_else_is_appended_until_an_import_that_was_cut_short_has_ended(
    appends: int, commitlake: Commitlake, store: Store, broker: Path, tmp_path: Path
) -> None:
    """Groups stand where the broker's stood: they would pass over what is appended below."""
    log = BrokerLog.read(store.spark, BrokerDirectory(str(broker)), {}, piece_bytes=300)
    source = BrokerStore(log, BrokerConfig.read(log.directory))
    commit(store, lambda at: plan_broker_state(at, source))
    for _ in range(appends):
        import_next(lambda planner: commit(store, planner), source, append_bytes=SEGMENT_BYTES)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"topic": "orders", "queue_id": 0, "body": "1000"}\n')
    put = ("put_messages", "--store", store.uri, "--input", rows)
    refused = commitlake(*put)
    assert refused.exit_status == 2
    assert (
        f"an import into the store has not ended: the log has {SEGMENT_BYTES * appends} of" in refused.stderr
    )
    assert bodies(store) == list(range(4 * appends))
    assert commitlake("import_store", "--store", store.uri, "--from", broker).exit_status == 0
    assert commitlake(*put).exit_status == 0
    assert bodies(store) == [*range(10), 1000]


@pytest.mark.slow
def test_an_import_goes_on_after_segments_have_expired_here(
    commitlake: Commitlake, store: Store, broker: Path
) -> None:
    """Expiry takes a number of the log without adding rows."""
    at, source = ("--store", store.uri), ("--from", broker)
    assert commitlake("import_store", *at, *source).exit_status == 0
    assert commitlake("dispatch", *at).exit_status == 0
    expired = commitlake("maintain", *at, "--retention-hours", 0, "--force")
    assert expired.result["segments_expired"] > 0, expired.stderr
    left = bodies(store)
    write_broker(broker, small_log(19))
    again = commitlake("import_store", *at, *source)
    assert (again.exit_status, again.result["messages"]) == (0, 9), again.stderr
    assert bodies(store) == [*left, *range(10, 19)]


@pytest.mark.slow
def test_lost_bounds_of_an_import_are_written_again_unless_messages_have_expired(
    commitlake: Commitlake, store: Store, broker: Path
) -> None:
    """The log alone cannot say where the queues of expired messages ended."""

    def repaired(uri: str) -> JobRun:
        for file in Path(uri, "queue_bounds").glob("*.parquet"):
            file.unlink()
        forget_logs(store.spark)
        return commitlake("validate", "--store", uri, "--repair")

    def expect_refused(uri: str) -> None:
        refused = repaired(uri)
        assert refused.exit_status == 1
        assert "messages that came after its newest version that is whole have expired" in refused.stderr

    at = ("--store", store.uri)
    later = store.uri + "-later"
    shutil.copytree(store.uri, later)
    assert commitlake("import_store", *at, "--from", broker).exit_status == 0
    before = read_head(store.snapshot())
    lost = [("g", "orders", 7, "", 3, 0, STORED)]  # a queue of which the broker's log had lost all
    offsets = store.spark.createDataFrame(lost, CONSUMER_OFFSETS.columns)
    commit(store, lambda at: Plan((at.append(CONSUMER_OFFSETS, offsets, key="g"),)))
    done = repaired(store.uri)
    assert done.exit_status == 0, done.stderr
    after = read_head(store.snapshot())
    ends = {**before.next_queue_offsets, ("orders", 7): 3}
    assert (after.min_offset, after.next_queue_offsets) == (0, ends)

    assert commitlake("dispatch", *at).exit_status == 0
    assert commitlake("maintain", *at, "--retention-hours", 0, "--force").result["segments_expired"] > 0
    expect_refused(store.uri)

    (broker / "commitlog" / f"{0:020d}").unlink()  # as after an expiry at the broker
    assert commitlake("import_store", "--store", later, "--from", broker).exit_status == 0
    expect_refused(later)


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


@pytest.mark.usefixtures("short_or_long")
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
    told = told.removeprefix("error: ").removeprefix(
        "import_store failed: "
    )  # which an error of an executor has
    assert told.startswith(f"commitlog/{file.name} changed while it was read: ")
    assert "at 2265, expected records up to 2482; nothing of this append was written, import again" in told
    assert bodies(store) == []
    file.write_bytes(sound)
    assert commitlake("import_store", "--store", store.uri, "--from", broker).exit_status == 0
    assert bodies(store) == list(range(10))


@pytest.mark.usefixtures("short_or_long")
@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        ("delete", "a broker that runs deletes files that expire"),
        ("cut", "segment 00000000000000000000 ends at byte 300 of 1024: it became shorter while it was read"),
    ],
)
def test_a_file_that_goes_away_while_it_is_read_stops_the_import_with_a_sentence(
    commitlake: Commitlake,
    store: Store,
    broker: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    complaint: str,
):
    first = broker / "commitlog" / f"{0:020d}"
    sound = first.read_bytes()

    def change(run: object, log: object) -> None:
        first.unlink() if what == "delete" else first.write_bytes(sound[:300])

    monkeypatch.setattr("jobs.import_store.tell_end", change)
    stopped = commitlake("import_store", "--store", store.uri, "--from", broker, "--quiet")
    assert stopped.exit_status == 1
    (told,) = stopped.stderr.splitlines()
    assert complaint in told
    assert bodies(store) == []


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
    commit(store, lambda at: Plan((at.append(CONSUMER_OFFSETS, ours, key="mine"),)))
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


@pytest.mark.slow
def test_a_broker_goes_on_by_the_settings_it_was_first_imported_with(
    commitlake: Commitlake, broker: Path, tmp_path: Path
):
    def spoil(record: Record) -> None:
        start, inside = divmod(record.physical_offset, SEGMENT_BYTES)
        file = broker / "commitlog" / f"{start * SEGMENT_BYTES:020d}"
        content = bytearray(file.read_bytes())
        content[inside + 100] ^= 1  # in its body: another CRC
        file.write_bytes(content)

    def run(*more: object) -> JobRun:
        return commitlake("import_store", "--store", tmp_path / "new", "--from", broker, *more)

    spoil(small_log(10)[9])
    role = "brokerRole=SLAVE\nbrokerId=1\nhaMasterAddress=10.0.0.1:10912\n"  # a copy of a slave's files
    (tmp_path / "broker.conf").write_text(f"checkCRCOnRecover=false\nflushDiskType=SYNC_FLUSH\n{role}")
    (broker / "config").mkdir()
    (broker / "config" / "topics.json").write_text(
        json.dumps({"topicConfigTable": {"orders": {"order": True, "attributes": {"message.type": "FIFO"}}}})
    )
    first = run("--broker-conf", tmp_path / "broker.conf")
    assert first.result["messages"] == 10, first.stderr
    assert "the store that is made of its files is a master" in first.stderr
    assert "kept, but without effect here: flushDiskType\n" in first.stderr
    assert "kept, and read by import_store alone: checkCRCOnRecover\n" in first.stderr
    assert "topics.json: kept, but without effect here: message.type (orders), order (orders)" in first.stderr
    write_broker(broker, small_log(11))
    spoil(small_log(11)[9])
    again = run()
    assert (again.exit_status, again.result["messages"], again.result["truncated_at"]) == (0, 1, None), (
        again.stderr
    )


def test_a_missing_broker_conf(commitlake: Commitlake, broker: Path, tmp_path: Path):
    run = commitlake(
        "import_store", "--store", tmp_path / "new", "--from", broker, "--broker-conf", tmp_path / "none"
    )
    assert run.exit_status == 2
    assert "there is no file" in run.stderr


SCHEDULE = "SCHEDULE_TOPIC_XXXX"


class LivingBroker:
    """A broker that goes on between any two things that are read of it.

    It has parked one message by level and one group has read what there was; then it delivers the message, notes that it
    has, and the group reads it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        parked = Record(
            topic=SCHEDULE,
            properties={"UNIQ_KEY": "k", "DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "0"},
            store_timestamp=STORED,
        )
        delivered = replace(parked, topic="orders", queue_offset=1, store_timestamp=STORED + 1_000)
        self.records = place([Record(store_timestamp=STORED), parked, delivered], SEGMENT_BYTES)
        self.write(2, floor=0, read=1)

    def write(self, count: int, floor: int, read: int) -> None:
        records = self.records[:count]
        write_commitlog(self.root, records, SEGMENT_BYTES)
        for topic in ("orders", SCHEDULE):
            queue = [record for record in records if record.topic == topic]
            write_queue(self.root, topic, 0, [(one.physical_offset, one.size_bytes, 0) for one in queue])
        (self.root / "config").mkdir(exist_ok=True)
        (self.root / "config" / "delayOffset.json").write_text(f'{{"offsetTable":{{1:{floor}}}}}')
        (self.root / "config" / "consumerOffset.json").write_text(
            f'{{"offsetTable":{{"orders@G":{{0:{read}}}}}}}'
        )

    def go_on(self) -> None:
        self.write(3, floor=1, read=2)


@pytest.mark.slow
@pytest.mark.parametrize("what", [BrokerLog, BrokerConfig])
def test_a_broker_that_goes_on_while_it_is_read_is_never_ahead_of_its_rows(
    commitlake: Commitlake, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: type
):
    living = LivingBroker(tmp_path / "broker")
    read = what.read

    def read_and_go_on(*arguments, **named):
        found = read(*arguments, **named)
        living.go_on()
        return found

    monkeypatch.setattr(what, "read", read_and_go_on)
    run = commitlake("import_store", "--store", store.uri, "--from", living.root)
    assert run.exit_status == 0, run.stderr
    imported = store.commitlog.count()
    (offset,) = store.consumer_offsets.collect()
    head = read_head(store.snapshot())
    assert offset.next_offset <= head.next_of("orders", 0)
    # Whatever of the broker was seen, the message is in its topic once.
    delivered = commitlake("deliver", "--store", store.uri, "--now", STORED + 60_000)
    assert (imported, delivered.result["delivered"]) in ((2, 1), (3, 0)), delivered.stderr
    assert store.commitlog.where("topic = 'orders' AND properties LIKE '%UNIQ_KEY%'").count() == 1


def test_what_a_group_has_read_of_rows_that_were_cut_is_set_back(
    commitlake: Commitlake, store: Store, broker: Path
):
    last = small_log(10)[9]
    file = broker / "commitlog" / f"{2 * SEGMENT_BYTES:020d}"
    content = bytearray(file.read_bytes())
    content[last.physical_offset % SEGMENT_BYTES + 100] ^= 0xFF
    file.write_bytes(content)
    (broker / "config").mkdir()
    (broker / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@G":{0:5,1:5,9:3}}}')
    run = commitlake("import_store", "--store", store.uri, "--from", broker, "--quiet")
    assert run.exit_status == 0, run.stderr
    offsets = {row.queue_id: row.next_offset for row in store.consumer_offsets.collect()}
    # Nothing is known of queue 9: its rows may have expired.
    assert offsets == {0: 5, 1: 4, 9: 3}
    assert "group G has read queue orders:1 up to 5, which ends at 4; it goes on there" in run.stderr


@pytest.mark.parametrize("has_body", [True, False])
def test_a_record_whose_end_never_reached_the_disk_is_told(
    commitlake: Commitlake, store: Store, tmp_path: Path, has_body: bool
):
    """A broker's own recovery takes it: its lengths add up, and a CRC is of the body alone."""
    records = small_log(3)
    body = records[-1].body if has_body else b""
    torn = replace(records[-1], body=body, properties={"UNIQ_KEY": "k", "KEYS": "of a message"})
    records = place([*records[:-1], torn], SEGMENT_BYTES)
    root = write_broker(tmp_path / "broker", records)
    file = root / "commitlog" / f"{0:020d}"
    content = bytearray(file.read_bytes())
    end = records[-1].physical_offset + records[-1].size_bytes
    content[end - 20 : end] = bytes(20)
    file.write_bytes(content)
    run = commitlake("import_store", "--store", store.uri, "--from", root, "--quiet")
    assert (run.exit_status, run.result["messages"], run.result["truncated_at"]) == (0, 3, None), run.stderr
    (told,) = run.stderr.splitlines()
    assert told.startswith(f"warning: 1 records end in zeros, the first at {records[-1].physical_offset}: ")


@pytest.mark.nightly
def test_names_no_broker_accepts_are_told_and_make_no_topics_or_groups(
    commitlake: Commitlake, store: Store, tmp_path: Path
):
    bad = "T') OR ('1' = '1"
    records = place(
        [Record(topic=bad, body=b"hidden"), Record(topic="T.dots"), Record(topic="T")], SEGMENT_BYTES
    )
    root = tmp_path / "broker"
    write_commitlog(root, records, SEGMENT_BYTES)
    config = root / "config"
    config.mkdir()
    topic = {"perm": 6, "readQueueNums": 1, "writeQueueNums": 1}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": {bad: topic, "T": topic}}))
    (config / "subscriptionGroup.json").write_text(
        json.dumps({"subscriptionGroupTable": {"G h": {}, "G": {}}})
    )
    offsets = {f"{bad}@G": {"0": 1}, "T@G h": {"0": 1}, "T@G": {"0": 1}}
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    filters = {
        group: {"expressionType": kind, "expression": text}
        for group, kind, text in (("G", "SQL92", "a > 1"), ("H", "CLASS", "os:abort"))
    }
    (config / "consumerFilter.json").write_text(
        json.dumps({"filterDataByTopic": {"T": {"groupFilterData": filters}}})
    )
    run = commitlake("import_store", "--store", store.uri, "--from", root, "--quiet")
    assert (run.exit_status, run.result["messages"]) == (0, 3), run.stderr
    told = run.stderr.splitlines()
    assert [line.split(";")[0] for line in told] == [
        "warning: the subscription of group H to topic T has type 'CLASS'",
        f'warning: topic "{bad}" has the character "\'"',
        'warning: group "G h" has the character " "',
        'warning: topic "T.dots" has the character "."',
    ]
    assert {row.topic for row in store.topics.collect()} & {bad, "T", "T.dots"} == {"T"}
    assert {row.group for row in store.subscription_groups.collect()} & {"G h", "G"} == {"G"}
    assert [(row.group, row.topic) for row in store.consumer_offsets.collect()] == [("G", "T")]
    assert [(row.group, row.expression) for row in store.subscriptions.collect()] == [("G", "a > 1")]
    # What was written under the name can be read.
    assert commitlake("dispatch", "--store", store.uri).exit_status == 0
    asked = ("--topic", bad, "--queue-id", 0, "--offset", 0, "--output", "json")
    pulled = commitlake("query", "pull", "--store", store.uri, *asked)
    assert (pulled.exit_status, json.loads(pulled.lines[0])["body_text"]) == (0, "hidden"), pulled.stderr
    # No job makes such a topic either.
    where = ("--where", "body_text = 'hidden'")
    for target in ((), ("--to-topic", "T.dots")):
        moved = commitlake("redrive", "--store", store.uri, *where, *target)
        assert (moved.exit_status, "Say where the rows are to go with --to-topic" in moved.stderr) == (
            2,
            True,
        )
    assert commitlake("redrive", "--store", store.uri, *where, "--to-topic", "T").exit_status == 0
    assert {row.topic for row in store.topics.collect()} & {bad, "T", "T.dots"} == {"T"}


@pytest.mark.slow
def test_a_topic_whose_queues_nobody_writes_is_told_and_never_divided_by(
    commitlake: Commitlake, store: Store, tmp_path: Path
):
    """A broker's operator takes a topic's queues away like this before it is deleted; TBW102 is what new topics copy."""
    root = tmp_path / "broker"
    write_commitlog(root, place([Record(topic="T")], SEGMENT_BYTES), SEGMENT_BYTES)
    (root / "config").mkdir()
    topic = {"perm": 7, "readQueueNums": 4, "writeQueueNums": 0}
    (root / "config" / "topics.json").write_text(
        json.dumps({"topicConfigTable": {"T": topic, "TBW102": topic, "U": {**topic, "writeQueueNums": -1}}})
    )
    assert commitlake("import_store", "--store", store.uri, "--from", root).exit_status == 0
    rows = tmp_path / "rows.jsonl"
    for name, selector, more in (
        ("T", "round_robin", {}),
        ("T", "hash", {"sharding_key": "k"}),
        ("T", "random", {}),
        ("T", "round_robin", {"batch": "b"}),
        ("U", "round_robin", {}),
        ("new", "round_robin", {}),
    ):
        rows.write_text(json.dumps({"topic": name, "body": "b", **more}) + "\n")
        put = commitlake("put_messages", "--store", store.uri, "--input", rows, "--selector", selector)
        assert put.exit_status == 2
        assert f"topic {name} has no queue that is written" in put.stderr
    kept = commitlake("put_messages", "--store", store.uri, "--input", rows, "--on-bad", "quarantine")
    assert (kept.exit_status, kept.result["rejected"], kept.result["appended"]) == (0, 1, 0), kept.stderr
    for target in ((), ("--to-topic", "new")):
        moved = commitlake("redrive", "--store", store.uri, "--where", "topic = 'T'", *target)
        assert (moved.exit_status, "has no queue that is written" in moved.stderr) == (2, True), moved.stderr
    assert "new" not in {row.topic for row in store.topics.collect()}
