"""Where a log ends: unclean tails, where recovery starts, and directories a broker would not start with."""

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.broker_files.broker_log import BrokerLog
from pipelines.broker_files.chain import RecordChain
from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.left_behind import left_behind
from pipelines.broker_files.segments import read_segments
from pipelines.errors import BadInput
from tests.model.records import Record, encode_segments, place, write_queue

SEGMENT_BYTES = 1_024
STORED = 1_700_000_000_000


def small_log(count: int = 20) -> list[Record]:
    """Records of 217 bytes, four to a segment, a second apart."""
    records = [
        Record(
            topic="orders", body=b"%120d" % index, queue_offset=index, store_timestamp=STORED + index * 1_000
        )
        for index in range(count)
    ]
    return place(records, SEGMENT_BYTES)


class Broker:
    """A broker's directory in the making: segment files as bytes, to be damaged before they are written."""

    def __init__(self, root: Path, records: Sequence[Record]) -> None:
        self.root = root
        self.records = list(records)
        self.segments = {
            start: bytearray(content) for start, content in encode_segments(records, SEGMENT_BYTES).items()
        }

    def damage(self, offset: int, content: bytes = b"\xff") -> "Broker":
        start = offset - offset % SEGMENT_BYTES
        self.segments[start][offset - start : offset - start + len(content)] = content
        return self

    def with_queue(self, count: int | None = None) -> "Broker":
        """The one queue, with entries of the first `count` records."""
        entries = [(record.physical_offset, record.size_bytes, 0) for record in self.records[:count]]
        write_queue(self.root, "orders", 0, entries)
        return self

    def aborted(self, checkpoint_ms: int) -> "Broker":
        self.root.mkdir(exist_ok=True)
        (self.root / "abort").write_text("4711")
        (self.root / "checkpoint").write_bytes(struct.pack(">qqq", *[checkpoint_ms] * 3).ljust(4_096, b"\0"))
        return self

    def log(self, spark: SparkSession, **conf: str) -> BrokerLog:
        directory = self.root / "commitlog"
        directory.mkdir(parents=True, exist_ok=True)
        for start, content in self.segments.items():
            (directory / f"{start:020d}").write_bytes(content)
        return BrokerLog.read(spark, BrokerDirectory(str(self.root)), conf)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "broker", small_log())


def ends(log: BrokerLog) -> tuple[int, int | None]:
    return log.end.offset, log.end.truncated_at


def records_of(log: BrokerLog) -> list[int]:
    """Offsets of the records an import takes."""
    pieces = log.next_rows(log.start_offset, 2**62).pieces
    found = []
    for piece in pieces:
        with log.directory.open(piece.segment.path) as file:
            at = piece.segment.start_offset
            chain = RecordChain(
                file, piece.segment, piece.from_offset - at, piece.to_offset - at, piece.skip_damage
            )
            for piece_at, fields in chain.pieces():
                found += (at + piece_at + fields.starts).tolist()
    return found


def test_a_sound_log_ends_behind_its_last_record(spark: SparkSession, broker: Broker):
    log = broker.with_queue().log(spark)
    last = broker.records[-1]
    assert ends(log) == (last.physical_offset + last.size_bytes, None)
    assert log.segments[log.recovered_from].start_offset == 4 * SEGMENT_BYTES
    assert records_of(log) == [record.physical_offset for record in broker.records]


def test_names_that_are_no_offsets_and_no_queues_are_none(spark: SparkSession, broker: Broker):
    log = broker.with_queue().log(spark)
    queues = broker.root / "consumequeue" / "orders"
    for name in ("²", "99999999999", "x"):
        (queues / name).mkdir()
    for name in ("²", "9" * 20, "9" * 30, "x"):
        (queues / "0" / name).write_bytes(bytes(6_000))
    again = broker.log(spark)
    assert [(queue.queue_id, queue.next_offset) for queue in again.queues] == [(0, 20)]
    assert again.end == log.end
    broker.segments[0] = bytearray(SEGMENT_BYTES)
    (broker.root / "commitlog" / "99999999999999999424").write_bytes(bytes(SEGMENT_BYTES))
    with pytest.raises(BadInput, match="no offset is above 9223372036854775807"):
        broker.log(spark)


def test_files_of_zeros_and_of_nothing_follow(spark: SparkSession, broker: Broker):
    broker.segments[5 * SEGMENT_BYTES] = bytearray(SEGMENT_BYTES)
    broker.segments[6 * SEGMENT_BYTES] = bytearray()
    log = broker.with_queue().log(spark)
    last = broker.records[-1]
    assert ends(log) == (last.physical_offset + last.size_bytes, None)


