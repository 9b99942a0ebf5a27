"""Exit status 2 writes nothing: every refusal of every job, on one store, which stays as it is."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.rocketmq.names import TRACE_TOPIC
from pipelines.store.commit import commit
from pipelines.store.store import Store
from pipelines.store.topics import TopicConfig, plan_make_topics
from schemas import TABLES
from tests.conftest import JobRun, run_job, write_jsonl
from tests.life import B

CODE = """
from pyspark.sql import functions as F

def listen(message):
    return None

class Filter:
    def match(self, message, context):
        return True

class NoFilter:
    pass

def expectations():
    return {"a sentence": F.col("no_such_column") > 1}
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that the commands name."""
    directory = tmp_path_factory.mktemp("inputs")
    (directory / "code_of_refusals.py").write_text(CODE)
    for name, rows in {
        "good": [{"topic": "T", "body": "b"}],
        "bad": [{"topic": "T", "body": "b", "queue_id": 99}],
        "readonly": [{"topic": "ReadOnly", "body": "b"}],
        "missing": [{"physical_offset": 1, "delay_level": 0}],
        "parked": [{"physical_offset": 0, "delay_level": 0}],
        "states": [{"producer_group": "p", "physical_offset": 1, "queue_offset": 0, "state": "PERHAPS"}],
        "outcomes": [{"unique_key": "u", "state": "PERHAPS"}],
    }.items():
        write_jsonl(directory / f"{name}.jsonl", rows)
    (directory / "garbage.json").write_text("{nothing")
    (directory / "filter.py").write_text(
        "class Filter:\n    def match(self, message, context): return True\n"
    )
    (directory / "broker").mkdir()
    return directory


@pytest.fixture(scope="module")
def refusing(
    spark: Any, store_template: Callable[..., Path], directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> Store:
    """A parked row at byte 0, topics and groups that may not be written to or read."""
    uri = str(tmp_path_factory.mktemp("refusing") / "store")
    shutil.copytree(store_template(), uri)
    parked = write_jsonl(directory / "parked-row.jsonl", [{"topic": "T", "body": "b", "delay_level": 18}])
    for job in (
        ["put_messages", "--input", parked],
        ["dispatch"],
        ["topics", "create", "ReadOnly", "--perm", "R"],
        ["topics", "create", "WriteOnly", "--perm", "W"],
        ["topics", "create", "%RETRY%stuck", "--perm", "R"],
        ["topics", "create", "%RETRY%deaf", "--perm", "W"],
        ["topics", "create-group", "closed", "--no-consume-enable"],
        ["topics", "create-group", "quiet", "--no-broadcast-enable"],
    ):
        done = run_job([*map(str, job), "--store", uri, "--now", str(B), "--quiet"])
        assert done.exit_status == 0, done.stderr
    store = Store(spark, uri)
    # As an import may bring it.
    commit(store, lambda at: plan_make_topics(at, [TopicConfig(TRACE_TOPIC, 1, 1, perm=4)]))
    return store


GROUP = ("--group", "new", "--topic", "T", "--listener", "code_of_refusals:listen")
REFUSALS: list[tuple[str, str]] = [
    # consume
    ("consume --group new --topic Nowhere --listener code_of_refusals:listen", "no topic 'Nowhere' in this store"),
    (f"consume {' '.join(GROUP)} --filter-type SQL93 --filter a", "--filter-type is SQL93"),
    (f"consume {' '.join(GROUP)} --filter-type SQL92 --filter a=", "expected"),
    (f"consume {' '.join(GROUP)} --filter-type SQL92", "needs --filter"),
    (f"consume {' '.join(GROUP)} --filter-type CLASS --filter code_of_refusals:NoFilter", "has no method match"),
    (f"consume {' '.join(GROUP)} --filter-type CLASS --filter Uploaded", "has uploaded no class"),
    (f"consume {' '.join(GROUP)} --from timestamp", "--from timestamp and --timestamp"),
    (f"consume {' '.join(GROUP)} --model broadcasting", "needs --client-id"),
    (f"consume {' '.join(GROUP)} --offsets-file {{garbage}}", "is a broadcasting client's"),
    (f"consume {' '.join(GROUP)} --model broadcasting --client-id c --offsets-file {{garbage}}", "cannot read "),
    (f"consume {' '.join(GROUP)} --config {{garbage}}", "cannot be read"),
    (f"consume {' '.join(GROUP)} --clients a,b --client-id c", "is none of --clients"),
    (f"consume {' '.join(GROUP)} --clients a,b --strategy NONE", "is not a valid strategy"),
    (f"consume {' '.join(GROUP)} --trace", f"puts messages to {TRACE_TOPIC}, which may not be written to"),
    ("consume --group new --topic T --listener code_of_refusals:nobody", "nobody"),
    ("consume --group new --listener code_of_refusals:listen", "has subscribed nothing"),
    ("consume --group new --filter a --listener code_of_refusals:listen", "--filter needs --topic"),
    ("consume --group a/b --topic T --listener code_of_refusals:listen", "group"),
    ("consume --group closed --topic T --listener code_of_refusals:listen", "may not consume"),
    (
        "consume --group quiet --topic T --listener code_of_refusals:listen --model broadcasting --client-id c",
        "may not broadcast",
    ),
    ("consume --group new --topic WriteOnly --listener code_of_refusals:listen", "topic WriteOnly may not be read (perm 2"),
    ("consume --group deaf --topic T --listener code_of_refusals:listen", "topic %RETRY%deaf may not be read (perm 2"),
    ("consume --group stuck --topic T --listener code_of_refusals:listen", "topic %RETRY%stuck may not be written to"),
    # what failed elsewhere
    ("send_back --group stuck --input {missing}", "topic %RETRY%stuck may not be written to (perm 4, without W)"),
    ("send_back --group new --input {missing}", "no message 1 is in the log"),
    ("send_back --group new --input {parked}", "message 0 lies in SCHEDULE_TOPIC_XXXX"),
    ("send_back --group new --input {nowhere}", "nowhere"),
    ("send_back --group a/b --input {missing}", "group"),
    ("send_back --group new --input {missing} --batch-id import:x", "import:"),
    # subscribe
    ("subscribe --group new --topic Nowhere", "no topic 'Nowhere' in this store"),
    ("subscribe --group a/b --topic T", "group"),
    ("subscribe --group new --topic T --filter-type SQL92 --filter a=", "expected"),
    ("subscribe --group new --topic T --filter-class {filter}:Filter", "filterSupportUpload is false"),
    ("subscribe --group new --topic T --filter-type CLASS --filter code_of_refusals:NoFilter", "no method match"),
    # redrive
    ("redrive --where topic='SCHEDULE_TOPIC_XXXX'", "rows still parked match"),
    ("redrive --where no_such_column=1", "is not a valid predicate"),
    ("redrive --where reflect('a','b')='c'", "this is a call of reflect"),
    ("redrive --where true --redrive-id a!", "--redrive-id is"),
    ("redrive --where CAST(body_text||'x'AS\tINT)>5", "CAST_INVALID_INPUT"),
    # put and run_cycle
    ("put_messages --input {bad}", "queue"),
    ("put_messages --input {nowhere}", "nowhere"),
    ("put_messages --input ", "'' cannot be read: Can not create a Path from an empty string"),
    ("put_messages --input a:b.jsonl", "'a:b.jsonl' cannot be read"),
    ("put_messages --input nosuch://b/x", "'nosuch://b/x' cannot be read: No FileSystem for scheme"),
    ("put_messages --input {readonly}", "is not writable"),
    ("put_messages --input {good} --trace", "which may not be written to"),
    ("put_messages --input {good} --local-transaction code_of_refusals:nobody", "nobody"),
    ("put_messages --input {good} --hook code_of_refusals:nobody", "nobody"),
    ("put_messages --input {good} --selector code_of_refusals:nobody", "nobody"),
    ("put_messages --input {good} --batch-id trace:x", "trace:"),
    ("run_cycle --input {good} --ends {states}", "state is PERHAPS"),
    ("run_cycle --input {good} --ends {nowhere}", "nowhere"),
    ("run_cycle --input {good} --checker code_of_refusals:nobody", "nobody"),
    ("run_cycle --input {good} --checker code_of_refusals:listen --outcomes {outcomes}", "give either --checker"),
    ("run_cycle --input {good} --outcomes {outcomes}", "state is PERHAPS"),
    ("run_cycle --input {bad}", "queue"),
    ("run_cycle --input {good} --batch-id import:x", "import:"),
    # transactions
    ("end_transactions --input {states}", "state is PERHAPS"),
    ("end_transactions --input {nowhere}", "nowhere"),
    ("check_transactions", "give either --checker"),
    ("check_transactions --outcomes {outcomes}", "state is PERHAPS"),
    # groups' offsets, topics and groups
    ("reset_offsets --group new --topic Nowhere --skip-accumulation", "Nowhere"),
    ("reset_offsets --group new --topic T", "give one of"),
    ("reset_offsets --group new --topic T --to-offset 99", "has offsets"),
    ("topics create T/U", "topic"),
    ("topics create U --queues 2000", "maxTopicQueueNums"),
    ("topics create U --perm Q", "permission"),
    ("topics create U --attributes +no.such=1", "not known"),
    ("topics update Nowhere --queues 2", "there is no topic Nowhere"),
    ("topics delete SCHEDULE_TOPIC_XXXX", "the store's own"),
    ("topics create-group a/b", "group"),
    ("topics create-group new --retry-policy {{}}", "retry policy"),
    ("topics update-group nobody --retry-queues 2", "there is no group nobody"),
    ("topics create-group new --retry-queues 5000", "maxTopicQueueNums"),
    # the rest
    ("create_store --set noSuchName=1", "noSuchName"),
    ("create_store --set maxMessageSize=none", "maxMessageSize"),
    ("import_store --from {nowhere}", "nowhere"),
    ("import_store --from {good}", "good.jsonl is a file; expected a directory"),
    ("import_store --from {store} --broker-conf {store}", "is a directory; expected a file"),
    ("export_store --to {good}", "good.jsonl is a file; expected a directory"),
    ("export_store --format jsonl --to {good}", "good.jsonl is a file; expected a directory"),
    ("backup --to {store}/inside", "inside"),
    ("validate --suite nothing", "nothing"),
    ("validate --full --since-append-seq 1", "expected one of them"),
    ("validate --cut-damaged --dry-run --repair", "--dry-run and --repair are given"),
    ("validate --expectations code_of_refusals:expectations", "needs --topic"),
    ("validate --expectations code_of_refusals:expectations --topic T --failed-to retry", "needs --group"),
    ("validate --expectations code_of_refusals:expectations --topic T --failed-to retry --group new", "no_such_column"),
    ("query by-id", "by-id"),
    ("query pull --topic Nowhere --queue-id 0 --offset 0", "Nowhere"),
    ("sql DROP", "Syntax error"),
    ("maintain --no-such-option", "no-such-option"),
    ("dispatch --no-such-option", "no-such-option"),
    ("deliver --now tomorrow", "Invalid value for '--now'"),
]  # fmt: skip


def state_of(store: Store) -> dict[str, Any]:
    """Each table's version, and all files of the store."""
    at = store.snapshot()
    return {
        "versions": {table.name: at.version(table) for table in TABLES},
        "files": sorted(str(file) for file in Path(store.uri).rglob("*") if file.suffix != ".crc"),
    }


@pytest.fixture(scope="module")
def untouched(refusing: Store) -> dict[str, Any]:
    """What the store is like before all of the refusals, and so before each."""
    return state_of(refusing)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "sentence"), REFUSALS, ids=[command for command, _ in REFUSALS])
def test_what_is_refused_is_not_begun(
    refusing: Store,
    untouched: dict[str, Any],
    directory: Path,
    commitlake: Callable[..., JobRun],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    sentence: str,
) -> None:
    monkeypatch.syspath_prepend(str(directory))
    names = {file.stem: str(file) for file in directory.glob("*.jsonl")} | {
        "garbage": str(directory / "garbage.json"), "filter": str(directory / "filter.py"),
        "nowhere": str(directory / "nowhere"), "store": refusing.uri,
    }  # fmt: skip
    job, *arguments = command.format(**names).split(" ")
    fixed = (
        () if "--now" in arguments or job in ("create_store", "sql", "query", "backup") else ("--now", str(B))
    )
    run = commitlake(job, "--store", refusing.uri, *fixed, *arguments, "--quiet")
    assert run.exit_status == 2, (run.exit_status, run.stderr)
    assert sentence in run.stderr
    assert state_of(refusing) == untouched
