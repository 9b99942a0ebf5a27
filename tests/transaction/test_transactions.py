"""Half messages and their ends; vectors of docs/rocketmq/delay-retry-transaction.md 9 by number."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs import check_transactions, end_transactions
from pipelines.log.requests import with_rows
from pipelines.store.commit import commit
from pipelines.store.progress import seen_by
from pipelines.transaction.check import plan_check
from pipelines.transaction.end import plan_end
from pipelines.transaction.requests import read_end_requests, read_outcomes, requests_by_states
from schemas import COMMITLOG, PROGRESS
from tests.life import DISCARDED, HALF, OP, B, Life, lineage, place, raw
from tests.model.log import read_properties
from tests.races import killed_before_writing
from tests.store.earlier_versions import keep_clocks_as_rows

pytestmark = pytest.mark.usefixtures("engine_of_choice")

ANSWERS = """
from pipelines.transaction import TransactionState

def by_body(message):
    if message.body == b"raises":
        raise ValueError("no idea")
    if (message.topic, message.queue_id) != ("T", 3):
        return None  # a producer gets its half as it has sent it
    return {b"commit": TransactionState.COMMIT, b"rollback": TransactionState.ROLLBACK}.get(message.body)

def unknown(message):
    return TransactionState.UNKNOWN
"""


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "answers_of_a_test.py").write_text(ANSWERS)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture
def asked(life: Callable[..., Life], answers: None) -> Life:
    """Two halves: the one born at 0 s was asked about at 33 s, the other is born at 30 s."""
    store = life()
    store.put(B, half("u0", born_timestamp=B))
    store.put(B + 30_000, half("u30", born_timestamp=B + 30_000))
    assert checked(store, B + 33_000) == 1
    return store


def checked(store: Life, now: int) -> int:
    result = store.job("check_transactions", now, "--checker", "answers_of_a_test:unknown").result
    return int(result["checked"])


def times_asked(store: Life, *keys: str) -> list[int]:
    return [sum(row.purpose == "check" for row in store.by_key(key)) for key in keys]


@pytest.mark.slow
@pytest.mark.parametrize(
    "upgraded_by", ["dispatch", pytest.param("check_transactions", marks=pytest.mark.nightly)]
)
def test_a_clock_that_an_earlier_version_kept_has_no_half_asked_about_twice(
    asked: Life, upgraded_by: str
) -> None:
    store = asked
    keep_clocks_as_rows(store.store)
    before = seen_by(store.store.snapshot(), "check_transactions")
    assert before.clock_ms == B + 33_000
    assert checked(store, B + 33_000) == 0
    if upgraded_by == "dispatch":
        store.job("dispatch", B + 33_000)
        assert seen_by(store.store.snapshot(), "check_transactions") == before
    assert checked(store, B + 33_000) == 0
    assert checked(store, B + 63_000) == 2  # u30 is over its six seconds, u0 was asked about an interval ago
    assert times_asked(store, "u0", "u30") == [2, 1]
    assert store.store.progress.columns == PROGRESS.names
    assert checked(store, B + 63_000) == 0
    store.expect_promises()


@pytest.mark.slow
def test_a_check_that_was_killed_between_rows_and_progress_asks_no_more_than_once(
    asked: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = asked
    killed_before_writing(monkeypatch, PROGRESS.name)
    checker = ("--checker", "answers_of_a_test:unknown")
    assert store.run("check_transactions", B + 63_000, *checker).exit_status == 1
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(store.directory))
    assert times_asked(store, "u0", "u30") == [2, 1]
    assert checked(store, B + 63_000) == 0
    assert checked(store, B + 93_000) == 2
    store.expect_promises()


@pytest.mark.slow
def test_a_half_that_fits_no_segment_once_it_is_put_back_holds_no_other_up(
    life: Callable[..., Life], answers: None
) -> None:
    """As an import may bring it: a check adds a property to it, a rollback or a commit takes some away."""
    store = life(mappedFileSizeCommitLog=4096)
    properties = raw(UNIQ_KEY="a", REAL_TOPIC="T", REAL_QID=0, TRAN_MSG="true", PGROUP="g")
    body = b"x" * (4096 - 8 - 91 - len(HALF) - len(properties))
    store.append({"topic": HALF, "properties": properties, "body": body, "due_ms": B + 6_000})
    store.put(B, half("b", born_timestamp=B))
    assert store.rows()[0].size_bytes == 4096 - 8
    for second in (33, 63):  # each run finds it again
        run = store.job("check_transactions", B + second * 1_000, "--checker", "answers_of_a_test:unknown")
        assert run.result["checked"] == 1
        assert f"settles it: the message at offset 0 of queue 0 of {HALF} (byte 0)" in run.stderr
    assert times_asked(store, "a", "b") == [0, 2]


@pytest.mark.slow
def test_progress_does_not_count_in_a_copy_whose_log_lacks_the_questions(asked: Life) -> None:
    store = asked
    copy = store.copied("copy")
    assert checked(store, B + 63_000) == 2
    shutil.rmtree(copy.store.path(PROGRESS))  # as in a copy made table by table while jobs run
    shutil.copytree(store.store.path(PROGRESS), copy.store.path(PROGRESS))
    copy.put(B + 64_000, {"topic": "T"})
    assert checked(copy, B + 65_000) == 2
    copy.expect_promises()


def half(key: str, body: str = "b", **more: object) -> dict[str, object]:
    return {
        "topic": "T", "queue_id": 3, "unique_key": key, "body": body, "transaction": True, "producer_group": "pg", **more,
    }  # fmt: skip


@pytest.mark.slow
def test_vectors_30_and_31_a_commit_is_a_message_and_a_mark_once(life: Callable[..., Life]) -> None:
    store = life()
    store.put(B, half("u1", flag=9), half("u2"), half("u3"))
    h1, h2, h3 = store.rows()
    wanted = [
        {"producer_group": "pg", "physical_offset": h1.physical_offset, "queue_offset": 0, "state": "COMMIT"},
        {
            "producer_group": "pg",
            "physical_offset": h2.physical_offset,
            "queue_offset": 1,
            "state": "rollback",
        },
        {
            "producer_group": "pg",
            "physical_offset": h3.physical_offset,
            "queue_offset": 2,
            "state": "UNKNOWN",
        },
    ]
    path = store.input(*wanted)
    result = store.job("end_transactions", B + 1_000, "--input", path).result
    assert (result["committed"], result["rolled_back"], result["refused"]) == (1, 1, 0)
    message, mark, rolled_back = store.rows()[3:]
    assert (place(message), message.sys_flag, message.flag) == (("T", 3), 8, 9)
    assert (message.prepared_transaction_offset, message.properties) == (h1.physical_offset, h1.properties)
    assert (message.born_timestamp, message.store_timestamp) == (B, B + 1_000)
    assert lineage(message) == (h1.physical_offset, "commit", "settle")
    assert (place(mark), bytes(mark.body), lineage(mark)) == (
        (OP, 0),
        b"0,",
        (h1.physical_offset, "commit", "mark"),
    )
    assert read_properties(mark.properties) == {"TAGS": "d", "WAIT": "true"}
    assert (bytes(rolled_back.body), lineage(rolled_back)) == (
        b"1,",
        (h2.physical_offset, "rollback", "settle"),
    )
    assert message.append_seq == mark.append_seq == rolled_back.append_seq

    result = store.job("end_transactions", B + 2_000, "--input", path).result
    assert (result["committed"], result["rolled_back"], result["refused"]) == (0, 0, 0)
    store.expect_promises()


REFUSED: dict[str, dict[str, Any]] = {
    "the other way round": {"physical_offset": 0, "state": "ROLLBACK"},
    "rolled back and then to be committed": {"physical_offset": 1, "state": "COMMIT"},
    "of another group": {"physical_offset": 2, "state": "COMMIT", "producer_group": "pg2"},
    "of another place in the queue": {"physical_offset": 2, "state": "COMMIT", "queue_offset": 8},
    "of no record": {"physical_offset": 7_777, "state": "COMMIT"},
    "of an id that no message has": {"physical_offset": None, "state": "COMMIT", "message_id": "nonsense"},
    "without a name": {"physical_offset": None, "state": "COMMIT"},
    "of the message that a commit has made": {"physical_offset": 3, "state": "COMMIT"},
}


@pytest.mark.slow
def test_ends_that_do_not_fit_their_half_are_refused(life: Callable[..., Life]) -> None:
    store = life()
    store.put(B, half("u1"), half("u2"), half("u3"))
    halves = [{"producer_group": "pg", "physical_offset": row.physical_offset} for row in store.rows()]
    ends = [{**halves[0], "state": "COMMIT"}, {**halves[1], "state": "ROLLBACK"}]
    store.job("end_transactions", B + 1_000, "--input", store.input(*ends))
    rows = store.rows()
    assert rows[3].purpose == "commit"
    offsets = dict(enumerate(row.physical_offset for row in rows))
    requests = [
        {
            "producer_group": "pg",
            **request,
            "physical_offset": offsets.get(request["physical_offset"], request["physical_offset"]),
        }
        for request in REFUSED.values()
    ]
    run = store.commitlake(
        "end_transactions", "--store", store.store.uri, "--now", B + 3_000, "--input", store.input(*requests)
    )
    result = run.result
    assert (result["committed"], result["rolled_back"], result["refused"]) == (0, 0, len(REFUSED))
    reasons = [line for line in run.stderr.splitlines() if line.startswith("refused: ")]
    assert "refused: no message 7777 is in the log" in reasons
    assert "refused: no message nonsense is in the log" in reasons
    assert "refused: a request names no message: give physical_offset or message_id" in reasons
    assert len(store.rows()) == len(rows)


@pytest.mark.slow
def test_of_the_ends_of_one_half_the_first_counts_however_few_fit_an_append(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = life(storeHost="[2001:db8::1]:10911")
    store.put(B, half("u1"), half("u2"), half("u3"))
    u1, u2, u3 = ({"producer_group": "pg", "physical_offset": row.physical_offset} for row in store.rows())
    ends = store.input(
        {**u1, "state": "ROLLBACK", "producer_group": "another"},
        {**u1, "state": "COMMIT"},
        {**u2, "state": "ROLLBACK"},
        {**u1, "state": "ROLLBACK"},
        {**u2, "state": "ROLLBACK"},
        {**u3, "state": "COMMIT"},
    )
    monkeypatch.setattr(end_transactions, "plan_end", partial(plan_end, limit=2))
    result = store.job("end_transactions", B + 1_000, "--input", ends).result
    assert (result["committed"], result["rolled_back"], result["refused"]) == (2, 1, 2)
    assert [(row.append_seq, *lineage(row)) for row in store.rows()[3:]] == [
        (1, u1["physical_offset"], "commit", "settle"),
        (1, u1["physical_offset"], "commit", "mark"),
        (1, u2["physical_offset"], "rollback", "settle"),
        (2, u3["physical_offset"], "commit", "settle"),
        (2, u3["physical_offset"], "commit", "mark"),
    ]
    assert {row.sys_flag for row in store.rows() if row.topic == OP} == {0x10 | 0x20}  # addresses of 16 bytes
    store.expect_promises()


def test_a_state_that_is_none_is_refused(life: Callable[..., Life]) -> None:
    store = life()
    bad = store.input({"producer_group": "pg", "physical_offset": 0, "state": "MAYBE"})
    refused = store.job("end_transactions", B, "--input", bad, exit_status=2)
    assert "state is MAYBE; expected one of COMMIT" in refused.stderr


@pytest.mark.parametrize(
    ("read", "name"), [(read_end_requests, "producer_group"), (read_outcomes, "unique_key")]
)
def test_requests_are_carried_out_as_they_were_when_they_were_checked(
    life: Callable[..., Life], read: Callable[..., Any], name: str
) -> None:
    store = life()
    path = store.input({name: "first", "state": "COMMIT"})
    requests = read(store.store.spark, str(path))
    path.write_text(path.read_text().replace("COMMIT", "MAYBE!"))
    (request,) = requests.collect()
    assert (request[name], request.state) == ("first", "COMMIT")


@pytest.mark.slow
def test_an_end_whose_state_is_not_known_ends_nothing(life: Callable[..., Life]) -> None:
    store = life()
    store.put(B, half("u1"), half("u2"), half("u3"))
    offsets = [row.physical_offset for row in store.rows()]
    states = pa.table({"physical_offset": offsets, "state": ["COMMITTED", "UNKNOWN", "COMMIT"]})
    requests = requests_by_states(store.store.spark, states, from_check=True)
    assert requests is not None
    at = store.store.snapshot()
    result = plan_end(at, with_rows(at, requests), B + 1_000, "run").result
    assert (result["committed"], result["rolled_back"], result["refused"]) == (1, 0, 1)
    assert result["reasons"] == [
        f"message at {offsets[0]}: its state is COMMITTED; expected COMMIT or ROLLBACK"
    ]


@pytest.mark.slow
def test_vectors_32_and_33_questions_are_asked_and_then_given_up(
    life: Callable[..., Life], answers: None
) -> None:
    store = life()
    immune = {"properties": {"CHECK_IMMUNITY_TIME_IN_SECONDS": "600"}}
    store.put(B, half("v32", flag=5, born_timestamp=B), half("v33", born_timestamp=B, **immune))

    def check(now: int) -> tuple[int, int, int]:
        result = store.job("check_transactions", now, "--checker", "answers_of_a_test:unknown").result
        return result["checked"], result["unknown"], result["discarded"]

    assert check(B + 3_000) == (0, 0, 0)
    assert check(B + 33_000) == (1, 1, 0)
    assert check(B + 33_000) == (0, 0, 0)  # again at the same clock
    for passed in range(1, 14):  # as the job does but for the answer, which is known
        now = B + 33_000 + 30_000 * passed
        asked = commit(
            store.store, lambda at, now=now: plan_check(at, now, "pass", at.number(COMMITLOG))
        ).result
        assert (asked["checked"], asked["discarded"]) == (1, 0)
    assert check(B + 453_000) == (1, 1, 0)
    assert check(B + 483_000) == (0, 0, 1)
    first, *questions, given_up = store.by_key("v32")
    assert [
        (read_properties(row.properties)["TRANSACTION_CHECK_TIMES"], row.store_timestamp) for row in questions
    ] == [(str(times), B + 3_000 + 30_000 * times) for times in range(1, 16)]
    assert {(place(row), row.flag, row.due_ms) for row in questions} == {((HALF, 0), 0, B + 6_000)}
    sources = [first, *questions]
    assert [lineage(row) for row in questions] == [
        (source.physical_offset, "check", "settle") for source in sources[:-1]
    ]
    assert (place(given_up), given_up.flag) == ((DISCARDED, 0), 0)
    assert lineage(given_up) == (questions[-1].physical_offset, "discard", "settle")
    assert all(row.topic != "T" for row in store.rows())
    assert len(store.by_key("v33")) == 1  # its immunity used up no question
    assert check(B + 600_001) == (1, 1, 0)
    store.expect_promises()


@pytest.mark.slow
def test_vectors_34_35_and_37_an_end_settles_the_newest_copy(
    life: Callable[..., Life], answers: None
) -> None:
    store = life()
    immune = {"properties": {"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}, "born_timestamp": B}
    store.put(
        B,
        half("v34", "commit", **immune),
        half("v35", **immune),
        half("v37", "rollback", born_timestamp=B + 50_000),
    )
    v34, v35, _ = store.rows()
    end = {"producer_group": "pg", "physical_offset": v34.physical_offset, "state": "COMMIT"}
    assert store.job("end_transactions", B + 5_000, "--input", store.input(end)).result["committed"] == 1
    late = store.input({**end, "physical_offset": v35.physical_offset})
    assert store.job("end_transactions", B + 60_001, "--input", late).result["refused"] == 1
    store.put(B + 61_000, half("old", born_timestamp=B + 61_000))
    result = store.job("check_transactions", B + 63_000, "--checker", "answers_of_a_test:by_body").result
    # v35 is asked once its immunity is over; v37 is rolled back; v34 is settled.
    assert (result["checked"], result["committed"], result["rolled_back"], result["unknown"]) == (2, 0, 1, 1)
    assert [row.topic for row in store.by_key("v34")] == [HALF, "T"]
    (old, *_) = store.by_key("old")
    store.job("check_transactions", B + 70_000, "--checker", "answers_of_a_test:unknown")
    copy = store.by_key("old")[-1]
    named = store.input({"producer_group": "pg", "physical_offset": old.physical_offset, "state": "COMMIT"})
    assert store.job("end_transactions", B + 71_000, "--input", named).result["committed"] == 1
    message = store.by_key("old")[-1]
    assert (message.topic, message.source_offset, message.prepared_transaction_offset) == (
        "T", copy.physical_offset, old.physical_offset,
    )  # fmt: skip
    assert store.job("end_transactions", B + 72_000, "--input", named).result["committed"] == 0
    store.expect_promises()


@pytest.mark.slow
def test_vector_37_a_half_born_in_the_future_is_asked_at_once(
    life: Callable[..., Life], answers: None
) -> None:
    store = life()
    immune = {"properties": {"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}}
    store.put(
        B,
        half("v37", "rollback", born_timestamp=B + 50_000),
        half("immune", born_timestamp=B + 50_000, **immune),
        half("young", born_timestamp=B - 100),
        half("old", born_timestamp=B - 6_001),
    )

    def check(now: int) -> tuple[int, int]:
        result = store.job("check_transactions", now, "--checker", "answers_of_a_test:by_body").result
        return result["checked"], result["rolled_back"]

    assert check(B) == (0, 0)  # what is stored at this clock waits for the next run
    assert check(B + 1) == (2, 1)  # v37 and old; its immunity delays the first question
    assert check(B + 1) == (0, 0)
    store.put(B + 2, half("later", "rollback", born_timestamp=B + 3))
    assert check(B + 2) == (0, 0)  # old was asked about lately; later was stored at this clock
    store.put(B + 50_000, half("last", "rollback", born_timestamp=B + 90_000))
    store.put(B + 50_001, half("next", born_timestamp=B + 50_001))
    assert check(B + 50_001) == (4, 2)  # old, young, later, last


@pytest.mark.slow
def test_a_scheduler_that_runs_often_asks_once_an_interval(life: Callable[..., Life], answers: None) -> None:
    store = life()
    immune = {"properties": {"CHECK_IMMUNITY_TIME_IN_SECONDS": "40"}}
    store.put(
        B,
        half("h", born_timestamp=B),
        half("immune", born_timestamp=B, **immune),
        half("later", born_timestamp=B + 5_000),
    )
    assert [checked(store, B + seconds * 1_000) for seconds in (6, 10, 15, 39)] == [0, 1, 1, 0]
    # Due at the clock of a run that wrote something: older than its limit only after it.
    assert checked(store, B + 40_000) == 1
    assert times_asked(store, "h", "immune", "later") == [2, 0, 1]
    assert checked(store, B + 40_001) == 1
    # Each interval counts from its own copy.
    assert [checked(store, B + seconds) for seconds in (45_000, 70_000, 70_001, 75_000)] == [1, 1, 1, 1]
    assert times_asked(store, "h", "immune", "later") == [3, 2, 3]
    store.expect_promises()


@pytest.mark.slow
def test_the_interval_is_a_setting_and_comes_before_giving_up(
    life: Callable[..., Life], answers: None
) -> None:
    store = life(transactionCheckInterval="1000", transactionCheckMax="2", fileReservedTime="1")
    aged = B + 6_001 - 3_600_000
    store.put(
        B,
        half("h", born_timestamp=B),
        half("aged", born_timestamp=aged),
        half("older", born_timestamp=aged - 1),
    )
    clocks = (6_001, 7_000, 7_001, 8_000)
    assert [checked(store, B + clock) for clock in clocks] == [2, 0, 1, 0]
    result = store.job("check_transactions", B + 8_001, "--checker", "answers_of_a_test:unknown").result
    assert (result["checked"], result["discarded"]) == (0, 1)
    assert [[row.purpose for row in store.by_key(key)[1:]] for key in ("h", "aged", "older")] == [
        ["check", "check", "discard"], ["check", "discard"], ["discard"],
    ]  # fmt: skip


@pytest.mark.slow
def test_more_halves_than_an_append_holds_are_all_asked_about(
    life: Callable[..., Life], answers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = life()
    keys = [f"h{n}" for n in range(3)]
    store.put(B, *[half(key, born_timestamp=B) for key in keys])
    monkeypatch.setattr(check_transactions, "plan_check", partial(plan_check, limit=2))
    for limit, more in ((2, True), (3, False)):
        assert plan_check(store.store.snapshot(), B + 7_000, "run", 0, limit).result["more"] is more
    assert checked(store, B + 7_000) == 3
    assert [row.append_seq for row in store.rows()[3:]] == [1, 1, 2]
    assert [checked(store, B + 36_999), checked(store, B + 37_000)] == [0, 3]
    assert times_asked(store, *keys) == [2, 2, 2]


@pytest.mark.slow
def test_a_clock_that_goes_back_finds_the_halves_born_in_its_future(
    life: Callable[..., Life], answers: None
) -> None:
    store = life()
    store.put(B, half("now", born_timestamp=B), half("future", born_timestamp=B + 50_000))
    assert checked(store, B + 50_000) == 1
    assert checked(store, B + 10_000) == 1
    assert times_asked(store, "now", "future") == [1, 1]


@pytest.mark.slow
def test_a_clock_behind_the_log_asks_about_no_half_at_its_very_limit(
    life: Callable[..., Life], answers: None
) -> None:
    store = life()
    born = {"now": 0, "at its limit": 4_000, "born at the clock": 10_000, "future": 50_000}
    store.put(B, *[half(key, born_timestamp=B + born_ms) for key, born_ms in born.items()])
    store.put(B + 60_000, half("late", born_timestamp=B + 60_000))
    assert checked(store, B + 10_000) == 2
    assert times_asked(store, *born) == [1, 0, 0, 1]


def test_a_half_is_asked_about_when_it_is_older_than_its_limit(
    life: Callable[..., Life], answers: None
) -> None:
    store = life()
    store.put(B, half("h", born_timestamp=B))
    assert (
        store.job("check_transactions", B + 6_000, "--checker", "answers_of_a_test:unknown").result["checked"]
        == 0
    )
    assert (
        store.job("check_transactions", B + 6_001, "--checker", "answers_of_a_test:unknown").result["checked"]
        == 1
    )


@pytest.mark.slow
def test_an_end_is_refused_once_the_immunity_is_over(life: Callable[..., Life]) -> None:
    store = life()
    immune = {"properties": {"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}, "born_timestamp": B}
    store.put(B, half("in time", **immune), half("late", **immune))
    ends = [
        store.input({"producer_group": "pg", "physical_offset": row.physical_offset, "state": "COMMIT"})
        for row in store.rows()
    ]
    assert store.job("end_transactions", B + 60_000, "--input", ends[0]).result["committed"] == 1
    assert store.job("end_transactions", B + 60_001, "--input", ends[1]).result["refused"] == 1


@pytest.mark.slow
def test_a_local_transaction_ends_what_it_was_run_for(life: Callable[..., Life], answers: None) -> None:
    store = life()
    rows = [
        half("c", "commit"),
        half("r", "rollback"),
        half("x", "raises"),
        half("n", "nothing"),
        {"topic": "T", "body": "p"},
    ]
    source = store.input(*rows)
    run = store.job(
        "put_messages", B, "--input", source, "--local-transaction", "answers_of_a_test:by_body"
    ).result
    assert (run["appended"], run["committed"], run["rolled_back"], run["unknown"]) == (5, 1, 1, 2)
    again = store.job(
        "put_messages", B + 1, "--input", source, "--local-transaction", "answers_of_a_test:by_body"
    ).result
    assert (again["appended"], again["already"], again["committed"], again["rolled_back"]) == (0, 5, 0, 0)
    outcomes = store.input(
        {"unique_key": "x", "state": "COMMIT"}, {"transaction_id": "n", "state": "UNKNOWN"}
    )
    checked = store.job("check_transactions", B + 7_000, "--outcomes", outcomes).result
    assert (checked["checked"], checked["committed"], checked["unknown"]) == (2, 1, 1)
    views = {row.unique_key for row in store.store.half_messages.collect()}
    assert views == {"n"}
    store.expect_promises()


@pytest.mark.slow
def test_a_local_transaction_is_not_run_where_slaves_lack_its_half(
    life: Callable[..., Life], answers: None
) -> None:
    store = life(inSyncReplicas="2")
    source = store.input(half("u1", "commit"), {"topic": "T", "body": "p"})
    put = ("put_messages", B, "--input", source, "--local-transaction", "answers_of_a_test:by_body")
    first = store.job(*put, "--wait-for-replicas", 10)
    assert first.result["send_status"] == "FLUSH_SLAVE_TIMEOUT"
    assert (first.result["committed"], first.result["rolled_back"], first.result["unknown"]) == (0, 1, 0)
    assert "1 half messages are rolled back" in first.stderr
    assert [row.topic for row in store.by_key("u1")] == [HALF]
    # It has ended: put again, it is not run either, slaves or not.
    again = store.job(*put).result
    assert (again["send_status"], again["committed"], again["rolled_back"]) == ("SEND_OK", 0, 0)
    store.expect_promises()


@pytest.mark.slow
def test_a_local_transaction_is_run_for_halves_that_were_put_back(
    life: Callable[..., Life], answers: None
) -> None:
    store = life(transactionCheckMax="1")
    keys = {"checked": "commit", "rolled": "rollback", "ended": "commit", "discarded": "commit"}
    source = store.input(*[half(key, body, born_timestamp=B) for key, body in keys.items()])
    store.job("put_messages", B, "--input", source)
    _, rolled, ended, discarded = store.rows()
    settles = {"claim": "settle", "topic": HALF, "due_ms": rolled.due_ms}
    of_rolled, of_discarded = (
        {
            "source_offset": row.physical_offset,
            "origin_offset": row.physical_offset,
            "properties": row.properties,
        }
        for row in (rolled, discarded)
    )
    store.append(
        {**settles, **of_rolled, "purpose": "roll"},
        {**settles, **of_discarded, "purpose": "discard", "topic": DISCARDED, "due_ms": None},
    )
    assert checked(store, B + 7_000) == 3
    end = {"producer_group": "pg", "physical_offset": ended.physical_offset, "state": "ROLLBACK"}
    assert store.job("end_transactions", B + 8_000, "--input", store.input(end)).result["rolled_back"] == 1
    transaction = ("--local-transaction", "answers_of_a_test:by_body")
    result = store.job("put_messages", B + 9_000, "--input", source, *transaction).result
    assert (result["appended"], result["committed"], result["rolled_back"], result["refused"]) == (0, 1, 1, 0)
    assert [[row.purpose for row in store.by_key(key)] for key in keys] == [
        [None, "check", "commit"], [None, "roll", "check"], [None, "check"], [None, "discard"],
    ]  # fmt: skip
    store.expect_promises()


@pytest.mark.slow
def test_vector_36_marks_of_an_imported_broker_settle_the_halves_they_list(
    life: Callable[..., Life], answers: None
) -> None:
    store = life()
    due = {"topic": HALF, "append_id": "import:0-9", "due_ms": B}
    rows = store.append(
        *[
            {**due, "properties": raw(UNIQ_KEY=f"h{n}", PGROUP="pg", REAL_TOPIC="T", REAL_QID=0)}
            for n in range(5)
        ]
    )
    store.append(
        {"topic": OP, "append_id": "import:0-9", "body": b"1,3,", "body_crc": 0, "properties": raw(TAGS="d")}
    )
    store.write_floors(half=2)
    assert checked(store, B + 500) == 2
    # 0 and 1 lie below the floor, whatever the mark says of 1; 3 is listed.
    assert {row.unique_key for row in store.store.half_messages.collect()} == {"h2", "h4"}
    ends = [
        {"producer_group": "pg", "physical_offset": row.physical_offset, "state": "COMMIT"} for row in rows
    ]
    ends.append(ends[0])  # two requests for one half, which the broker had settled
    result = store.job("end_transactions", B + 1_000, "--input", store.input(*ends)).result
    assert (result["committed"], result["refused"]) == (2, 4)
    assert sorted(
        read_properties(row.properties)["UNIQ_KEY"] for row in store.rows() if row.topic == "T"
    ) == ["h2", "h4"]


@pytest.mark.slow
def test_a_local_transaction_ends_nothing_of_a_batch_whose_id_goes_on_after_its_own(
    life: Callable[..., Life], answers: None
) -> None:
    store = life()
    store.job(
        "put_messages", B, "--input", store.input(half("a", "commit")), "--batch-id", "orders:2026-11-23"
    )
    own = ("--batch-id", "orders", "--local-transaction", "answers_of_a_test:by_body")
    result = store.job("put_messages", B + 1, "--input", store.input(half("b", "rollback")), *own).result
    assert (result["committed"], result["rolled_back"]) == (0, 1)
    taken = ("--batch-id", "import:0-5")
    for job in ("put_messages", "run_cycle"):
        run = store.job(job, B + 2, "--input", store.input(half("c")), *taken, exit_status=2)
        assert "ids that begin with import: are the store's own" in run.stderr
