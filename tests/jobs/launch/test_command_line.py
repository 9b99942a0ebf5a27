"""The command line: it answers at once, shows an example of every job, and completes names and options."""

import json
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module

import pytest
import typer
from pyspark.status import SparkStageInfo
from rich.progress import Task

from jobs.launch.cli import JOBS, application
from jobs.launch.command_line import summary
from jobs.launch.examples import EXAMPLES, epilog
from jobs.launch.progress_bar import Speed, Tasks
from tests.conftest import PROJECT, run_job

pytestmark = pytest.mark.quick


def in_a_process(code: str, **environment: str) -> subprocess.CompletedProcess:
    """Run as the program `commitlake`, whose name completion goes by."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv[0] = 'commitlake'; {code}"],
        capture_output=True,
        text=True,
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **environment},
    )


@pytest.mark.parametrize("job", JOBS)
def test_every_job_has_an_example_that_parses(job, monkeypatch):
    monkeypatch.chdir(PROJECT)
    app = typer.Typer(add_completion=False)
    app.command(name=job, epilog=epilog(job))(getattr(import_module(f"jobs.{job}"), job))
    command = typer.main.get_command(app)
    name, *arguments = shlex.split(EXAMPLES[job])
    assert name == job
    command.make_context(job, arguments)  # raises for an option that is wrong or missing


def test_help_of_a_job_ends_with_its_example():
    shown = " ".join(run_job_help("dispatch").split())
    assert shown.endswith("Example: commitlake dispatch --store demo/store")


def test_help_lists_every_job_with_its_first_sentence():
    shown = " ".join(re.sub("[│╭╮╰╯─]", " ", run_job_help()).split())
    for job in JOBS:
        assert job in shown
        assert summary(job) == (getattr(import_module(f"jobs.{job}"), job).__doc__ or "").splitlines()[0]


# numpy is not among them: pyspark imports it, and pyarrow imports less than a tenth of a second.
HEAVY = {"pandas", "scipy", "great_expectations", "altair", "vl_convert", "itables", "jinja2", "requests"}


def test_what_only_a_page_or_a_check_needs_is_imported_for_these_alone():
    jobs = ", ".join(f"jobs.{job}" for job in JOBS)
    imported = set(in_a_process(f"import {jobs}; print(*sys.modules)").stdout.split())
    assert f"jobs.{JOBS[-1]}" in imported
    assert not HEAVY & imported


def test_help_imports_no_spark():
    code = "import atexit; atexit.register(lambda: print(*sys.modules)); from jobs.launch.cli import run; run(['--help'])"
    imported = set(in_a_process(code).stdout.split())
    assert "jobs.launch.cli" in imported
    assert not (HEAVY | {"pyspark", "numpy", "pyarrow"}) & imported


def run_job_help(*job: str) -> str:
    shown = in_a_process(f"from jobs.launch.cli import run; run({[*job, '--help']})", COLUMNS="200")
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


def test_help_and_the_names_of_jobs_do_not_wait_for_spark():
    code = (
        "from jobs.launch.cli import run\ntry: run(['--help'])\nfinally: assert 'pyspark' not in sys.modules"
    )
    assert in_a_process(code).returncode == 0
    completed = in_a_process(
        "from jobs.launch.cli import run\ntry: run([])\nfinally: assert 'pyspark' not in sys.modules",
        _COMMITLAKE_COMPLETE="complete_bash",
        COMP_WORDS="commitlake re",
        COMP_CWORD="1",
    )
    assert completed.returncode == 0, completed.stderr
    assert {"redrive", "report", "register"} <= set(completed.stdout.split())
    assert "dispatch" not in completed.stdout


def test_the_options_of_a_job_are_completed():
    completed = in_a_process(
        "from jobs.launch.cli import run; run([])",
        _COMMITLAKE_COMPLETE="complete_bash",
        COMP_WORDS="commitlake dispatch --re",
        COMP_CWORD="2",
    )
    assert set(completed.stdout.split()) == {"--rebuild", "--result-path"}


def test_a_name_that_is_no_job_is_refused():
    run = run_job(["dispach", "--store", "s"])
    assert (run.exit_status, run.result["status"], run.result["store"]) == (2, "failed", "s")
    assert "dispach" in run.stderr


def test_the_speed_of_a_bar():
    task = Task(1, "", total=100, completed=0, _get_time=lambda: 0.0)
    column = Speed("rows")
    assert column.render(task).plain == ""
    task.finished_speed = 12_345.6
    assert column.render(task).plain == "12,346 rows/s"


class Tracker:
    """Spark's, with one stage that has ended meanwhile and two at work."""

    def getActiveStageIds(self) -> list[int]:
        return [4, 5, 6]

    def getStageInfo(self, stage: int) -> SparkStageInfo | None:
        return None if stage == 4 else SparkStageInfo(stage, 0, "", 8, 2, stage - 3, 0)


def test_a_bar_says_how_far_spark_is():
    task = Task(1, "", total=100, completed=0, _get_time=lambda: 0.0)
    assert Tasks(Tracker).render(task).plain == "tasks 5/16"  # type: ignore[arg-type]

    def gone() -> Tracker:
        raise OSError

    assert Tasks(gone).render(task).plain == ""  # type: ignore[arg-type]


def test_the_application_is_the_one_that_installs_completion():
    options = [name for option in typer.main.get_command(application()).params for name in option.opts]
    assert "--install-completion" in options


@pytest.mark.parametrize("given", [["--result-path", "{path}"], ["--result-path={path}"]])
def test_a_misspelt_option_has_a_result_too(given, tmp_path):
    path = tmp_path / "result.json"
    arguments = ["dispatch", "--store=s3a://KEY:SECRET@bucket/store", "--rebuid", *given]
    run = run_job([argument.format(path=path) for argument in arguments])
    assert run.exit_status == 2
    written = json.loads(path.read_text())
    assert written == run.result
    # A key in the URI is kept nowhere.
    assert (written["job"], written["status"], written["store"]) == (
        "dispatch",
        "failed",
        "s3a://***@bucket/store",
    )
    lost = run_job(["dispatch", "--rebuid", "--result-path", str(tmp_path)])
    assert (lost.exit_status, "the result could not be written" in lost.stderr) == (2, True)


def test_what_a_file_holds_does_not_move_the_cursor():
    run = run_job(["topics", "--store", "store", "\x1b]0;title\x07\u202e"])
    assert run.exit_status == 2
    assert "\x1b" not in run.stderr
    assert r"\x1b]0;title\x07\u202e" in run.stderr
