"""What is written is what was counted: inputs, topics and settings that change between the two passes of a put."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.produce import put, put_input
from pipelines.produce.counted_input import CountedInput
from pipelines.produce.inputs import Input
from pipelines.store.store import Store
from tests.conftest import JobRun, write_jsonl

Commitlake = Callable[..., JobRun]
B = 1_700_000_000_000


def between_the_passes(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Have `change` done once, when all is counted and the first append is about to be planned."""
    plan, changes = put.Put.plan, [change]

    def changed(self: put.Put, *arguments: object, **named: object) -> object:
        if changes:
            changes.pop()()
        return plan(self, *arguments, **named)

    monkeypatch.setattr(put.Put, "plan", changed)


def append_line(path: Path) -> None:
    with path.open("a") as file:
        file.write('{"topic": "orders", "body": "late"}\n')


def test_a_file_that_grows_between_the_passes_is_not_put(
    commitlake: Commitlake, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_jsonl(tmp_path / "input.jsonl", [{"topic": "orders", "body": str(n)} for n in range(5)])
    between_the_passes(monkeypatch, lambda: append_line(source))
    run = commitlake("put_messages", "--store", store.uri, "--input", source)
    assert run.exit_status == 1, run.stderr
    assert "the input changed while it was put: input.jsonl had" in run.stderr, run.stderr
    assert store.commitlog.count() == 0
    again = commitlake("put_messages", "--store", store.uri, "--input", source)
    assert (again.exit_status, again.result["appended"]) == (0, 6), again.stderr


def test_a_file_that_grows_while_it_is_written_is_not_put(
    commitlake: Commitlake, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look at the files comes before the growth: the row beyond the count fails the pass itself."""
    source = write_jsonl(tmp_path / "input.jsonl", [{"topic": "orders", "body": str(n)} for n in range(5)])
    monkeypatch.setattr(Input, "expect_unchanged", lambda *_: None)
    between_the_passes(monkeypatch, lambda: append_line(source))
    run = commitlake("put_messages", "--store", store.uri, "--input", source)
    assert run.exit_status == 1, run.stderr
    assert "it holds other rows than were counted (Range [5, 5 + 1)" in run.stderr, run.stderr
    assert store.commitlog.count() == 0


def test_a_file_that_goes_away_is_missed_whatever_the_session_says(
    commitlake: Commitlake, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "input"
    source.mkdir()
    for name in ("a", "b", "c"):
        rows = [{"topic": "orders", "body": f"{name}{n}"} for n in range(4)]
        write_jsonl(source / f"{name}.jsonl", rows)
    monkeypatch.setattr(Input, "expect_unchanged", lambda *_: None)
    between_the_passes(monkeypatch, (source / "b.jsonl").unlink)
    for name in ("ignoreMissingFiles", "ignoreCorruptFiles"):
        store.spark.conf.set(f"spark.sql.files.{name}", "true")
    try:
        run = commitlake("put_messages", "--store", store.uri, "--input", source, "--batch-id", "b")
    finally:
        for name in ("ignoreMissingFiles", "ignoreCorruptFiles"):
            store.spark.conf.unset(f"spark.sql.files.{name}")
    assert (run.exit_status, store.commitlog.count()) == (1, 0), run.stderr


@pytest.mark.parametrize("is_there", [False, True], ids=["made meanwhile", "changed meanwhile"])
def test_a_topic_that_gets_other_queues_between_the_passes_is_counted_again(
    commitlake: Commitlake, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """Sharding keys choose by the remainder: counted by one number and placed by another, offsets would be given twice."""

    def topics(*arguments: object) -> None:
        run = commitlake("topics", "--store", store.uri, *arguments)
        assert run.exit_status == 0, run.stderr

    if is_there:
        topics("create", "orders", "--queues", 4)
    rows = [{"topic": "orders", "body": str(n), "sharding_key": f"customer-{n}"} for n in range(20)]
    source = write_jsonl(tmp_path / "input.jsonl", rows)
    count = put_input.count_input
    changes = [("update", "orders", "--queues", 2) if is_there else ("create", "orders", "--queues", 2)]

    def count_and_change(*arguments: Any) -> CountedInput:
        counted = count(*arguments)
        topics(*changes.pop())
        return counted

    monkeypatch.setattr(put_input, "count_input", count_and_change)
    run = commitlake("put_messages", "--store", store.uri, "--input", source)
    assert (run.exit_status, run.result.get("appended")) == (0, 20), run.stderr
    stored = sorted((row.queue_id, row.queue_offset) for row in store.commitlog.collect())
    by_queue = [sum(queue == queue_id for queue_id, _ in stored) for queue in (0, 1)]
    assert stored == [(queue, offset) for queue in (0, 1) for offset in range(by_queue[queue])]
