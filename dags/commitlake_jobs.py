"""What the DAGs share: the operator for a job, the params of every run, and the assets that trigger other DAGs.

A DAG knows jobs by name and arguments only, so nothing here loads Spark. A run takes its arguments from its params, else
from the Airflow Variable `commitlake`, a JSON object with the same names:

    airflow variables set commitlake '{"store": "hdfs:///stores/orders", "profile": "conf/orders.conf"}'
"""

import json
import os
import re
import shlex
from collections.abc import Iterable
from contextlib import chdir
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, AssetAlias, Param
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

# Where jobs/ and spark-conf/ are. The files of dags/ may lie elsewhere: an Airflow may read all DAGs from one folder.
PROJECT = Path(os.environ.get("COMMITLAKE_HOME", Path(__file__).resolve().parent.parent))

# The exit statuses of a job after which a retry cannot help, and what to do instead.
WILL_NOT_HELP = {
    2: "wrong arguments or input, nothing was written; fix them, then run it again",
    3: "a promise of the store does not hold, and will not by itself; see the report, then docs/quality.md",
}

# Growth of the log and the queues is reported through aliases: a plain outlet would get an event from every successful
# run, also from the many that found nothing to do.
LOG, LOG_GREW = Asset("commitlake-log"), AssetAlias("commitlake-log-grew")
QUEUES, QUEUES_GREW = Asset("commitlake-queues"), AssetAlias("commitlake-queues-grew")
TOLD_OF = {
    LOG_GREW.name: (
        LOG,
        ("appended", "messages", "delivered", "committed", "rolled_back", "checked", "discarded",
         "sent_back", "dead_lettered", "redriven", "rolled"),
    ),
    QUEUES_GREW.name: (QUEUES, ("queue_entries",)),
}  # fmt: skip


def text(description: str, **more: Any) -> Param:
    """A param for a line of text, empty unless the run has it: any other default would hide the Variable's entry."""
    return Param("", type="string", description=description, **more)


SHARED_PARAMS = {
    "store": text("The store, a path or URI; else that of the Variable commitlake."),
    "profile": text(
        "Spark's settings: a file of spark-conf/, or one the Variable allows; else that of the Variable."
    ),
    "connection": text(
        "The Spark connection, which names the cluster; else the Variable's, else spark_default."
    ),
    "more": text("Further arguments of the job, as typed at a terminal."),
}

EVERY_DAG: dict[str, Any] = {
    "start_date": datetime(2026, 1, 1, tzinfo=UTC),
    # A run does all the work there is, so runs for missed minutes would find nothing.
    "catchup": False,
    # Two runs at once are safe, see the pool; but the second would only repeat the work of the first.
    "max_active_runs": 1,
    "tags": ["commitlake"],
    "default_args": {
        # Jobs may overlap: every commit is a compare and swap, and each row is claimed once. The pool exists because each
        # task is a Spark driver, and a machine has room for a few.
        "pool": "commitlake",
        "retries": 2,
        "retry_delay": timedelta(seconds=30),
        "retry_exponential_backoff": 2,
        "max_retry_delay": timedelta(minutes=10),
    },
}


def given(name: str, default: str = "") -> str:
    """A template: the run's param, else the entry of the Variable `commitlake`, else the default."""
    variable = f"var.json.get('commitlake', {{}}).get('{name}', '{default}')"
    return f"{{{{ params.get('{name}') or {variable} }}}}"


# JSON: the profiles that the Variable allows beside the project's own.
PROFILES = (
    "{% set known = var.json.get('commitlake', {}) %}"
    "{{ (([known['profile']] if known.get('profile') else []) + known.get('profiles', [])) | tojson }}"
)


