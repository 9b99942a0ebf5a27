"""The Spark session of a job: made by spark-submit, or embedded with the settings of spark-conf/local.conf."""

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from pipelines.broker_files.data_source import RocketmqStore
from pipelines.errors import StoreError
from pipelines.spark_internals.jvm import is_running, remember_names

PROJECT = Path(__file__).resolve().parents[2]
SETTINGS_FILE = PROJECT / "spark-conf" / "local.conf"
SMALL_FILE = PROJECT / "spark-conf" / "small.conf"
# The JVM's archive of Spark's classes, made by `make setup`: a session starts and warms up faster with it.
CLASSES = PROJECT / ".setup" / "classes.jsa"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
DRIVER_PYTHON = "PYSPARK_DRIVER_PYTHON"
# Java's fast compiler alone, with the usual room for compiled code: the fifth of it that it takes by itself is full within
# minutes, and then code is thrown away and compiled again all the time.
SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
WAREHOUSE = "spark.sql.warehouse.dir"


def session(
    app_name: str, is_small: bool = False, is_short: bool = False, runs_users_code: bool = True, **more: str
) -> SparkSession:
    """The session a job runs in.

    Under spark-submit it has the settings given there. Otherwise it is made here from the file COMMITLAKE_SPARK_CONF names,
    else from spark-conf/local.conf. Where there is little to do spark-conf/small.conf is added. One that is there already,
    because other commands ran in this process, is left as it is. `more` is added on top in any case.

    is_small         whether so little is to be done that plans and tasks cost more than rows
    is_short         whether the session ends so soon that Java's second compiler would take longer than it saves
    runs_users_code  whether something may read a data source written in Python

    Raises StoreError when Java is missing or the session cannot start.
    """
    os.environ.setdefault(
        "PYSPARK_PYTHON", sys.executable
    )  # else workers lack the packages of this environment
    builder = SparkSession.builder.appName(app_name)
    for name, value in {**_settings(is_small, is_short), **more}.items():
        builder = builder.config(name, value)
    try:
        with _without_python_sources() if is_short and not runs_users_code else nullcontext():
            spark = builder.getOrCreate()
    except PySparkRuntimeError as failure:
        raise StoreError(
            f"Spark did not start: {failure}. It needs Java 17 or newer: is JAVA_HOME set, does `java -version` answer?"
        ) from failure
    except Exception as failure:
        if "BindException" in str(failure) or "Address already in use" in str(failure):
            raise StoreError(
                "Spark did not start: the port it was given is in use. Leave spark.driver.port and spark.ui.port unset, "
                "or name a free one."
            ) from failure
        raise
    remember_names()
    spark.dataSource.register(RocketmqStore)
    # Without it Spark refuses a Python data source with filter pushdown, and a user's own profile may not set it.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    # A job fails where a file of a store or an input is missing or corrupt; it never goes on without its rows.
    for name in ("ignoreMissingFiles", "ignoreCorruptFiles"):
        spark.conf.set(f"spark.sql.files.{name}", "false")
    spark.sparkContext.setLogLevel("ERROR")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    # PySpark logs every SQL error with the JVM's stack trace; the job prints the error itself.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).disabled = True
    return spark


def _settings(is_small: bool, is_short: bool) -> dict[str, str]:
    """What is added to the settings of the process's session, or, where it is made here, all of them."""
    if is_running():
        return {}
    of_small = _lines_of(SMALL_FILE) if is_small and SMALL_FILE.exists() else {}
    if (
        "PYSPARK_GATEWAY_PORT" in os.environ
    ):  # spark-submit has started the JVM, perhaps where only the packages are
        return of_small
    os.environ.pop("SPARK_HOME", None)  # scripts and jars of another Spark do not work with this PySpark
    settings = read_settings(Path(os.environ.get("COMMITLAKE_SPARK_CONF", SETTINGS_FILE))) | of_small
    if is_short:
        settings[JAVA_OPTIONS] = f"{settings.get(JAVA_OPTIONS, '')} {SHORT_RUN}".lstrip()
    return settings


@contextmanager
def _without_python_sources() -> Iterator[None]:
    """A context in which a JVM starts that does not look for data sources written in Python.

    At the first read of a table Spark 4.1.4 starts a Python process to find packages named pyspark_…, unless the driver's
    Python is no command that exists: two thirds of a second.
    """
    before = os.environ.get(DRIVER_PYTHON)
    os.environ[DRIVER_PYTHON] = "no-python-data-sources"
    try:
        yield
    finally:
        os.environ.pop(DRIVER_PYTHON)
        if before is not None:
            os.environ[DRIVER_PYTHON] = before


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
            name, _, value = line.strip().partition(" ")
            settings[name] = value.strip()
    return settings
