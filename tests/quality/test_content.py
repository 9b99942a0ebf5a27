"""A team's own expectations: messages that fail them are named, and go where they shall go, once."""

from typing import Any

import pytest
from pyspark.sql import functions as F

from pipelines.store.store import Store
from tests.conftest import run_job
from tests.quality import expected
from tests.quality.test_validate import validate

EXPECTED = "tests.quality.expected"


def content(store: Store, name: str, *arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    asked = ("--expectations", f"{EXPECTED}:{name}", "--topic", "orders")
    return validate(store, *asked, *arguments, exit_status=3)


@pytest.mark.nightly
def test_messages_that_fail_are_kept_aside_once(a_copy: Store) -> None:
    result, findings = content(a_copy, "columns", "--failed-to", "quarantine")
    assert (result["checked"], result["broken"], result["broken_rows"], result["quarantined"]) == (2, 1, 1, 1)
    found = findings["an order has a body"]
    assert (found["checked"], found["broken"], found["severity"]) == (20, 1, "warning")
    assert found["complaints"] == [
        "the record at byte 0 (orders 0:0) does not keep: an order has a body",
    ]
    assert content(a_copy, "columns", "--failed-to", "quarantine")[0]["quarantined"] == 0
    (kept,) = a_copy.rejected_messages.collect()
    assert (kept.batch_id, kept.arrival, kept.raw) == (f"{EXPECTED}:columns orders", 0, "")
    assert kept.reason == found["complaints"][0]


@pytest.mark.slow
def test_messages_that_fail_a_suite_become_dead_letters_once(a_copy: Store) -> None:
    to_dead_letters = ("--failed-to", "dead-letter", "--group", "g", "--full")
    result, findings = content(a_copy, "suite", *to_dead_letters)
    assert findings["orders are short"]["broken"] == result["dead_lettered"] == 2
    assert findings["orders are short"]["severity"] == "critical"
    assert result["broken"] == 1
    dead = a_copy.dead_letters.orderBy("source_offset").collect()
    assert [len(row.body) for row in dead] == [540, 570]
    again, _ = content(a_copy, "suite", *to_dead_letters)
    assert (again["dead_lettered"], again["already"]) == (0, 2)


@pytest.mark.nightly
def test_messages_that_fail_a_suite_come_again_to_a_group_once(a_copy: Store) -> None:
    to_retry = ("--failed-to", "retry", "--group", "g", "--full")

    def waiting() -> int:
        return a_copy.scheduled_messages.where("real_topic = '%RETRY%g'").count()

    before = waiting()
    assert content(a_copy, "suite", *to_retry)[0]["sent_back"] == 2
    assert waiting() == before + 2
    again, _ = content(a_copy, "suite", *to_retry)
    assert (again["sent_back"], again["already"]) == (0, 2)


@pytest.mark.slow
def test_a_new_expectation_is_asked_of_all_messages_and_a_broken_one_again(
    a_copy: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("--expectations", f"{EXPECTED}:columns", "--topic", "orders")

    def expect(*sentences: str, broken: int) -> None:
        holds = {"it has keys": F.size("keys") > 0, "it has a body": F.length("body_text") > 0}
        monkeypatch.setattr(expected, "columns", lambda: {each: holds[each] for each in sentences})
        result, _ = validate(a_copy, *asked, exit_status=3 if broken else 0)
        assert (result["checked"], result["broken_rows"]) == (len(sentences), broken)

    expect("it has keys", broken=0)
    expect("it has keys", "it has a body", broken=1)
    expect("it has keys", "it has a body", broken=1)
    expect("it has keys", broken=0)
    kept = a_copy.validations.where("suite LIKE '%columns orders'").groupBy("from_append_seq")
    assert sorted(map(tuple, kept.agg(F.count_distinct("run_id")).collect())) == [(-1, 3), (3, 1)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--expectations", f"{EXPECTED}:columns"), "--expectations needs --topic"),
        (("--topic", "orders"), "go with --expectations"),
        (("--expectations", f"{EXPECTED}:columns", "--topic", "ordres"), "no topic 'ordres'"),
        (("--expectations", f"{EXPECTED}:nothing", "--topic", "orders"), "gives int; expected sentences"),
        (("--expectations", f"{EXPECTED}:of_a_table", "--topic", "orders"), "is not about single rows"),
        (("--expectations", f"{EXPECTED}:misspelt", "--topic", "orders"), "body_txt"),
        (("--expectations", f"{EXPECTED}:of_numbers", "--topic", "orders"), "CAST_INVALID_INPUT"),
        (
            ("--expectations", f"{EXPECTED}:raising", "--topic", "orders"),
            "raising raised OSError: the schema",
        ),
        (
            ("--expectations", f"{EXPECTED}:columns", "--topic", "orders", "--failed-to", "retry"),
            "--failed-to retry needs --group",
        ),
    ],
)
def test_wrong_expectations_get_one_sentence(sound: Store, arguments: tuple[str, ...], sentence: str) -> None:
    run = run_job(["validate", "--store", sound.uri, *arguments])
    assert run.exit_status == 2, run.stderr
    assert sentence in run.stderr
