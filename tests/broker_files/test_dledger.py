"""Logs of brokers with DLedger: records in entries, up to the last that the group has agreed on."""

import os
import socket
import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.broker_files.broker_log import BrokerLog
from pipelines.broker_files.columns import LogColumns
from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.rows import piece_rows
from pipelines.errors import BadInput
from pipelines.store.store import Store
from tests.conftest import PROJECT, JobRun
from tests.model.records import (
    ENTRY_HEADER_BYTES,
    Record,
    encode_entry_files,
    place,
    place_entries,
    write_commitlog,
    write_queue,
)

SEGMENT_BYTES = 1_024
STORED = 1_700_000_000_000
JARS = PROJECT / ".setup" / "rocketmq"  # made by scripts/test_jars.sh
Commitlake = Callable[..., JobRun]


def small_log(count: int, from_number: int = 0) -> list[Record]:
    """Records of 217 bytes, three entries to a segment."""
    return [
        Record(body=b"%120d" % number, queue_offset=number, store_timestamp=STORED + number * 1_000)
        for number in range(from_number, from_number + count)
    ]


class Member:
    """A member of a DLedger group: its files as bytes, to be damaged before they are written."""

    def __init__(self, root: Path, records: Sequence[Record], from_offset: int = 0) -> None:
        self.root = root
        self.records = place_entries(records, SEGMENT_BYTES, from_offset)
        self.files = encode_entry_files(self.records, SEGMENT_BYTES)

    def position(self, number: int) -> int:
        return self.records[number].physical_offset - ENTRY_HEADER_BYTES

    def damage(self, offset: int, content: bytes) -> "Member":
        start = offset - offset % SEGMENT_BYTES
        self.files[start][offset - start : offset - start + len(content)] = content
        return self

    def write(self, committed: int | None = None) -> "Member":
        data = self.root / "dledger-n0" / "data"
        data.mkdir(parents=True, exist_ok=True)
        for start, content in self.files.items():
            (data / f"{start:020d}").write_bytes(content)
        last = len(self.records) - 1 if committed is None else committed
        (self.root / "dledger-n0" / "checkpoint").write_text(f"endIndex={last}\ncommittedIndex={last}\n")
        entries = [(record.physical_offset, record.size_bytes, 0) for record in self.records[: last + 1]]
        write_queue(self.root, "orders", 0, entries, first=self.records[0].queue_offset)
        return self

    def log(self, spark: SparkSession, **conf: str) -> BrokerLog:
        return BrokerLog.read(spark, BrokerDirectory(str(self.root)), conf, piece_bytes=300)


def end_of(record: Record) -> int:
    return record.physical_offset + record.size_bytes


def offsets(log: BrokerLog, from_offset: int | None = None) -> list[int]:
    """Offsets of the records an import takes (from an offset on), which the pieces say themselves."""
    following = log.next_rows(log.start_offset if from_offset is None else from_offset, 2**62)
    found = []
    for piece in following.pieces:
        for batch in piece_rows(log.directory, piece, LogColumns(None)):
            found += batch.column("physical_offset").to_pylist()
    assert following.first_offset in (None, *found[:1])
    assert following.records in (None, len(found))
    return found


@pytest.fixture
def member(tmp_path: Path) -> Member:
    return Member(tmp_path / "broker", small_log(20))


def test_records_are_found_in_their_entries(spark: SparkSession, member: Member):
    log = member.write().log(spark)
    assert (log.end.offset, log.end.truncated_at, log.end.left_out) == (
        end_of(member.records[-1]),
        None,
        None,
    )
    assert offsets(log) == [record.physical_offset for record in member.records]
    # As DLedger does: from the last file but two on.
    assert log.recovered_from == len(log.segments) - 3
    record = member.records[7]
    found = log.record_at(record.physical_offset)
    assert found is not None
    assert found[0] == record.size_bytes
    assert found[3] == 7


def test_entries_that_the_group_has_not_agreed_on_are_left_out(spark: SparkSession, member: Member):
    for committed in (-1, 0, 10, 11, 12, 18):
        log = member.write(committed).log(spark)
        assert offsets_or_none(log) == [one.physical_offset for one in member.records[: committed + 1]]
        assert log.end.truncated_at is None
        assert f"entry {committed + 1} is not committed" in (log.end.left_out or "")


def offsets_or_none(log: BrokerLog) -> list[int]:
    return offsets(log) if log.next_rows(log.start_offset, 2**62).pieces else []


def test_the_log_ends_where_dledger_finds_no_next_entry(spark: SparkSession, member: Member):
    """A size, a position or an index that is not the next one's; the file before the end of recovery is the first."""
    at = member.position(16)
    for where, content in (
        (at + 4, struct.pack(">i", 47)),
        (at + 24, struct.pack(">q", at + 1)),
        (at + 8, struct.pack(">q", 99)),
        (at + 44, struct.pack(">i", 1)),
        (at, struct.pack(">i", 7)),
    ):
        member.files = encode_entry_files(member.records, SEGMENT_BYTES)
        log = member.damage(where, content).write().log(spark)
        assert log.end.truncated_at == end_of(member.records[15]), (where - at, log.end)
        assert offsets(log) == [one.physical_offset for one in member.records[:16]]


