"""A broadcasting client's offsets.json: docs/rocketmq/consume-filter-ha.md 3.1."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.consume.offset_files import read_offsets, write_offsets
from pipelines.errors import BadInput

PROJECT = Path(__file__).parent.parent.parent

SPEC = (
    '{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:12,'
    '{"brokerName":"broker-a","queueId":1,"topic":"T"}:7}}'
)
SPEC_OFFSETS = {("T", "broker-a", 0): 12, ("T", "broker-a", 1): 7}

# As fastjson 1.2.83, which RocketMQ's clients use, prints it.
PRETTY = """{
\t"offsetTable":{{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":1,
\t\t\t"topic":"T"
\t\t}:7,{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":0,
\t\t\t"topic":"T"
\t\t}:12
\t}
}"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "10.0.0.1@DEFAULT" / "group" / "offsets.json"


@pytest.fixture
def backup(file: Path) -> Path:
    file.parent.mkdir(parents=True)
    return file.with_name("offsets.json.bak")


def entry(broker: str, offset: int) -> str:
    return f'{{"offsetTable":{{{{"brokerName":"{broker}","queueId":0,"topic":"T"}}:{offset}}}}}'


@pytest.mark.quick
def test_the_first_write_makes_the_file_as_rocketmq_writes_it(file: Path) -> None:
    write_offsets(file, SPEC_OFFSETS)
    assert file.read_text() == SPEC
    assert read_offsets(file) == SPEC_OFFSETS
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        (PRETTY, SPEC_OFFSETS),
        ('{"offsetTable": { {"topic":"T", "brokerName":"b","queueId":3 } : 5 } }', {("T", "b", 3): 5}),
        (r'{"offsetTable":{{"brokerName":"a}:1,{\"","queueId":0,"topic":"T"}:5}}', {("T", 'a}:1,{"', 0): 5}),
        ('{"offsetTable":{}}', {}),
    ],
)
def test_other_white_space_order_and_braces_in_names_are_read(
    file: Path, backup: Path, text: str, offsets: dict[tuple[str, str, int], int]
) -> None:
    file.write_text(text)
    assert read_offsets(file) == offsets


@pytest.mark.quick
def test_any_name_is_read_as_it_was_written(file: Path) -> None:
    offsets = {("T", 'büro "1"\n{2}:3,\\', 0): 5}
    write_offsets(file, offsets)
    assert read_offsets(file) == offsets


@pytest.mark.quick
def test_a_write_keeps_the_other_queues_and_the_offsets_before_it(file: Path, backup: Path) -> None:
    file.write_text(PRETTY)
    write_offsets(file, {("T", "broker-a", 1): 3, ("U", "broker-a", 0): 1})
    assert read_offsets(file) == {**SPEC_OFFSETS, ("T", "broker-a", 1): 3, ("U", "broker-a", 0): 1}
    assert backup.read_text() == SPEC


@pytest.mark.quick
@pytest.mark.parametrize("damage", [None, "", SPEC[:60], '{"other":1}', "[]", SPEC.replace("12", '"x"')])
def test_where_the_file_cannot_be_read_its_backup_counts(
    file: Path, backup: Path, damage: str | None
) -> None:
    backup.write_text(entry("b", 9))
    if damage is not None:
        file.write_text(damage)
    assert read_offsets(file) == {("T", "b", 0): 9}


@pytest.mark.quick
def test_a_damaged_file_never_takes_the_place_of_its_backup(file: Path, backup: Path) -> None:
    file.write_text(SPEC[:60])
    backup.write_text(entry("b", 9))
    write_offsets(file, {("T", "b", 0): 10})
    assert (file.read_text(), backup.read_text()) == (entry("b", 10), entry("b", 9))


@pytest.mark.quick
def test_where_neither_can_be_read_both_are_named_and_nothing_is_written(file: Path, backup: Path) -> None:
    file.write_text("{")
    backup.write_bytes(b"\xff")
    with pytest.raises(BadInput) as refused:
        write_offsets(file, SPEC_OFFSETS)
    assert f"{file} (Expecting " in str(refused.value)
    assert f"{backup} ('utf-8' codec can't decode" in str(refused.value)
    assert (file.read_text(), backup.read_bytes()) == ("{", b"\xff")


@pytest.mark.quick
def test_a_client_that_never_wrote_has_no_offsets(file: Path, backup: Path) -> None:
    assert read_offsets(file) == {}
    file.touch()
    assert read_offsets(file) == {}


@pytest.mark.quick
def test_who_is_reading_a_file_while_it_is_written_reads_the_old_one_to_its_end(
    file: Path, backup: Path
) -> None:
    write_offsets(file, {("T", "b", 0): 1})
    write_offsets(file, {("T", "b", 0): 2})
    with open(file) as reading, open(backup) as reading_backup:
        write_offsets(file, {("T", "b", 0): 3})
        assert (reading.read(), reading_backup.read()) == (entry("b", 2), entry("b", 1))
    assert (file.read_text(), backup.read_text()) == (entry("b", 3), entry("b", 2))


@pytest.mark.quick
def test_a_file_uri_is_that_file(file: Path) -> None:
    for count, scheme in enumerate(("file:", "file://")):
        write_offsets(f"{scheme}{file}", {("T", "b", 0): count})
        assert read_offsets(file) == {("T", "b", 0): count}


@pytest.mark.quick
@pytest.mark.parametrize("uri", ["hdfs://host/offsets.json", "s3a:/bucket/offsets.json", "file://host/x"])
def test_a_file_elsewhere_is_refused(uri: str) -> None:
    for refuse in (lambda: read_offsets(uri), lambda: write_offsets(uri, {})):
        with pytest.raises(BadInput, match="on its own machine"):
            refuse()


WRITER = """
import sys
from pipelines.consume.offset_files import read_offsets, write_offsets
place = max(read_offsets(sys.argv[1]).values(), default=0)
while True:
    place += 1
    write_offsets(sys.argv[1], {("T", "broker-a", queue_id): place for queue_id in range(40)})
"""


@pytest.mark.slow
def test_a_writer_killed_at_any_moment_leaves_the_old_offsets_or_the_new(file: Path) -> None:
    seen = 0

    def look() -> int:
        """Where the writer is: all queues at one place, never behind what was seen before."""
        places = set(read_offsets(file).values()) or {0}
        assert len(places) == 1
        assert min(places) >= seen
        return min(places)

    for kill in range(5):
        started_at = seen
        deadline = time.monotonic() + 60
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(file)], cwd=PROJECT)
        try:
            while seen < started_at + 20 + kill:
                assert writer.poll() is None
                assert time.monotonic() < deadline
                seen = look()
        finally:
            writer.kill()
            writer.wait()
        seen = look()
