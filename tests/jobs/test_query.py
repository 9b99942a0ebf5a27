"""`commitlake query`: what a user types and sees."""

import base64
import json

import pytest

from pipelines.store.store import Store
from tests.reports.golden import cases


def ask(commitlake, store: Store, *arguments, output: str = "json"):
    return commitlake("query", "--store", store.uri, *arguments, "--output", output)


def rows_of(run) -> list[dict]:
    return [json.loads(line) for line in run.lines]


def test_a_page_with_its_status(commitlake, golden_a):
    place = ("--topic", "PayTopic", "--queue-id", 1, "--offset", 58)
    run = ask(commitlake, golden_a, "pull", *place)
    assert run.exit_status == 0
    assert [row["queue_offset"] for row in rows_of(run)] == [58, 59]
    expected = {"found": 2, "complete": True, "pull_status": "FOUND", "next_offset": 60}
    assert expected.items() <= run.result.items()


def test_a_page_goes_on_after_what_was_shown(commitlake, golden_a):
    place = ("--topic", "PayTopic", "--queue-id", 1, "--offset", 5)
    run = ask(commitlake, golden_a, "pull", *place, "--max", 5, "--limit", 2)
    assert [row["queue_offset"] for row in rows_of(run)] == [5, 6]
    assert run.result["next_offset"] == 7


def test_options_come_in_any_order(commitlake, golden_a):
    run = commitlake(
        "query", "--topic", "PayTopic", "--output", "json", "--max", 1, "pull", "--offset", 0, "--store", golden_a.uri,
        "--queue-id", 1,
    )  # fmt: skip
    assert (run.exit_status, run.result["found"]) == (0, 1)


def test_json_has_the_columns_of_the_view(commitlake, golden_a):
    message = cases("a", "message")[0]
    run = ask(commitlake, golden_a, "by-id", message["msgId"])
    (row,) = rows_of(run)
    assert list(row) == golden_a.messages.columns
    assert base64.b64decode(row["body"]) == base64.b64decode(message["body"])
    assert row["properties"] == message["properties"]
    assert row["store_time"] == "2026-11-21T07:20:58.079Z"
    assert row["due_ms"] is None


def test_nothing_found_is_no_failure(commitlake, golden_a):
    run = ask(commitlake, golden_a, "by-key", "--topic", "PayTopic", "--key", "nobody")
    assert (run.exit_status, run.result["found"], run.result["complete"]) == (0, 0, True)


def test_a_limit_cuts_and_says_so(commitlake, golden_a):
    case = next(c for c in cases("a", "queryByKey") if len(c["offsets"]) > 2)
    by_key = ("by-key", "--topic", case["topic"], "--key", case["key"])
    cut = ask(commitlake, golden_a, *by_key, "--limit", 1)
    assert [row["physical_offset"] for row in rows_of(cut)] == case["offsets"][-1:]
    assert (cut.result["found"], cut.result["complete"]) == (1, False)
    exact = ask(commitlake, golden_a, *by_key, "--limit", len(case["offsets"]))
    assert (exact.result["found"], exact.result["complete"]) == (len(case["offsets"]), True)


def test_a_limit_may_be_larger_than_any_number_of_rows(commitlake, golden_a):
    arguments = ("by-key", "--topic", "PayTopic", "--key", "pay-1", "--limit")
    asked = [ask(commitlake, golden_a, *arguments, limit) for limit in ("2147483647", "99999999999999999999")]
    assert [(run.exit_status, run.result["complete"]) for run in asked] == [(0, True)] * 2, asked[0].stderr


def test_the_offset_for_a_time(commitlake, golden_a):
    case = next(
        c for c in cases("a", "offsetByTime") if c["topic"] == "PayTopic" and c["upper"] != c["lower"]
    )
    asked = (
        "--topic",
        "PayTopic",
        "--queue-id",
        case["queueId"],
        "--timestamp",
        case["timestamp"],
        "--limit",
        0,
    )
    assert ask(commitlake, golden_a, "by-time", *asked).result["offset"] == case["lower"]
    assert (
        ask(commitlake, golden_a, "by-time", *asked, "--boundary", "upper").result["offset"] == case["upper"]
    )


def test_the_status_of_a_topic_and_the_progress_of_groups(commitlake, golden_a):
    run = ask(commitlake, golden_a, "topic-status", "--topic", "TxTopic")
    assert [(row["queue_id"], row["max_offset"]) for row in rows_of(run)] == [(0, 0), (1, 12), (2, 0), (3, 6)]
    assert ask(commitlake, golden_a, "consumer-progress").result["found"] == 0


