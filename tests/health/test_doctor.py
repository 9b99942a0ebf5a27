"""The doctor: each thing that can be wrong is found, named, and comes with what to do."""

import hashlib
import json
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from jobs.launch.spark_settings import CLASSES
from pipelines.health import machine
from pipelines.health.check import Verdict, looked_at
from pipelines.health.session import class_archive
from pipelines.health.store import dispatch, job_runs, leftovers, tables, writing
from pipelines.store.commit import commit
from pipelines.store.create import make_tables
from pipelines.store.lock import under_lock
from pipelines.store.plan import Plan
from pipelines.store.store import Store
from schemas import CLAIMS, COMMITLOG, EPOCHS, JOB_RUNS, TOPICS
from tests.conftest import JobRun, run_job
from tests.life import B, Life


@pytest.mark.quick
def test_without_java_it_says_so_and_how_to_fix_it(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    run = run_job(["doctor"])
    assert run.exit_status == 1
    assert (run.result["status"], run.result["store"], run.result["bad"]) == ("failed", None, 2)
    assert "bad  java" in run.stderr
    assert "install Java 17 or newer" in run.stderr
    assert "not tried: it needs Java" in run.stderr
    assert "ok   python" in run.stderr  # what needs no Java was looked at all the same


@pytest.mark.quick
@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ("echo 'openjdk version \"1.8.0_412\"' >&2", Verdict.bad),
        ("echo 'openjdk version \"17.0.15\" 2025-04-15' >&2", Verdict.ok),
        ("echo 'openjdk version \"25\" 2025-09-16' >&2", Verdict.ok),
        ("echo 'no idea' >&2", Verdict.bad),
    ],
)
def test_the_java_that_spark_would_start_is_asked(monkeypatch, tmp_path, script, verdict):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert machine.java().verdict == verdict


@pytest.mark.quick
def test_a_java_home_without_java_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    check = machine.java()
    assert check.verdict == Verdict.bad
    assert str(tmp_path) in check.found


def project_with(directory: Path, jars: dict[str, bytes], pinned: dict[str, bytes]) -> Path:
    (directory / "jars").mkdir()
    (directory / "scripts").mkdir()
    for name, content in jars.items():
        (directory / "jars" / name).write_bytes(content)
    sums = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in pinned.items()]
    (directory / "scripts" / "jars.sha256").write_text("".join(sums))
    return directory


@pytest.mark.quick
@pytest.mark.parametrize(
    ("jars", "said"),
    [
        ({"a.jar": b"a"}, "b.jar is missing"),
        ({"a.jar": b"a", "b.jar": b"cut sho"}, "b.jar is not the file that was pinned"),
        ({"a.jar": b"a", "b.jar": b"b", "c.jar": b"c"}, "c.jar does not belong there"),
        ({"a.jar": b"a", "b.jar": b"b"}, "2 in"),
    ],
)
def test_jars_are_those_that_were_pinned(tmp_path, jars, said):
    check = machine.jars(project_with(tmp_path, jars, {"a.jar": b"a", "b.jar": b"b"}))
    assert said in check.found
    assert check.verdict == (Verdict.ok if said == "2 in" else Verdict.bad)


@pytest.mark.quick
def test_delta_for_another_spark_is_refused(tmp_path):
    delta = version("delta-spark")
    right = project_with(tmp_path, {f"delta-spark_4.1_2.13-{delta}.jar": b""}, {})
    assert machine.delta_and_spark(right).verdict == Verdict.ok
    (tmp_path / "jars" / f"delta-spark_4.1_2.13-{delta}.jar").rename(
        tmp_path / "jars" / f"delta-spark_4.0_2.13-{delta}.jar"
    )
    check = machine.delta_and_spark(tmp_path)
    assert check.verdict == Verdict.bad
    assert "for Spark 4.0" in check.found


@pytest.mark.quick
def test_a_package_of_another_version_is_named():
    found = version("pyspark")
    assert machine.package_complaint(Requirement(f"pyspark=={found}")) is None
    assert machine.package_complaint(Requirement("pyspark<4")) == f"pyspark is {found}, expected <4"
    assert machine.package_complaint(Requirement("no-such-package-here")) == "no-such-package-here is missing"


@pytest.mark.quick
def test_a_driver_larger_than_the_machine_is_bad(monkeypatch):
    monkeypatch.setattr(machine, "machine_memory", lambda: 8 * 1024**3)
    verdicts = [machine.memory(asked).verdict for asked in ("4g", "7g", "9g")]
    assert verdicts == [Verdict.ok, Verdict.warn, Verdict.bad]
    assert "6g or less" in machine.memory("9g").remedy


@pytest.mark.quick
def test_a_full_disk_is_bad(monkeypatch, tmp_path):
    usage = shutil.disk_usage(tmp_path)
    for free, verdict in ((10**8, Verdict.bad), (2 * 10**9, Verdict.warn), (10**11, Verdict.ok)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage._replace(free=free))
        assert machine.disk(tmp_path / "not" / "there").verdict == verdict