def test_a_blank_before_a_file_of_zeros_is_part_of_the_log(spark: SparkSession, broker: Broker):
    last = broker.records[-1]
    room = 5 * SEGMENT_BYTES - last.physical_offset - last.size_bytes
    broker.damage(last.physical_offset + last.size_bytes, struct.pack(">iI", room, 0xCBD43194))
    broker.segments[5 * SEGMENT_BYTES] = bytearray(SEGMENT_BYTES)
    assert ends(broker.with_queue().log(spark)) == (5 * SEGMENT_BYTES, None)


def test_a_blank_at_the_end_of_the_last_file_is_written_over(spark: SparkSession, broker: Broker):
    last = broker.records[-1]
    end = last.physical_offset + last.size_bytes
    broker.damage(end, struct.pack(">iI", 5 * SEGMENT_BYTES - end, 0xCBD43194))
    assert ends(broker.with_queue().log(spark)) == (end, None)


def test_a_tail_that_was_half_written_is_cut(spark: SparkSession, broker: Broker):
    last = broker.records[-1]
    broker.damage(last.physical_offset + 150, bytes(last.size_bytes - 150))
    log = broker.with_queue(19).aborted(STORED + 18_000).log(spark)
    assert ends(log) == (last.physical_offset, last.physical_offset)
    # The zeros at the record's end are its lengths of body and topic or bytes of its body: its CRC or its length tells.
    assert log.end.cut_reason in ("its CRC does not match", "its parts do not add up to its length")


def test_damage_behind_which_segments_lie_says_what_is_lost(spark: SparkSession, broker: Broker):
    """Recovery starts at the fourth segment, damage in it cuts off what the fifth holds."""
    thirteenth = broker.records[13]
    broker.damage(thirteenth.physical_offset + 100)
    log = broker.with_queue().aborted(checkpoint_ms=STORED + 12_000 + 3_000).log(spark)
    assert log.segments[log.recovered_from].start_offset == 3 * SEGMENT_BYTES
    assert ends(log) == (thirteenth.physical_offset, thirteenth.physical_offset)
    assert log.end.cut_reason == "its CRC does not match; 4 whole records in later segments follow it"
    assert log.queues[0].next_offset == 13
    assert log.queues_end == thirteenth.physical_offset


def test_crc_is_not_looked_at_where_the_broker_does_not(spark: SparkSession, broker: Broker):
    broker.damage(broker.records[18].physical_offset + 100)
    log = broker.with_queue().log(spark, checkCRCOnRecover="false")
    assert log.end.truncated_at is None
    assert len(records_of(log)) == 20


def test_a_normal_exit_trusts_what_the_queues_cover(spark: SparkSession, broker: Broker):
    broker.damage(broker.records[5].physical_offset + 100)
    log = broker.with_queue().log(spark)
    assert log.end.truncated_at is None
    assert len(records_of(log)) == 20  # its body is imported as it is
    # Entries up to the tenth record: the third segment starts at the eighth, at or before their end.
    assert broker.with_queue(10).log(spark).recovered_from == 2


def test_an_abnormal_exit_trusts_what_the_checkpoint_covers(spark: SparkSession, broker: Broker):
    """The segments start at seconds 0, 4, 8, 12 and 16; the checkpoint counts 3 seconds before what it says."""
    for checkpoint_ms, first in ((0, 0), (10_999, 1), (11_000, 2), (15_000, 3), (18_999, 3), (60_000, 4)):
        log = broker.aborted(STORED + checkpoint_ms if checkpoint_ms else 0).log(spark)
        assert log.recovered_from == first, checkpoint_ms


def test_a_segment_whose_first_record_is_broken_is_no_start(spark: SparkSession, broker: Broker):
    broker.damage(broker.records[16].physical_offset + 100)
    log = broker.with_queue().log(spark)
    assert log.recovered_from == 3
    assert ends(log) == (broker.records[16].physical_offset, broker.records[16].physical_offset)


def test_without_queues_the_whole_log_is_recovered(spark: SparkSession, broker: Broker):
    broker.damage(broker.records[5].physical_offset + 100)
    log = broker.log(spark)
    assert log.recovered_from == 0
    assert ends(log) == (broker.records[5].physical_offset, broker.records[5].physical_offset)


