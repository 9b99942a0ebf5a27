"""Queries by key as a broker answers them."""

from collections.abc import Callable

import pytest

from pipelines.dispatch.follow import plan_dispatch
from pipelines.reports.broker_index import MAX_TIMESTAMP, IndexFile, Item, broker_messages_by_key, query
from pipelines.reports.lookup import key_hash
from pipelines.reports.queues import read_queue
from pipelines.store.commit import commit
from pipelines.store.plan import Plan
from pipelines.store.store import Store
from schemas import MESSAGE_INDEX
from tests.life import B, Life
from tests.reports.golden import cases


def index_files(*messages: tuple[int, int], items_in_a_file: int) -> tuple[list[IndexFile], list[Item]]:
    """Files over messages (physical offset, store time) of one key each."""
    items = [Item(number, *message) for number, message in enumerate(messages, start=1)]
    files: list[IndexFile] = []
    for start in range(0, len(items), items_in_a_file):
        held = items[start : start + items_in_a_file]
        before = files[-1].end_timestamp if files else 0
        first, last = held[0], held[-1]
        times = (first.store_timestamp, last.store_timestamp)
        files.append(IndexFile(first.number, last.number + 1, *times, before))
    return files, items


def offsets(found: list[Item]) -> list[int]:
    return [item.physical_offset for item in found]


def test_the_newest_are_kept_where_the_number_cuts():
    files, items = index_files((0, 1_000), (100, 2_000), (200, 3_000), items_in_a_file=2)
    assert offsets(query(files, items, 0, 10_000, limit=2)) == [200, 100]


def test_times_are_kept_in_whole_seconds_after_the_files_first():
    files, items = index_files((0, 1_000), (100, 2_900), items_in_a_file=10)
    assert offsets(query(files, items, 0, 2_000, limit=9)) == [100, 0]  # 2,900 reads as 2,000
    assert offsets(query(files, items, 2_500, 9_000, limit=9)) == []  # and is missed here


def test_the_first_item_of_a_later_file_looks_later_than_it_is():
    files, items = index_files((0, 1_000), (100, 9_000), items_in_a_file=1)
    assert files[1].time_read(items[1]) == 17_000
    assert offsets(query(files, items, 0, 10_000, limit=9)) == [0]


def test_files_older_than_the_window_are_not_searched():
    files, items = index_files((0, 1_000), (100, 2_000), (200, 9_000), items_in_a_file=2)
    assert offsets(query(files, items, 9_000, 9_500, limit=9)) == []  # it reads as 16,000
    assert offsets(query(files, items, 0, 2_000, limit=9)) == [100, 0]


Key = tuple[str, str, int, int]


def keys_in_order(name: str) -> list[Key]:
    """(topic, key, physical offset, store time) of all keys of a broker's messages, as it indexes them."""
    return [
        (message["topic"], key, message["commitLogOffset"], message["storeTimestamp"])
        for message in cases(name, "message")
        for properties in [message["properties"]]
        for key in [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
        if key
    ]


def expect_all_answers(name: str, hashes: list[int], keys: list[Key]) -> None:
    items_in_a_file = cases(name, "store")[0]["config"]["maxIndexNum"] - 1
    files, items = index_files(*(place for _, _, *place in keys), items_in_a_file=items_in_a_file)
    assert len(files) == 2
    asked = cases(name, "queryByKey")
    assert len(asked) == 180
    for case in asked:
        code = key_hash(case["topic"], case["key"])
        with_hash = [item for item, found in zip(items, hashes, strict=True) if found == code]
        found = query(files, with_hash, 0, MAX_TIMESTAMP, case["maxNum"])
        assert sorted(offsets(found)) == case["offsets"], case


@pytest.mark.parametrize("name", ["a", "b"])
def test_all_of_a_brokers_answers(name):
    keys = keys_in_order(name)
    expect_all_answers(name, [key_hash(topic, key) for topic, key, *_ in keys], keys)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a", pytest.param("b", marks=pytest.mark.nightly)])
def test_all_of_a_brokers_answers_from_the_index_that_dispatch_has_written(
    dispatched_broker: Callable[[str], Store], name: str
) -> None:
    order = {(offset, key): number for number, (_, key, offset, _) in enumerate(keys_in_order(name))}
    index = dispatched_broker(name).snapshot().read(MESSAGE_INDEX)
    columns = ("key_hash", "topic", "key", "physical_offset", "store_timestamp")
    rows = index.select(*columns).collect()  # once for all questions
    rows.sort(key=lambda row: order[row.physical_offset, row.key])
    expect_all_answers(name, [row.key_hash for row in rows], [tuple(row)[1:] for row in rows])


def test_a_brokers_answers_from_the_tables(golden_a: Store):
    at = golden_a.snapshot()
    for case in cases("a", "queryByKey")[1::36]:
        answer = broker_messages_by_key(at, case["topic"], case["key"], limit=case["maxNum"])
        rows = answer.rows.select("physical_offset").collect()
        assert [row.physical_offset for row in rows] == case["offsets"], case


def test_an_answer_that_was_cut_says_so(golden_a: Store):
    at = golden_a.snapshot()
    several = next(case for case in cases("a", "queryByKey") if len(case["offsets"]) > 1)
    one = broker_messages_by_key(at, several["topic"], several["key"], limit=1)
    assert (one.rows.count(), one.complete) == (1, False)
    assert broker_messages_by_key(at, several["topic"], several["key"], limit=64).complete


@pytest.mark.slow
def test_what_a_killed_dispatch_has_left_is_no_second_item(life: Callable[..., Life]) -> None:
    one = life()
    one.put(B, {"topic": "T", "keys": ["k"]})
    one.job("dispatch", B)
    one.put(B + 1, {"topic": "T", "keys": ["k"]})
    commit(one.store, lambda at: Plan(plan_dispatch(at).writes[:-1]))  # killed before its progress
    at = one.store.snapshot()
    answer = broker_messages_by_key(at, "T", "k", limit=64)
    assert [row.physical_offset for row in answer.rows.collect()] == [
        row.physical_offset for row in one.rows()
    ]
    # Nor does the view of queues end after it: both messages wait for the next dispatch or have been followed.
    ends = {(row.topic, row.queue_id): row.max_offset for row in one.store.topic_status.collect()}
    assert ends == {queue: read_queue(at, *queue).max_offset for queue in ends}
    assert sum(ends.values()) == 1
