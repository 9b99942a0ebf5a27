"""The DAGs in a real Airflow, with a real spark-submit: what they are made of, what their runs do, how they fail."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines.store.store import Store
from tests.conftest import JobRun, write_jsonl

PROJECT = Path(__file__).parents[2]
AIRFLOW = PROJECT / ".airflow" / "venv" / "bin" / "python"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not AIRFLOW.exists(), reason="Airflow is not set up; make airflow"),
]


@dataclass(frozen=True)
class Airflow:
    """An Airflow with a database of its own."""

    env: dict[str, str]

    def ask(self, *words: str) -> tuple[Any, str]:
        """What in_airflow.py answers, and all that Airflow and its tasks have said meanwhile."""
        receiving, sending = os.pipe()
        script = PROJECT / "tests" / "dags" / "in_airflow.py"
        command = ["bash", "-c", f'exec "$@" 3>&{sending}', "airflow", AIRFLOW, script, *words]
        with subprocess.Popen(
            command,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=[sending],
        ) as process:
            os.close(sending)
            said = process.communicate(timeout=900)[0]
        with os.fdopen(receiving) as answer:
            written = answer.read()
        assert process.returncode == 0, said
        return json.loads(written), said


# The user's own, which the jobs of DAGs import.
MODULE = """
from pipelines.consume import ConsumeStatus
from pipelines.transaction import TransactionState

def check(message):
    return TransactionState.ROLLBACK

def listen(message):
    return ConsumeStatus.RECONSUME_LATER if message.body == b"fails" else ConsumeStatus.CONSUME_SUCCESS
"""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    home = tmp_path_factory.mktemp("airflow")
    modules = home / "modules"
    modules.mkdir()
    (modules / "code_of_a_dag.py").write_text(MODULE)
    env = {
        **{
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AIRFLOW", "COMMITLAKE"))
        },
        "PYTHONPATH": os.pathsep.join([str(modules), os.environ.get("PYTHONPATH", "")]),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[2]"}',
    }
    for words in (["db", "migrate"], ["pools", "import", PROJECT / "dags" / "pools.json"]):
        made = subprocess.run(
            [AIRFLOW, "-m", "airflow", *words], env=env, capture_output=True, text=True, timeout=300
        )
        assert made.returncode == 0, made.stdout + made.stderr
    return Airflow(env)


@pytest.fixture(scope="module")
def found(airflow: Airflow, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Airflow finds in dags/, with the example in use."""
    folder = tmp_path_factory.mktemp("with-example") / "dags"
    shutil.copytree(PROJECT / "dags", folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "my_group.py.example").rename(folder / "my_group.py")
    return airflow.ask("look", str(folder))[0]


def test_all_dags_load_without_spark(found: dict[str, Any]) -> None:
    assert found["errors"] == {}
    assert not found["spark_is_loaded"]
    schedules = {dag_id: (dag["schedule"], dag["assets"]) for dag_id, dag in found["dags"].items()}
    assert schedules == {
        "ingest": ("NullTimetable", []),
        "dispatch": ("AssetTriggeredTimetable", ["commitlake-log"]),
        "deliver": ("* * * * *", []),
        "transactions": ("*/5 * * * *", []),
        "consume": ("NullTimetable", []),
        "replicate": ("* * * * *", []),
        "tick": ("*/10 * * * *", []),
        "maintain": ("0 4 * * *", []),
        "quality": ("0 5 * * *", []),
        "my_group": ("AssetOrTimeSchedule", ["commitlake-queues"]),
    }


def test_every_dag_can_be_given_store_and_settings_and_tells_the_person_on_call_what_to_do(
    found: dict[str, Any],
) -> None:
    for dag_id, dag in found["dags"].items():
        assert {"store", "profile", "connection", "more"} <= set(dag["params"]), dag_id
        assert (dag["max_active_runs"], dag["catchup"]) == (1, False), dag_id
        doc = " ".join(dag["doc"].split()).lower()
        assert all(words in doc for words in ("late", "failed", "run it again, always")), dag_id
        jobs = [task for task in dag["tasks"].values() if task["type"] == "Job"]
        assert jobs, dag_id
        assert {task["pool"] for task in jobs} == {"commitlake"}, dag_id


def test_the_dags_are_joined_by_what_their_jobs_have_written(found: dict[str, Any]) -> None:
    told = {
        (dag_id, task_id): task["outlets"]
        for dag_id, dag in found["dags"].items()
        for task_id, task in dag["tasks"].items()
        if task["outlets"]
    }
    grew = ["commitlake-log-grew"]
    assert told == {
        ("ingest", "put_messages"): grew,
        ("ingest", "import_store"): grew,
        ("dispatch", "dispatch"): ["commitlake-queues-grew"],
        ("deliver", "deliver"): grew,
        ("transactions", "end_transactions"): grew,
        ("transactions", "check_transactions"): grew,
        ("consume", "consume"): grew,
        ("tick", "run_cycle"): ["commitlake-queues-grew"],
        ("maintain", "maintain"): grew,
        ("my_group", "consume"): grew,
    }
    quality = found["dags"]["quality"]["tasks"]
    assert quality["report"] == {
        "type": "Job", "pool": "commitlake", "retries": 2, "trigger_rule": "all_done", "outlets": [], "after": ["validate"],
    }  # fmt: skip
    assert quality["all_promises_hold"]["after"] == ["report", "validate"]


