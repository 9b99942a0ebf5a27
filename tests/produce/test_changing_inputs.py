"""What is written is what was counted: inputs, topics and settings that change between the two passes of a put."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.produce import counted_input, put, put_input
from pipelines.produce.counted_input import CountedInput
from pipelines.produce.inputs import Input
from pipelines.store.store import Store
from tests.conftest import JobRun, write_jsonl
from tests.life import B, Life

Commitlake = Callable[..., JobRun]


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


@pytest.mark.slow
@pytest.mark.parametrize("is_gone", [False, True], ids=["its last row is shorter", "its last row is gone"])
def test_a_file_that_shrinks_while_it_is_written_stops_the_log(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    """The look at the files comes before: shorter, the pass itself fails; without the row, the commit is not as planned."""
    store = life()
    rows = [{"topic": "orders", "queue_id": 0, "body": f"{n} {'x' * 50}"} for n in range(5)]
    source = store.input(*rows)
    monkeypatch.setattr(Input, "expect_unchanged", lambda *_: None)
    left = rows[:-1] if is_gone else [*rows[:-1], rows[-1] | {"body": ""}]
    between_the_passes(monkeypatch, lambda: write_jsonl(source, left))
    run = store.job("put_messages", B, "--input", source, exit_status=1)
    if is_gone:
        assert "append 0 of the log holds 4 rows" in run.stderr, run.stderr
        store.job("validate", B, "--suite", "log", "--repair")
    else:
        assert "rows take fewer bytes than were counted" in run.stderr, run.stderr
    assert store.rows() == []
    again = store.job("put_messages", B, "--input", source).result
    assert (again["appended"], again["already"]) == (len(left), 0)
    store.expect_promises()


def cancelled(at_ms: int) -> list[dict[str, Any]]:
    """A timed message, the cancel of it, and one of each topic and queue that may change."""
    timed = {"topic": "T", "deliver_at_ms": at_ms}
    return [
        {**timed, "body": "timed", "unique_key": "k"},
        {**timed, "body": "cancel", "cancel_unique_key": "k"},
        {"topic": "T", "body": "now", "queue_id": 3},
    ]


@pytest.mark.slow
@pytest.mark.parametrize("named", [(), ("--batch-id", "mine")], ids=["by its files", "by a batch id"])
def test_a_put_that_has_ended_is_there_whatever_has_changed_since(
    life: Callable[..., Life], named: tuple[str, ...]
) -> None:
    store = life()
    source = store.input(*cancelled(B + 10_000))
    assert store.job("put_messages", B, "--input", source, *named).result["appended"] == 3
    again = store.job("put_messages", B + 20_000, "--input", source, *named).result
    assert (again["appended"], again["already"], again["rejected"]) == (0, 3, 0)
    quarantine = (*named, "--on-bad", "quarantine")
    again = store.job("put_messages", B + 20_000, "--input", source, *quarantine).result
    assert (again["already"], again["rejected"]) == (3, 0)
    for change in (("--queues", 2), ("--perm", "R")):
        run = store.commitlake("topics", "--store", store.store.uri, "update", "T", *change)
        assert run.exit_status == 0, run.stderr
        again = store.job("put_messages", B + 20_000, "--input", source, *named).result
        assert (again["appended"], again["already"]) == (0, 3)
    assert store.store.rejected_messages.isEmpty()
    store.expect_promises()


@pytest.mark.slow
def test_the_late_cancel_of_a_put_that_was_cut_short_is_put_and_comes_to_nobody(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = life()
    directory = tmp_path / "files"
    directory.mkdir()
    for file, row in enumerate(cancelled(B + 10_000)):
        write_jsonl(directory / f"{file}.jsonl", [row])
    monkeypatch.setattr(counted_input, "APPEND_BYTES", 1)
    monkeypatch.setattr(counted_input, "PARTS_OF_A_FILE", 2**40)

    def killed(*_: object) -> put.Found:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(put.Found, "and_also", killed)
        assert store.run("put_messages", B, "--input", directory).exit_status == 1
    assert len(store.rows()) == 1
    assert store.deliver(B + 20_000)["delivered"] == 1
    again = store.job("put_messages", B + 20_000, "--input", directory).result
    assert (again["appended"], again["already"]) == (2, 1)
    store.deliver(B + 40_000)
    assert sorted(bytes(row.body) for row in store.rows() if row.topic == "T") == [b"now", b"timed"]
    assert store.store.scheduled_messages.isEmpty()
    store.expect_promises()
    # Of another batch the same cancel is late, and refused.
    late = store.run("put_messages", B + 20_000, "--input", store.input(cancelled(B + 10_000)[1]))
    assert (late.exit_status, "that message is due already" in late.stderr) == (2, True)


@pytest.mark.slow
def test_queues_that_change_between_two_appends_of_a_batch_id_leave_each_message_once(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is counted again is compared with what the id has put so far: it is the same input."""
    store = life()
    directory = tmp_path / "files"
    directory.mkdir()
    for file in range(3):
        rows = [{"topic": "orders", "body": f"{file}-{n}", "sharding_key": f"c{n}"} for n in range(10)]
        write_jsonl(directory / f"{file}.jsonl", rows)
    monkeypatch.setattr(counted_input, "APPEND_BYTES", 1)
    monkeypatch.setattr(counted_input, "PARTS_OF_A_FILE", 2**40)
    go_on, changes = put.Found.and_also, [("update", "orders", "--queues", 2)]

    def change_and_go_on(self: put.Found, placement: put.Placement, has_written_bounds: bool) -> put.Found:
        if changes:
            run = store.commitlake("topics", "--store", store.store.uri, *changes.pop())
            assert run.exit_status == 0, run.stderr
        return go_on(self, placement, has_written_bounds)

    monkeypatch.setattr(put.Found, "and_also", change_and_go_on)
    given = ("put_messages", B, "--input", directory, "--batch-id", "mine")
    assert store.job(*given).result["appended"] == 30
    assert len({bytes(row.body) for row in store.rows()}) == len(store.rows()) == 30
    store.expect_promises()
    assert store.job(*given).result["already"] == 30
