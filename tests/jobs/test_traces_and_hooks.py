"""What is told of sends and of consumption: hooks, and trace messages (docs/rocketmq/consume-filter-ha.md 1.6)."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import BadInput
from pipelines.store.head import read_head
from tests.consume.listeners import Listeners
from tests.life import SCHEDULE, B, Life, raw
from tests.model.log import read_properties

SEND_HOOK = """
import json

NOTES = {notes!r}

class Hook:
    def note(self, *words):
        with open(NOTES, "a") as file:
            file.write(json.dumps(words) + "\\n")

    def send_message_before(self, context):
        self.note("before", context.message.topic, context.message.body.decode(), context.status)
        raise RuntimeError("a hook's own affair")

    def send_message_after(self, context):
        message = context.message
        self.note("after", message.topic, message.body.decode(), context.status, message.queue_offset)
"""

CODE_THAT_READS = """
import json

def note(message):
    words = [message.body.hex(), message.tags, message.keys, message.unique_key, dict(message.properties)]
    with open({notes!r}, "a") as file:
        file.write(json.dumps(words) + "\\n")

def select(queues, message, argument):
    note(message)
    return 0

class Hook:
    def send_message_before(self, context):
        note(context.message)
"""

LOCAL_TRANSACTION = """
from pipelines.transaction import TransactionState

def commits(message):
    return TransactionState.COMMIT
