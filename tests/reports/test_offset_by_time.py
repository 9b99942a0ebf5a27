"""Offsets by time, as a broker finds them."""

from collections.abc import Callable, Iterable

import pytest

from pipelines.reports.offset_by_time import (
    Queue,
    Units,
    bisect,
    choose_file,
    messages_from_time,
    offset_by_time,
    queue_files,
)
from pipelines.reports.queues import read_queue
from pipelines.store.store import Store
from schemas import CONSUME_QUEUE
from tests.reports.golden import answers, cases


def found(
    times: list[int], timestamp: int, boundary: str, units_in_a_file: int = 300, log_start: int = 0
) -> int:
    """The answer for a queue from 0 on with these store times, its messages 100 bytes apart."""
    places = [place * 100 for place in range(len(times))]
    queue = Queue("t", 0, sum(place < log_start for place in places), len(times), log_start, True)
    seen = [time if place >= log_start else -1 for place, time in zip(places, times, strict=True)]
    files = queue_files(queue, units_in_a_file)
    file = choose_file(files, dict(enumerate(seen)), timestamp, boundary)  # type: ignore[arg-type]
    offset = 0 if file is None else bisect(file, queue, Units(0, places, seen), timestamp, boundary)  # type: ignore[arg-type]
    return min(max(offset, queue.min_offset), queue.max_offset)


@pytest.mark.parametrize(
    ("timestamp", "lower", "upper"), [(50, 0, 0), (100, 0, 2), (200, 3, 2), (300, 3, 4), (400, 5, 4)]
)
def test_the_table_of_the_specification(timestamp, lower, upper):
    times = [100, 100, 100, 300, 300]
    assert (found(times, timestamp, "lower"), found(times, timestamp, "upper")) == (lower, upper)


@pytest.mark.parametrize(
    ("timestamp", "lower", "upper"),
    [
        (5, 0, 0),
        (10, 0, 1),
        # Equal times on both sides of a file's end: lower stays in the first file that reaches it, upper in the last.
        (20, 2, 4),
        (25, 4, 4),  # lower: newer than all of file 0, and file 1 is the first that reaches it
        (40, 7, 7),
        (50, 8, 7),
    ],
)
def test_the_answer_depends_on_where_files_end(timestamp, lower, upper):
    times = [10, 10, 20, 20, 20, 30, 35, 40]
    if timestamp == 25:
        lower = 5
    assert found(times, timestamp, "lower", units_in_a_file=4) == lower
    assert found(times, timestamp, "upper", units_in_a_file=4) == upper


@pytest.mark.parametrize(
    ("timestamp", "boundary", "first_offset"),
    [
        (10, "lower", 0), (11, "lower", 2**60 - 2), (10, "upper", 2**60 - 2), (30, "upper", 2**60 - 2),
        (-2, "lower", 0), (-1, "upper", 2**60 - 2), (-2, "upper", None),
    ],
)  # fmt: skip
def test_far_more_files_than_messages_are_not_looked_through(timestamp, boundary, first_offset):
    """An imported record may say any offset."""
    files = queue_files(Queue("t", 0, 0, 2**60, 0, True), 2)
    file = choose_file(files, {0: 10, 1: 10, 2**60 - 1: 30}, timestamp, boundary)
    assert (None if file is None else file.first_offset) == first_offset


def test_messages_below_the_logs_start_are_older_than_any_time():
    times = [10, 20, 30, 40]
    assert found(times, 15, "lower", log_start=200) == 2
    assert found(times, 35, "upper", log_start=200) == 2


def test_an_expired_queue_answers_its_end():
    times = [10, 20, 30]
    assert found(times, 15, "lower", log_start=1_000) == 3
    assert found(times, 15, "upper", log_start=1_000) == 3


Times = dict[tuple[str, int], list[int]]


def times_in_order(entries: Iterable[tuple[str, int, int, int]]) -> Times:
    """The store times of each queue, from (topic, queue, offset in it, store time)."""
    times: Times = {}
    for topic, queue_id, _, time in sorted(entries):
        times.setdefault((topic, queue_id), []).append(time)
    return times


def expect_all_answers(name: str, times: Times) -> None:
    asked = cases(name, "offsetByTime")
    assert len(asked) == 312
    for case in asked:
        in_queue = times[case["topic"], case["queueId"]]
        answer = [found(in_queue, case["timestamp"], boundary) for boundary in ("lower", "upper")]
        assert answer == [case["lower"], case["upper"]], case


@pytest.mark.parametrize("name", ["a", "b"])
def test_all_of_a_brokers_answers(name):
    entries = (
        (m["topic"], m["queueId"], m["queueOffset"], m["storeTimestamp"]) for m in cases(name, "message")
    )
    expect_all_answers(name, times_in_order(entries))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a", pytest.param("b", marks=pytest.mark.nightly)])
def test_all_of_a_brokers_answers_from_the_queues_that_dispatch_has_written(
    dispatched_broker: Callable[[str], Store], name: str
) -> None:
    queues = dispatched_broker(name).snapshot().read(CONSUME_QUEUE)
    entries = queues.select("topic", "queue_id", "queue_offset", "store_timestamp").collect()
    expect_all_answers(name, times_in_order(tuple(entry) for entry in entries))


def test_a_brokers_answers_from_the_tables(golden_a: Store):
    at = golden_a.snapshot()
    for case in cases("a", "offsetByTime")[5::80]:
        queue = read_queue(at, case["topic"], case["queueId"])
        answer = [offset_by_time(at, queue, case["timestamp"], boundary) for boundary in ("lower", "upper")]  # type: ignore[arg-type]
        assert answer == [case["lower"], case["upper"]], case


def test_rows_come_from_the_offset_on(golden_a: Store):
    case = next(c for c in cases("a", "offsetByTime") if c["topic"] == "PayTopic" and 0 < c["lower"] < 40)
    answer = messages_from_time(golden_a.snapshot(), "PayTopic", case["queueId"], case["timestamp"], limit=3)
    assert answer.result == {"offset": case["lower"]}
    offsets = [row.queue_offset for row in answer.rows.collect()]
    assert offsets[:3] == [case["lower"], case["lower"] + 1, case["lower"] + 2]


def test_there_are_answers():
    assert len(answers("a")) > 1_600