class Job(SparkSubmitOperator):
    """Runs jobs/JOB.py by spark-submit. The task returns the job's result, or fails with the job's own sentence.

    job        the job's name, also the task's
    options    its options; one whose rendered value is empty is left out
    only_with  a template; the task is skipped when its value is empty
    outlets    LOG_GREW or QUEUES_GREW: gets an event when the job's counts show growth
    """

    template_fields = (
        *SparkSubmitOperator.template_fields,
        "store",
        "options",
        "more",
        "only_with",
        "profiles",
        "_conn_id",
    )
    ui_color = "#e5f0ea"

    def __init__(
        self,
        *,
        job: str,
        task_id: str | None = None,
        options: dict[str, str] | None = None,
        only_with: str = "always",
        store: str = given("store"),
        profile: str = given("profile", "spark-conf/local.conf"),
        connection: str = given("connection", "spark_default"),
        more: str = given("more"),
        **kwargs: Any,
    ) -> None:
        project_spark = PROJECT / ".venv" / "bin" / "spark-submit"
        super().__init__(
            task_id=task_id or job,
            name=f"commitlake {job}",
            application=str(PROJECT / "jobs" / f"{job}.py"),
            properties_file=profile,
            conn_id=connection,
            # The Spark these jobs are tested with, if `make setup` has installed it; else that of the connection.
            spark_binary=str(project_spark) if project_spark.exists() else None,
            # The driver runs here: its exit status and its result file are needed, and it holds only a few bytes a row.
            deploy_mode="client",
            **kwargs,
        )
        self.store = store
        self.options = options or {}
        self.more = more
        self.only_with = only_with
        self.profiles = PROFILES

    def execute(self, context: Any) -> dict[str, Any]:
        if not self.only_with:
            raise AirflowSkipException("the run was not given what this is for")
        expect_profile(self.properties_file, json.loads(self.profiles))
        if not self.store:
            raise AirflowFailException(
                "no store; give the run the param `store`, or set it for all: airflow variables set commitlake "
                """'{"store": "hdfs:///stores/orders"}'"""
            )
        # Paths of a profile are relative to the project.
        with TemporaryDirectory() as directory, chdir(PROJECT):
            result_file = Path(directory, "result.json")
            self.application_args = [*self.arguments(), "--result-path", str(result_file)]
            try:
                super().execute(context)
            except AirflowException as failure:
                # A job that ran and found something broken has written its counts too.
                if result_file.exists():
                    context["ti"].xcom_push(
                        "return_value", json.loads(result_file.read_text(encoding="utf-8"))
                    )
                raise explained(failure) from failure
            result: dict[str, Any] = json.loads(result_file.read_text(encoding="utf-8"))
        self._tell(context, result)
        return result

    def arguments(self) -> list[str]:
        """The job's arguments, except the path of its result."""
        options = [(name, value) for name, value in self.options.items() if value]
        return [
            "--store",
            self.store,
            *(word for option in options for word in option),
            *shlex.split(self.more),
        ]

    def _tell(self, context: Any, result: dict[str, Any]) -> None:
        where = {"store": self.store, "profile": self.properties_file, "connection": self._conn_id}
        # A cycle has the counts of each step apart.
        steps = [result, *(counts for counts in result.values() if isinstance(counts, dict))]
        for alias in self.outlets:
            asset, counts = TOLD_OF[alias.name]
            if any(step.get(count) for step in steps for count in counts):
                context["outlet_events"][alias].add(asset, extra=where)


# The entries of an asset's event that say where a job works. Users may create events with other entries: they are ignored.
WHERE = ("store", "profile", "connection")


def stores_of(events: Iterable[Any]) -> list[dict[str, str]]:
    """The stores that events name, each once: of each event only the entries of WHERE that are texts.

    >>> from types import SimpleNamespace as Event
    >>> by_hand = Event(extra={"store": "/a", "more": "--listener os:abort"})
    >>> stores_of([by_hand, Event(extra={"store": "/a"}), Event(extra=None), Event(extra={"store": 7})])
    [{'store': '/a'}]
    """
    extras = [event.extra if isinstance(event.extra, dict) else {} for event in events]
    found = [
        {name: extra[name] for name in WHERE if isinstance(extra.get(name), str) and extra[name]}
        for extra in extras
    ]
    grown = {json.dumps(where, sort_keys=True) for where in found if "store" in where}
    return [json.loads(where) for where in sorted(grown)]


def expect_profile(profile: str, allowed: Iterable[str]) -> None:
    """Raises for a profile, which decides what a JVM runs, that is neither the project's own nor allowed by the Variable.

    >>> expect_profile("spark-conf/local.conf", []), expect_profile("/etc/mine.conf", ["/etc/mine.conf"])
    (None, None)
    """
    own = [f"spark-conf/{file.name}" for file in sorted((PROJECT / "spark-conf").glob("*.conf"))]
    if profile not in (*own, *allowed):
        raise AirflowFailException(
            f"profile is {profile!r}; expected one of {', '.join([*own, *allowed])}. The Variable commitlake allows more: "
            """'{"profile": "the one for all", "profiles": ["others", …]}'"""
        )


def explained(failure: AirflowException) -> AirflowException:
    """The error of a failed spark-submit, with the job's own sentence; without retries where they would fail too.

    >>> explained(AirflowException("Cannot execute: … Error code is: 2.\\nLast spark-submit output:\\nerror: no such topic"))
    AirflowFailException('no such topic (wrong arguments or input, nothing was written; fix them, then run it again)')
    """
    said = str(failure)
    sentences = re.findall(r"^error: (.*?)(?=^\{|\Z)", said, re.MULTILINE | re.DOTALL)
    status = re.search(r"Error code is: (\d+)", said)
    sentence = (
        sentences[-1].strip() if sentences else said.partition("Last spark-submit output:\n")[2] or said
    )
    advice = WILL_NOT_HELP.get(int(status[1])) if status else None
    if advice is not None:
        return AirflowFailException(f"{sentence} ({advice})")
    return AirflowException(sentence)