def test_a_damaged_queue_entry_ends_what_the_queues_cover(spark: SparkSession, broker: Broker):
    """Entries after it are not used: recovery starts before it, and the log has the records they were of."""
    entries = [(record.physical_offset, record.size_bytes, 0) for record in broker.records]
    entries[10] = (entries[10][0], 0, 0)
    write_queue(broker.root, "orders", 0, entries)
    log = broker.log(spark)
    assert (log.queues_end, log.recovered_from) == (broker.records[10].physical_offset, 2)
    assert log.end.truncated_at is None
    assert log.queue_ends() == {("orders", 0): 20}


def test_a_checkpoint_that_is_cut_short_covers_nothing(spark: SparkSession, broker: Broker):
    broker.aborted(STORED + 60_000)
    (broker.root / "checkpoint").write_bytes(struct.pack(">q", STORED + 60_000))
    assert broker.log(spark).recovered_from == 0


def test_without_log_files_the_queues_are_dropped(spark: SparkSession, broker: Broker):
    broker.segments.clear()
    log = broker.with_queue().log(spark)
    assert (ends(log), log.queues) == ((0, None), [])


def test_an_index_that_must_be_safe_moves_the_start_back(spark: SparkSession, broker: Broker):
    broker.with_queue().aborted(STORED + 60_000)
    (broker.root / "checkpoint").write_bytes(
        struct.pack(">qqq", STORED + 60_000, STORED + 60_000, STORED + 9_000).ljust(4_096, b"\0")
    )
    assert broker.log(spark, messageIndexSafe="true").recovered_from == 2


def test_a_broken_chain_before_the_start_is_stepped_over_and_told(spark: SparkSession, broker: Broker):
    fifth, sixth = broker.records[5], broker.records[6]
    broker.damage(fifth.physical_offset + 4)  # its magic
    broker.damage(broker.records[11].physical_offset + 4)  # the last one of its segment
    log = broker.with_queue().log(spark)
    assert log.recovered_from == 4
    left = [record.physical_offset for index, record in enumerate(broker.records) if index not in (5, 11)]
    assert records_of(log) == left
    assert [(damage.from_at, damage.to_at) for damage in log.damage()] == [
        (fifth.physical_offset, sixth.physical_offset),
        (broker.records[11].physical_offset, 3 * SEGMENT_BYTES),
    ]


def test_a_log_whose_first_segments_have_expired(spark: SparkSession, tmp_path: Path):
    broker = Broker(tmp_path / "broker", small_log())
    del broker.segments[0]
    log = broker.with_queue().log(spark)
    assert log.start_offset == SEGMENT_BYTES
    assert records_of(log) == [record.physical_offset for record in broker.records[4:]]
    (queue,) = log.queues
    assert (queue.min_offset, queue.next_offset) == (4, 20)


def test_queues_all_of_whose_rows_have_expired(spark: SparkSession, broker: Broker):
    del broker.segments[0]
    write_queue(broker.root, "gone", 3, [(0, 202, 0), (202, 202, 0)], first=700)
    write_queue(broker.root, "never", 0, [])
    bounds = {queue.topic: (queue.min_offset, queue.next_offset) for queue in broker.log(spark).queues}
    assert bounds == {"gone": (702, 702), "never": (0, 0)}


def refused(spark: SparkSession, broker: Broker, **conf: str) -> str:
    with pytest.raises(BadInput) as failure:
        broker.log(spark, **conf)
    return str(failure.value)


def test_a_segment_of_another_length_is_refused(spark: SparkSession, broker: Broker):
    broker.segments[SEGMENT_BYTES] = broker.segments[SEGMENT_BYTES][:-1]
    told = refused(spark, broker)
    assert "commitlog/00000000000000001024 has 1023 bytes; expected 1024" in told


def test_an_empty_file_in_the_middle_is_refused(spark: SparkSession, broker: Broker):
    broker.segments[SEGMENT_BYTES] = bytearray()
    assert "has 0 bytes; expected 1024" in refused(spark, broker)


def test_a_missing_segment_is_refused(spark: SparkSession, broker: Broker):
    del broker.segments[2 * SEGMENT_BYTES]
    assert "commitlog/00000000000000002048 is missing" in refused(spark, broker)


def test_settings_that_are_not_what_the_files_are_are_refused(spark: SparkSession, broker: Broker):
    assert "expected 2048" in refused(spark, broker, mappedFileSizeCommitLog="2048")


def test_a_file_that_is_no_segment_is_refused(spark: SparkSession, broker: Broker):
    (broker.root / "commitlog").mkdir(parents=True)
    (broker.root / "commitlog" / "notes.txt").write_text("x")
    assert "commitlog/notes.txt is not a log segment" in refused(spark, broker)