def test_what_is_no_record_in_a_whole_entry_is_passed_by_also_where_dledger_recovers(
    spark: SparkSession, member: Member
):
    for number in (1, 13, 19):
        for where in (0, 4, 84):  # its length, its magic code, the length of its body
            member.files = encode_entry_files(member.records, SEGMENT_BYTES)
            offset = member.records[number].physical_offset
            log = member.damage(offset + where, struct.pack(">i", 400)).write().log(spark)
            expected = [one.physical_offset for one in member.records if one.physical_offset != offset]
            assert offsets(log) == expected, (number, where)
            (damage,) = log.damage()
            assert (damage.from_at, damage.to_at) == (member.position(number), end_of(member.records[number]))
            assert log.end.truncated_at is None


def test_an_entry_without_a_record_may_be_the_next_one_to_import(spark: SparkSession, member: Member):
    """Each border between two entries is where an import may have ended; the entry after it is damaged, or is not."""
    for numbers in ((1, 16, 17), (19,)):
        member.files = encode_entry_files(member.records, SEGMENT_BYTES)
        for number in numbers:
            member.damage(member.records[number].physical_offset + 4, bytes(4))
        log = member.write().log(spark)
        whole = [one for number, one in enumerate(member.records) if number not in numbers]
        for record in member.records:
            expected = [one.physical_offset for one in whole if one.physical_offset > record.physical_offset]
            assert offsets(log, end_of(record)) == expected
            assert bool(log.next_rows(end_of(record), 2**62).pieces) == bool(expected)


@pytest.mark.slow
def test_an_import_goes_on_after_an_entry_without_a_record(
    commitlake: Commitlake, new_store: Callable[..., Store], member: Member
):
    store = new_store(mappedFileSizeCommitLog=str(SEGMENT_BYTES))
    for number in (16, 19):
        member.damage(member.records[number].physical_offset + 4, bytes(4))
    for committed, messages in ((15, 16), (18, 2), (19, 0), (19, 0)):
        member.write(committed)
        run = commitlake("import_store", "--store", store.uri, "--from", member.root)
        assert (run.exit_status, run.result["messages"]) == (0, messages), run.stderr
    rows = store.commitlog.orderBy("physical_offset").collect()
    expected = [one.physical_offset for number, one in enumerate(member.records) if number not in (16, 19)]
    assert [row.physical_offset for row in rows] == expected


def test_a_damaged_header_before_the_recovered_part_is_stepped_over(spark: SparkSession, member: Member):
    log = member.damage(member.position(4), bytes(48)).write().log(spark)
    expected = [one.physical_offset for number, one in enumerate(member.records) if number != 4]
    assert offsets(log) == expected
    assert [(one.from_at, one.to_at) for one in log.damage()] == [(member.position(4), member.position(5))]


def test_records_without_entries_may_come_before(spark: SparkSession, tmp_path: Path):
    """A broker that was given DLedger later: it closes its last file and begins another."""
    plain = place(small_log(5), SEGMENT_BYTES)
    write_commitlog(tmp_path / "broker", plain, SEGMENT_BYTES)
    member = Member(tmp_path / "broker", small_log(4, 5), from_offset=2 * SEGMENT_BYTES)
    last = tmp_path / "broker" / "commitlog" / f"{SEGMENT_BYTES:020d}"
    blank = struct.pack(">iI", SEGMENT_BYTES - plain[-1].size_bytes, 0xCBD43194)
    content = bytearray(last.read_bytes())
    content[plain[-1].size_bytes : plain[-1].size_bytes + 8] = blank
    last.write_bytes(content)
    log = member.write().log(spark)
    assert offsets(log) == [record.physical_offset for record in (*plain, *member.records)]
    assert log.end.offset == end_of(member.records[-1])


def test_a_brokers_settings_may_name_a_directory_for_files_it_never_had(
    spark: SparkSession, member: Member, tmp_path: Path
):
    conf = {"storePathRootDir": "/broker/store", "storePathCommitLog": "/broker/store/commitlog"}
    expected = [record.physical_offset for record in member.records]
    assert offsets(member.write().log(spark, **conf)) == expected
    elsewhere = tmp_path / "elsewhere"
    (member.root / "dledger-n0" / "data").rename(elsewhere)
    assert offsets(member.log(spark, **conf, storePathDLedgerCommitLog=str(elsewhere))) == expected


def test_entries_longer_than_a_piece_and_shorter_than_a_record_end_the_walk(
    spark: SparkSession, tmp_path: Path
):
    records = [Record(body=bytes([65 + number]) * 9_000_000, queue_offset=number) for number in range(2)]
    placed = place_entries(records, 1 << 25)
    (content,) = encode_entry_files(placed, 1 << 25).values()
    end = end_of(placed[-1])
    for body_bytes in (1, 7, 8, 90):
        tail = struct.pack(">iiqqqiiii", 1, 48 + body_bytes, 2, 1, end, 0, 0, 0, body_bytes)
        content[end : end + 48] = tail
        data = tmp_path / "dledger-n0" / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / f"{0:020d}").write_bytes(content)
        (tmp_path / "dledger-n0" / "checkpoint").write_text("committedIndex=9\n")
        log = BrokerLog.read(spark, BrokerDirectory(str(tmp_path)), {})
        assert offsets(log) == [record.physical_offset for record in placed]