def test_a_table_is_for_reading_and_not_on_stdout(commitlake, golden_a):
    place = ("--topic", "PayTopic", "--queue-id", 0, "--offset", 3)
    run = ask(commitlake, golden_a, "by-offset", *place, output="table")
    assert run.lines == []
    assert run.result["found"] == 1
    assert "2026-11-21 07:20:58.223" in run.stderr
    assert "0:3" in run.stderr
    assert max(map(len, run.stderr.splitlines())) <= 140


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("pull", "--topic", "PayTopic"), "query pull needs --queue-id and --offset"),
        (("by-key", "--key", "x"), "query by-key needs --topic"),
        (("by-key", "x", "--key", "x", "--topic", "PayTopic"), "the key is given twice"),
        (("by-key", "x", "--keys-from", "f", "--topic", "PayTopic"), "takes --keys-from or --key, not both"),
        (
            ("by-key", "--keys-from", "/none", "--topic", "PayTopic"),
            "there is nothing at /none; expected a file",
        ),
        (("by-id", "7F00"), "'7F00' is not a valid message id"),
        (("by-id", "--offset", "5", "7F00"), "query by-id does not take --offset"),
        (("by-offset", "--topic", "PayTopic", "--offset", "5"), "query by-offset needs --queue-id"),
        (("topic-status", "--topic", "Nope"), "no topic 'Nope' in this store"),
        (("trace", "x", "--limit", "-1"), "--limit is -1"),
        (("by-offset", "--offset", str(2**63)), f"--offset is {2**63}; expected a number of at most 64 bits"),
        (("by-key", "x", "--topic", "PayTopic", "--begin", str(-(2**63) - 1)), "--begin is -"),
        (("pull", "--topic", "PayTopic", "--queue-id", "0", "--offset", "0", "--max", "0"), "--max is 0"),
        (("by-time", "--boundary", "middle"), "'middle' is not one of"),
        (("by-smell",), "'by-smell' is not one of"),
    ],
)
def test_a_wrong_question_gets_one_sentence(commitlake, golden_a, arguments, sentence):
    run = ask(commitlake, golden_a, *arguments)
    assert run.exit_status == 2
    assert sentence in run.stderr
    assert "Traceback" not in run.stderr


def test_keys_of_a_file_find_what_a_broker_finds_for_each(commitlake, golden_a, tmp_path):
    offsets = {}
    for case in cases("a", "queryByKey"):
        if case["topic"] == "OrderTopic":
            offsets[case["key"]] = max(offsets.get(case["key"], []), case["offsets"], key=len)
    file = tmp_path / "keys [1].txt"
    file.write_text("\n".join([*offsets, "nobody", "", *offsets]) + "\n")
    run = ask(commitlake, golden_a, "by-key", "--topic", "OrderTopic", "--keys-from", file)
    found = [(row["key"], row["physical_offset"]) for row in rows_of(run)]
    assert found == [(key, offset) for key in sorted(offsets) for offset in sorted(offsets[key])[::-1]]
    assert (run.exit_status, run.result["found"], run.result["complete"]) == (0, len(found), True)
    assert list(rows_of(run)[0]) == ["key", *golden_a.messages.columns]


def test_unique_keys_of_a_file_are_looked_up_in_all_topics(commitlake, golden_a, tmp_path, monkeypatch):
    first, last = cases("a", "message")[0], cases("a", "message")[-1]
    keys = [message["properties"]["UNIQ_KEY"] for message in (first, last)]
    (tmp_path / "keys").write_text("\n".join([*keys, keys[0].lower()]))
    by_keys = ("by-unique-key", "--keys-from", tmp_path / "keys")
    rows = rows_of(ask(commitlake, golden_a, *by_keys))
    with_key = [m for m in cases("a", "message") if m["properties"].get("UNIQ_KEY") in keys]
    assert sorted(row["physical_offset"] for row in rows) == sorted(m["commitLogOffset"] for m in with_key)
    assert {row["key"] for row in rows} == set(keys)
    monkeypatch.setenv("COLUMNS", "240")  # wide enough for a table
    assert ask(commitlake, golden_a, *by_keys, output="table").stderr.split()[:2] == ["key", "topic"]
