"""The Spark session of a job: made by spark-submit, or embedded with the settings of spark-conf/local.conf."""

import logging
import os
import sys
import tempfile
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from pipelines.broker_files.data_source import RocketmqStore
from pipelines.errors import StoreError
from pipelines.spark_internals.jvm import remember_names

PROJECT = Path(__file__).resolve().parents[2]
SETTINGS_FILE = PROJECT / "spark-conf" / "local.conf"
# Spark's classes as the JVM keeps them, made by `make setup`: a session starts and warms up faster with them.
CLASSES = PROJECT / ".setup" / "classes.jsa"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
WAREHOUSE = "spark.sql.warehouse.dir"


def session(app_name: str, **more: str) -> SparkSession:
    """The session a job runs in.

    Under spark-submit it exists already, with the settings given there. Otherwise it is made here from the file
    COMMITLAKE_SPARK_CONF names, else from spark-conf/local.conf; `more` is added on top.

    Raises StoreError when Java is missing or the session cannot start.
    """
    os.environ.setdefault(
        "PYSPARK_PYTHON", sys.executable
    )  # else workers lack the packages of this environment
    builder = SparkSession.builder.appName(app_name)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has not started a JVM for us
        os.environ.pop(
            "SPARK_HOME", None
        )  # another Spark's scripts and jars do not go with this one's Python
        settings = read_settings(Path(os.environ.get("COMMITLAKE_SPARK_CONF", SETTINGS_FILE)))
        for name, value in settings.items():
            builder = builder.config(name, value)
    for name, value in more.items():
        builder = builder.config(name, value)
    try:
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
    # Spark refuses a source that takes conditions where this is off, and a profile of one's own may not say it.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    # A store's rows, and an input's, are all there or the job fails: a file that is gone is no reason to go on without it.
    for name in ("ignoreMissingFiles", "ignoreCorruptFiles"):
        spark.conf.set(f"spark.sql.files.{name}", "false")
    spark.sparkContext.setLogLevel("ERROR")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    # PySpark logs every SQL error with the JVM's stack; the error itself says what a person needs.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).disabled = True
    return spark


def read_settings(path: Path) -> dict[str, str]:
    """Settings of a spark properties file, with paths of the project made absolute."""
    settings: dict[str, str] = {}
    for line in path.read_text().splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            name, _, value = line.strip().partition(" ")
            settings[name] = value.strip()
    if settings.get("spark.jars", "").endswith("/*"):
        jars = sorted((PROJECT / settings["spark.jars"]).parent.glob("*.jar"))
        settings["spark.jars"] = ",".join(str(jar) for jar in jars)
        if not jars:
            raise StoreError("the Delta jars are missing from jars/: run `make setup`")
    if "spark.pyspark.python" in settings:
        settings["spark.pyspark.python"] = sys.executable
    if (
        settings.get(WAREHOUSE) == "spark-warehouse"
    ):  # Spark makes it when a first name is looked up, in the caller's folder
        settings[WAREHOUSE] = str(
            Path(tempfile.gettempdir()) / f"commitlake-{os.getuid()}" / "spark-warehouse"
        )
    if CLASSES.exists():
        # A JVM they do not fit reads past them; it would say so on stdout, which belongs to the result.
        shared = f"-XX:SharedArchiveFile={CLASSES} -Xlog:disable -Xlog:all=error:stderr"
        settings[JAVA_OPTIONS] = f"{settings.get(JAVA_OPTIONS, '')} {shared}".lstrip()
    return {
        name: value.replace("=spark-conf/", f"={PROJECT}/spark-conf/") for name, value in settings.items()
    }
