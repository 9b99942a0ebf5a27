"""The JVM behind a session, for the few things Spark's Python API does not offer."""

from typing import Any

from pyspark.sql import SparkSession


def jvm(spark: SparkSession) -> Any:
    """The JVM's packages, by name."""
    return spark._jvm


def java_session(spark: SparkSession) -> Any:
    """The session as the JVM knows it."""
    return spark._jsparkSession


def hadoop_path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Hadoop's Path and the file system it is on."""
    target = jvm(spark).org.apache.hadoop.fs.Path(path)
    return target, target.getFileSystem(java_session(spark).sessionState().newHadoopConf())