def test_which_member_and_how_far_has_to_be_known(spark: SparkSession, member: Member):
    def complaint(**conf: str) -> str:
        with pytest.raises(BadInput) as failure:
            member.log(spark, **conf)
        return str(failure.value)

    member.write()
    (member.root / "dledger-n1" / "data").mkdir(parents=True)
    assert "has dledger-n0 and dledger-n1" in complaint()
    assert "in dledger-n2 (enable" in complaint(dLegerSelfId="n2")
    assert offsets(member.log(spark, dLegerSelfId="n0")) == [one.physical_offset for one in member.records]
    assert "has no commitlog/" in complaint(enableDLegerCommitLog="false")
    (member.root / "dledger-n1" / "data").rmdir()
    (member.root / "dledger-n1").rmdir()
    for text in ("", "committedIndex=\n", "committedIndex=x\n", "endIndex=3\n"):
        (member.root / "dledger-n0" / "checkpoint").write_text(text)
        assert "does not say committedIndex" in complaint()
    assert "does not say committedIndex" in complaint(enableDLegerCommitLog="true")
    (member.root / "dledger-n0" / "checkpoint").unlink()
    assert "(the file is missing)" in complaint()
    (member.root / "dledger-n0").rename(member.root / "away")
    assert "in dledger-ID (enableDLegerCommitLog, dLegerSelfId)" in complaint(enableDLegerCommitLog="true")


@pytest.mark.slow
def test_an_import_follows_what_the_group_agrees_on(
    commitlake: Commitlake, new_store: Callable[..., Store], member: Member
):
    store = new_store(mappedFileSizeCommitLog=str(SEGMENT_BYTES))
    arguments = ("import_store", "--store", store.uri, "--from", member.root)
    member.write(10)
    first = commitlake(*arguments)
    assert (first.exit_status, first.result["messages"], first.result["truncated_at"]) == (0, 11, None)
    assert "entry 11 is not committed" in first.stderr
    member.write()
    second = commitlake(*arguments)
    assert (second.exit_status, second.result["messages"]) == (0, 9), second.stderr
    rows = store.commitlog.orderBy("physical_offset").collect()
    assert [row.physical_offset for row in rows] == [record.physical_offset for record in member.records]
    again = commitlake(*arguments)
    assert (again.exit_status, again.result["messages"]) == (0, 0)
    # A member that starts may know of less for a while: the store is still this broker's.
    member.write(10)
    earlier = commitlake(*arguments)
    assert earlier.exit_status == 2
    assert "entry 11 is not committed" in earlier.stderr
    assert "Import again when it has" in earlier.stderr
    assert "Import into a new store" not in earlier.stderr


@pytest.mark.slow
@pytest.mark.skipif(
    not JARS.exists() and os.environ.get("CI") != "true", reason="there is no RocketMQ; scripts/test_jars.sh"
)
@pytest.mark.parametrize("plain", [0, 100])
def test_what_rocketmq_wrote_with_dledger_imports_whole(
    spark: SparkSession, commitlake: Commitlake, tmp_path: Path, plain: int
):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    broker, store, copy = tmp_path / "broker", tmp_path / "store", tmp_path / "copy"
    program = Path(__file__).parent / "WriteDledger.java"
    run = subprocess.run(
        ["java", "-Xmx512m", "-cp", f"{JARS}/*", str(program), str(broker), "16384", str(port), str(plain), "300"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    lines = [line.split("\t") for line in run.stdout.splitlines()]
    written = sorted(tuple(words[1:]) for words in lines if words[0] == "MESSAGE")
    assert len(written) == plain + 300
    imported = commitlake("import_store", "--store", store, "--from", broker)
    assert imported.exit_status == 0, imported.stderr
    assert (imported.result["messages"], imported.result["truncated_at"]) == (plain + 300, None)
    log = Store(spark, str(store)).commitlog
    rows = log.select(
        "physical_offset", "queue_id", "queue_offset", "size_bytes", "body", "body_crc"
    ).collect()
    found = sorted((*map(str, row[:4]), row.body.decode(), str(row.body_crc)) for row in rows)
    assert found == written
    assert commitlake("validate", "--store", store, "--full").exit_status == 0
    # Its rows are read, followed and copied as others are; a broker without DLedger could not read past the headers.
    copied = commitlake("replicate", "--store", copy, "--master", store)
    assert (copied.exit_status, commitlake("validate", "--store", copy, "--full").exit_status) == (0, 0)
    exported = commitlake("export_store", "--store", store, "--to", tmp_path / "export")
    assert exported.exit_status != 0
    assert "header of a DLedger entry" in exported.stderr
