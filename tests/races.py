"""Races made to happen: writers that save at the same moment."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NoReturn

import pytest

import pipelines.store.commit as module

SECONDS = 60  # after which someone is not going to come


def meet_before_saving(monkeypatch: pytest.MonkeyPatch, writers: int, table: str = "") -> None:
    """The first so many writes (of a table) wait for each other: planned and checked, but not saved yet."""
    barrier = threading.Barrier(writers)
    expect_head = module.expect_head
    expected = iter(range(writers))

    def checked(store: Any, write: Any) -> Any:
        newest = expect_head(store, write)
        if table in ("", write.table.name) and next(expected, None) is not None:
            barrier.wait(SECONDS)
        return newest

    monkeypatch.setattr(module, "expect_head", checked)


def killed_before_writing(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    """Whoever comes to write this table ends there, until the patch is undone."""
    expect_head = module.expect_head

    def checked(store: Any, write: Any) -> Any:
        newest = expect_head(store, write)
        if write.table.name == table:
            raise RuntimeError("killed")
        return newest

    monkeypatch.setattr(module, "expect_head", checked)


@contextmanager
def killed_at(monkeypatch: pytest.MonkeyPatch, module: ModuleType, step: str) -> Iterator[None]:
    """A context in which a job that comes to a step of a module ends there with exit status 9; one must."""
    killed = []

    def kill(*_: Any, **__: Any) -> NoReturn:
        killed.append(step)
        raise SystemExit(9)

    with monkeypatch.context() as patched:
        patched.setattr(module, step, kill)
        yield
    assert killed


def in_threads(*work: Callable[[], Any]) -> list[Any]:
    """Run all at once; their results, or the first failure."""
    results: list[Any] = [None] * len(work)

    def keep(number: int) -> None:
        try:
            results[number] = work[number]()
        except BaseException as failure:
            results[number] = failure

    threads = [threading.Thread(target=keep, args=(number,)) for number in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
