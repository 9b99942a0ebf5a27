"""What the values of an input may be: whole numbers, moments, text. Nothing is cut, guessed or changed on its way."""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from pipelines.store.store import Store
from tests.conftest import JobRun, write_jsonl
from tests.life import WHEEL, Life
from tests.model.log import read_properties

Commitlake = Callable[..., JobRun]

NOW = 1_700_000_000_000
LATER = dt.datetime(2033, 5, 18, 3, 33, 20, tzinfo=dt.UTC)  # 2_000_000_000_000
AT_LATER = int(LATER.timestamp() * 1000)


def put(commitlake: Commitlake, store: Store, source: Path, *more: object) -> JobRun:
    return commitlake("put_messages", "--store", store.uri, "--now", NOW, "--input", source, *more)


def quarantined(commitlake: Commitlake, store: Store, source: Path, *more: object) -> dict[str, str]:
    """What is kept aside: body -> reason, by the raw row."""
    run = put(commitlake, store, source, "--on-bad", "quarantine", *more)
    assert run.exit_status == 0, run.stderr
    return {row.raw: row.reason for row in store.rejected_messages.collect()}


def rows(store: Store) -> list[Any]:
    return store.commitlog.orderBy("physical_offset").collect()


def body(row: Any) -> str:
    return bytes(row.body).decode()


# --- numbers and moments ---


def test_a_timestamp_column_is_the_moment_it_says(
    commitlake: Commitlake, store: Store, tmp_path: Path
) -> None:
    """deliver_at_ms as TIMESTAMP was read as seconds: years early, so at once."""
    first, second = LATER, LATER - dt.timedelta(microseconds=1)
    table = store.spark.createDataFrame(
        [("T", "second", LATER, LATER, first), ("T", "first", LATER, LATER, second)],
        "topic string, body string, deliver_at_ms timestamp, born_timestamp timestamp, arrival timestamp",
    )
    table.coalesce(1).write.parquet(str(tmp_path / "in"))
    run = put(commitlake, store, tmp_path / "in", "--format", "parquet")
    assert run.exit_status == 0, run.stderr
    stored = rows(store)
    assert [body(row) for row in stored] == ["first", "second"]
    assert {row.topic for row in stored} == {WHEEL}
    assert {row.due_ms for row in stored} == {AT_LATER}
    assert {row.born_timestamp for row in stored} == {AT_LATER}


def test_numbers_with_a_fraction_are_refused_row_by_row(
    commitlake: Commitlake, store: Store, tmp_path: Path
) -> None:
    table = store.spark.createDataFrame(
        [
            ("T", "whole", 3.0, "7.00"),
            ("T", "half", 2.5, None),
            ("T", "cents", None, "7.25"),
            ("T", "nan", float("nan"), None),
        ],
        "topic string, body string, delay_level double, flag string",
    ).withColumn("flag", F.col("flag").cast("decimal(10,2)"))
    table.write.parquet(str(tmp_path / "in"))
    found = quarantined(commitlake, store, tmp_path / "in", "--format", "parquet")
    reasons = {json.loads(raw)["body"]: reason for raw, reason in found.items()}
    assert reasons == {
        "half": "delay_level is 2.5; expected a whole number of type int",
        "cents": "flag is 7.25; expected a whole number of type int",
        "nan": "delay_level is NaN; expected a whole number of type int",
    }
    (row,) = rows(store)
    assert (body(row), row.flag, read_properties(row.properties)["DELAY"]) == ("whole", 7, "3")


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        ("deliver_at_ms", "DATE'2033-05-18'", "deliver_at_ms has the type date; expected whole numbers; a TIMESTAMP"),
        ("born_timestamp", "TIMESTAMP_NTZ'2033-05-18 00:00:00'", "born_timestamp has the type timestamp_ntz; expected"),
        ("delay_level", "true", "delay_level has the type boolean; expected whole numbers"),
        ("delay_ms", "TIMESTAMP'2033-05-18 00:00:00'", "delay_ms has the type timestamp; expected whole numbers"),
        ("tags", "array('a')", "tags has the type array<string>; expected text"),
        ("body", "7", "body has the type int; expected text or binary"),
        ("properties", "named_struct('p', '1')", "properties has the type struct<p:string>; expected a map of strings"),
    ],
)  # fmt: skip
def test_a_type_that_cannot_be_meant_is_refused(
    commitlake: Commitlake, store: Store, tmp_path: Path, column: str, value: str, sentence: str
) -> None:
    body = "" if column == "body" else ", 'b' AS body"
    store.spark.sql(f"SELECT 'T' AS topic{body}, {value} AS {column}").write.parquet(str(tmp_path / "in"))
    run = put(commitlake, store, tmp_path / "in", "--format", "parquet", "--on-bad", "quarantine")
    assert run.exit_status == 2
    assert sentence in run.stderr