def test_a_failure_is_told_in_the_jobs_own_sentence(airflow: Airflow) -> None:
    """The example in the operator's own docstring."""
    told = subprocess.run(
        [AIRFLOW, "-m", "doctest", PROJECT / "dags" / "commitlake_jobs.py"],
        env=airflow.env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.nightly
def test_the_job_of_each_dag_runs(
    airflow: Airflow, new_store: Callable[..., Store], commitlake: Callable[..., JobRun], tmp_path: Path
) -> None:
    store = new_store(messageDelayLevel="1s 5s")
    half = {"topic": "T", "body": "half", "transaction": True, "producer_group": "p"}
    halves = write_jsonl(
        tmp_path / "halves.jsonl", [half | {"born_timestamp": 1_000 * int(time.time()) - 60_000}] * 2
    )
    commitlake("put_messages", "--store", store.uri, "--input", halves, "--quiet")
    ends = write_jsonl(
        tmp_path / "ends.jsonl", [{"producer_group": "p", "physical_offset": 0, "state": "COMMIT"}]
    )
    rows = [
        {"topic": "T", "body": "now", "keys": "a"},
        {"topic": "T", "body": "fails"},
        {"topic": "T", "body": "later", "keys": "b", "delay_level": 1},
    ]
    put = write_jsonl(tmp_path / "in.jsonl", rows)
    given = {"store": store.uri, "profile": "spark-conf/test.conf"}
    asked = [
        ["ingest", given | {"input": str(put)}],
        ["dispatch", given],
        ["deliver", given],
        ["transactions", given],
        ["transactions", given | {"ends": str(ends), "checker": "code_of_a_dag:check"}],
        ["consume", given | {"group": "g", "topic": "T", "listener": "code_of_a_dag:listen"}],
        # First without params: in one process Airflow keeps those of a DAG's run before.
        ["maintain", {}],
        ["maintain", given],
        ["quality", given | {"out": str(tmp_path / "page.html"), "more": "--suite parked"}],
    ]
    runs, said = airflow.ask("run", str(PROJECT / "dags"), json.dumps(asked))
    ingest, dispatch, deliver, idle, transactions, consume, without_store, maintain, quality = runs

    where = {"store": store.uri, "profile": "spark-conf/test.conf", "connection": "spark_default"}
    assert ingest["tasks"] == {"source": "success", "put_messages": "success", "import_store": "skipped"}
    result = ingest["results"]["put_messages"]
    assert (result["job"], result["status"], result["store"]) == ("put_messages", "ok", store.uri)
    assert result["appended"] == 3
    assert ingest["told"] == [["commitlake-log", where]]

    assert dispatch["results"]["dispatch"]["queue_entries"] == 5
    assert dispatch["told"] == [["commitlake-queues", where]]

    assert deliver["results"]["deliver"]["delivered"] == 1
    assert deliver["told"] == [["commitlake-log", where]]

    assert set(idle["tasks"].values()) == {"skipped"}, "neither ends nor anyone to ask"
    ended, checked = (transactions["results"][job] for job in ("end_transactions", "check_transactions"))
    assert (ended["committed"], checked["checked"], checked["rolled_back"]) == (1, 1, 1)
    assert transactions["told"] == [["commitlake-log", where]] * 2
    read = consume["results"]["consume"]
    assert (read["consumed"], read["sent_back"]) == (1, 1)
    assert consume["told"] == [["commitlake-log", where]]
    assert maintain["results"]["maintain"]["files_compacted"] > 0
    assert maintain["told"] == [], "nothing was appended, so nothing is there to dispatch"
    checks = quality["results"]["validate"]
    assert (quality["state"], checks["checked"], checks["broken"]) == ("success", 4, 0)
    assert "<html" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert (without_store["state"], without_store["told"]) == ("failed", [])
    assert "no store; give the run the param `store`" in said

    found = commitlake("query", "--store", store.uri, "by-key", "--topic", "T", "--key", "b", "--quiet")
    assert found.result["found"] == 1


def test_bad_input_fails_the_task_at_once_with_the_jobs_own_sentence(
    airflow: Airflow, new_store: Callable[..., Store], tmp_path: Path
) -> None:
    store = new_store()
    put = write_jsonl(tmp_path / "bad.jsonl", [{"topic": "T", "body": "good"}, {"topic": "T"}])
    given = {"store": store.uri, "profile": "spark-conf/test.conf", "input": str(put)}
    (ingest,), said = airflow.ask("run", str(PROJECT / "dags"), json.dumps([["ingest", given]]))

    assert ingest["state"] == "failed"
    assert ingest["tasks"]["put_messages"] == "failed", "not up for a retry, which would fail the same way"
    assert ingest["results"]["put_messages"]["status"] == "failed"
    sentence = "1 of 2 rows cannot be put, so none was"
    assert f"error: {sentence}" in said, "as the job said it"
    assert f"AirflowFailException: {sentence}" in said, "as the task's failure"
