"""What brokerPermission and permissions of topics forbid; single refusals are in tests/jobs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from schemas import COMMITLOG, CONSUMER_OFFSETS, SUBSCRIPTION_GROUPS, TOPICS, Table
from tests.consume.listeners import Listeners
from tests.life import B, Life, raw

pytestmark = pytest.mark.usefixtures("engine_of_choice")


@pytest.fixture
def listeners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Listeners:
    return Listeners(tmp_path, monkeypatch)


def with_messages(store: Life, *bodies: str) -> Life:
    """Messages of T, appended beside the front door, which permissions may have closed."""
    store.job("topics", B, "create", "T", "--queues", 1)
    store.append(*[{"body": body.encode(), "properties": raw(UNIQ_KEY=body)} for body in bodies])
    store.job("dispatch", B)
    return store


def versions(store: Life, *tables: Table) -> list[int | None]:
    at = store.store.snapshot()
    return [at.version(table) for table in tables]


@pytest.mark.slow
def test_a_store_that_may_only_be_read_is_read_until_a_message_fails(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = with_messages(life(brokerPermission="4"), "ok", "later")
    before = versions(store, COMMITLOG, TOPICS, SUBSCRIPTION_GROUPS)
    written = store.input({"topic": "T", "body": "b"})
    for refused in (
        ("put_messages", "--input", written),
        ("put_messages", "--input", written, "--trace"),
        ("send_back", "--group", "g", "--input", store.input({"physical_offset": 0})),
        ("redrive", "--where", "true", "--to-topic", "T"),
    ):
        run = store.job(*refused[:1], B, *refused[1:], exit_status=2)
        assert "brokerPermission is 4; expected 6 (4 to read, 2 to write)" in run.stderr, refused
    assert versions(store, COMMITLOG, TOPICS, SUBSCRIPTION_GROUPS) == before

    consume = ("--group", "g", "--topic", "T", "--listener")
    run = store.job("consume", B, *consume, listeners.name("by_body"), "--max-messages", 1)
    assert run.result["consumed"] == 1
    known = versions(store, COMMITLOG, TOPICS, CONSUMER_OFFSETS)
    run = store.job("consume", B, *consume, listeners.name("by_body"), exit_status=1)
    assert "failures of group g cannot be sent back: this store may not be written to" in run.stderr
    assert versions(store, COMMITLOG, TOPICS, CONSUMER_OFFSETS) == known
    assert store.job("consume", B, *consume, listeners.name("accept")).result["consumed"] == 1


def test_a_store_that_may_not_be_read_answers_no_pull_and_has_no_consumers(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = with_messages(life(brokerPermission="2"), "ok")
    said = "this store may not be read: its setting brokerPermission is 2"
    consume = ("--group", "g", "--topic", "T", "--listener", listeners.name("accept"))
    for more in ((), ("--model", "broadcasting", "--client-id", "c")):
        assert said in store.job("consume", B, *consume, *more, exit_status=2).stderr
    assert store.store.consumer_offsets.isEmpty()
    pulled = store.commitlake(
        "query", "pull", "--store", store.store.uri, "--topic", "T", "--queue-id", 0, "--offset", 0
    )
    assert (pulled.exit_status, pulled.result["found"], pulled.result["pull_status"]) == (
        0,
        0,
        "NO_PERMISSION",
    )
    assert (pulled.result["response_code"], pulled.result["next_offset"]) == (16, 0)
    assert pulled.result["remark"].startswith(said)


@pytest.mark.slow
def test_a_topics_permission_is_asked_for_by_pull_and_consume_alone(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = with_messages(life(), "ok")
    store.job("topics", B, "update", "T", "--perm", "W")
    pull = ("--topic", "T", "--queue-id", 0, "--offset", 0)
    pulled = store.commitlake("query", "pull", "--store", store.store.uri, *pull).result
    assert pulled["pull_status"] == "NO_PERMISSION"
    assert (
        pulled["remark"]
        == "topic T may not be read (perm 2, without R); `topics update 'T' --perm RW` allows it"
    )
    by_offset = store.commitlake("query", "by-offset", "--store", store.store.uri, *pull)
    assert by_offset.result["found"] == 1
    # A listener that never fails needs no retry topic that is written, but nobody knows that before it is called.
    store.job("topics", B, "update", "T", "--perm", "RW")
    store.job("topics", B, "create", "%RETRY%g", "--queues", 1, "--perm", "R")
    consume = ("--group", "g", "--topic", "T", "--listener", listeners.name("accept"))
    run = store.job("consume", B, *consume, exit_status=2)
    assert "topic %RETRY%g may not be written to (perm 4, without W)" in run.stderr
    assert listeners.handed() == []
    store.job("consume", B, *consume, "--model", "broadcasting", "--client-id", "c")
    # Without retry queues failures are dropped, and their topic is asked for nothing.
    store.job("topics", B, "update-group", "g", "--retry-queues", 0)
    assert store.job("consume", B, *consume).result["consumed"] == 1
