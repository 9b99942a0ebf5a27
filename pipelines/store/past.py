"""Past times at which a store is read."""

from pyspark.sql import SparkSession

from pipelines.errors import BadInput
from pipelines.spark_internals.arrow import frame_of
from pipelines.spark_internals.sessions import cloned


def epoch_ms(spark: SparkSession, option: str, time: str | int) -> int:
    """Epoch milliseconds of a timestamp as Spark reads one (UTC unless it has a zone), or of such a number.

    Raises BadInput for any other text.
    """
    if isinstance(time, int) or (time.strip().isdigit() and len(time.strip()) > 4):
        return int(time)
    in_utc = cloned(spark)
    in_utc.conf.set("spark.sql.session.timeZone", "UTC")
    given = frame_of(in_utc, [(time,)], "time string")
    found = given.selectExpr("unix_millis(try_cast(time AS TIMESTAMP))").first()
    if found is None or found[0] is None:
        raise BadInput(
            f"{option} is {time!r}; expected a timestamp like 2026-11-21T07:20:58 or epoch milliseconds"
        )
    return int(found[0])
