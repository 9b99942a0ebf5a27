"""Writers that save at the same moment where no lock keeps them apart, as on HDFS and object stores.

Delta's log store for local files is safe between the threads of one JVM, so here they are threads; processes race in
test_hdfs_scenes.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import pipelines.store.commit as module
from jobs.deliver import deliver_due
from jobs.dispatch import dispatch_store
from jobs.launch.run import Run
from pipelines.consume.offsets import Reached, plan_commit, read_offsets
from pipelines.produce.put_input import PutOptions, put_input
from pipelines.store.commit import commit
from pipelines.store.topics import TopicConfig, plan_create_topic, read_topics
from tests.life import B, Life
from tests.races import in_threads, meet_before_saving

pytestmark = pytest.mark.slow


@pytest.fixture
def store(life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> Life:
    monkeypatch.setattr(module, "under_lock", lambda spark, uri, write: write())
    return life()


def run(store: Life, job: str, now: int = B) -> Run:
    return Run(job, store.store.uri, now, quiet=True)


def test_two_puts_at_once_are_both_in_the_log(store: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = [
        store.input(*[{"topic": "T", "queue_id": 0, "body": f"{n}{row}"} for row in range(5)]) for n in "ab"
    ]
    meet_before_saving(monkeypatch, 2, "commitlog")
    results = in_threads(
        *[lambda path=path: put_input(run(store, "put_messages"), PutOptions(str(path))) for path in inputs]
    )
    assert [result["appended"] for result in results] == [5, 5]
    assert Counter(bytes(row.body).decode() for row in store.rows()) == Counter(
        f"{n}{row}" for n in "ab" for row in range(5)
    )
    store.expect_promises()


def test_the_same_input_put_twice_at_once_is_in_the_log_once(
    store: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(store.input(*[{"topic": "T", "body": str(row)} for row in range(5)]))
    meet_before_saving(monkeypatch, 2, "commitlog")
    results = in_threads(*[lambda: put_input(run(store, "put_messages"), PutOptions(path, batch_id="b"))] * 2)
    assert sorted(result["appended"] for result in results) == [0, 5]
    assert len(store.rows()) == 5


def test_two_dispatches_at_once_give_each_entry_once(store: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(B, *[{"topic": "T", "keys": f"k{row}"} for row in range(5)])
    meet_before_saving(monkeypatch, 2, "consume_queue")
    in_threads(*[lambda: dispatch_store(run(store, "dispatch"))] * 2)
    entries, keys = store.store.consume_queue, store.store.message_index
    assert entries.count() == entries.select("physical_offset").distinct().count() == 5
    assert keys.count() == keys.select("physical_offset", "key").distinct().count() == 10


def test_two_delivers_at_once_bring_each_back_once(store: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(B, *[{"topic": "T", "delay_level": 1 + row % 2} for row in range(6)])
    meet_before_saving(monkeypatch, 2, "commitlog")
    results = in_threads(*[lambda: deliver_due(run(store, "deliver", B + 30_000))] * 2)
    assert sum(result["delivered"] for result in results) == 6
    assert sum(row.purpose == "deliver" for row in store.rows()) == 6
    store.expect_promises()


def test_two_members_of_a_group_record_their_offsets_at_once(
    store: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reach(queue: int) -> Callable[[], Any]:
        reached = [Reached(("T", queue), 10 + queue)]
        return lambda: commit(store.store, lambda at: plan_commit(at, "g", "", reached, B))

    meet_before_saving(monkeypatch, 2, "consumer_offsets")
    in_threads(reach(0), reach(1))
    offsets = read_offsets(store.store.snapshot(), "g")
    assert {queue: offset.next_offset for queue, offset in offsets.items()} == {("T", 0): 10, ("T", 1): 11}


def test_two_topics_made_at_once_are_both_there(store: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(name: str) -> Callable[[], Any]:
        return lambda: commit(store.store, lambda at: plan_create_topic(at, TopicConfig(name)))

    meet_before_saving(monkeypatch, 2, "topics")
    in_threads(make("A"), make("B"))
    assert {"A", "B"} <= set(read_topics(store.store.snapshot()))
