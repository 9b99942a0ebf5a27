"""`commitlake report` over a small store: what the page says is what the store's tables say."""

import json
import shutil
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from pyspark.sql import types as T

from jobs.launch.live_page import LivePage
from jobs.report import write_whole
from pipelines.errors import BadInput
from pipelines.reports.page import upkeep
from pipelines.reports.page.ask import ask
from pipelines.reports.page.overview import Overview, overview
from pipelines.store.store import Store
from pipelines.views import read_only_sql
from schemas import COMMITLOG, TABLES, TABLES_BY_NAME, Table
from tests.conftest import run_job
from tests.life import B, Life, raw
from tests.reports.page_rows import NASTY
from tests.reports.test_page import Read

HOUR = 3_600_000
NOW = B + HOUR


@pytest.fixture(scope="module")
def told_store(spark, store_template, tmp_path_factory) -> Store:
    """A store with a bit of everything; only read."""
    directory = tmp_path_factory.mktemp("told")
    shutil.copytree(store_template(), directory / "store")
    store = Store(spark, str(directory / "store"))
    life = Life(lambda *given: run_job([str(one) for one in given]), store, directory)
    life.put(
        B,
        *({"topic": "Orders", "queue_id": n % 2} for n in range(6)),
        {"topic": "Orders", "delay_ms": 30 * 60_000},
        {"topic": "Orders", "delay_ms": 90 * 60_000},
        {"topic": "Orders", "delay_ms": 400 * HOUR},
        {"topic": "Pay", "transaction": True, "producer_group": "billing"},
    )
    life.append(
        {"topic": NASTY, "queue_offset": 0},
        {
            "topic": "%DLQ%shipping",
            "reconsume_times": 3,
            "properties": raw(DLQ_ORIGIN_TOPIC=NASTY, DLQ_ORIGIN_MESSAGE_ID="A"),
        },
        {"topic": "%RETRY%shipping", "properties": raw(RETRY_TOPIC="Orders", ORIGIN_MESSAGE_ID="B")},
    )
    life.job("dispatch", B)
    bad = life.input({"topic": "Orders", "body": "late"}, {"topic": NASTY, "body": "b"})
    life.job("put_messages", B + 1, "--input", bad, "--on-bad", "quarantine")
    life.job(
        "consume",
        B + 2,
        "--group",
        "shipping",
        "--topic",
        "Orders",
        "--listener",
        "tests.reports.accepting:accept",
    )
    # A broadcast client's failures are counted and go nowhere.
    watching = ("--group", "watchers", "--topic", "Orders", "--model", "broadcasting", "--client-id", "w1")
    life.job("consume", B + 3, *watching, "--max-messages", 2, "--listener", "tests.reports.accepting:refuse")
    return store


@pytest.fixture(scope="module")
def told(told_store) -> Overview:
    return overview(told_store.snapshot(), NOW)


def section(told: Overview, anchor: str):
    return next(one for one in told.sections if one.anchor == anchor)


@pytest.mark.slow
def test_the_log_at_a_glance(told, told_store):
    log = told_store.read(COMMITLOG)
    tiles = {tile.label: tile.value for tile in section(told, "glance").tiles}
    last = log.orderBy(log.physical_offset.desc()).first()
    assert tiles["Messages"] == f"{log.count():,}"
    assert tiles["Head"] == f"{last.physical_offset + last.size_bytes:,}"
    assert tiles["Not dispatched"] == "1"
    (chart, _) = section(told, "throughput").charts
    assert sum(bar["messages"] for bar in chart.spec["data"]["values"]) == log.count()


@pytest.mark.slow
def test_topics_groups_and_failures(told):
    (topics,) = section(told, "topics").tables
    by_topic = {row["topic"]: row for row in topics.rows}
    assert (by_topic["Orders"]["messages"], by_topic[NASTY]["messages"]) == (6, 1)
    (lag,) = section(told, "groups").tables
    assert {row["topic"]: row["lag"] for row in lag.rows if row["group"] == "shipping"}["Orders"] == 0
    dead, retries, reasons, rejected = section(told, "failures").tables
    assert [(row["group"], row["original_topic"], row["dead_letters"]) for row in dead.rows] == [
        ("shipping", NASTY, 1)
    ]
    assert [(row["original_topic"], row["retries"]) for row in retries.rows] == [("Orders", 1)]
    assert [(row["group"], row["error"], row["times"]) for row in reasons.rows] == [
        ("watchers", "ValueError: out of stock", 2)
    ]
    assert sum(row["rows"] for row in rejected.rows) == 1


