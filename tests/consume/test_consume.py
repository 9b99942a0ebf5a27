"""Groups that read: what is handed over, what comes back, how far the group has come."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Row

from pipelines.consume import group_run, reader
from pipelines.consume.pages import Page
from pipelines.reports.consumers import consumer_status
from schemas import CONSUMER_OFFSETS
from tests.consume.listeners import Listeners
from tests.life import SCHEDULE, B, Life

pytestmark = pytest.mark.usefixtures("engine_of_choice")


@pytest.fixture
def listeners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Listeners:
    return Listeners(tmp_path, monkeypatch)


def fill(store: Life, *bodies: str, topic: str = "T", now: int = B, **more: Any) -> None:
    store.put(
        now, *[{"topic": topic, "queue_id": n % 2, "body": body, **more} for n, body in enumerate(bodies)]
    )
    store.job("dispatch", now)


def consume(
    store: Life, now: int, listener: str, *more: Any, group: str = "g", **expected: int
) -> dict[str, Any]:
    run = store.job("consume", now, "--group", group, "--topic", "T", "--listener", listener, *more)
    counts = {name: count for name, count in run.result.items() if name in COUNTED and count}
    assert counts == expected, run.stderr
    return run.result


FROM_MEMORY = ("--read-from", "memory")
COUNTED = ("consumed", "failed", "sent_back", "dead_lettered", "dropped", "filtered")


def offset_of(row: Row) -> dict[str, int]:
    return {"physical_offset": row.physical_offset}


def offsets(store: Life, group: str = "g") -> dict[tuple[str, int], int]:
    """How far the group has come in the queues of T."""
    rows = store.store.consumer_offsets.where(f"`group` = '{group}' AND topic = 'T'").collect()
    return {(row.topic, row.queue_id): row.next_offset for row in rows}


def test_each_message_is_handed_over_once_and_progress_is_kept(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    fill(store, "a", "b", "c")
    consume(store, B, listeners.name("accept"), consumed=3)
    assert listeners.handed() == [["T", 0, 0, "a", 0], ["T", 0, 1, "c", 0], ["T", 1, 0, "b", 0]]
    assert offsets(store) == {("T", 0): 2, ("T", 1): 1, ("T", 2): 0, ("T", 3): 0}
    before = store.store.snapshot().version(CONSUMER_OFFSETS)
    consume(store, B, listeners.name("accept"))
    assert listeners.handed() == []
    assert store.store.snapshot().version(CONSUMER_OFFSETS) == before  # an idle run writes nothing
    fill(store, "d")
    consume(store, B, listeners.name("accept"), "--max-messages", 1, consumed=1)
    assert listeners.handed() == [["T", 0, 2, "d", 0]]
    # What dispatch has not seen is not there yet.
    store.put(B, {"topic": "T"})
    consume(store, B, listeners.name("accept"))
    # Another group begins where it says.
    consume(store, B, listeners.name("accept"), "--from", "last", group="g2")
    assert offsets(store, "g2")["T", 0] == 3
    store.expect_promises()


@pytest.mark.slow
def test_a_group_begins_at_a_time_and_reads_again_only_from_memory(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    fill(store, "a", "b")
    fill(store, "c", "d", now=B + 1_000)

    def bodies(*more: Any, **expected: int) -> list[str]:
        consume(store, B + 3_000, listeners.name("accept"), *more, **expected)
        return [entry[3] for entry in listeners.handed()]

    from_time = ("--from", "timestamp", "--timestamp")
    assert bodies(*from_time, B + 1, consumed=2) == ["c", "d"]
    fill(store, "e", now=B + 2_000)
    # Where the group is recorded to have read to, its own offset counts, whatever the command says.
    assert bodies(*from_time, B, "--read-from", "store", consumed=1) == ["e"]
    assert bodies(*from_time, B, "--read-from", "both") == []
    recorded = offsets(store)
    assert recorded == {("T", 0): 3, ("T", 1): 2, ("T", 2): 0, ("T", 3): 0}
    assert bodies(*from_time, B + 2_000, *FROM_MEMORY, consumed=1) == ["e"]
    assert bodies("--from", "last", *FROM_MEMORY) == []
    assert bodies("--from", "first", *FROM_MEMORY, "--max-messages", 2, consumed=2) == ["a", "b"]
    # A run that read again and ended early has not set the group back.
    assert offsets(store) == recorded
    assert bodies("--read-from", "store") == []


@pytest.mark.slow
@pytest.mark.parametrize("memory", [(), pytest.param(FROM_MEMORY, marks=pytest.mark.nightly)])
def test_what_failed_in_a_run_that_began_at_a_time_is_retried(
    life: Callable[..., Life], listeners: Listeners, memory: tuple[str, ...]
) -> None:
    """The retry topic is made for it, after the group has begun: only what was there before is left out."""
    store = life()
    fill(store, "before", now=B - 1_000)
    fill(store, "later")
    began = ("--from", "timestamp", "--timestamp", B)
    consume(store, B, listeners.name("by_body"), *began, failed=1, sent_back=1)
    store.deliver(B + 10_000_000)
    store.job("dispatch", B + 10_000_000)
    consume(store, B + 10_000_000, listeners.name("accept"), *began, *memory, consumed=1)
    handed = [entry[3:] for entry in listeners.handed()]
    assert handed == [["later", 1], ["later", 0]]  # the retry topic comes first


@pytest.mark.slow
def test_a_retry_is_handed_over_also_once_the_offsets_of_its_group_are_lost(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    fill(store, "later")
    began = ("--from", "timestamp", "--timestamp", B)
    consume(store, B, listeners.name("by_body"), *began, failed=1, sent_back=1)
    store.deliver(B + 10_000_000)
    store.job("dispatch", B + 10_000_000)
    table = f"delta.`{store.store.path(CONSUMER_OFFSETS)}`"
    store.store.spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 0")
    consume(store, B + 10_000_000, listeners.name("accept"), *began, consumed=1)


@pytest.mark.slow
@pytest.mark.parametrize("memory", [(), pytest.param(FROM_MEMORY, marks=pytest.mark.nightly)])
def test_clients_of_a_group_that_begins_at_a_time_all_leave_earlier_retries_out(
    life: Callable[..., Life], listeners: Listeners, memory: tuple[str, ...]
) -> None:
    store = life()
    store.job("topics", B, "create-group", "g", "--retry-queues", 2)
    fill(store, *(f"old{number}" for number in range(8)))
    store.job("send_back", B, "--group", "g", "--input", store.input(*map(offset_of, store.rows())))
    later = B + 10_000_000
    store.deliver(later)
    store.job("dispatch", later)
    began = ("--from", "timestamp", "--timestamp", later + 1, "--clients", "a,b", *memory)
    for _ in range(2):
        consume(store, later + 1, listeners.name("accept"), *began)
    retries = store.store.consumer_offsets.where("topic = '%RETRY%g'").collect()
    assert (len(retries), sum(row.next_offset for row in retries)) == (2, 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "clients",
    [
        (),
        pytest.param(("--clients", "a,b"), marks=pytest.mark.nightly),
        ("--clients", "a,b", "--client-id", "a"),
    ],
)
def test_a_group_that_began_at_the_end_reads_all_of_a_queue_that_was_added(
    life: Callable[..., Life], listeners: Listeners, clients: tuple[str, ...]
) -> None:
    store = life()
    store.job("topics", B, "create", "T", "--queues", 2)
    fill(store, "old", "old too")
    consume(store, B, listeners.name("accept"), "--from", "last", *clients)
    assert offsets(store) == {("T", 0): 1, ("T", 1): 1}  # of all clients, also of one that has not read yet
    store.job("topics", B, "update", "T", "--queues", 3)
    store.put(B, *[{"topic": "T", "queue_id": n, "body": f"new{n}"} for n in range(3)])
    store.job("dispatch", B)
    if "--client-id" in clients:
        consume(store, B, listeners.name("accept"), "--from", "last", *clients, consumed=2)
        clients = (*clients[:-1], "b")
        consume(store, B, listeners.name("accept"), "--from", "last", *clients, consumed=1)
    else:
        consume(store, B, listeners.name("accept"), "--from", "last", *clients, consumed=3)
    assert offsets(store) == {("T", 0): 2, ("T", 1): 2, ("T", 2): 1}


@pytest.mark.slow
def test_a_run_begins_no_further_page_after_its_seconds(
    life: Callable[..., Life], listeners: Listeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock on which each page takes ten seconds."""
    store = life()
    store.put(B, *[{"topic": "T", "queue_id": 0, "body": str(n)} for n in range(5)])
    store.job("dispatch", B)
    call_listener, pages = reader.Reader._call_listener, list[Any]()

    def counted(self: reader.Reader, page: Page, waiting: Any) -> Any:
        outcomes = call_listener(self, page, waiting)
        pages.append(page)
        return outcomes

    monkeypatch.setattr(reader.Reader, "_call_listener", counted)
    for module in (reader, group_run):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 10.0 * len(pages)))
    for size in ("ENTRIES_OF_A_PAGE", "MESSAGES_OF_A_PAGE"):
        monkeypatch.setattr(reader, size, 1)
    monkeypatch.setattr(reader, "size_after", lambda *_: 1)
    consume(store, B, listeners.name("accept"), "--max-seconds", 0)
    consume(store, B, listeners.name("accept"), "--max-seconds", 15, consumed=2)
    assert offsets(store)["T", 0] == 2
    pages.clear()
    consume(store, B, listeners.name("accept"), "--max-seconds", 30, consumed=3)
    assert [entry[3] for entry in listeners.handed()] == ["0", "1", "2", "3", "4"]


