"""The JVM behind a session, for the few things Spark's Python API does not offer."""

from collections.abc import Iterator
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
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


def default_scheme(spark: SparkSession) -> str:
    """The scheme of the file system on which Hadoop looks for a path that names none."""
    hadoop = java_session(spark).sparkContext().hadoopConfiguration()
    return str(jvm(spark).org.apache.hadoop.fs.FileSystem.getDefaultUri(hadoop).getScheme())


def java_causes(failure: BaseException) -> Iterator[Any]:
    """The Java exceptions of which a Python one tells, each followed by its cause."""
    # py4j's own exceptions have the first name, those PySpark made of them the second.
    cause = getattr(failure, "java_exception", None) or getattr(failure, "_origin", None)
    while cause is not None:
        yield cause
        cause = cause.getCause()


def is_java(exception: Any, class_name: str) -> bool:
    """Whether a Java object is an instance of a class or of one made of it."""
    return bool(is_instance_of(SparkContext._gateway, exception, class_name))


def read_text(spark: SparkSession, path: str) -> str | None:
    """What a small file says, UTF-8; None where it cannot be read to its end: whoever wrote it was cut short."""
    target, files = hadoop_path(spark, path)
    stream = files.open(target)
    try:
        return str(jvm(spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    except Py4JJavaError:
        return None
    finally:
        stream.close()
