"""The lock of a local store: one writer at a time, whatever the directory is called, to the end of what the JVM does."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import pipelines.store.lock as module
from pipelines.store.commit import commit
from pipelines.store.lock import under_lock
from pipelines.store.plan import Plan
from pipelines.store.store import Store
from pipelines.uris import local_path
from schemas import CUTS
from tests.races import in_threads

SECONDS = 30


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/s/a", "/s/a"),
        ("s/a", "s/a"),
        ("file:/s/a", "/s/a"),
        ("file:///s/a", "/s/a"),
        ("FILE:///s/a", "/s/a"),
        ("file://localhost/s/a", "/s/a"),
        ("file:/s/50%20off #1?", "/s/50%20off #1?"),
        ("/s/at:noon", "/s/at:noon"),
        ("hdfs://host:9000/s/a", None),
        ("hdfs:///s", None),
        ("s3a://bucket/a", None),
        ("abfss://c@account.dfs.core.windows.net/a", None),
    ],
)
def test_which_uri_is_a_local_directory(uri: str, path: str | None) -> None:
    assert local_path(uri) == path


def test_a_store_has_one_location_whatever_it_is_called(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(store.uri).parent)
    name = Path(store.uri).name
    for uri in (
        name,
        f"./{name}/",
        f"file:{store.uri}/",
        f"file://{store.uri}",
        f"file://localhost{store.uri}",
    ):
        assert Store(store.spark, uri).uri == store.uri
    assert Store(store.spark, "hdfs://host/a/").uri == "hdfs://host/a"


def is_free(store: Store, within: float = SECONDS) -> bool:
    """Whether another thread gets the lock, within some seconds."""
    got = threading.Event()
    threading.Thread(target=lambda: under_lock(store.spark, store.uri, got.set), daemon=True).start()
    return got.wait(within)


def is_held(store: Store) -> bool:
    return not is_free(store, within=0.5)


def test_the_lock_may_be_taken_again_by_who_holds_it(store: Store) -> None:
    def twice() -> int:
        return under_lock(store.spark, store.uri, lambda: 1)

    assert under_lock(store.spark, store.uri, twice) == 1
    assert is_free(store)


def test_two_names_of_one_directory_are_one_lock(store: Store, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(store.uri, target_is_directory=True)
    names = [store.uri, str(link), f"file://{link}", f"{link}/"]
    inside = 0
    most = 0

    def write() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.05)
        inside -= 1

    in_threads(*[lambda uri=uri: under_lock(store.spark, uri, write) for uri in names])
    assert most == 1


def test_two_names_of_one_directory_commit_one_after_the_other(store: Store, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(store.uri, target_is_directory=True)

    def add(uri: str) -> Callable[[], object]:
        named = Store(store.spark, uri)

        def plan(at: object) -> Plan:
            count = at.read(CUTS).count()  # type: ignore[attr-defined]
            rows = store.spark.createDataFrame([(count, 0)], CUTS.columns).coalesce(1)
            return Plan((at.append(CUTS, rows),))  # type: ignore[attr-defined]

        return lambda: commit(named, plan)

    in_threads(add(store.uri), add(str(link)), add(f"file:{link}"))
    assert sorted(row.append_seq for row in store.cuts.collect()) == [0, 1, 2]


@pytest.fixture
def control_c(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Press Ctrl-C: a signal to this process's main thread, which raises KeyboardInterrupt."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def after(event: threading.Event, *steps: Callable[[], object]) -> None:
    """Take steps in a thread beside this one, a moment apart, once something has happened."""

    def walk() -> None:
        event.wait(SECONDS)
        for step in steps:
            time.sleep(0.3)
            step()

    threading.Thread(target=walk, daemon=True).start()


def test_control_c_in_a_write_waits_for_its_end_with_the_lock_and_says_so(
    store: Store,
    control_c: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.1)
    begun, may_end = threading.Event(), threading.Event()
    held = []
    ended = False

    def write() -> None:
        nonlocal ended
        begun.set()
        may_end.wait(SECONDS)
        ended = True

    after(begun, control_c, lambda: held.append(is_held(store)), may_end.set)
    with caplog.at_level(logging.WARNING), pytest.raises(KeyboardInterrupt):
        under_lock(store.spark, store.uri, write)
    assert ended
    assert held == [True]
    assert "a commit is under way and is waited for" in caplog.text
    assert is_free(store)


def test_a_second_control_c_does_not_wait_and_the_write_keeps_the_lock(
    store: Store, control_c: Callable[[], None]
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def write() -> None:
        begun.set()
        may_end.wait(SECONDS)

    after(begun, control_c, control_c)
    with pytest.raises(KeyboardInterrupt):
        under_lock(store.spark, store.uri, write)
    assert is_held(store)
    may_end.set()
    assert is_free(store)


def test_control_c_before_the_lock_is_there_writes_nothing(
    store: Store, control_c: Callable[[], None]
) -> None:
    held, may_end = threading.Event(), threading.Event()
    written = []

    def hold() -> None:
        held.set()
        may_end.wait(SECONDS)

    other = threading.Thread(target=lambda: under_lock(store.spark, store.uri, hold))
    other.start()
    assert held.wait(SECONDS)  # or this thread might get the lock first
    after(held, control_c)
    try:
        with pytest.raises(KeyboardInterrupt):
            under_lock(store.spark, store.uri, lambda: written.append(1))
    finally:
        may_end.set()
        other.join()
    assert is_free(store)
    assert written == []


def test_what_a_write_raises_is_raised_and_gives_the_lock_back(store: Store) -> None:
    def fail() -> None:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        under_lock(store.spark, store.uri, fail)
    assert is_free(store)
