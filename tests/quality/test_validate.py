"""Validate: a sound store keeps every promise; a broken one is found, told in a sentence, and mended where it can be."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.consume.offsets import plan_reset
from pipelines.errors import BadInput
from pipelines.quality import appends, caches, lineage, records, state
from pipelines.quality.damage import FILES, LOST
from pipelines.quality.expectations import Finding
from pipelines.quality.promise import Promise, at_least
from pipelines.quality.scope import Scope, joined, sound_after, sound_up_to
from pipelines.quality.suites import SUITES, chosen_suites
from pipelines.quality.validation import DERIVED_PROMISES, plan_record
from pipelines.store.commit import commit
from pipelines.store.store import Store
from tests.conftest import PROJECT, JobRun, run_job
from tests.life import B, Life
from tests.quality.broken import break_derived, break_log, break_state


def validate(store: Store, *arguments: Any, exit_status: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the result line, what is said of each promise)."""
    given = ["validate", "--store", store.uri, "--now", B, "--quiet", "--output", "json", *arguments]
    run = run_job([str(argument) for argument in given])
    assert run.exit_status == exit_status, run.stderr
    assert ("promises do not hold: " in run.stderr) == (exit_status == 3)
    return run.result, {found["expectation"]: found for found in map(json.loads, run.lines)}


def broken(findings: dict[str, Any]) -> set[str]:
    return {sentence for sentence, found in findings.items() if found["broken"]}


@pytest.mark.slow
def test_a_sound_store_keeps_every_promise_and_is_looked_at_once(sound: Store, a_copy: Store) -> None:
    result, findings = validate(a_copy)
    assert (result["broken"], broken(findings)) == (0, set())
    assert result["checked"] == len(findings) == 40
    looked_at = {sentence: found["checked"] for sentence, found in findings.items()}
    assert looked_at["each record starts where the one before ends"] == a_copy.commitlog.count()
    assert looked_at["nothing of a record is claimed twice"] == 5
    assert all(looked_at[sentence] for sentence in looked_at if "in flight" not in sentence)

    # Two more messages: only the last segment is looked at, and queues go on where the consume queue says they stopped.
    life = Life(
        lambda *arguments: run_job([str(each) for each in arguments]), a_copy, Path(a_copy.uri).parent
    )
    life.put(B + 20_000, {"topic": "orders"}, {"topic": "orders"})
    _, again = validate(a_copy, "--suite", "log", "--suite", "queues")
    assert broken(again) == set()
    assert 2 <= again["each record starts where the one before ends"]["checked"] < a_copy.commitlog.count()
    kept = a_copy.validations.where("suite = 'log'").select("from_append_seq", "to_append_seq").distinct()
    assert sorted(map(tuple, kept.collect())) == [(-1, 3), (3, 4)]
    for name, suite in SUITES.items():
        recorded = a_copy.validations.where(F.col("suite") == name).select("expectation").distinct().collect()
        assert {row.expectation for row in recorded} == {promise.sentence for promise in suite.promises}


SAID = {
    "crc": "has CRC 7; its body has",
    "length": "says it has 140 bytes; its parts have",
    "whole": "has no born_host",
    "hosts": "has flag 0x10, born host 10.0.0.1:1",
    "follows": "starts 10 bytes after the end of the record before",
    "clock": "was stored at",
    "appends": "is of append 0, but lies after a record of append",
    "no_gap": "comes where its queue goes on at offset 1",
    "due": "does not say when it is due",
    "not_due": "but lies in an ordinary topic",
    "once": "claims settle of the record at byte",
    "not_early": "; its source was due at",
    "said": "has no purpose",
    "source": "where no record starts",
    "origin": "has its origin at byte 3; its source has it at",
    "claim_fits": "was made for deliver and claims redrive:x",
    "settles": "which never waited",
    "rolls": "were left in the one before",
    "goes_on": "queue far:0 goes on at offset 1, but",
    "fits": "of its segment; at least 8 stay free",
    "in_segment": "lies in segment",
}