FAR = "expected milliseconds since 1970, up to the year 9999"
OUT_OF_YEARS = {
    "nanoseconds": ({"born_timestamp": NOW * 1_000_000}, f"born_timestamp is {NOW * 1_000_000}; {FAR}"),
    "before 1970": ({"born_timestamp": -1}, f"born_timestamp is -1; {FAR}"),
    "least born": ({"born_timestamp": -(2**63)}, f"born_timestamp is {-(2**63)}; {FAR}"),
    "year 10000": ({"deliver_at_ms": 253_402_300_800_000}, f"deliver_at_ms is 253402300800000; {FAR}"),
    "least time": ({"deliver_at_ms": -(2**63)}, f"deliver_at_ms is {-(2**63)}; {FAR}"),
    "longest delay": ({"delay_ms": 2**63 - 1}, f"delay_ms is {2**63 - 1}, which from now ({NOW}) leads out of"),
    "shortest delay": ({"delay_ms": -(2**63)}, f"delay_ms is {-(2**63)}, which from now"),
    "raw seconds": ({"properties_raw": f"TIMER_DELAY_SEC\x01{2**63 - 1}\x02"}, "it is timed for"),
    "raw level": ({"properties_raw": "DELAY\x015000000000\x02"}, "property DELAY is 5000000000; expected a whole number"),
    "immunity": (
        {"transaction": True, "producer_group": "p", "properties": {"CHECK_IMMUNITY_TIME_IN_SECONDS": str(2**62)}},
        f"CHECK_IMMUNITY_TIME_IN_SECONDS is {2**62}: its transaction would be checked at",
    ),
}  # fmt: skip


def test_times_that_no_calendar_has_are_refused(commitlake: Commitlake, store: Store, tmp_path: Path) -> None:
    good = [
        {"body": "last year", "deliver_at_ms": 253_402_300_799_999},
        {"body": "any order", "arrival": 0},
        {
            "body": "asked as usual",
            "transaction": True,
            "producer_group": "p",
            "properties": {"CHECK_IMMUNITY_TIME_IN_SECONDS": "-1"},
        },
    ]
    bad = [{"body": name, **row} for name, (row, _) in OUT_OF_YEARS.items()]
    # Each in an input of its own kind of columns would be a put each; arrival must be in all rows or in none.
    source = write_jsonl(
        tmp_path / "a.jsonl", [{"topic": "T", **row, "arrival": 2**63 - 1} for row in (*good, *bad)]
    )
    found = quarantined(commitlake, store, source)
    reasons = {json.loads(raw)["body"]: reason for raw, reason in found.items()}
    assert set(reasons) == set(OUT_OF_YEARS)
    for name, (_, sentence) in OUT_OF_YEARS.items():
        assert sentence in reasons[name]
    assert [body(row) for row in rows(store)] == [row["body"] for row in good]


# --- columns ---


@pytest.mark.slow
def test_columns_that_directories_name_are_columns(
    commitlake: Commitlake, store: Store, tmp_path: Path
) -> None:
    """Parquet written with partitionBy lost these columns without a word."""
    written = store.spark.createDataFrame(
        [("T", "a", 3, "007"), ("T", "b", None, "a b:c"), ("T", "c", 4, None)],
        "topic string, body string, delay_level int, tags string",
    )
    partitioned = written.write.partitionBy("delay_level", "tags")
    partitioned.parquet(str(tmp_path / "parquet"))
    partitioned.option("header", True).csv(str(tmp_path / "csv"))
    lines = written.select(F.to_json(F.struct("topic", "body")).alias("value"), "delay_level", "tags")
    lines.write.partitionBy("delay_level", "tags").text(str(tmp_path / "jsonl"))
    for format in ("parquet", "csv", "jsonl"):
        run = put(commitlake, store, tmp_path / format, "--format", format)
        assert (run.exit_status, run.result.get("appended")) == (0, 3), run.stderr
        found = {}
        for row in rows(store)[-3:]:
            properties = read_properties(row.properties)
            found[body(row)] = (
                row.topic == "SCHEDULE_TOPIC_XXXX",
                properties.get("DELAY"),
                properties.get("TAGS"),
            )
        assert found == {"a": (True, "3", "007"), "b": (False, None, "a b:c"), "c": (True, "4", None)}, format


