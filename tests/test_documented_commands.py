"""The commands of the documents do what their pages say: each page is typed from its top to its end."""

import importlib.util
import json
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.store.store import Store
from tests.conftest import PROJECT, JobRun, write_jsonl
from tests.model.records import Record, place, write_commitlog
from tests.test_documents import commands_of

pytestmark = pytest.mark.slow

Commitlake = Callable[..., JobRun]
ORDER = {"topic": "OrderTopic", "body": '{"order": 1, "amount": 9.5}', "keys": "order-1"}
SEGMENT_BYTES = 65_536
# A block that begins with its file's name, up to the commands that follow it.
CODE = r"^    # (\w+)\.py\n((?:(?!    commitlake )(?:    .*)?\n)+)"
# A block of Python; one that is a module begins with its file's name.
BLOCK = r"^```python\n(?:# (\w+)\.py\n)?(.*?)^```$"
# Typed by other tests: tests/reports/test_page_in_a_browser.py, which ends it, and tests/quality, with every option of
# validate. It takes as long as a page's other commands together.
LEFT_OUT = re.compile(r"report .*--watch|validate .* --(full|repair|cut-damaged)")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where a reader types: with the files that the pages name, and the Python that they show."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(PROJECT / "tests")
    for page in ("README.md", "docs/quality.md"):
        text = (PROJECT / page).read_text(encoding="utf-8")
        for name, code in re.findall(CODE, text, re.MULTILINE):
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(code))
    with (tmp_path / "shipping.py").open("a") as shipping:
        shipping.write("\ndef ship(body, tags, properties):\n    pass\n")
    (tmp_path / "my_module.py").write_text("def check(message):\n    return None\n")
    for module in ("shipping", "my_module", "orders"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    write_jsonl(tmp_path / "messages.jsonl", [ORDER] * 3)
    write_jsonl(tmp_path / "failures.jsonl", [{"physical_offset": 0}])
    (tmp_path / "broker.conf").write_text(f"brokerName=a\nmappedFileSizeCommitLog={SEGMENT_BYTES}\n")
    return tmp_path


def seen_from_anywhere(word: str) -> str:
    """A word that is a path, made absolute: the suite's JVM and its workers are in another folder than the reader."""
    return str(Path.cwd() / word) if word.startswith("demo/") or Path(word).exists() else word


def typed(
    commitlake: Commitlake,
    page: str,
    words: Mapping[str, str] | None = None,
    before: Mapping[str, Callable[[], object]] | None = None,
    done: Collection[str] = (),
) -> dict[str, JobRun]:
    """Run a page's commands in their order, each once; returns each with its run.

    words   what stands in a page for something of the reader's, and what the reader types instead
    before  what a reader has to do before a command, by the command's beginning
    done    commands that have been run already
    """
    ran = dict[str, JobRun]()
    for command in dict.fromkeys(commands_of(PROJECT / page)):
        if command in done or LEFT_OUT.match(command):
            continue
        for beginning, does in (before or {}).items():
            if command.startswith(beginning):
                does()
        run = commitlake(
            *[seen_from_anywhere((words or {}).get(word, word)) for word in shlex.split(command)]
        )
        assert run.exit_status == 0, f"{page}: {command}\n{run.stderr}"
        ran[command] = run
    return ran


@pytest.mark.nightly
def test_the_demo_is_the_readmes_tour_and_the_readme_goes_on_with_its_store(
    commitlake: Commitlake, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(PROJECT / "scripts"))  # as for any script
    spec = importlib.util.spec_from_file_location("scripts_demo", PROJECT / "scripts" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    monkeypatch.setattr(demo, "DEMO", here / "demo")
    monkeypatch.setattr(demo, "end_jvm", lambda: None)  # it is the suite's
    run = demo.run
    monkeypatch.setattr(demo, "run", lambda words: run([seen_from_anywhere(word) for word in words]))
    demo.main()
    assert "<html" in (here / "demo" / "report.html").read_text(encoding="utf-8")
    *tour, page = [command for _, command in demo.TOUR]
    assert commands_of(PROJECT / "README.md")[: len(tour)] == tour
    # The page is made by then, and all promises of this broker's store are checked by tests/quality.
    again = [page.replace("demo/report", "report"), "validate --store demo/store"]
    assert len(typed(commitlake, "README.md", done=[*tour, *again])) > 7


@pytest.mark.nightly
def test_a_broker_moves_here_and_back(commitlake: Commitlake, here: Path) -> None:
    broker = here / "demo" / "broker" / "store"
    of_topic = {"topic": "OrderTopic", "body": b"{}"}
    waits = {"UNIQ_KEY": "w", "DELAY": "1", "REAL_TOPIC": "OrderTopic", "REAL_QID": "0"}
    records = [Record(**of_topic, queue_offset=n) for n in range(3)] + [
        Record(topic="SCHEDULE_TOPIC_XXXX", body=b"{}", properties=waits)
    ]
    write_commitlog(broker, place(records, SEGMENT_BYTES), SEGMENT_BYTES)
    (broker / "config").mkdir()
    topic = {"topicName": "OrderTopic", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    for name, config in {
        "topics": {"topicConfigTable": {"OrderTopic": topic}},
        "consumerOffset": {"offsetTable": {"OrderTopic@shipping": {"0": 1}}},
    }.items():
        (broker / "config" / f"{name}.json").write_text(json.dumps(config))
    typed(commitlake, "docs/migration.md")


@pytest.mark.nightly
def test_what_is_done_every_day_and_when_something_happens(
    spark: SparkSession, commitlake: Commitlake, store: Store, here: Path
) -> None:
    spark.createDataFrame([tuple(ORDER.values())] * 2, list(ORDER)).write.parquet(
        str(here / "exports/2026-11-23")
    )
    words = dict.fromkeys(("STORE", "URI", "demo/store"), store.uri)
    typed(commitlake, "docs/messages.md", words)
    listener = ("--group", "shipping", "--topic", "OrderTopic", "--listener", "shipping:listen")
    assert commitlake("consume", "--store", store.uri, *listener).exit_status == 0

    def is_lost() -> None:
        shutil.move(store.uri, here / "lost")

    def now() -> None:
        words["2026-11-20T06:00:00"] = datetime.now(UTC).isoformat()

    before = {"backup --store BACKUP": is_lost, "sql --store STORE --as-of": now}
    words |= {name: str(here / f"the-{name.lower()}") for name in ("BACKUP", "SLAVE", "EXPORT", "RESTORED")}
    ran = typed(commitlake, "docs/operations.md", words, before)
    assert len(ran) > 20
    typed(commitlake, "docs/quality.md", words, done=["validate --store URI"])


@pytest.fixture
def python_page(here: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules that docs/python.md shows, where a reader would save them; returns its blocks that are no modules."""
    (here / "demo").mkdir()
    text = (PROJECT / "docs" / "python.md").read_text(encoding="utf-8")
    programs = []
    for module, code in re.findall(BLOCK, text, re.MULTILINE | re.DOTALL):
        code = code.replace('"demo/', f'"{here}/demo/')
        if module:
            (here / f"{module}.py").write_text(code)
            monkeypatch.delitem(sys.modules, module, raising=False)
        else:
            programs.append(code)
    return programs


@pytest.mark.nightly
def test_the_python_of_its_page_runs(
    commitlake: Commitlake, store: Store, here: Path, python_page: list[str]
) -> None:
    def order(customer: str, body: dict[str, object], **properties: str) -> dict[str, object]:
        of_order = {"customer": customer, **properties}
        return {"topic": "OrderTopic", "body": json.dumps(body), "properties": of_order}

    # Of the first customer's three orders, which share a queue, the second has no address.
    orders = [
        order("c1", {"address": "a"}, amount="900", region="us-1"),
        order("c1", {}, amount="900", region="eu-1"),
        order("c1", {"address": "b"}, amount="20", region="us-1"),
        order("c2", {"address": "a street with a very long name, 1"}),
    ]
    an_hour_ago = int(datetime.now(UTC).timestamp() * 1_000) - 3_600_000
    payments = [
        {
            "topic": "PaymentTopic",
            "body": body,
            "tags": "confirmed",
            "transaction": True,
            "producer_group": "billing",
        }
        | {"born_timestamp": an_hour_ago}
        for body in ('{"account": 1, "amount": 5}', '{"account": 1, "amount": 0}', "{}")
    ]
    write_jsonl(here / "orders.jsonl", orders)
    write_jsonl(here / "payments.jsonl", payments)
    write_jsonl(here / "more.jsonl", [{"topic": "AuditTopic", "body": "", "unique_key": "U1"}])
    Path("demo/store").symlink_to(store.uri.removeprefix("file:"))

    ran = typed(commitlake, "docs/python.md")
    selected = {
        row.queue_id
        for row in store.messages.where("topic = 'OrderTopic' AND properties['customer'] = 'c1'").collect()
    }
    assert len(selected) == 1
    results = {option: run.result for command, run in ran.items() for option in shlex.split(command)}
    assert counted(results["billing:execute"], "committed", "rolled_back", "unknown") == (1, 1, 1)
    assert counted(results["billing:check"], "checked", "committed") == (1, 1)
    assert counted(results["shipping"], "consumed", "failed", "sent_back") == (3, 1, 1)
    assert counted(results["once"], "consumed", "dead_lettered") == (3, 1)
    assert counted(results["lists"], "consumed", "failed") == (2, 2)
    assert counted(results["revenue"], "consumed", "failed") == (3, 1)
    assert counted(results["archive"], "consumed", "filtered") == (1, 3)
    assert counted(results["uploaded"], "consumed", "filtered") == (1, 3)
    notes = (here / "demo" / "audit.txt").read_text().splitlines()
    assert notes.count("sent U1 to AuditTopic") == 1
    assert sorted(line.split(": ")[1].split()[0] for line in notes[1:]) == ["FAILED", *["SUCCESS"] * 3]

    names: dict[str, object] = {}
    for program in python_page:
        exec(program, names)
    assert (names["large"], names["lag"]) == (1, 0)
    assert names["shares"] == {
        "client-1": ["broker-a:0", "broker-a:1"],
        "client-2": ["broker-a:2"],
    }


def counted(result: Mapping[str, int], *names: str) -> tuple[int, ...]:
    return tuple(result[name] for name in names)
