"""The settings files: every line has its reason, and Spark knows every name, also of lines to be uncommented."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

PROJECT = Path(__file__).parents[2]
PROFILES = sorted((PROJECT / "spark-conf").glob("*.conf"))

SETTING = re.compile(r"(# )?(spark\.[\w.\-]+) +\S")
# Names that Spark and its neighbours look up without declaring them, by their beginning.
OPEN_NAMES = (
    "spark.master", "spark.hadoop.", "spark.executorEnv.", "spark.yarn.appMasterEnv.", "spark.kubernetes.driverEnv.",
    "spark.delta.logStore.", "spark.io.delta.storage.S3DynamoDBLogStore.",
)  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_every_setting_has_a_reason_above_it(profile: Path) -> None:
    is_explained = False
    for line in profile.read_text(encoding="utf-8").splitlines():
        if SETTING.match(line):
            assert is_explained, f"no reason above {line}"
        else:
            is_explained = line.startswith("# ")


@pytest.mark.quick
@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_a_setting_is_given_once(profile: Path) -> None:
    lines = profile.read_text(encoding="utf-8").splitlines()
    names = [found[2] for line in lines if (found := SETTING.match(line)) and not found[1]]
    assert len(names) == len(set(names))


def test_spark_knows_every_setting(spark: SparkSession) -> None:
    jvm = spark._jvm
    # Names are registered when the class that declares them is loaded.
    for declaring in ("deploy.k8s.Config$", "deploy.yarn.config.package$", "sql.delta.sources.DeltaSQLConf$"):
        jvm.java.lang.Class.forName(
            f"org.apache.spark.{declaring}", True, jvm.Thread.currentThread().getContextClassLoader()
        )
    known = jvm.org.apache.spark.internal.config.ConfigEntry
    unknown = {
        f"{profile.name}: {found[2]}"
        for profile in PROFILES
        for line in profile.read_text(encoding="utf-8").splitlines()
        if (found := SETTING.match(line))
        and not found[2].startswith(OPEN_NAMES)
        and known.findEntry(found[2]) is None
    }
    assert not unknown
