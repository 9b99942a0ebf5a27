"""What a person reads of a failure: a sentence, never a bare number or the name of a class."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from jobs.launch.failures import first_line
from jobs.launch.run import Run
from pipelines.store.store import Store
from tests.conftest import PROJECT, write_jsonl
from tests.life import B

pytestmark = pytest.mark.quick


def raised(failing: Any) -> BaseException:
    try:
        failing()
    except BaseException as failure:
        return failure
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    "failure", [KeyError(-4613), KeyError("topic"), IndexError(), AssertionError(), StopIteration()]
)
def test_a_mistake_of_our_own_says_that_it_is_one(failure: BaseException) -> None:
    said = first_line(failure)
    assert said.startswith(type(failure).__name__)
    assert said.endswith("this is a mistake in commitlake itself: please report it with what --debug shows")


def test_a_mistake_says_where_it_is() -> None:
    from pipelines.reports.page.words import plural

    failure = raised(lambda: plural("x", "queue"))  # type: ignore[arg-type]
    assert isinstance(failure, ValueError), "a text of its own"
    assert first_line(failure) == str(failure)
    from pipelines.rocketmq.settings import Settings

    assert " at pipelines/rocketmq/settings.py line " in first_line(
        raised(lambda: Settings.of({})["nothing"])
    )


def test_what_java_raises_is_told_without_its_class(spark: SparkSession) -> None:
    assert spark._jvm is not None
    files = spark._jvm.org.apache.hadoop.fs.Path("/").getFileSystem(spark._jsc.hadoopConfiguration())
    failure = raised(lambda: files.open(spark._jvm.org.apache.hadoop.fs.Path("/no/such/file")))
    assert isinstance(failure, Py4JJavaError)
    assert first_line(failure) == "File /no/such/file does not exist"


def test_a_control_c_while_the_session_is_made_is_no_failure(
    life: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """py4j, interrupted, raises an error of its own."""
    one = life()

    def interrupted(*_: Any, **__: Any) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            raise ConnectionError("Answer from Java side is empty") from None

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("jobs.launch.run.session", interrupted)
    assert "dispatch was interrupted" in one.job("dispatch", B, exit_status=1).stderr
    assert signal.getsignal(signal.SIGINT) is before


def test_one_control_c_counts_as_one(life: Any) -> None:
    """Where the session is there already, as in the shell: after a second one a run is not recorded."""
    run = Run("dispatch", life().store.uri)
    assert run.spark is not None
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    assert run.interruptions == 1
    run.at_end.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["-c", "from jobs.launch.cli import main; main()", "dispatch"], ["jobs/dispatch.py"]]
)
def test_a_job_whose_stderr_is_closed_ends_as_any(command: list[str]) -> None:
    closed = [sys.executable, *command, "--store", "/no/such/store", "--fault"]
    ran = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *closed],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        check=False,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    assert ran.returncode == 2
    assert json.loads(ran.stdout)["status"] == "failed"


def test_requests_are_taken_as_they_are_or_refused(life: Any, tmp_path: Path) -> None:
    one = life()
    one.put(B, {"topic": "T"}, {"topic": "T"})
    offsets = [row.physical_offset for row in one.rows()]
    halves = write_jsonl(tmp_path / "a.jsonl", [{"physical_offset": offsets[1] + 0.5}])
    run = one.job("send_back", B, "--group", "g", "--input", halves, exit_status=2)
    assert f"physical_offset is {offsets[1]}.5; expected a value of type long" in run.stderr
    fractions = one.store.spark.createDataFrame([(offsets[1] + 0.5,)], "physical_offset double")
    fractions.write.parquet(str(tmp_path / "a.parquet"))
    run = one.job("send_back", B, "--group", "g", "--input", tmp_path / "a.parquet", exit_status=2)
    assert f"physical_offset is {offsets[1]}.5; expected a value of type long" in run.stderr
    fields = tmp_path / "a.csv"
    fields.write_text("physical_offset,delay_level\n0,1,2\n")
    run = one.job("send_back", B, "--group", "g", "--input", fields, exit_status=2)
    assert (
        "0,1,2 is not a valid row of its file; expected the fields of the header: physical_offset, delay_level"
        in run.stderr
    )
    broken = tmp_path / "b.jsonl"
    broken.write_text('{"physical_offset": 0}\nnonsense\n')
    run = one.job("send_back", B, "--group", "g", "--input", broken, exit_status=2)
    assert "nonsense is not a valid row of its file; expected a JSON object" in run.stderr
    assert len(one.rows()) == 2


def test_a_control_c_once_the_work_has_ended_does_not_say_that_nothing_was_changed(
    commitlake: Any,
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    source = write_jsonl(tmp_path / "in.jsonl", [{"topic": "T", "body": "x"}])
    put = ["put_messages", "--store", store.uri, "--input", str(source), "--batch-id"]
    with monkeypatch.context() as patch:
        patch.setattr("jobs.launch.job._write_result", interrupted)
        ended = commitlake(*put, "b", "--result-path", str(tmp_path / "result.json"))
    assert (ended.exit_status, ended.result["status"]) == (1, "failed")
    assert "interrupted at its end; nothing is lost, it is safe to run again" in ended.stderr
    assert "nothing was changed" not in ended.stderr
    with monkeypatch.context() as patch:
        patch.setattr("jobs.launch.job.commit", interrupted)  # of the run's row in job_runs
        again = commitlake(*put, "c")
    assert (again.exit_status, again.result["appended"]) == (0, 1)
    assert "this run could not be recorded in job_runs: it was interrupted" in caplog.text
    assert store.commitlog.count() == 2