OF_STATE = {
    "queue_bounds ends each queue where its messages end": "queue_bounds says queue orders:0 goes on at",
    "queue_bounds is as of one append, which the log has": "queue_bounds has queue orders:1 as of append",
    "queue_bounds begins no queue after a message it has": "queue_bounds says queue orders:2 begins at 1",
    "no follower is ahead of the log": "deliver has followed append 999",
    "no group has read further than its queue goes": "group g in queue orders:1 goes on at offset 1000",
    "no group waits at messages that have expired": "group g in queue orders:2 goes on at offset 0",
    "messages in flight lie in their queue": "group g tries offset 4000 of queue orders:3",
    "each setting is known and has a value it may have": 'setting "maxMesageSize" is not known',
    "no key comes twice in a table of state": "topics has 2 rows with the key orders",
    "the last append holds what was planned": "holds 1 rows, the first at byte",
    "rows are added to the log and never taken out": "commitlog has delta.appendOnly off",
}


PROMISES = {
    promise
    for module in (appends, caches, lineage, records, state)
    for promise in vars(module).values()
    if isinstance(promise, Promise)
} | DERIVED_PROMISES


def sentence_of(column: str) -> str:
    return next(promise.sentence for promise in PROMISES if promise.column == column)


@pytest.mark.slow
def test_every_broken_promise_is_found_and_what_is_derived_is_mended(a_copy: Store) -> None:
    places = break_log(a_copy)
    dispatched = run_job(["dispatch", "--store", a_copy.uri, "--quiet"])
    assert dispatched.exit_status == 0, dispatched.stderr
    break_derived(a_copy)
    break_state(a_copy)

    result, findings = validate(a_copy, "--full", exit_status=3)
    assert result["status"] == "ok"
    assert result["broken"] == result["checked"] == len(findings)
    for column, said in SAID.items():
        complaints = findings[sentence_of(column)]["complaints"]
        named = [complaint for complaint in complaints if f"byte {places[column]}" in complaint]
        assert any(said in complaint for complaint in named), (column, complaints)
    for sentence, said in OF_STATE.items():
        assert any(said in complaint for complaint in findings[sentence]["complaints"]), findings[sentence]
    for promise in DERIVED_PROMISES:
        assert findings[promise.sentence]["broken"] in (1, 2), findings[promise.sentence]

    # A repair needs settings that can be read.
    a_copy.spark.sql(f"DELETE FROM delta.`{a_copy.path_of('store_settings')}` WHERE name = 'maxMesageSize'")
    truth = a_copy.commitlog.count()
    mended, left = validate(a_copy, "--full", "--repair", exit_status=3)
    derived = {promise.sentence for promise in DERIVED_PROMISES}
    assert broken(left) & derived == set()
    assert not any("queue_bounds" in sentence or "follower" in sentence for sentence in broken(left))
    assert mended["repaired"] >= len(derived) + 4
    assert {sentence_of(column) for column in SAID} <= broken(left)
    assert a_copy.commitlog.count() == truth - 1  # the last append, which was not as planned
    assert a_copy.cut_rows.count() == 1


@pytest.mark.slow
def test_a_broken_promise_fails_from_the_severity_asked_for(a_copy: Store) -> None:
    commit(a_copy, lambda at: plan_reset(at, "g", {("orders", 0): 1_000}, B))  # a warning
    asked = ("--suite", "offsets", "--fail-on")
    assert validate(a_copy, *asked, "critical")[0]["broken"] == 1
    result, _ = validate(a_copy, *asked, "warning", exit_status=3)
    assert result["broken_rows"] == 1
    runs = a_copy.job_runs.where("job = 'validate'").collect()
    assert [row.status for row in runs] == ["ok", "ok"]
    kept = a_copy.validations.where("broken > 0").collect()
    assert len(kept) == 2
    assert "group g in queue orders:0 goes on at offset 1000; the queue ends at" in kept[0].complaints[0]


@pytest.mark.nightly
def test_a_start_of_ones_own_and_nothing_since(a_copy: Store) -> None:
    result, findings = validate(a_copy, "--suite", "log", "--since-append-seq", 3)
    of_any_start = {"the last append holds what was planned", "rows are added to the log and never taken out"}
    assert {found["checked"] for promise, found in findings.items() if promise not in of_any_start} == {0}
    assert {findings[promise]["checked"] for promise in of_any_start} == {1}
    assert result["to_append_seq"] == 3
    # What nobody has looked at is not sound: the next run begins at the log's start.
    validate(a_copy, "--suite", "log")
    starts = a_copy.validations.select("from_append_seq").distinct().collect()
    assert sorted(row[0] for row in starts) == [-1, 3]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--suite", "smell"), "--suite is 'smell'; there are log: the records themselves"),
        (("--full", "--since-append-seq", "1"), "expected one of them"),
        (("--since-append-seq", "99"), "--since-append-seq is 99; the log's last append is 3"),
    ],
)
def test_wrong_arguments_get_one_sentence(sound: Store, arguments: tuple[str, ...], sentence: str) -> None:
    run = run_job(["validate", "--store", sound.uri, *arguments])
    assert run.exit_status == 2
    assert sentence in run.stderr