def test_directories_that_are_no_store(spark: SparkSession, tmp_path: Path):
    def told(path: Path) -> str:
        with pytest.raises(BadInput) as failure:
            BrokerLog.read(spark, BrokerDirectory(str(path)), {})
        return str(failure.value)

    assert "there is no directory" in told(tmp_path / "nowhere")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    assert "has no commitlog/; expected a broker's storePathRootDir, found file" in told(tmp_path / "other")
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / f"{0:020d}").write_text("x")
    assert "looks like a broker's commitlog itself" in told(tmp_path / "log")


def test_a_log_in_several_directories_is_one_log(spark: SparkSession, broker: Broker, tmp_path: Path):
    """storePathCommitLog names two: below the broker's root, which was copied, and elsewhere."""
    whole = broker.with_queue().log(spark)
    other = tmp_path / "other"
    other.mkdir()
    for start in (0, 3 * SEGMENT_BYTES):
        (broker.root / "commitlog" / f"{start:020d}").rename(other / f"{start:020d}")
    (broker.root / "commitlog").rename(broker.root / "log")
    conf = {"storePathRootDir": "/broker/store", "storePathCommitLog": f"/broker/store/log:{other}"}
    log = BrokerLog.read(spark, BrokerDirectory(str(broker.root)), conf)
    assert log.end == whole.end
    assert records_of(log) == [record.physical_offset for record in broker.records]

    (other / f"{SEGMENT_BYTES:020d}").write_bytes(bytes(SEGMENT_BYTES))
    with pytest.raises(BadInput, match="00000000000000001024 is in two directories"):
        read_segments(BrokerDirectory(str(broker.root)), conf)
    conf["storePathCommitLog"] = f"/broker/store/log,{tmp_path}/gone"
    with pytest.raises(BadInput, match="/gone is not there"):
        read_segments(BrokerDirectory(str(broker.root)), conf)


def test_a_log_of_several_directories_goes_on_in_those_that_are_only_read(
    spark: SparkSession, broker: Broker, tmp_path: Path
):
    whole = broker.with_queue().log(spark)
    other, read_only = tmp_path / "other", tmp_path / "read_only"
    (broker.root / "commitlog").rename(broker.root / "log")
    for directory, start in ((read_only, 0), (other, SEGMENT_BYTES)):
        directory.mkdir()
        (broker.root / "log" / f"{start:020d}").rename(directory / f"{start:020d}")
    directory = BrokerDirectory(str(broker.root))
    conf = {"storePathRootDir": "/broker/store", "readOnlyCommitLogStorePaths": str(read_only)}
    several = {**conf, "storePathCommitLog": f"/broker/store/log,{other}"}
    log = BrokerLog.read(spark, directory, several)
    assert log.end == whole.end
    assert records_of(log) == [record.physical_offset for record in broker.records]
    assert list(left_behind(directory, several)) == []
    with pytest.raises(BadInput, match=r"^readOnlyCommitLogStorePaths is .*/gone is not there"):
        read_segments(directory, {**several, "readOnlyCommitLogStorePaths": f"{tmp_path}/gone"})

    # As at the broker itself, which takes the log's only directory then.
    one = {**conf, "storePathCommitLog": "/broker/store/log"}
    assert read_segments(directory, one)[0][0].start_offset == 2 * SEGMENT_BYTES
    assert f"{read_only} is left out" in next(left_behind(directory, one))


def test_a_log_that_was_copied_into_the_directory_is_read_there(spark: SparkSession, broker: Broker):
    log = broker.log(spark, storePathCommitLog="/broker/disk1/log,/broker/disk2/log")
    assert len(records_of(log)) == 20


@pytest.mark.parametrize(
    ("paths", "read_only"),
    [
        ("/broker/store/commitlog,/broker/disk2/log", ""),
        ("/broker/disk1/log,/broker/disk2/log", "/broker/store/commitlog"),
    ],
    ids=["written", "read only"],
)
def test_a_log_that_was_copied_is_read_also_where_commitlog_was_one_of_its_directories(
    spark: SparkSession, broker: Broker, paths: str, read_only: str
):
    whole = broker.log(spark)
    directory = BrokerDirectory(str(broker.root))
    conf = {"storePathRootDir": "/broker/store", "storePathCommitLog": paths}
    conf["readOnlyCommitLogStorePaths"] = read_only
    assert BrokerLog.read(spark, directory, conf).end == whole.end
    left = list(left_behind(directory, conf))
    assert "/broker/disk2/log, where the broker has files of its log, is not there" in left[-1]