def test_directories_of_other_columns_are_refused(
    commitlake: Commitlake, store: Store, tmp_path: Path
) -> None:
    line = {"topic": "T", "body": "b"}
    for name in ("in/delay_levl=3", "mixed/delay_level=3", "mixed/tags=a", "day/dt=2026-11-23"):
        (tmp_path / name).mkdir(parents=True)
        write_jsonl(tmp_path / name / "a.jsonl", [line])
    misspelt = put(commitlake, store, tmp_path / "in")
    assert misspelt.exit_status == 2
    assert "a directory of the column 'delay_levl', which a message does not have" in misspelt.stderr
    mixed = put(commitlake, store, tmp_path / "mixed")
    assert mixed.exit_status == 2
    assert "lie in directories of other columns than each other" in mixed.stderr
    assert put(commitlake, store, tmp_path / "day" / "dt=2026-11-23").result["appended"] == 1


def test_many_unknown_names_in_bad_lines_hide_no_column_of_good_ones(life: Callable[..., Life]) -> None:
    one = life()
    bad = {"topic": "T", "body": "bad", **{f"a{number:03}": 1 for number in range(300)}}
    good = {"topic": "T", "body": "good", "tags": "t", "queue_id": 2, "delay_level": 3}
    run = one.job("put_messages", NOW, "--input", one.input(bad, good), "--on-bad", "quarantine")
    assert (run.result["appended"], run.result["rejected"]) == (1, 1)
    (row,) = one.rows()
    assert row.topic == "SCHEDULE_TOPIC_XXXX"
    properties = read_properties(row.properties)
    assert (properties["TAGS"], properties["REAL_QID"], properties["DELAY"]) == ("t", "2", "3")


def test_a_delta_table_may_lie_anywhere_and_be_partitioned_by_anything(
    commitlake: Commitlake, store: Store, tmp_path: Path
) -> None:
    """A space or a colon in its path or in a partition's value was an error that was a number."""
    table = tmp_path / "sp ace:ü %41" / "t"
    values = ["a b", "c:d", "ü%20"]
    frame = store.spark.createDataFrame(
        [("T", tag, tag) for tag in values], "topic string, body string, tags string"
    )
    frame.write.partitionBy("tags").format("delta").save(str(table))
    run = put(commitlake, store, table, "--format", "delta")
    assert run.exit_status == 0, run.stderr
    found = {body(row): read_properties(row.properties)["TAGS"] for row in rows(store)}
    assert found == {value: value for value in values}


# --- text ---


@pytest.mark.parametrize("header", ["topic,body,keys", "topic,body", "topic,body,tags,keys"])
def test_csv_files_have_one_header(commitlake: Commitlake, store: Store, tmp_path: Path, header: str) -> None:
    source = tmp_path / "input"
    source.mkdir()
    (source / "a.csv").write_text("topic,body,tags\nT,one,x\n")
    (source / "b.csv").write_text(f"{header}\n{','.join('T' * len(header.split(',')))}\n")
    refused = put(commitlake, store, source, "--format", "csv")
    assert refused.exit_status == 2, refused
    assert (
        "b.csv has another header than the input's other files, which have topic, body, tags"
        in refused.stderr
    )
    assert store.commitlog.count() == 0


