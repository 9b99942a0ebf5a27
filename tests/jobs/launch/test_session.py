"""The session of a command: what it is made with where there is little to do; a session that is there stays as it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.launch.session import session
from jobs.launch.spark_settings import SHORT_RUN, read_settings
from tests.conftest import PROJECT

SAID = """
from jobs.launch.session import session
spark = session("test", **{options})
jvm = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
names = "codegen.factoryMode", "adaptive.enabled", "shuffle.partitions"
print(*(spark.conf.get("spark.sql." + name) for name in names), "-XX:TieredStopAtLevel=1" in list(jvm))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param({}, "FALLBACK true 4 False", marks=pytest.mark.nightly),
        pytest.param({"is_small": True}, "NO_CODEGEN false 1 False", marks=pytest.mark.nightly),
        ({"is_small": True, "is_short": True, "runs_users_code": False}, "NO_CODEGEN false 1 True"),
    ],
)
def test_a_session_is_made_for_what_it_is_to_do(options: dict[str, bool], said: str) -> None:
    others = ("COMMITLAKE_SPARK_CONF", "JDK_JAVA_OPTIONS")
    environment = {name: value for name, value in os.environ.items() if name not in others}
    done = subprocess.run(
        [sys.executable, "-c", SAID.format(options=options)],
        cwd=PROJECT, env={**environment, "PYTHONPATH": str(PROJECT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip().splitlines()[-1:] == [said], done.stderr


@pytest.mark.quick
def test_the_profile_of_ticks_is_that_of_small_commands() -> None:
    local, small, ticks = (
        read_settings(PROJECT / "spark-conf" / f"{name}.conf") for name in ("local", "small", "ticks")
    )
    java = "spark.driver.extraJavaOptions"
    assert ticks == local | small | {java: local[java].replace("GC", f"GC {SHORT_RUN}", 1)}


def test_a_session_that_is_there_keeps_its_settings(spark: SparkSession) -> None:
    before = spark.conf.getAll
    found = session("another", is_small=True)
    assert found.conf.getAll == {**before, "spark.app.name": found.conf.get("spark.app.name")}


@pytest.mark.quick
def test_a_line_of_a_settings_file_is_read_as_spark_submit_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "own.conf"
    path.write_text("# a comment\na.b c=d e\nf=g\n h : i\nj\tk:l\nm   =n\no\n")
    found = {name: value for name, value in read_settings(path).items() if not name.startswith("spark.")}
    assert found == {"a.b": "c=d e", "f": "g", "h": "i", "j": "k:l", "m": "n", "o": ""}
