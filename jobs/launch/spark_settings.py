"""The settings of an embedded session: a Spark properties file of this project, and what suits the work."""

import os
import re
import sys
import tempfile
from pathlib import Path

from pipelines.errors import StoreError

PROJECT = Path(__file__).resolve().parents[2]
SETTINGS_FILE = PROJECT / "spark-conf" / "local.conf"
SMALL_FILE = PROJECT / "spark-conf" / "small.conf"
# The JVM's archive of Spark's classes, made by `make setup`: a session starts and warms up faster with it.
CLASSES = PROJECT / ".setup" / "classes.jsa"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# Java's fast compiler alone, with the usual room for compiled code: the fifth of it that it takes by itself is full within
# minutes, and then code is thrown away and compiled again all the time.
SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
WAREHOUSE = "spark.sql.warehouse.dir"
# Between a name and its value, as spark-submit reads such a file.
_SEPARATOR = re.compile(r"\s*[=:]\s*|\s+(?![=:\s])")


def settings_of_work(is_small: bool, is_short: bool) -> dict[str, str]:
    """The settings of the file that COMMITLAKE_SPARK_CONF names, else of spark-conf/local.conf, and what suits the work.

    Raises StoreError where `make setup` has not run, OSError where the file cannot be read.
    """
    settings = read_settings(Path(os.environ.get("COMMITLAKE_SPARK_CONF", SETTINGS_FILE)))
    settings |= settings_of_small(is_small)
    if is_short:
        settings[JAVA_OPTIONS] = f"{settings.get(JAVA_OPTIONS, '')} {SHORT_RUN}".lstrip()
    return settings


def variables_of_java(runs_users_code: bool) -> dict[str, str]:
    """Variables of the environment of a JVM: where no user's code runs it looks for no data sources written in Python.

    At the first read of a table Spark 4.1.4 starts a Python process to find packages named pyspark_…, two thirds of a
    second, unless the driver's Python is a command that does not exist.
    """
    return {} if runs_users_code else {"PYSPARK_DRIVER_PYTHON": "no-python-data-sources"}


def settings_of_small(is_small: bool) -> dict[str, str]:
    """What is added where there is little to do: spark-conf/small.conf."""
    return _lines_of(SMALL_FILE) if is_small and SMALL_FILE.exists() else {}


def read_settings(path: Path) -> dict[str, str]:
    """Settings of a spark properties file, with paths of the project made absolute."""
    settings = _lines_of(path)
    if settings.get("spark.jars", "").endswith("/*"):
        jars = sorted((PROJECT / settings["spark.jars"]).parent.glob("*.jar"))
        settings["spark.jars"] = ",".join(str(jar) for jar in jars)
        if not jars:
            raise StoreError("the Delta jars are missing from jars/: run `make setup`")
    if "spark.pyspark.python" in settings:
        settings["spark.pyspark.python"] = sys.executable
    if (
        settings.get(WAREHOUSE) == "spark-warehouse"
    ):  # else Spark makes it in the current folder at the first lookup of a name
        settings[WAREHOUSE] = str(
            Path(tempfile.gettempdir()) / f"commitlake-{os.getuid()}" / "spark-warehouse"
        )
    if CLASSES.exists():
        # A JVM that the archive does not fit ignores it; it must not log this to stdout, which is only for the result.
        shared = f"-XX:SharedArchiveFile={CLASSES} -Xlog:disable -Xlog:all=error:stderr"
        settings[JAVA_OPTIONS] = f"{settings.get(JAVA_OPTIONS, '')} {shared}".lstrip()
    return {
        name: value.replace("=spark-conf/", f"={PROJECT}/spark-conf/") for name, value in settings.items()
    }


def _lines_of(path: Path) -> dict[str, str]:
    settings = {}
    for line in path.read_text().splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            name, value = [*_SEPARATOR.split(line.strip(), maxsplit=1), ""][:2]
            settings[name] = value
    return settings
