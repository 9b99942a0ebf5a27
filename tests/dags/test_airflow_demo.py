"""`make airflow-demo`: Airflow's own three parts, and the DAGs on a broker's store until every run has ended."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import PROJECT

PYTHON = PROJECT / ".airflow" / "venv" / "bin" / "python"


@pytest.mark.nightly
@pytest.mark.skipif(not PYTHON.exists(), reason="Airflow is not set up; make airflow")
def test_the_dags_run_in_airflow_as_shown(tmp_path: Path) -> None:
    with (tmp_path / "said").open("w+") as said:
        done = subprocess.run(
            [PYTHON, PROJECT / "scripts" / "airflow_demo.py", "--port", "0"],
            env={**os.environ, "AIRFLOW_HOME": str(tmp_path / "airflow")},
            stdout=said,
            stderr=subprocess.STDOUT,
            timeout=800,
        )
        said.seek(0)
        shown = said.read()
    assert done.returncode == 0, shown
    runs = [line for line in shown.splitlines() if line.endswith(": success")]
    assert [run.split(":")[0] for run in runs] == [
        "ingest", "dispatch", "ingest", "dispatch", "deliver", "dispatch", "quality",
    ], shown  # fmt: skip
    assert "'appended': 10" in shown
    assert (PROJECT / "demo" / "airflow" / "report.html").stat().st_size > 10_000