"""


@pytest.fixture
def listeners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Listeners:
    return Listeners(tmp_path, monkeypatch)


def traces(store: Life) -> list[tuple[Any, list[list[str]]]]:
    """Trace messages in order: the row, and its records, each a list of fields."""
    rows = [row for row in store.rows() if row.topic == "RMQ_SYS_TRACE_TOPIC"]
    return [
        (row, [record.split("\x01") for record in bytes(row.body).decode().split("\x02") if record])
        for row in rows
    ]


@pytest.mark.slow
def test_a_put_is_told_to_its_hook_and_traced_once(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    (tmp_path / "send_hook.py").write_text(SEND_HOOK.format(notes=str(notes)))
    monkeypatch.syspath_prepend(str(tmp_path))
    store = life()
    source = store.input(
        {"topic": "T", "queue_id": 0, "body": "a", "tags": "x", "keys": "k1 k2", "unique_key": "U1"},
        {"topic": "T", "queue_id": 0, "body": "bcd", "unique_key": "U2", "delay_level": 3},
    )
    arguments = ("--input", source, "--hook", "send_hook:Hook", "--trace")
    first = store.job("put_messages", B, *arguments).result
    assert (first["appended"], first["next_offset"]) == (2, read_head(store.store.snapshot()).next_offset)
    told = [json.loads(line) for line in notes.read_text().splitlines()]
    assert told == [
        ["before", "T", "a", None],
        ["before", "T", "bcd", None],
        ["after", "T", "a", "SEND_OK", 0],
        ["after", SCHEDULE, "bcd", "SEND_OK", 0],
    ]
    (sent, (pub,)), (_, (delayed,)) = traces(store)
    row = store.by_key("U1")[0]
    offset_id = f"7F00000100002A9F{row.physical_offset:016X}"
    assert pub == [
        "Pub", str(B), "DefaultRegion", "DEFAULT_PRODUCER", "T", "U1", "x", "k1 k2", "127.0.0.1:10911", "1", "0", "0",
        offset_id, "true",
    ]  # fmt: skip
    assert read_properties(sent.properties)["KEYS"] == "U1 k1 k2"
    assert (delayed[4], delayed[9], delayed[11]) == ("T", "3", "3")  # DELAY_MSG
    # The same input again: nothing new is told or traced.
    again = store.job("put_messages", B + 1_000, *arguments).result
    assert (again["appended"], again["already"]) == (0, 2)
    assert len(traces(store)) == 2
    assert len(notes.read_text().splitlines()) == 4


@pytest.mark.slow
def test_a_trace_that_is_too_large_leaves_the_others_and_the_local_transactions_alone(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "local_transaction.py").write_text(LOCAL_TRANSACTION)
    monkeypatch.syspath_prepend(str(tmp_path))
    store = life(maxMessageSize=300)
    half = {"topic": "T", "body": "b", "transaction": "true", "producer_group": "p"}
    source = store.input({**half, "unique_key": "U1", "keys": "k" * 250}, {**half, "unique_key": "U2"})
    arguments = ("--input", source, "--trace", "--local-transaction", "local_transaction:commits")
    put = store.job("put_messages", B, *arguments)
    assert (put.result["appended"], put.result["committed"]) == (2, 2)
    assert "messages that are not traced: 1; rejected_messages says why" in put.stderr
    assert [records[0][5] for _, records in traces(store)] == ["U2"]
    (rejected,) = store.store.rejected_messages.collect()
    assert "at most 300 (maxMessageSize)" in rejected.reason
    again = store.job("put_messages", B + 1, *arguments).result
    assert (again["appended"], again["already"], again["committed"], len(traces(store))) == (0, 2, 0, 1)


@pytest.mark.slow
def test_a_trace_that_fails_is_a_warning_about_a_put_that_has_been_done(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: object) -> None:
        raise BadInput("no trace today")

    monkeypatch.setattr("pipelines.produce.put_traces.put_traces", fails)
    store = life()
    put = store.job("put_messages", B, "--input", store.input({"topic": "T", "body": "b"}), "--trace")
    assert put.result["appended"] == 1
    assert "what was put is not traced: no trace today; the same put again traces it" in put.stderr


def test_a_hook_and_a_selector_get_the_body_and_the_properties_whichever_columns_hold_them(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    (tmp_path / "code_that_reads.py").write_text(CODE_THAT_READS.format(notes=str(notes)))
    monkeypatch.syspath_prepend(str(tmp_path))
    store = life()
    encoded = {"body_base64": base64.b64encode(b"\xff\x00").decode()}
    source = store.input(
        {"topic": "T", "body": "text", "tags": "x", "sharding_key": "s"},
        {"topic": "T", **encoded, "properties_raw": raw(TAGS="t", KEYS="k", UNIQ_KEY="u", own="o")},
    )
    code = ("--hook", "code_that_reads:Hook", "--selector", "code_that_reads:select")
    store.job("put_messages", B, "--input", source, *code)
    message = ["ff00", "t", "k", "u", {"TAGS": "t", "KEYS": "k", "UNIQ_KEY": "u", "own": "o"}]
    said = [json.loads(line) for line in notes.read_text().splitlines()]
    assert said == [["74657874", "x", None, None, {}], message] * 2


@pytest.mark.slow
def test_consumption_is_traced_and_may_be_limited_by_bytes(
    life: Callable[..., Life], listeners: Listeners
) -> None:
    store = life()
    bodies = ("ok", "later", "raises", "nothing", "ok")
    store.put(
        B,
        *[
            {"topic": "T", "queue_id": 0, "body": body, "unique_key": f"U{n}"}
            for n, body in enumerate(bodies)
        ],
    )
    store.job("dispatch", B)
    sizes = [row.size_bytes for row in store.rows()]
    reads = ("consume", B, "--group", "g", "--topic", "T", "--listener", listeners.name("by_body"), "--trace")
    # One message goes whatever its size; two of them fit exactly.
    assert store.job(*reads, "--max-bytes", 1).result["consumed"] == 1
    second = store.job(*reads, "--max-bytes", sizes[1] + sizes[2]).result
    assert (second["consumed"], second["failed"], second["sent_back"]) == (0, 2, 2)
    rest = store.job(*reads).result
    assert (rest["consumed"], rest["failed"]) == (1, 1)
    told = {before[5]: (before, after) for _, (before, after) in traces(store)}
    assert sorted(told) == ["U0", "U1", "U2", "U3", "U4"]
    # contextCode: SUCCESS, FAILED, EXCEPTION, RETURNNULL, SUCCESS
    assert [(after[4], after[6]) for _, (_, after) in sorted(told.items())] == [
        ("true", "0"), ("false", "4"), ("false", "2"), ("false", "3"), ("true", "0"),
    ]  # fmt: skip
    before, after = told["U1"]
    assert (before[0], before[3], before[6], before[7]) == ("SubBefore", "g", "0", "null")
    assert (after[0], after[1], after[8]) == ("SubAfter", before[4], "g")

    status = store.commitlake(
        "query",
        "--store",
        store.store.uri,
        "consumer-status",
        "--group",
        "g",
        "--topic",
        "T",
        "--output",
        "json",
    )
    first = json.loads(status.lines[0])
    assert status.result["found"] == 4
    assert (first["queue_id"], first["next_offset"], first["max_offset"], first["lag"]) == (0, 5, 5, 0)
    assert (first["expression_type"], first["expression"], first["client_id"]) == ("TAG", "*", "")


@pytest.mark.nightly
def test_the_queues_of_clients_can_be_configured(
    life: Callable[..., Life], listeners: Listeners, tmp_path: Path
) -> None:
    store = life(brokerName="room1@a")
    store.put(B, *[{"topic": "T", "queue_id": n, "body": "ok"} for n in range(4)])
    store.job("dispatch", B)
    reads = ("consume", B, "--group", "g", "--topic", "T", "--listener", listeners.name("accept"))
    clients = ("--clients", "x,y", "--client-id", "y", "--strategy")
    config = tmp_path / "queues.json"
    config.write_text(json.dumps({"x": ["room1@a:0"], "y": ["room1@a:3", "room1@a:1"]}))
    assert store.job(*reads, *clients, "CONFIG", "--config", config).result["consumed"] == 2
    assert sorted(queue for _, queue, *_ in listeners.handed()) == [1, 3]
    near = store.job(*reads, *clients, "MACHINE_ROOM", "--rooms", "room1").result
    assert near["consumed"] == 1  # queues 2 and 3 are its, and 3 is read
    by_name = "room1@a=r,x=r,y=other"
    assert store.job(*reads, *clients, "MACHINE_ROOM_NEARBY", "--rooms", by_name).result["consumed"] == 0
    config.write_text(json.dumps({"y": ["room1@a:7"]}))
    run = store.job(*reads, *clients, "CONFIG", "--config", config, exit_status=2)
    assert "--config gives y the queue room1@a:7; the topic has room1@a:0 to room1@a:3" in run.stderr
    config.write_text("[1]")
    run = store.job(*reads, *clients, "CONFIG", "--config", config, exit_status=2)
    assert "expected the queues of each client" in run.stderr
    # A run of all clients traces what each of them was handed.
    alone = ("consume", B, "--group", "h", "--topic", "T", "--listener", listeners.name("accept"))
    assert store.job(*alone, "--clients", "x,y", "--trace").result["consumed"] == 4
    assert len({before[4] for _, (before, _) in traces(store)}) == 4
