"""Delivering, sending back, redriving and checking, killed and raced: run until quiet, every promise holds."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tests.life import DISCARDED, OP, SCHEDULE, B, Life, raw
from tests.scenes.processes import Moment, end, kill_at, start

KEPT_WAITING = 30
# A job's plan takes a few rows at a time, so that a kill finds some of them appended and others not.
FOUR_AT_A_TIME = "import functools, jobs.{job} as job; job.{plan} = functools.partial(job.{plan}, limit=4)"

# How a job is killed in a scene: at which moment of its commit, and whether the JVM goes with it.
EACH_MOMENT = [(Moment.BEFORE, False), (Moment.DURING, True), (Moment.AFTER, True)]


def kill_in_the_middle(
    store: Life,
    job: str,
    plan: str,
    moment: Moment,
    with_jvm: bool,
    now: int,
    *arguments: object,
    nth: int = 1,
) -> None:
    """Start a job whose plan takes four rows at a time, and kill it at its nth append."""
    few, log = FOUR_AT_A_TIME.format(job=job, plan=plan), Path(store.store.uri) / "commitlog"
    command = (job, "--store", store.store.uri, "--now", now, *arguments)
    kill_at(moment, log, *command, with_jvm=with_jvm, nth=nth, before=few)


def fill(store: Life) -> None:
    store.put(
        B,
        *[
            {"topic": f"T{n % 3}", "unique_key": f"k{n}", "delay_level": 1 + n % 4}
            for n in range(KEPT_WAITING)
        ],
    )


def delivered(store: Life) -> list[int]:
    return [row.source_offset for row in store.rows() if row.purpose == "deliver"]


@pytest.mark.slow
def test_a_deliver_killed_at_any_moment_brings_each_back_once(life: Callable[..., Life]) -> None:
    store = life()
    fill(store)
    for moment, with_jvm in [*EACH_MOMENT, (Moment.DURING, False)]:
        kill_in_the_middle(store, "deliver", "plan_deliver", moment, with_jvm, B + 30_000)
    # Four are from the run that was killed after its commit, four perhaps from the JVM that outlived its Python.
    assert len(delivered(store)) in (4, 8)
    store.deliver(B + 30_000)
    assert sorted(delivered(store)) == sorted(set(delivered(store)))
    assert len(delivered(store)) == KEPT_WAITING
    assert store.deliver(B + 40_000)["delivered"] == 0
    store.expect_promises()


@pytest.mark.nightly
def test_two_delivers_at_once_and_one_with_the_clock_set_back(life: Callable[..., Life]) -> None:
    store = life()
    fill(store)
    runs = [start("deliver", "--store", store.store.uri, "--now", B + now) for now in (30_000, 30_500)]
    for process in runs:
        status, said = end(process)
        assert status == 0, said
    assert len(delivered(store)) == KEPT_WAITING
    assert store.deliver(B + 1_000)["delivered"] == 0
    store.store.spark.sql(
        f"DELETE FROM delta.`{store.store.uri}/progress`"
    )  # a cache: nothing is lost with it
    assert store.deliver(B + 60_000)["delivered"] == 0
    store.expect_promises()


@pytest.mark.nightly
def test_a_message_delayed_while_a_deliver_starts_waits(life: Callable[..., Life]) -> None:
    store = life()
    store.put(B, {"topic": "T", "unique_key": "due", "delay_level": 1})
    deliver = start(
        "deliver", "--store", store.store.uri
    )  # by the machine's clock, as it was read before Spark started
    source = store.input({"topic": "T", "body": "b", "unique_key": "waits", "delay_level": 18})
    put = store.commitlake("put_messages", "--store", store.store.uri, "--input", source, "--quiet")
    assert put.exit_status == 0, put.stderr
    status, said = end(deliver)
    assert status == 0, said
    assert [[row.topic for row in store.by_key(key)] for key in ("due", "waits")] == [
        [SCHEDULE, "T"],
        [SCHEDULE],
    ]


@pytest.mark.slow
def test_two_threads_send_back_the_same_failures_and_each_counts_once(life: Callable[..., Life]) -> None:
    store = life()
    rows = store.append(*[{"reconsume_times": n % 2 * 16} for n in range(6)])
    path = store.input(*[{"physical_offset": row.physical_offset} for row in rows])
    store.job("topics", B, "create-group", "g")

    def once(_: int) -> dict[str, int]:
        from jobs.launch.run import Run
        from jobs.send_back import send_failures

        return send_failures(Run("send_back", store.store.uri, B, quiet=True), "g", str(path))

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(once, range(2)))
    assert sum(result["sent_back"] for result in results) == 3
    assert sum(result["dead_lettered"] for result in results) == 3
    assert sum(result["already"] for result in results) == 6
    store.expect_promises()


def counted(store: Life, *columns: str) -> Counter[object]:
    return Counter(tuple(row[name] for name in columns) for row in store.rows())


@pytest.mark.nightly
def test_a_send_back_killed_at_any_moment_sends_each_failure_back_once(life: Callable[..., Life]) -> None:
    store = life()
    rows = store.append(*[{"reconsume_times": n % 2 * 16} for n in range(20)])
    path = store.input(*[{"physical_offset": row.physical_offset} for row in rows])
    store.job("topics", B, "create-group", "g")
    arguments = ("--group", "g", "--input", path)
    for moment, with_jvm in EACH_MOMENT:
        kill_in_the_middle(store, "send_back", "plan_send_back", moment, with_jvm, B, *arguments)
    again = store.job("send_back", B, *arguments).result
    assert (again["sent_back"] + again["dead_lettered"], again["already"]) == (16, 4)
    assert counted(store, "purpose") == {(None,): 20, ("retry",): 10, ("dead_letter",): 10}
    assert store.job("send_back", B, *arguments).result["already"] == 20
    store.expect_promises()


@pytest.mark.nightly
def test_a_redrive_killed_at_any_moment_redrives_each_dead_letter_once(life: Callable[..., Life]) -> None:
    store = life()
    store.append(*[{"topic": "%DLQ%g", "properties": raw(RETRY_TOPIC=f"T{n % 2}")} for n in range(20)])
    arguments = ("--where", "topic = '%DLQ%g'", "--redrive-id", "r1")
    for moment, with_jvm in EACH_MOMENT:
        kill_in_the_middle(store, "redrive", "plan_redrive", moment, with_jvm, B, *arguments)
    again = store.job("redrive", B, *arguments).result
    assert (again["matched"], again["redriven"], again["already"]) == (20, 16, 4)
    assert counted(store, "topic", "claim") == {
        ("%DLQ%g", None): 20,
        ("T0", "redrive:r1"): 10,
        ("T1", "redrive:r1"): 10,
    }
    assert store.job("redrive", B, *arguments).result["already"] == 20
    store.expect_promises()


@pytest.mark.nightly
def test_a_check_killed_at_any_moment_ends_each_transaction_once(life: Callable[..., Life]) -> None:
    store = life(transactionCheckMax="2")
    states = ("COMMIT", "ROLLBACK", "UNKNOWN")
    store.put(
        B,
        *[
            {
                "topic": "T",
                "unique_key": f"k{n}",
                "transaction": True,
                "producer_group": "pg",
                "born_timestamp": B,
            }
            for n in range(12)
        ],
    )
    path = store.input(*[{"unique_key": f"k{n}", "state": states[n % 3]} for n in range(12)])
    for moment, with_jvm in EACH_MOMENT:
        # The last one has asked about four and got no answer.
        kill_in_the_middle(
            store, "check_transactions", "plan_check", moment, with_jvm, B + 30_000, "--outcomes", path
        )
    assert counted(store, "purpose") == {(None,): 12, ("check",): 4}
    for tick in range(2, 6):
        store.job("check_transactions", B + tick * 30_000, "--outcomes", path)
    last = store.job("check_transactions", B + 200_000, "--outcomes", path).result
    assert (last["checked"], last["discarded"]) == (0, 0)
    by_purpose = counted(store, "topic", "purpose")
    assert by_purpose["T", "commit"] == by_purpose[OP, "commit"] == by_purpose[OP, "rollback"] == 4
    assert by_purpose[DISCARDED, "discard"] == 4
    store.expect_promises()


# A run that sleeps between its plan and its commit, as a driver does whose machine is suspended.
SLEEPS_AFTER_PLANNING = """
import os, pathlib, signal
import jobs.{job} as job
plan, flag = job.{plan}, pathlib.Path({flag!r})
def planned(*arguments, **more):
    made = plan(*arguments, **more)
    if not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    return made
