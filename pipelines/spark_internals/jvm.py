"""The JVM of a session, for the few things Spark's Python API does not offer.

Only this folder uses it. Read from PySpark 4.1.4 and py4j 0.10.9.9: `_jvm`, `_jsparkSession`, `_gateway` and
`convert_exception` are theirs.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import numpy as np
from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView, is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import CapturedException, convert_exception
from pyspark.sql import SparkSession
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter


def is_running() -> bool:
    """Whether this process has a Spark context. The public ways to ask make one, or know only this thread's session."""
    return SparkContext._active_spark_context is not None


def jvm(spark: SparkSession) -> Any:
    """The JVM's packages, by name."""
    return spark._jvm


def leave_pandas_out() -> None:
    """Keep PySpark from loading pandas before the first call of the JVM, 0.7 s, only to check that NumPy is installed.

    What it does after that check is done here as PySpark 4.1.4 does it.
    """

    def is_array(_: Any, value: Any) -> bool:
        return isinstance(value, np.ndarray) and value.ndim == 1

    def is_scalar(_: Any, value: Any) -> bool:
        return isinstance(value, np.generic)

    NumpyArrayConverter.can_convert = is_array  # type: ignore[assignment, method-assign]
    NumpyScalarConverter.can_convert = is_scalar  # type: ignore[assignment, method-assign]


def remember_names() -> None:
    """Have py4j cache the packages, classes and static methods of the JVM by name, once it has looked them up.

    By default the JVM looks a name up each time it is used, in all of Spark's jars where the name is a package's: 2,000 of
    the 6,700 calls of a put of five rows. What is cached never changes; the value of a static field is read each time.
    Read from py4j 0.10.9.9: `__getattr__` is called for what an object does not have itself.
    """
    for kind in (JVMView, JavaPackage, JavaClass):
        if not hasattr(kind.__getattr__, "__wrapped__"):
            kind.__getattr__ = _remembering(kind.__getattr__)


def _remembering(look_up: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    @wraps(look_up)
    def remembering(owner: Any, name: str) -> Any:
        found = look_up(owner, name)
        if isinstance(found, JavaPackage | JavaClass | JavaMember):
            owner.__dict__[name] = found
        return found

    return remembering


def forget_property_sources(spark: SparkSession) -> None:
    """Have Hadoop's settings no longer carry, for each of a thousand properties, the file it came from.

    Spark copies them for each query, and sends them with each stage, each source compressed alone: a tenth of Java's time in
    commands on small stores. Read from Hadoop 3.4.2's Configuration: they are for `getPropertySources`, for copies of the
    settings and for lists of them as XML, which all allow for properties without one.
    """
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    try:
        sources = settings.getClass().getDeclaredField("updatingResource")
        sources.setAccessible(True)
        known = sources.get(settings)
    except Py4JJavaError:  # another Hadoop, under spark-submit: they stay
        return
    if known is not None:
        known.clear()


def java_session(spark: SparkSession) -> Any:
    """The session as the JVM knows it."""
    return spark._jsparkSession


def java_causes(failure: BaseException) -> Iterator[Any]:
    """The Java exceptions that a Python one wraps, each followed by its cause."""
    # py4j's own exceptions have the first name, those PySpark made of them the second.
    cause = getattr(failure, "java_exception", None) or getattr(failure, "_origin", None)
    while cause is not None:
        yield cause
        cause = cause.getCause()


def spark_errors(failure: BaseException) -> Iterator[CapturedException]:
    """What Spark itself has raised inside a failure, the outermost first: causes with a condition of its own."""
    for cause in java_causes(failure):
        error = convert_exception(cause)
        if error.getCondition() is not None:
            yield error


def is_java(exception: Any, class_name: str) -> bool:
    """Whether a Java object is an instance of a class or of a subclass of it."""
    return bool(is_instance_of(SparkContext._gateway, exception, class_name))


def is_java_failure(failure: BaseException) -> bool:
    """Whether an exception is py4j's own, which wraps a Java exception that PySpark has no class for."""
    return isinstance(failure, Py4JJavaError)


def innermost_text(failure: BaseException) -> str:
    """The message of a failure's first cause, in one line: the exceptions around it only say that something has failed."""
    said = [str(cause.getMessage() or "").strip().partition("\n")[0] for cause in java_causes(failure)]
    return next((text for text in reversed(said) if text), str(failure).strip().partition("\n")[0])