@pytest.mark.slow
def test_what_waits_is_counted_by_when_it_is_due(told):
    (chart,) = section(told, "delays").charts
    due = {row["due"]: row["messages"] for row in chart.spec["data"]["values"]}
    assert due == {"overdue": 1, "1 h": 1, "later": 1}
    (pending,) = section(told, "transactions").tables
    assert [(row["producer_group"], row["topic"], row["messages"]) for row in pending.rows] == [
        ("billing", "Pay", 1)
    ]
    assert {worry.anchor for worry in told.worries} >= {"glance", "delays", "failures"}


@pytest.mark.slow
def test_the_sql_on_the_page_gives_its_numbers_to_who_runs_it(told, told_store, commitlake):
    asked = section(told, "topics").questions[0]
    run = commitlake("sql", "--store", told_store.uri, asked.sql, "--output", "json")
    assert [json.loads(line) for line in run.lines] == [
        dict(row) for row in section(told, "topics").tables[0].rows
    ]


@pytest.mark.slow
def test_the_job_writes_the_page(told_store, commitlake, tmp_path):
    out = tmp_path / "page.html"
    run = commitlake("report", "--store", told_store.uri, "--out", out, "--now", NOW)
    assert run.exit_status == 0
    assert (run.result["out"], run.result["bytes"]) == (str(out), out.stat().st_size)
    assert NASTY in Read(out.read_text(encoding="utf-8")).text
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.slow
def test_the_newest_check_and_those_before(told_store, monkeypatch):
    columns = (
        "run_id string, checked_ms long, suite string, expectation string, severity string, "
        "from_append_seq long, to_append_seq long, checked long, broken long, complaints array<string>"
    )
    rows = told_store.spark.createDataFrame(
        [
            ("r1", B, "log", "sizes", "critical", 0, 1, 10, 0, []),
            ("r2", NOW, "log", "sizes", "critical", 0, 2, 12, 7, [NASTY] * 7),
            ("r2", NOW, "log", "topics", "warning", 0, 2, 12, 0, []),
            ("r1", B, "settings", "names", "critical", 0, 1, 3, 1, [NASTY]),
            ("r1", B, "settings", "no longer asked", "critical", 0, 1, 3, 1, [NASTY]),
            ("r1:repaired", B, "settings", "names", "critical", 0, 1, 3, 0, []),
            ("r3", NOW + 1, "offsets", "in flight", "warning", 0, 2, 5, 0, []),
        ],
        columns,
    )
    table = next(
        (table for table in TABLES if table.name == "validations"),
        Table("validations", "Checks.", T.StructType(), ("run_id", "expectation")),
    )
    monkeypatch.setattr(read_only_sql, "TABLES", (*TABLES, table))
    monkeypatch.setitem(TABLES_BY_NAME, "validations", table)
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(
        told_store.path(table)
    )
    found = ask(told_store.snapshot(), [upkeep.NEWEST_VALIDATION, upkeep.VALIDATIONS_BEFORE])
    quality = upkeep.quality(found, NOW)
    newest, before = quality.tables
    assert [(row["expectation"], row["broken"], len(row["complaints"])) for row in newest.rows] == [
        ("sizes", 7, 5),
        ("topics", 0, 0),
        ("in flight", 0, 0),
        ("names", 0, 0),
    ]
    assert [(row["run_id"], row["not_met"], row["checked"]) for row in before.rows[:2]] == [
        ("r3", 0, 5),
        ("r2", 1, 24),
    ]
    assert quality.worries == ["1 expectation not met at the newest check."]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((), "report needs --out FILE"),
        (("--out", "no/such/place/page.html"), "there is no directory"),
        (("--out", "."), "a directory; expected a file in it"),
    ],
)
def test_a_page_that_has_no_place_is_refused_before_anything_is_read(given, sentence):
    run = run_job(["report", "--store", "no/such/store", *given])
    assert run.exit_status == 2
    assert sentence in run.stderr


@pytest.mark.quick
def test_a_page_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch):
    out = tmp_path / "page.html"
    assert write_whole(out, "ä") == 2
    monkeypatch.setattr(
        Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(BadInput, match="No space left"):
        write_whole(out, "the next one")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("page.html", "ä")]


@pytest.mark.quick
def test_a_live_page_is_served_to_this_machine_only_and_exchanged():
    with LivePage(0) as live:
        live.show("one")
        assert read(live.address) == "one"
        live.show("two")
        assert (read(live.address), read(f"{live.address}version")) == ("two", "2")
        for path, host in (("etc", "127.0.0.1:1"), ("", "elsewhere.example:80")):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                read(f"{live.address}{path}", host)
        with pytest.raises(BadInput, match="name another --port"):
            LivePage(int(live.address.rstrip("/").rpartition(":")[2]))


def read(address: str, host: str | None = None) -> str:
    request = urllib.request.Request(address, headers={} if host is None else {"Host": host})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()
