"""What an import cannot take over as the broker has it is said, and only where there is something."""

import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pipelines.store.head import read_head
from pipelines.store.store import Store
from tests.broker_files.test_import_store import SEGMENT_BYTES, small_log, write_broker
from tests.conftest import JobRun
from tests.model.records import Record, place, write_commitlog, write_queue

Import = Callable[[], JobRun]


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    return tmp_path / "broker"


@pytest.fixture
def store(new_store: Callable[..., Store]) -> Store:
    return new_store(mappedFileSizeCommitLog=str(SEGMENT_BYTES))


@pytest.fixture
def imported(commitlake: Callable[..., JobRun], store: Store, broker: Path) -> Import:
    def run() -> JobRun:
        done = commitlake("import_store", "--store", store.uri, "--from", broker, "--quiet")
        assert done.exit_status == 0, done.stderr
        return done

    return run


def again(records: Sequence[Record], count: int) -> list[Record]:
    """A log whose topic was deleted after these records, made again, and got `count` more messages in queue 0."""
    new = [Record(body=b"%120d" % index, queue_offset=index) for index in range(count)]
    return place([*records, *new], SEGMENT_BYTES)


@pytest.mark.parametrize(("before", "after"), [(20, 2), (2, 20)])
def test_queues_of_a_topic_that_was_made_again_are_named(
    imported: Import, broker: Path, before: int, after: int
) -> None:
    """Whether what came before is more than what came after it, or less."""
    records = again(small_log(before), after)
    write_commitlog(broker, records, SEGMENT_BYTES)
    new = [(one.physical_offset, one.size_bytes, 0) for one in records[before:]]
    write_queue(broker, "orders", 0, new)
    said = imported().stderr
    assert "warning: queues orders:0" in said
    assert "the topic was deleted and made again" in said


def test_a_log_whose_end_was_not_dispatched_has_no_queue_that_was_made_again(
    imported: Import, broker: Path
) -> None:
    records = small_log(20)
    write_commitlog(broker, records, SEGMENT_BYTES)
    first = [one for one in records if one.queue_id == 0][:5]
    write_queue(broker, "orders", 0, [(one.physical_offset, one.size_bytes, 0) for one in first])
    assert imported().stderr == ""


@pytest.mark.parametrize("worked_through", [0, 1])
def test_what_pop_consumers_hold_is_said(imported: Import, broker: Path, worked_through: int) -> None:
    topic = "rmq_sys_REVIVE_LOG_DefaultCluster"
    held = [Record(topic=topic, body=b"ck", queue_offset=offset) for offset in range(2)]
    records = place([*small_log(2), *held], SEGMENT_BYTES)
    write_broker(broker, records[:2])
    write_commitlog(broker, records, SEGMENT_BYTES)
    write_queue(broker, topic, 0, [(one.physical_offset, one.size_bytes, 0) for one in records[2:]])
    (broker / "config").mkdir()
    offsets = {"offsetTable": {f"{topic}@CID_RMQ_SYS_REVIVE_GROUP": {"0": worked_through}}}
    (broker / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    assert ("receive by POP" in imported().stderr) == (worked_through < 1)


@pytest.mark.slow
def test_light_queues_are_named_and_not_exported(
    imported: Import, commitlake: Callable[..., JobRun], store: Store, broker: Path
) -> None:
    """Fillers in their place would tell a broker that all of their messages have expired."""
    records = small_log(2)
    write_broker(broker, records)
    write_queue(broker, "%LMQ%a", 0, [(records[0].physical_offset, records[0].size_bytes, 0)])
    (broker / "config").mkdir()
    light = {"lmqOffsetTable": {"%LMQ%a@%LMQ%g": 1}, "offsetTable": {"orders@g": {"0": 1, "1": 1}}}
    (broker / "config" / "lmqConsumerOffset.json").write_text(json.dumps(light))
    assert "queues %LMQ%a:0 are light queues" in imported().stderr
    export = broker.parent / "export"
    run = commitlake("export_store", "--store", store.uri, "--to", export)
    assert run.exit_status == 0, run.stderr
    assert "topic '%LMQ%a' has no queue files" in run.stderr
    assert [path.name for path in (export / "consumequeue").iterdir()] == ["orders"]
    written = json.loads((export / "config" / "lmqConsumerOffset.json").read_text())
    del written["dataVersion"]
    assert written == light
    plain = json.loads((export / "config" / "consumerOffset.json").read_text())
    assert plain["offsetTable"] == light["offsetTable"]


@pytest.mark.parametrize("has_expired", [True, False])
def test_a_queue_of_batches_goes_on_where_the_broker_s_files_end(
    imported: Import, store: Store, broker: Path, has_expired: bool
) -> None:
    """Units of 46 bytes; the log may have no message of the queue any more."""
    records = small_log(4)
    write_broker(broker, records)
    offset = -100 if has_expired else records[3].physical_offset
    units = [(0 if has_expired else records[2].physical_offset, 217, 490, 7), (max(offset, 0), 217, 497, 3)]
    content = b"".join(
        struct.pack(">qiqqqhii", at, size, 0, 0, base, count, -1, 0) for at, size, base, count in units
    )
    queue = broker / "batchconsumequeue" / "batches" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(content.ljust(460, b"\0"))
    if has_expired:  # the log begins after them
        (broker / "commitlog" / f"{0:020d}").rename(broker / "commitlog" / f"{SEGMENT_BYTES:020d}")
    imported()
    head = read_head(store.snapshot())
    assert head.next_of("batches", 0) == 500
    assert head.min_queue_offsets["batches", 0] == (500 if has_expired else 490)
