"""The Spark session of a job: made by spark-submit, or embedded with the settings of spark-conf/local.conf."""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from jobs.launch.head_start import java_taken
from jobs.launch.spark_settings import settings_of_small, settings_of_work, variables_of_java
from pipelines.broker_files.data_source import RocketmqStore
from pipelines.errors import StoreError
from pipelines.spark_internals.jvm import (
    forget_property_sources,
    is_running,
    leave_pandas_out,
    remember_names,
)


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
    leave_pandas_out()
    builder = SparkSession.builder.appName(app_name)
    for name, value in {**_settings(is_small, is_short), **more}.items():
        builder = builder.config(name, value)
    try:
        with java_taken(), _with_environment(variables_of_java(runs_users_code)):
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
    forget_property_sources(spark)
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
    if (
        "PYSPARK_GATEWAY_PORT" in os.environ
    ):  # spark-submit has started the JVM, perhaps where only the packages are
        return settings_of_small(is_small)
    os.environ.pop("SPARK_HOME", None)  # scripts and jars of another Spark do not work with this PySpark
    return settings_of_work(is_small, is_short)


@contextmanager
def _with_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """A context in which a JVM that starts has these variables."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value