@pytest.mark.quick
def test_a_look_that_fails_is_a_bad_check_and_the_others_go_on():
    def fails():
        raise OSError("the wire is cut\nand more")

    checks = list(looked_at([("wire", fails), ("cores", machine.cores)]))
    assert [check.name for check in checks] == ["wire", "cores"]
    assert checks[0].verdict == Verdict.bad
    assert checks[0].found == "it could not be checked: the wire is cut"


@pytest.mark.quick
@pytest.mark.skipif(sys.platform != "linux", reason="the option is Linux's")
def test_the_archive_of_classes_is_one_that_java_uses(spark, tmp_path):
    other = tmp_path / "classes.jsa"
    assert (class_archive(spark, other).verdict, class_archive(spark, other).remedy) == (
        Verdict.warn,
        machine.SET_UP,
    )
    other.write_bytes(b"of another Java")
    assert class_archive(spark, other).verdict == Verdict.warn
    assert "Java does not use" in class_archive(spark, other).found
    # The session of the tests has been started with the project's archive.
    assert class_archive(spark, CLASSES).verdict == Verdict.ok


@pytest.mark.slow
def test_a_store_that_is_well_and_then_is_not(spark, commitlake, store: Store, tmp_path):
    life = Life(commitlake, store, tmp_path)
    life.put(B, {"topic": "T"})
    assert dispatch(store).verdict == Verdict.warn
    life.job("dispatch", B)
    well: JobRun = commitlake("doctor", "--store", store.uri, "--output", "json")
    checks = [json.loads(line) for line in well.lines]
    assert [check for check in checks if check["verdict"] == "bad"] == []
    assert (well.exit_status, well.result["checked"], well.result["bad"]) == (0, len(checks), 0)
    assert {"session", "delta", "python workers", "tables", "dispatch"} <= {check["name"] for check in checks}

    spark.sql(f"ALTER TABLE delta.`{store.path(COMMITLOG)}` UNSET TBLPROPERTIES ('delta.appendOnly')")
    spark.sql(f"ALTER TABLE delta.`{store.path(TOPICS)}` ADD COLUMNS (note string)")
    shutil.rmtree(store.path(CLAIMS))
    assert tables(store).found == "missing: claims"
    assert "commitlake dispatch" in tables(store).remedy
    aside = shutil.move(store.path(EPOCHS), f"{store.path(EPOCHS)}-aside")  # what dispatch does not make
    assert "epochs" in tables(store).found
    assert "commitlake validate" in tables(store).remedy
    shutil.move(aside, store.path(EPOCHS))
    make_tables(store)
    check = tables(store)
    assert check.verdict == Verdict.bad
    assert "commitlog has delta.appendOnly = not set, expected true" in check.found
    assert "topics" not in check.found  # a column more does no harm

    now_ms = B + 100 * 3_600_000
    yesterday = now_ms - 25 * 3_600_000
    runs = [(job, job, B, 1.0, "failed", "{}") for job in ("deliver", "sql")]
    runs += [("backup", "then", yesterday, 1.0, "failed", "{}")]
    failed = spark.createDataFrame(runs, JOB_RUNS.columns)
    commit(store, lambda at: Plan((at.append_unnumbered(JOB_RUNS, failed),)))
    # A query that failed is nobody's work to do again.
    assert (
        job_runs(store, now_ms).found
        == "deliver failed at 2023-11-14 22:13:20 UTC, and no good run of it is recorded since"
    )
    lately = [("backup", "now", yesterday + 2 * 3_600_000, 1.0, "failed", "{}")]
    failed = spark.createDataFrame(lately, JOB_RUNS.columns)
    commit(store, lambda at: Plan((at.append_unnumbered(JOB_RUNS, failed),)))
    assert job_runs(store, now_ms).found.startswith(
        "backup failed at "
    )  # though a good one would leave no row
    Path(store.uri, "_staging", "killed").mkdir(parents=True)
    assert leftovers(store).verdict == Verdict.warn
    assert writing(store).verdict == Verdict.ok

    ill = commitlake("doctor", "--store", store.uri, "--quiet")
    assert (ill.exit_status, ill.result["status"], ill.result["bad"]) == (1, "failed", 1)
    assert "delta.appendOnly" in ill.stderr
    runs = store.read(JOB_RUNS).where("job = 'doctor'").count()
    assert runs == 0  # who only looks leaves no run


def test_a_run_that_holds_the_lock_is_told(store: Store):
    check = under_lock(store.spark, store.uri, lambda: writing(store))
    assert (check.verdict, check.found) == (Verdict.warn, "another run holds the lock right now")
    assert writing(store).verdict == Verdict.ok


def test_a_place_without_a_store_is_bad_and_stays_as_it_is(commitlake, tmp_path):
    run = commitlake("doctor", "--store", tmp_path / "none")
    assert run.exit_status == 1
    assert "no store at" in run.stderr
    assert not (tmp_path / "none").exists()
