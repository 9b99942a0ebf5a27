"""What the DAG files say of the jobs is so. Read as text: nothing of Airflow is needed."""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

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