@pytest.mark.nightly
def test_a_real_brokers_log_keeps_every_promise(
    spark: SparkSession, imported_broker: Callable[[str], tuple[Path, JobRun]], tmp_path: Path
) -> None:
    shutil.copytree(imported_broker("a")[0], tmp_path / "imported")
    store = Store(spark, str(tmp_path / "imported"))
    for job in ("dispatch", "deliver", "dispatch"):
        run: JobRun = run_job([job, "--store", store.uri, "--quiet"])
        assert run.exit_status == 0, run.stderr
    result, findings = validate(store)
    assert broken(findings) == set()
    assert (result["broken"], result["broken_rows"]) == (0, 0)


@pytest.mark.quick
def test_names_severities_and_spans() -> None:
    assert chosen_suites([]) == list(SUITES)
    assert chosen_suites(["index", "log"]) == ["log", "index"]
    with pytest.raises(BadInput, match="there are log"):
        chosen_suites(["logs"])
    assert at_least("critical") == ("critical",)
    assert at_least("info") == ("critical", "warning", "info")
    # One run must go on where another ended, or what lies between was never looked at.
    assert joined([(-1, 4), (4, 9), (7, 12), (20, 30)]) == 12
    assert joined([]) == -1


SPANS = st.lists(
    st.tuples(st.integers(-1, 12), st.integers(0, 6)).map(lambda span: (span[0], span[0] + span[1]))
)


@pytest.mark.quick
@given(SPANS)
def test_sound_is_what_runs_have_looked_at_append_by_append(spans: list[tuple[int, int]]) -> None:
    looked_at = {append for after, to in spans for append in range(after + 1, to + 1)}
    reached = -1
    while reached + 1 in looked_at:
        reached += 1
    assert joined(spans) == reached


@pytest.mark.quick
def test_a_run_that_failed_takes_back_what_was_sound() -> None:
    passed, failed = False, True
    assert sound_after([(passed, (-1, 4)), (failed, (-1, 4))]) == -1
    assert sound_after([(passed, (-1, 4)), (passed, (4, 9)), (failed, (2, 9))]) == 2
    # What follows the failed part counts again with the part itself.
    assert sound_after([(passed, (-1, 9)), (failed, (2, 9)), (passed, (5, 9))]) == 2
    assert sound_after([(passed, (-1, 9)), (failed, (2, 9)), (passed, (2, 9))]) == 9


def test_runs_count_in_their_order_where_the_clocks_of_machines_differ(store: Store) -> None:
    scopes = {"log": Scope(-1, 4, None)}
    sound = [Finding("log", promise, 9, 0, ()) for promise in SUITES["log"].promises]
    failed = [replace(finding, broken=1) for finding in sound]
    sentences = [finding.promise.sentence for finding in sound]
    in_order = ((sound, B + 3_600_000, 4), (failed, B, -1), (sound, B - 3_600_000, 4))
    for number, (findings, now_ms, sound_up_to_append) in enumerate(in_order):
        record = partial(plan_record, findings=findings, scopes=scopes, run_id=f"run{number}", now_ms=now_ms)
        commit(store, record)
        assert sound_up_to(store.snapshot(), "log", sentences) == sound_up_to_append


@pytest.mark.quick
def test_each_suite_lists_its_promises() -> None:
    listed = [promise for suite in SUITES.values() for promise in suite.promises]
    assert (len(listed), set(listed)) == (len(PROMISES), PROMISES)


@pytest.mark.quick
def test_the_page_of_promises_lists_them_all() -> None:
    page = (PROJECT / "docs" / "quality.md").read_text(encoding="utf-8")
    row = r"^\| \w+ \| (.+?)(?: \(listed only where .+\))? \| (critical|warning|info) \|$"
    listed = re.findall(row, page, re.MULTILINE)
    promises = [*PROMISES, FILES, LOST]
    assert sorted(listed) == sorted((promise.sentence, promise.severity) for promise in promises)
