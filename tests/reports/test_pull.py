"""Pages of a queue with a broker's status."""

from collections import defaultdict
from collections.abc import Callable

import pytest

from pipelines.errors import BadInput
from pipelines.reports.lookup import messages_of
from pipelines.reports.pull import pull, status_outside
from pipelines.reports.queues import Queue, read_queue, read_queues
from pipelines.store.store import Store
from schemas import CONSUME_QUEUE
from tests.reports.golden import cases


@pytest.mark.parametrize("name", ["a", "b"])
def test_statuses_and_next_offsets_of_all_a_brokers_pulls(name):
    bounds = {(q["topic"], q["queueId"]): (q["min"], q["max"]) for q in cases(name, "queue")}
    asked = cases(name, "pull")
    assert len(asked) == 208
    for case in asked:
        least, end = bounds[case["topic"], case["queueId"]]
        outside = status_outside(Queue(case["topic"], case["queueId"], least, end, 0, True), case["offset"])
        expected = None if case["status"] == "FOUND" else (case["status"], case["next"])
        assert outside == expected, case


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a", pytest.param("b", marks=pytest.mark.nightly)])
def test_all_a_brokers_pulls_from_the_tables_that_dispatch_has_written(
    dispatched_broker: Callable[[str], Store], name: str
) -> None:
    at = dispatched_broker(name).snapshot()
    # The rows of all entries, in one query.
    lying = defaultdict[tuple[str, int], list[int]](list)
    entries = at.read(CONSUME_QUEUE).select("segment", "physical_offset", "queue_offset")
    for row in messages_of(at, entries).select("topic", "queue_id", "queue_offset").collect():
        lying[row.topic, row.queue_id].append(row.queue_offset)
    asked = cases(name, "pull")
    assert len(asked) == 208
    queues = read_queues(at, {(case["topic"], case["queueId"]) for case in asked})
    for case in asked:
        queue = queues[case["topic"], case["queueId"]]
        assert (queue.min_offset, queue.max_offset) == (case["min"], case["max"]), case
        assert queue.is_up_to_date
        page = range(case["offset"], case["offset"] + case["maxMsgNums"])
        found = sorted(offset for offset in lying[queue.topic, queue.queue_id] if offset in page)
        status, next_offset = status_outside(queue, case["offset"]) or ("FOUND", found[-1] + 1)
        assert (status, next_offset) == (case["status"], case["next"]), case
        assert (found if status == "FOUND" else []) == case["queueOffsets"], case


def test_a_brokers_pulls_from_the_tables(golden_a: Store):
    at = golden_a.snapshot()
    for case in cases("a", "pull")[1::26]:
        answer = pull(at, case["topic"], case["queueId"], case["offset"], case["maxMsgNums"])
        offsets = [row.queue_offset for row in answer.rows.select("queue_offset").collect()]
        assert offsets == case["queueOffsets"], case
        assert answer.result == {"pull_status": case["status"], "next_offset": case["next"]}, case
        assert answer.complete


def test_bounds_of_all_a_brokers_queues(golden_a: Store):
    at = golden_a.snapshot()
    for case in cases("a", "queue")[::9]:
        queue = read_queue(at, case["topic"], case["queueId"])
        assert (queue.min_offset, queue.max_offset) == (case["min"], case["max"])


def test_a_page_is_as_long_as_it_was_asked_to_be(golden_a: Store):
    answer = pull(golden_a.snapshot(), "OrderTopic", 2, 0, 90)
    assert answer.rows.count() == 90
    assert answer.result["next_offset"] == 90


def test_a_page_too_long_to_be_named_is_joined_with_the_same_answer(golden_a: Store, monkeypatch):
    def page() -> tuple[list[int], object]:
        answer = pull(golden_a.snapshot(), "OrderTopic", 2, 5, 40)
        return [row.queue_offset for row in answer.rows.select("queue_offset").collect()], answer.result

    named = page()
    monkeypatch.setattr("pipelines.reports.lookup.PLACES_NAMED", 5)
    assert page() == named == (list(range(5, 45)), {"pull_status": "FOUND", "next_offset": 45})


def test_an_unknown_topic_is_named_with_the_nearest_one(golden_a: Store):
    with pytest.raises(BadInput, match="no topic 'PayTopik' in this store; did you mean PayTopic"):
        pull(golden_a.snapshot(), "PayTopik", 0, 0, 1)


def test_a_queue_the_topic_does_not_have_is_refused(golden_a: Store):
    with pytest.raises(BadInput, match="topic PayTopic has queues 0 to 3, not 4"):
        pull(golden_a.snapshot(), "PayTopic", 4, 0, 1)


def test_an_empty_queue_has_no_message(golden_a: Store):
    answer = pull(golden_a.snapshot(), "TxTopic", 2, 0, 1)
    assert answer.result == {"pull_status": "NO_MESSAGE_IN_QUEUE", "next_offset": 0}
    assert answer.rows.isEmpty()
