"""Inputs that would lose rows, or that no put can take: refused in a sentence."""

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipelines.store.commit as committing
from pipelines.produce.input_files import InputFile
from pipelines.produce.inputs import SHORT_BYTES, Input
from tests.conftest import write_jsonl
from tests.life import B, Life


@pytest.mark.parametrize("text", [
    '{"topic":"T","body":"1"}{"topic":"T","body":"2"}\n',
    '{"topic":"T","body":"1"}\r{"topic":"T","body":"2"}\r',
    '{"topic":"T","body":"1"} trailing\n',
])  # fmt: skip
def test_what_follows_an_object_on_its_line_is_not_dropped(life: Callable[..., Life], text: str) -> None:
    one = life()
    done = one.put_text("a.jsonl", text)
    assert done.exit_status == 2 or len(one.rows()) == 2, (done, one.bodies())


def test_two_puts_of_other_content_under_one_batch_id_side_by_side(life: Callable[..., Life]) -> None:
    one = life()
    one.put(B, {"topic": "T"})
    x = one.input({"topic": "T", "body": "x1"}, {"topic": "T", "body": "x2"})
    y = one.input({"topic": "T", "body": "y1"}, {"topic": "T", "body": "y2"})
    real, others = committing.under_lock, []

    def other_first(spark, uri, act):
        if not others:
            others.append(None)
            others[0] = one.run("put_messages", B + 1, "--input", y, "--batch-id", "orders")
        return real(spark, uri, act)

    with mock.patch.object(committing, "under_lock", other_first):
        done = one.run("put_messages", B + 1, "--input", x, "--batch-id", "orders")
    assert others[0].exit_status == 0
    assert done.exit_status == 2 or {"x1", "x2"} <= set(one.bodies()), (done, one.bodies())


def test_an_unclosed_quote_does_not_swallow_rows(life: Callable[..., Life]) -> None:
    one = life()
    done = one.put_text("a.csv", 'topic,body\nT,"unclosed\nT,2\nT,3\n', format="csv")
    assert done.exit_status == 2, (done.result, one.bodies())


@pytest.mark.slow
def test_a_file_with_a_colon_in_its_name_is_refused_by_name(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    """Hadoop cannot read it on this machine; a colon in a directory's name is as good as any other character."""
    one, source = life(), tmp_path / "at 10:00" / "part:1"
    source.mkdir(parents=True)
    write_jsonl(source / "a.jsonl", [{"topic": "T", "body": "a"}])
    named = write_jsonl(source / "events-10:00.jsonl", [{"topic": "T", "body": "b"}])
    for path, name in ((named, named.name), (source.parent, f"part:1/{named.name}")):
        done = one.run("put_messages", B, "--input", path)
        assert done.exit_status == 2, done.stderr
        assert f"the input's file {name} has a colon in its name" in done.stderr
    assert one.rows() == []
    named.rename(source / "b.jsonl")
    (source / "c.jsonl").symlink_to(source / "b.jsonl")
    assert one.job("put_messages", B, "--input", source.parent).result["appended"] == 3
    assert one.bodies() == ["a", "b", "b"]


def test_a_clock_below_0_parks_nothing_for_ever(life: Callable[..., Life]) -> None:
    one = life()
    path = one.input({"topic": "T", "body": "plain"}, {"topic": "T", "body": "timed", "delay_ms": 1000})
    done = one.run("put_messages", -5, "--input", path)
    parked = [(bytes(row.body), row.topic, row.due_ms) for row in one.rows() if row.topic != "T"]
    assert done.exit_status == 2 or (b"plain", "rmq_sys_wheel_timer", None) not in parked, parked


@pytest.mark.parametrize("now", [10**18, 2**63])
def test_a_clock_that_no_calendar_has_is_refused(life: Callable[..., Life], now: int) -> None:
    one = life()
    done = one.run("put_messages", now, "--input", one.input({"topic": "T", "body": "b"}))
    assert done.exit_status == 2, done


@pytest.mark.parametrize("more", [[], ["--split-batches"]])
def test_a_batch_larger_than_a_segment(life: Callable[..., Life], more: list[str]) -> None:
    one = life(mappedFileSizeCommitLog="1000")
    path = one.input(*[{"topic": "T", "body": "b" * 300, "batch": "k"} for _ in range(4)])
    done = one.run("put_messages", B, "--input", path, *more)
    assert done.exit_status in (0, 2), done


def test_a_result_that_cannot_be_written(life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    one = life()
    recorded: list[str] = []
    monkeypatch.setattr("jobs.launch.job.record_run", lambda _, __, line: recorded.append(line["status"]))
    done = one.run(
        "put_messages", B, "--input", one.input({"topic": "T", "body": "b"}), "--result-path", one.directory
    )
    assert (done.exit_status, done.result["status"], done.result["appended"]) == (1, "failed", 1)
    assert recorded == ["failed"]


def test_parquet_that_is_none(life: Callable[..., Life]) -> None:
    one = life()
    done = one.put_text("a.parquet", '{"topic":"T"}\n', format="parquet")
    assert done.exit_status == 2, done.stderr
    assert "cannot be read as parquet" in done.stderr
    path = one.directory / "b.parquet"
    pq.write_table(pa.table({"topic": ["T"], "Topic": ["U"], "body": ["x"]}), path)
    done = one.run("put_messages", B, "--input", path, "--format", "parquet")
    assert done.exit_status == 2, done.stderr


@pytest.mark.quick
@pytest.mark.parametrize(
    ("format", "name", "size_bytes", "is_short"),
    [
        ("jsonl", "a.jsonl", 1_000, True),
        ("csv", "a.csv", SHORT_BYTES, True),
        ("jsonl", "a.jsonl", SHORT_BYTES + 1, False),
        ("jsonl", "a.jsonl.gz", 1_000, False),  # may unpack to any number of rows
        ("parquet", "a.parquet", 1_000, False),
        ("delta", "part-0.parquet", 0, False),  # its sizes are not frozen
    ],
)
def test_only_plain_text_is_known_to_have_few_rows(
    format: str, name: str, size_bytes: int, is_short: bool
) -> None:
    """Their slim rows come to the driver."""
    file = InputFile(name, name, name, size_bytes, 0)
    assert Input("in", format, (file,), frozenset(), {}).is_short == is_short