job.{plan} = planned
"""


@pytest.mark.nightly
def test_a_deliver_that_wakes_up_late_adds_nothing_others_have_done(
    life: Callable[..., Life], tmp_path: Path
) -> None:
    store = life()
    fill(store)
    flag = tmp_path / "asleep"
    sleeps = SLEEPS_AFTER_PLANNING.format(job="deliver", plan="plan_deliver", flag=str(flag))
    process = start("deliver", "--store", store.store.uri, "--now", B + 30_000, before=sleeps)
    deadline = time.monotonic() + 120
    while not flag.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert store.deliver(B + 2_000)["delivered"] > 0
    store.put(B + 3_000, {"topic": "T9"})
    assert 0 < store.deliver(B + 9_000)["delivered"] < KEPT_WAITING
    os.kill(process.pid, signal.SIGCONT)
    status, said = end(process)
    assert status == 0, said
    assert len(delivered(store)) == len(set(delivered(store))) == KEPT_WAITING
    assert store.deliver(B + 60_000)["delivered"] == 0
    store.expect_promises()


# Every task that writes rows of the log fails once, when it has given some of its rows.
FIRST_ATTEMPTS_FAIL = """
from pipelines.store.snapshot import Snapshot
append = Snapshot.append
def first_attempt_fails(batches):
    from pyspark import TaskContext
    for batch in batches:
        yield batch
        if TaskContext.get().attemptNumber() == 0:
            raise OSError("the executor is gone")
def flaky(at, table, rows, *more, **named):
    if table.name == "commitlog":
        rows = rows.mapInArrow(first_attempt_fails, rows.schema)
    return append(at, table, rows, *more, **named)
Snapshot.append = flaky
"""


@pytest.mark.nightly
def test_tasks_that_spark_tries_again_write_their_rows_once(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = (PROJECT / "spark-conf" / "test.conf").read_text()
    assert "local[2]" in settings
    (tmp_path / "tries-again.conf").write_text(settings.replace("local[2]", "local[2,3]"))
    monkeypatch.setenv("COMMITLAKE_SPARK_CONF", str(tmp_path / "tries-again.conf"))
    store = life()
    messages = store.input(
        *[{"topic": f"T{n % 3}", "body": "b", "delay_level": 1 + n % 4} for n in range(KEPT_WAITING)]
    )
    for job, now, *arguments in (("put_messages", B, "--input", messages), ("deliver", B + 60_000)):
        process = start(job, "--store", store.store.uri, "--now", now, *arguments, before=FIRST_ATTEMPTS_FAIL)
        status, said = end(process)
        assert status == 0, said
    assert counted(store, "purpose") == {(None,): KEPT_WAITING, ("deliver",): KEPT_WAITING}
    assert len(set(delivered(store))) == KEPT_WAITING
    store.expect_promises()
