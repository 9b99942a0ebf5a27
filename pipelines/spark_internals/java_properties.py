"""Java's own parser of .properties files, with which a broker reads its broker.conf.

`java.util.Properties` and `java.io.StringReader` are public in Java; only the way to them is py4j's.
"""

from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from pipelines.spark_internals.jvm import jvm


def java_properties(spark: SparkSession, text: str) -> dict[str, str]:
    """Names and values of a text; of a name that comes twice the last value counts.

    Raises ValueError, with Java's words, for an escape that Java refuses, such as `\\u12`.
    """
    java = jvm(spark).java
    properties = java.util.Properties()
    try:
        properties.load(java.io.StringReader(text))
    except IllegalArgumentException as failure:
        raise ValueError(str(failure).strip().partition("\n")[0]) from None
    return {str(name): str(properties[name]) for name in sorted(properties)}
