"""`commitlake run_cycle`: rounds by a clock that goes on, and what it refuses before it writes."""

import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any

import pytest

from jobs import check_transactions
from jobs.launch.run import Run
from jobs.run_cycle import _rounds
from pipelines.produce.put_input import put_input
from pipelines.transaction.check import plan_check
from tests.life import HALF, SCHEDULE, B, Life, place


@pytest.mark.slow
def test_rounds_go_on_by_a_clock_that_goes_on(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = life(messageDelayLevel="1s 5s 10s")
    store.put(
        B,
        {"topic": "T", "unique_key": "now", "delay_level": 1},
        {"topic": "T", "unique_key": "soon", "delay_level": 2},
        {"topic": "T", "unique_key": "later", "delay_level": 3},
    )
    # The second message falls due while the first round works, the third after the last round.
    clock = chain([B + 1_000] * 4, repeat(B + 5_000))
    monkeypatch.setattr(Run, "now_ms", property(lambda _: next(clock)))
    source = store.input({"topic": "T", "body": "b", "unique_key": "put", "delay_level": 2})
    run = store.commitlake(
        "run_cycle", "--store", store.store.uri, "--input", source, "--until-quiet", "--quiet"
    )
    assert run.exit_status == 0, run.stderr
    assert run.result["deliver"]["delivered"] == 2
    assert run.result["rounds"] >= 2
    topics = {key: [row.topic for row in store.by_key(key)] for key in ("now", "soon", "later", "put")}
    assert topics == {"now": [SCHEDULE, "T"], "soon": [SCHEDULE, "T"], "later": [SCHEDULE], "put": [SCHEDULE]}
    store.expect_promises()
    # What waits is delivered once each by later rounds.
    monkeypatch.undo()
    later = store.job("run_cycle", B + 20_000, "--until-quiet").result
    assert later["deliver"]["delivered"] == 2
    assert store.job("run_cycle", B + 30_000, "--until-quiet").result["deliver"]["delivered"] == 0
    assert {place(row)[0] for row in store.rows() if row.purpose == "deliver"} == {"T"}
    store.expect_promises()


ANSWERS = """
from pipelines.transaction import TransactionState

def by_body(message):
    return {b"commit": TransactionState.COMMIT, b"rollback": TransactionState.ROLLBACK}.get(message.body)
"""


@pytest.mark.slow
def test_transactions_are_ended_as_their_producers_say_and_else_as_the_checker_or_a_file_says(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "answers_of_a_cycle.py").write_text(ANSWERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    store = life()
    bodies = {"ended": "b", "taken back": "b", "asked": "commit", "refused": "rollback", "open": "b"}
    half = {"topic": "T", "transaction": True, "producer_group": "p", "born_timestamp": B}
    store.put(B, *[{**half, "unique_key": key, "body": body} for key, body in bodies.items()])
    ended, taken_back, *_, still_open = (row.physical_offset for row in store.rows())
    ends = store.input(
        {"producer_group": "p", "physical_offset": ended, "state": "COMMIT"},
        {"producer_group": "p", "physical_offset": taken_back, "state": "ROLLBACK"},
        {"producer_group": "of others", "physical_offset": still_open, "state": "COMMIT"},
    )
    source = store.input({"topic": "T", "body": "put first"})
    cycle = ("--input", source, "--ends", ends, "--checker", "answers_of_a_cycle:by_body", "--until-quiet")
    found = store.job("run_cycle", B + 10_000, *cycle).result
    assert found["put_messages"]["appended"] == 1
    assert found["end_transactions"] == {"committed": 1, "rolled_back": 1, "refused": 1}
    # The two that were ended before are not asked about, and none twice at one clock.
    expected = {"checked": 3, "committed": 1, "rolled_back": 1, "unknown": 1, "discarded": 0}
    assert found["check_transactions"] == expected
    assert found["rounds"] == 2
    # What the last round appended is dispatched: the message put, and the two committed.
    assert store.store.consume_queue.where("topic = 'T'").count() == 3
    assert [row.topic for row in store.by_key("asked")] == [HALF, HALF, "T"]

    outcomes = ("--outcomes", store.input({"unique_key": "open", "state": "COMMIT"}))
    later = store.job("run_cycle", B + 40_000, "--ends", ends, *outcomes).result
    assert later["end_transactions"] == {"committed": 0, "rolled_back": 0, "refused": 1}
    assert (later["check_transactions"]["checked"], later["check_transactions"]["committed"]) == (1, 1)
    assert [row.topic for row in store.by_key("open")] == [HALF, HALF, HALF, "T"]
    assert store.store.half_messages.isEmpty()
    store.expect_promises()


@pytest.mark.slow
def test_ends_that_change_after_their_check_are_carried_out_as_checked(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = life()
    store.put(B, {"topic": "T", "transaction": True, "producer_group": "p", "born_timestamp": B})
    ends = store.input({"producer_group": "p", "physical_offset": 0, "state": "COMMIT"})

    def put_while_the_producer_writes(*of_put: Any) -> dict[str, Any]:
        ends.write_text(ends.read_text().replace("COMMIT", "COMMITTED"))
        return put_input(*of_put)

    monkeypatch.setattr("jobs.run_cycle.put_input", put_while_the_producer_writes)
    source = store.input({"topic": "T", "body": "put first"})
    found = store.job("run_cycle", B + 1_000, "--input", source, "--ends", ends).result
    assert found["end_transactions"] == {"committed": 1, "rolled_back": 0, "refused": 0}
    store.expect_promises()


@pytest.mark.slow
def test_each_tick_of_a_session_checks_an_open_half_once(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "answers_of_ticks.py").write_text("def unknown(message):\n    return None\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    # A second passes wherever the clock is read, so by the interval alone each round and each part would check again.
    store = life(transactionCheckInterval="1")
    clock = count(B + 10_000, 1_000)
    monkeypatch.setattr(check_transactions, "plan_check", partial(plan_check, limit=1))
    half = {"topic": "T", "transaction": True, "producer_group": "p", "born_timestamp": B}
    store.put(B, *[{**half, "unique_key": key} for key in ("h1", "h2")])
    monkeypatch.setattr(Run, "now_ms", property(lambda _: next(clock)))
    monkeypatch.setattr("jobs.run_cycle.repeat", lambda run, every, lasting, tick: [tick(), tick()])
    ticks = ("--until-quiet", "--every", 1, "--checker", "answers_of_ticks:unknown")
    found = store.job("run_cycle", B, *ticks).result
    assert (found["ticks"], found["rounds"]) == (2, 4)
    assert (found["check_transactions"]["checked"], found["check_transactions"]["unknown"]) == (4, 4)
    assert [[row.purpose for row in store.by_key(key)] for key in ("h1", "h2")] == [
        [None, "check", "check"]
    ] * 2
    store.expect_promises()


def test_a_session_runs_many_rounds(life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch) -> None:
    store = life(messageDelayLevel="1s")
    ticks = []

    def a_tick(*of_tick: Any) -> int:
        ticks.append(of_tick)
        if len(ticks) > 1 and len(store.rows()) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return _rounds(*of_tick)

    monkeypatch.setattr("jobs.run_cycle._rounds", a_tick)
    source = store.input({"topic": "T", "body": "b", "delay_level": 1})
    run = store.commitlake(
        "run_cycle", "--store", store.store.uri, "--input", source, "--every", 0.5, "--for", 120, "--quiet"
    )
    assert run.exit_status == 0, run.stderr
    assert run.result["ticks"] == len(ticks) > 1
    assert (run.result["put_messages"]["appended"], run.result["deliver"]["delivered"]) == (1, 1)
    assert [row.topic for row in store.rows()] == [SCHEDULE, "T"]
    alone = store.run("run_cycle", B, "--for", 8)
    assert (alone.exit_status, "needs --every SECONDS" in alone.stderr) == (2, True)


def test_the_next_round_goes_by_a_setting_that_was_changed(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = life()
    seen = []

    def a_round(run: Run, *_: object) -> int:
        seen.append(run.store.settings["transactionCheckMax"])
        store.job("settings", B, "set", "transactionCheckMax=3")
        return 1

    monkeypatch.setattr("jobs.run_cycle._rounds", a_round)
    store.job("run_cycle", B, "--every", 0.1, "--for", 4)
    assert seen[:2] == [15, 3]


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_session_of_rounds_ends_when_it_is_told_to(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch, sent: signal.Signals
) -> None:
    store = life()
    calls = []

    def a_round(run: Run, *_: object) -> int:
        calls.append(run)
        if sent == signal.SIGTERM:  # which the step at hand survives
            os.kill(os.getpid(), sent)
        else:
            threading.Timer(0.3, os.kill, (os.getpid(), sent)).start()
        return 1

    monkeypatch.setattr("jobs.run_cycle._rounds", a_round)
    before = signal.getsignal(signal.SIGTERM)
    run = store.commitlake("run_cycle", "--store", store.store.uri, "--every", 600)
    assert run.exit_status == 0, run.stderr
    assert (run.result["ticks"], len(calls)) == (1, 1)
    assert "after 1 ticks" in run.stderr
    assert signal.getsignal(signal.SIGTERM) is before