@pytest.mark.slow
def test_failures_come_again_and_then_are_dead_letters(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    fill(store, "ok", "later", "raises", "nothing", "later 5", "later -1")
    consume(store, B, listeners.name("by_body"), consumed=1, failed=5, sent_back=4, dead_lettered=1)
    waiting = {bytes(row.body).decode(): row.queue_id + 1 for row in store.rows() if row.topic == SCHEDULE}
    assert waiting == {"later": 3, "raises": 3, "nothing": 3, "later 5": 5}
    (dead,) = [row for row in store.rows() if row.topic == "%DLQ%g"]
    assert (bytes(dead.body), dead.reconsume_times) == (b"later -1", 1)
    consume(store, B, listeners.name("by_body"))
    listeners.handed()
    store.deliver(B + 10_000)
    store.job("dispatch", B + 10_000)
    # The retry topic is read too, whatever the filter, with the topic they failed in; the third time is one too many.
    tries = ("--max-reconsume-times", 1)
    consume(
        store, B + 10_000, listeners.name("by_body"), *tries, "--filter", "none", failed=3, dead_lettered=3
    )
    handed = listeners.handed()
    assert sorted((topic, body, times) for topic, _, _, body, times in handed) == [
        ("T", "later", 1), ("T", "nothing", 1), ("T", "raises", 1),
    ]  # fmt: skip
    store.expect_promises()


@pytest.mark.slow
def test_a_batch_succeeds_up_to_its_ack_index(life: Callable[..., Life], listeners: Listeners) -> None:
    store = life()
    store.put(B, *[{"topic": "T", "queue_id": 0, "body": str(n)} for n in range(7)])
    store.job("dispatch", B)
    hook = ("--hook", listeners.name("Hook"))
    consume(
        store, B, listeners.name("first_two"), "--batch-size", 3, *hook, consumed=5, failed=2, sent_back=2
    )
    handed = listeners.handed()
    assert [entry for entry in handed if entry[0] == "hook"] == [
        ["hook", 1, "SUCCESS", True],
        *[["hook", 3, "SUCCESS", True]] * 2,
    ]
    failed = sorted(bytes(row.body) for row in store.rows() if row.purpose == "retry")
    assert failed == [b"2", b"5"]


@pytest.mark.slow
def test_a_listener_that_hangs_or_answers_wrongly_holds_nobody_up(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    fill(store, "ok", "hangs", "ok")
    consume(store, B, listeners.name("by_body"), "--consume-timeout", 0.02, consumed=2, failed=1, sent_back=1)
    (sent_back,) = [row for row in store.rows() if row.purpose == "retry"]
    assert (bytes(sent_back.body), sent_back.queue_id) == (b"hangs", 2)  # level 3, as the sweep of a client
    fill(store, "wrong")
    before = offsets(store)
    run = store.job(
        "consume", B, "--group", "g", "--topic", "T", "--listener", listeners.name("by_body"), exit_status=1
    )
    assert "the listener returned 'yes'; expected ConsumeStatus.CONSUME_SUCCESS" in run.stderr
    assert offsets(store) == before


@pytest.mark.slow
def test_an_orderly_queue_waits_at_its_failure_and_goes_on(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    fill(store, "a", "b", "stuck", "d", "e", "f")  # queue 0: a stuck e, queue 1: b d f
    orderly = (listeners.name("in_order"), "--orderly")
    consume(store, B, *orderly, consumed=4, failed=1)
    assert offsets(store) == {("T", 0): 1, ("T", 1): 3, ("T", 2): 0, ("T", 3): 0}
    consume(store, B + 500, *orderly)  # its turn has not come
    consume(store, B + 1_000, *orderly, failed=1)
    assert [entry[3:] for entry in listeners.handed() if entry[3] == "stuck"] == [["stuck", 0], ["stuck", 1]]
    consume(store, B + 2_000, *orderly, consumed=2)
    assert listeners.handed() == [["T", 0, 1, "stuck", 2], ["T", 0, 2, "e", 0]]
    assert store.store.in_flight.count() == 0
    assert all(row.claim is None for row in store.rows())


@pytest.mark.slow
def test_a_message_says_where_it_comes_from_and_when_it_was_handed_over(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    store.job("put_messages", B, "--input", store.input({"topic": "T", "body": "a"}), "--batch-id", "I")
    store.job("dispatch", B)
    found = consume(store, B + 1, listeners.name("tells"), failed=1, sent_back=1)
    assert found["errors"] == {f"ValueError: [0, 0, 'I:0-1', None, '{B + 1}']": 1}


@pytest.mark.slow
def test_a_group_reads_as_it_is_configured(life: Callable[..., Life], listeners: Listeners) -> None:
    store = life()
    fill(store, "skipped")
    store.job("topics", B, "create-group", "g", "--orderly", "--no-from-min-enable")
    consume(store, B, listeners.name("in_order"))
    assert offsets(store)["T", 0] == 1  # begun at the end
    fill(store, "stuck", "ok", "behind")
    consume(store, B, listeners.name("in_order"), consumed=1, failed=1)
    assert [handed[3] for handed in listeners.handed()] == ["stuck", "ok"]  # its queue waits


@pytest.mark.slow
def test_an_orderly_message_is_given_up_after_its_tries(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    store.put(B, {"topic": "T", "queue_id": 0, "body": "x"}, {"topic": "T", "queue_id": 0, "body": "y"})
    store.job("dispatch", B)
    orderly = (listeners.name("never"), "--orderly", "--max-reconsume-times", 1)
    consume(store, B, *orderly, failed=1)
    consume(store, B + 1_000, *orderly, failed=2, dead_lettered=1)
    (dead,) = [row for row in store.rows() if row.topic == "%DLQ%g"]
    assert (bytes(dead.body), dead.reconsume_times) == (b"x", 2)
    assert offsets(store)["T", 0] == 1
    store.expect_promises()


@pytest.mark.slow
def test_messages_of_an_orderly_batch_are_given_up_each_after_its_own_tries(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    def put(*bodies: str) -> None:
        store.put(B, *[{"topic": "T", "queue_id": 0, "body": body} for body in bodies])
        store.job("dispatch", B)

    def dead() -> list[tuple[bytes, int]]:
        return [(bytes(row.body), row.reconsume_times) for row in store.rows() if row.topic == "%DLQ%g"]

    store = life()
    orderly = (listeners.name("never_any"), "--orderly", "--batch-size", 3, "--max-reconsume-times", 1)
    put("x")
    consume(store, B, *orderly, failed=1)
    put("y", "z")  # they join the group of x, which has been tried once
    consume(store, B + 1_000, *orderly, failed=3, dead_lettered=1)
    assert (dead(), offsets(store)["T", 0]) == ([(b"x", 2)], 1)
    (queue,) = consumer_status(store.store.snapshot(), "g").where("waits_at IS NOT NULL").collect()
    assert (queue.waits_at, queue.tries) == (1, 1)
    consume(store, B + 2_000, *orderly, failed=2, dead_lettered=2)
    assert dead() == [(b"x", 2), (b"y", 2), (b"z", 2)]
    assert [handed[3:] for handed in listeners.handed()] == [
        ["x", 0], ["x", 1], ["y", 0], ["y", 1], ["z", 0], ["z", 1],
    ]  # fmt: skip
    assert store.store.in_flight.isEmpty()
    store.expect_promises()


@pytest.mark.slow
@pytest.mark.parametrize("is_configured", [False, True], ids=["--orderly", "as the group is configured"])
def test_an_orderly_message_is_never_given_up_unless_that_is_given(
    life: Callable[..., Life], listeners: Listeners, is_configured: bool
) -> None:
    store = life()
    store.put(B, {"topic": "T", "queue_id": 0, "body": "x"})
    store.job("dispatch", B)
    in_group, in_command = (("--orderly",), ()) if is_configured else ((), ("--orderly",))
    store.job("topics", B, "create-group", "g", "--retry-max-times", 0, *in_group)
    consume(store, B, listeners.name("never"), *in_command, failed=1)
    consume(store, B + 1_000, listeners.name("never"), *in_command, failed=1)
    assert [times for *_, times in listeners.handed()] == [0, 1]


@pytest.mark.slow
def test_broadcasting_clients_each_read_all_and_send_nothing_back(
    life: Callable[..., Life], listeners: Listeners, tmp_path: Path
) -> None:
    store = life()
    fill(store, "ok", "later")
    broadcasting = (listeners.name("by_body"), "--model", "broadcasting", "--client-id")
    consume(store, B, *broadcasting, "c1", consumed=1, failed=1)
    consume(store, B, *broadcasting, "c2", consumed=1, failed=1)
    consume(store, B, *broadcasting, "c1")
    own = ("c3", "--offsets-file", tmp_path / "offsets.json")
    consume(store, B, *broadcasting, *own, consumed=1, failed=1)
    consume(store, B, *broadcasting, *own)
    assert (tmp_path / "offsets.json").read_text().startswith('{"offsetTable":{{')
    assert len(store.rows()) == 2
    clients = {row.client_id for row in store.store.consumer_offsets.collect()}
    assert clients == {"c1", "c2"}


@pytest.mark.slow
def test_broadcasting_clients_also_read_what_their_group_has_sent_back(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    fill(store, "ok", "later")
    consume(store, B, listeners.name("by_body"), consumed=1, failed=1, sent_back=1)
    listeners.handed()
    consume(store, B, listeners.name("accept"), "--model", "broadcasting", "--client-id", "c1", consumed=2)
    assert [handed[3] for handed in listeners.handed()] == ["ok", "later"]


@pytest.mark.slow
def test_clients_share_the_queues(life: Callable[..., Life], listeners: Listeners) -> None:
    store = life()
    store.put(B, *[{"topic": "T", "queue_id": n, "body": str(n)} for n in range(4)])
    store.job("dispatch", B)
    shared = (listeners.name("accept"), "--clients", "a,b", "--client-id")
    consume(store, B, *shared, "b", consumed=2)
    assert [entry[3] for entry in listeners.handed()] == ["2", "3"]
    consume(store, B, listeners.name("accept"), "--clients", "a,b", consumed=2)
    assert [entry[3] for entry in listeners.handed()] == ["0", "1"]


@pytest.mark.slow
def test_a_table_listener_says_what_became_of_each_row(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    fill(store, "ok", "later", "silent", "ok")
    table = ("--group", "g", "--topic", "T", "--listener", listeners.name("as_table"))
    assert "gets a page at once" in store.job("consume", B, *table, "--orderly", exit_status=2).stderr
    consume(store, B, listeners.name("as_table"), consumed=2, failed=2, sent_back=2)
    assert {bytes(row.body) for row in store.rows() if row.purpose == "retry"} == {b"later", b"silent"}


@pytest.mark.slow
def test_a_table_listener_that_says_two_things_of_a_message_is_refused(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    fill(store, "ok", "later", "ok")
    at = store.rows()[1].physical_offset
    table = ("--group", "g", "--topic", "T", "--listener", listeners.name("as_table_twice"))
    run = store.job("consume", B, *table, exit_status=1)
    assert f"the listener returned 2 rows for the message at {at}; expected one row a message" in run.stderr
    assert len(store.rows()) == 3
    assert offsets(store) == {}


@pytest.mark.slow
def test_filters_select_and_collisions_are_told_apart(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    tagged = [
        {"topic": "T", "tags": tag, "body": tag, "properties": {"n": str(n)}}
        for n, tag in enumerate(("Aa", "BB", "C"))
    ]
    store.put(B, *tagged, {"topic": "T", "body": "none"})
    store.job("dispatch", B)
    cases = {
        ("TAG", "Aa || C"): ["Aa", "C"],
        ("TAG", "*"): ["Aa", "BB", "C", "none"],
        ("SQL92", "n > 0 AND TAGS IS NOT NULL"): ["BB", "C"],
    }
    for number, ((kind, expression), selected) in enumerate(cases.items()):
        filters = ("--filter-type", kind, "--filter", expression)
        left_out = 4 - len(selected)
        counts = {"consumed": len(selected)} | ({"filtered": left_out} if left_out else {})
        consume(store, B, listeners.name("accept"), *filters, group=f"g{number}", **counts)
        assert [entry[3] for entry in listeners.handed()] == selected
    # A limit counts what is handed over; the rest waits.
    some = ("--filter-type", "SQL92", "--filter", "n >= 0", "--max-messages", 2)
    consume(store, B, listeners.name("accept"), *some, group="h", consumed=2)
    first = {entry[3] for entry in listeners.handed()}
    # The subscription is the group's: the next run need not repeat it.
    result = consume(store, B, listeners.name("accept"), group="h", consumed=1, filtered=1)
    assert first | {entry[3] for entry in listeners.handed()} == {"Aa", "BB", "C"}
    assert result["consumed"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--filter-type", "SQL92", "--filter", "n >"), "the SQL92 filter 'n >' is refused"),
        (
            ("--filter-type", "REGEX", "--filter", "x"),
            "--filter-type is REGEX; expected one of TAG, SQL92, CLASS",
        ),
        (("--model", "broadcasting"), "needs --client-id"),
        (("--model", "broadcasting", "--client-id", " "), "--client-id is empty"),
        (("--from", "timestamp"), "--from timestamp and --timestamp MS go together"),
        (("--clients", "a,b", "--client-id", "c"), "--client-id c is none of --clients a, b"),
        (("--offsets-file", "x.json"), "--offsets-file is a broadcasting client's"),
        (("--topic", "TT"), "no topic 'TT' in this store; did you mean T?"),
    ],
)
def test_bad_options_are_refused(
    life: Callable[..., Life], listeners: Listeners, arguments: tuple[str, ...], said: str
) -> None:
    store = life()
    store.job("topics", B, "create", "T")
    given = ("--group", "g", "--topic", "T", "--listener", listeners.name("accept"))
    run = store.job("consume", B, *given, *arguments, exit_status=2)
    assert said in run.stderr


@pytest.mark.slow
def test_a_reset_lets_the_group_read_again_and_fail_again(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    fill(store, "later", "ok", "ok")
    consume(store, B, listeners.name("by_body"), consumed=2, failed=1, sent_back=1)
    reset = ("--group", "g", "--topic", "T", "--to-offset", 0, "--queue-id", 0)
    dry = store.job("reset_offsets", B, *reset, "--dry-run").result
    assert (dry["queues"], offsets(store)["T", 0]) == (1, 2)
    assert store.job("reset_offsets", B, *reset).result["queues"] == 1
    consume(store, B, listeners.name("by_body"), consumed=1, failed=1, sent_back=1)
    claims = sorted(row.claim for row in store.rows() if row.purpose == "retry")
    assert claims == ["group:g#0", "group:g#1"]
    assert (
        store.job("reset_offsets", B, "--group", "g", "--topic", "T", "--skip-accumulation").result["queues"]
        == 4
    )
    store.job("reset_offsets", B, "--group", "h", "--clone-from", "g", "--topic", "T")
    assert offsets(store, "h") == offsets(store)
    store.job("reset_offsets", B, "--group", "g", "--topic", "T", "--to-timestamp", B)
    assert offsets(store)["T", 0] == 0
    wrong = store.job("reset_offsets", B, "--group", "g", "--topic", "T", "--to-offset", 9, exit_status=2)
    assert "queue 0 of T has offsets 0 to 2" in wrong.stderr
    both = store.job("reset_offsets", B, "--group", "g", "--topic", "T", exit_status=2)
    assert "give one of --to-timestamp, --to-offset" in both.stderr
    store.expect_promises()


@pytest.mark.slow
def test_a_failure_whose_copy_fits_no_segment_is_given_up_alone(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life(mappedFileSizeCommitLog=4096)
    record_bytes = 91 + len("T") + len("UNIQ_KEY") + 1 + 32 + 1  # without a body
    large = "x" * (4096 - 8 - record_bytes)  # the message fits to the byte
    store.put(B, *[{"topic": "T", "queue_id": 0, "body": body} for body in (large, "later", "ok")])
    assert store.rows()[0].size_bytes == 4096 - 8
    store.job("dispatch", B)
    arguments = ("--group", "g", "--topic", "T", "--listener", listeners.name("by_body"))
    run = store.job("consume", B, *arguments)
    counts = {name: count for name, count in run.result.items() if name in COUNTED and count}
    assert counts == {"consumed": 1, "failed": 2, "sent_back": 1, "dropped": 1}
    assert "given up: the message at offset 0 of queue 0 of T (byte 0)" in run.stderr
    assert "at most 4088 fit a segment" in run.stderr
    assert offsets(store)["T", 0] == 3
    request = store.input({"physical_offset": 0})
    again = store.job("send_back", B, "--group", "g", "--input", request)
    assert (again.result["dropped"], again.result["sent_back"], again.result["already"]) == (1, 0, 0)
    assert "cannot be sent back, and it is given up" in again.stderr
    store.expect_promises()


@pytest.mark.slow
def test_a_reset_gives_no_generation_again_once_the_offsets_were_restored(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    fill(store, "later -1")
    reset = ("--group", "g", "--topic", "T", "--to-offset", 0, "--queue-id", 0)
    store.job("reset_offsets", B, *reset)
    consume(store, B, listeners.name("by_body"), failed=1, dead_lettered=1)
    table = f"delta.`{store.store.path(CONSUMER_OFFSETS)}`"
    store.store.spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 0")
    store.job("reset_offsets", B, *reset)
    consume(store, B, listeners.name("accept"), consumed=1)


@pytest.mark.slow
def test_a_class_filter_sees_the_message_and_an_exception_stops_its_pull(
    life: Callable[..., Life], listeners: Listeners, tmp_path: Path
) -> None:
    store = life(filterSupportUpload="true")
    store.put(B, *[{"topic": "T", "queue_id": n // 40, "body": str(n)} for n in range(80)])
    store.job("dispatch", B)
    even = ("--filter-type", "CLASS", "--filter", listeners.name("Even"))
    consume(store, B, listeners.name("accept"), *even, consumed=40, filtered=40)
    assert all(int(entry[3]) % 2 == 0 for entry in listeners.handed())
    # 77 is in queue 1, in the pull that begins at its offset 32, message 72: that one and those behind it wait.
    source = tmp_path / "uploaded.py"
    source.write_text(
        "class Picky:\n    def match(self, message, context):\n        return 80 / (int(message.body) - 77) > -100\n"
    )
    upload = ("--group", "h", "--topic", "T", "--filter-class", f"{source}:Picky")
    assert store.job("subscribe", B, *upload).result["subscriptions"] == 1
    consume(store, B, listeners.name("accept"), group="h", consumed=72, failed=1)
    assert (offsets(store, "h")["T", 0], offsets(store, "h")["T", 1]) == (40, 32)
    closed = life()
    closed.job("topics", B, "create", "T")
    assert "filterSupportUpload is false" in closed.job("subscribe", B, *upload, exit_status=2).stderr
