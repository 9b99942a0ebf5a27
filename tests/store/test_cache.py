"""What a store keeps in memory: an answer for as long as its tables stay as they were, for this store alone."""

import threading

import pytest

from pipelines.store.cache import StoreCache
from pipelines.store.store import Store
from schemas import TOPICS

pytestmark = pytest.mark.quick


def test_an_answer_is_found_out_again_when_a_table_has_another_version() -> None:
    cache, asked = StoreCache(), []

    def answer(versions: tuple[int, ...]) -> int:
        return cache.answer(("head", "commitlog"), versions, lambda: asked.append(versions) or len(asked))

    assert [answer((1,)), answer((1,)), answer((2,)), answer((2,)), answer((1,))] == [1, 1, 2, 2, 3]


def test_what_fails_is_not_kept() -> None:
    cache = StoreCache()
    with pytest.raises(ZeroDivisionError):
        cache.answer(("head",), (1,), lambda: 1 // 0)
    assert cache.answer(("head",), (1,), lambda: 7) == 7


def test_tables_are_preloaded_one_after_the_other_beside_the_caller() -> None:
    cache, done, ended = StoreCache(), [], threading.Event()
    for number in range(3):
        cache.preload(lambda number=number: done.append((number, threading.current_thread().name)))
    cache.preload(ended.set)
    assert ended.wait(10)
    assert done == [(number, "preload_0") for number in range(3)]


def test_snapshots_of_a_store_share_what_one_of_them_read(store: Store) -> None:
    first = store.snapshot().rows(TOPICS)
    assert store.snapshot().rows(TOPICS) is first
    other = Store(store.spark, store.uri).snapshot().rows(TOPICS)
    assert other == first
    assert other is not first
