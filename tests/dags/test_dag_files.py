"""What the DAG files say of the jobs is so. Read as text: nothing of Airflow is needed."""

import ast
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jinja2
import pytest
import typer

from jobs.launch.cli import JOBS

DAGS = Path(__file__).parents[2] / "dags"
FILES = [*sorted(DAGS.glob("*.py")), DAGS / "my_group.py.example"]

pytestmark = pytest.mark.quick


def jobs_of(file: Path) -> Iterator[tuple[str, list[str]]]:
    """The jobs a DAG file runs, each with the options it gives."""
    for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("Job", "Job.partial"):
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            options = given.get("options", ast.Dict([], []))
            assert isinstance(options, ast.Dict)
            yield ast.literal_eval(given["job"]), [ast.literal_eval(name) for name in options.keys if name]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_dag_file_knows_jobs_by_name_only(file: Path) -> None:
    imported = set()
    for statement in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(statement, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in statement.names}
        if isinstance(statement, ast.ImportFrom):
            imported.add((statement.module or "").split(".")[0])
    assert not imported & {"pyspark", "delta", "pipelines", "jobs", "schemas"}


@pytest.mark.parametrize(
    ("job", "options"),
    [
        pytest.param(job, options, id=f"{file.name}-{job}")
        for file in FILES
        if file.name != "commitlake_jobs.py"
        for job, options in jobs_of(file)
    ],
)
def test_a_job_and_its_options_are_there(job: str, options: list[str]) -> None:
    assert job in JOBS
    alone = typer.Typer(add_completion=False)
    alone.command()(getattr(import_module(f"jobs.{job}"), job))
    known = {name for parameter in typer.main.get_command(alone).params for name in parameter.opts}
    assert {"--store", "--result-path", *options} <= known


def test_every_dag_file_runs_a_job() -> None:
    without = [file.name for file in FILES if not list(jobs_of(file))]
    assert without == ["commitlake_jobs.py"]


class Ingest:
    """The DAG ingest without Airflow: which job it runs, and with which options."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.options: dict[str, dict[str, str]] = {}
        shared = ast.parse((DAGS / "commitlake_jobs.py").read_text(encoding="utf-8"))
        (given,) = [
            each for each in shared.body if isinstance(each, ast.FunctionDef) and each.name == "given"
        ]
        names: dict[str, Any] = {}
        exec(compile(ast.Module([given], []), "commitlake_jobs.py", "exec"), names)
        jobs = {
            "EVERY_DAG": {},
            "SHARED_PARAMS": {},
            "LOG_GREW": "log",
            "Job": self._job,
            "given": names["given"],
        }
        sdk = {"DAG": lambda *_, **__: nullcontext(), "task": SimpleNamespace(branch=self._branch)}
        for name, contents in (
            ("commitlake_jobs", {**jobs, "text": lambda _, **__: ""}),
            ("airflow", {}),
            ("airflow.sdk", sdk),
        ):
            module = ModuleType(name)
            module.__dict__.update(contents)
            monkeypatch.setitem(sys.modules, name, module)
        runpy.run_path(str(DAGS / "ingest.py"))

    def _job(self, *, job: str, options: dict[str, str], **_: Any) -> None:
        self.options[job] = options

    def _branch(self, function: Callable[..., str]) -> Callable[..., Any]:
        def call(*arguments: str) -> Any:
            self._decide, self._arguments = function, arguments
            return _Before()

        return call

    def runs(self, params: dict[str, str], variable: dict[str, str]) -> tuple[str, dict[str, str]]:
        """The job that runs, and its options that are not empty."""
        lookup = SimpleNamespace(json={"commitlake": variable})

        def rendered(template: str) -> str:
            return jinja2.Template(template).render(params=params, var=lookup)

        job = self._decide(*map(rendered, self._arguments), params=params)
        options = {name: rendered(template) for name, template in self.options[job].items()}
        return job, {name: value for name, value in options.items() if value}


class _Before:
    def __rshift__(self, tasks: object) -> None: ...


DEFAULTS = {"--format": "jsonl", "--on-bad": "reject"}


@pytest.mark.parametrize(
    ("params", "variable", "job", "options"),
    [
        ({"input": "a"}, {}, "put_messages", {"--input": "a", **DEFAULTS}),
        (
            {"input": "a"}, {"format": "csv", "on_bad": "quarantine"},
            "put_messages", {"--input": "a", "--format": "csv", "--on-bad": "quarantine"},
        ),
        (
            {"input": "a", "format": "delta"}, {"format": "csv"},
            "put_messages", {"--input": "a", **DEFAULTS, "--format": "delta"},
        ),
        ({"import_from": "b"}, {"input": "a"}, "import_store", {"--from": "b"}),
        ({}, {"import_from": "b", "broker_conf": "c"}, "import_store", {"--from": "b", "--broker-conf": "c"}),
        ({"input": "a"}, {"import_from": "b"}, "put_messages", {"--input": "a", **DEFAULTS}),
        ({}, {"input": "a"}, "put_messages", {"--input": "a", **DEFAULTS}),
    ],
    ids=[
        "defaults", "by the Variable", "by the params", "a broker of the params", "a broker of the Variable",
        "an input of the params", "an input of the Variable",
    ],
)  # fmt: skip
def test_ingest_goes_by_its_params_else_by_the_variable(
    monkeypatch: pytest.MonkeyPatch,
    params: dict[str, str],
    variable: dict[str, str],
    job: str,
    options: dict[str, str],
) -> None:
    every = dict.fromkeys(("input", "format", "batch_id", "on_bad", "import_from", "broker_conf"), "")
    assert Ingest(monkeypatch).runs(every | params, variable) == (job, options)
