"""broker.conf, the file of a broker's settings."""

from pyspark.sql import SparkSession

from pipelines.errors import BadInput
from pipelines.spark_internals.java_properties import java_properties


def read_broker_conf(spark: SparkSession, text: str, file: str) -> dict[str, str]:
    """The settings in the text of a broker.conf, read as a broker reads them: by Java's Properties.

    Without haMasterAddress, which is an address there and the URI of a store here.

    file  its name, for the error. Raises BadInput where Java refuses the text.
    """
    try:
        named = java_properties(spark, text)
    except ValueError as failure:
        raise BadInput(f"{file} is not a broker.conf that Java can read: {failure}") from None
    return {name: value for name, value in named.items() if name not in ("", "haMasterAddress")}