def test_csv_rows_have_the_fields_of_the_header(commitlake: Commitlake, store: Store, tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_text(
        'topic,body,tags\nT,a,x\nT,few\nT,many,x,y\nT,"quoted\nline, and ü",x\n', encoding="utf-8"
    )
    found = quarantined(commitlake, store, source, "--format", "csv")
    sentence = "it does not have 3 fields, as the header: topic, body, tags"
    assert found == {"T,few": sentence, "T,many,x,y": sentence}
    assert [body(row) for row in rows(store)] == ["a", "quoted\nline, and ü"]
    refused = put(commitlake, store, source, "--format", "csv", "--batch-id", "again")
    assert refused.exit_status == 2
    assert f"a.csv row 2: {sentence}" in refused.stderr


@pytest.mark.slow
def test_bytes_that_are_not_utf8_are_refused_and_not_replaced(
    commitlake: Commitlake, store: Store, tmp_path: Path
) -> None:
    lines = tmp_path / "a.jsonl"
    texts = ["good", "written \N{REPLACEMENT CHARACTER}"]  # a character like any other, where it is written
    bad = b'{"topic": "T", "tags": "\xe9", "body": "caf\xe9"}\n'
    lines.write_bytes("".join(f'{{"topic": "T", "body": "{text}"}}\n' for text in texts).encode() + bad)
    (reason,) = quarantined(commitlake, store, lines).values()
    assert reason == "body, tags: its bytes are not UTF-8; save the file as UTF-8"
    assert [body(row) for row in rows(store)] == texts
    table = tmp_path / "a.csv"
    table.write_bytes("\ufefftopic,body\nT,ü\n".encode() + b"T,caf\xe9\n")
    run = put(commitlake, store, table, "--format", "csv")
    assert run.exit_status == 2
    assert "a.csv row 2: body: its bytes are not UTF-8; save the file as UTF-8" in run.stderr
    strings = store.spark.sql("SELECT 'T' AS topic, 'b' AS body, CAST(X'E9' AS STRING) AS keys")
    strings.write.parquet(str(tmp_path / "parquet"))
    run = put(commitlake, store, tmp_path / "parquet", "--format", "parquet")
    assert run.exit_status == 2
    assert "keys has bytes that are not UTF-8" in run.stderr


def test_half_of_a_surrogate_pair_is_no_text(commitlake: Commitlake, store: Store, tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    good = [r"\ud83d\ude00", r"\\ud83d", r"\uD7ff"]
    bad = [r"\ud83d", r"\uDE00 \ud83d", r"\ud83d\ud83d\ude00"]
    source.write_text("".join(f'{{"topic": "T", "body": "{text}"}}\n' for text in good + bad))
    reasons = quarantined(commitlake, store, source)
    assert list(reasons.values()) == [
        rf"body: {half} is half of a surrogate pair, not a character"
        for half in (r"\ud83d", r"\uDE00", r"\ud83d")
    ]
    assert [body(row) for row in rows(store)] == ["\U0001f600", r"\ud83d", "\ud7ff"]


def test_a_line_end_in_a_name_is_a_character_like_others(life: Callable[..., Life]) -> None:
    """Java's `$` also matches before a line end."""
    one = life()
    cases = {
        "Orders\n": {"topic": "Orders\n"},
        "host": {"topic": "T", "born_host": "1.2.3.4:99\n"},
        "port": {"topic": "T", "born_host": "1.2.3.4:65536"},
        "groups": {"topic": "T", "born_host": "[1:2]:80"},
        "time": {"topic": "T", "deliver_at_time": "10:00:00\n"},
    }
    good = [
        f"[{host}]:65535"
        for host in ("::", "::1", "1::", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4", "1:2:3:4:5:6:7::")
    ]
    source = one.input(
        *[{"body": name, **row} for name, row in cases.items()],
        *[{"topic": "T", "body": "good", "born_host": host} for host in good],
    )
    run = one.job("put_messages", NOW, "--input", source, "--on-bad", "quarantine")
    reasons = {json.loads(row.raw)["body"]: row.reason for row in one.store.rejected_messages.collect()}
    assert set(reasons) == set(cases)
    assert reasons["Orders\n"].startswith(r"topic Orders\n has a character other than letters")
    assert run.result["appended"] == len(good)
    assert len(one.store.messages.collect()) == len(good)


def test_blank_lines_are_no_messages_whatever_ends_them(
    commitlake: Commitlake, store: Store, tmp_path: Path
) -> None:
    source = tmp_path / "a.jsonl"
    source.write_bytes(b'{"topic": "T", "body": "a"}\r\n\r\n \t\r\n  {"topic": "T", "body": "b"} \r\n\r\n')
    run = put(commitlake, store, source)
    assert (run.exit_status, run.result.get("appended")) == (0, 2), run.stderr
    assert [body(row) for row in rows(store)] == ["a", "b"]
