"""Past times at which a store is read."""

from pyspark.sql import SparkSession

from pipelines.errors import BadInput
from pipelines.rocketmq.times import FIRST_MS, LAST_MS
from pipelines.spark_internals.arrow import frame_of
from pipelines.spark_internals.sessions import cloned

# Up to four digits are a year; more than a long has are no number that anybody means.
MILLISECONDS_DIGITS = range(5, 20)


def epoch_ms(spark: SparkSession, option: str, time: str | int) -> int:
    """Epoch milliseconds of a timestamp as Spark reads one (UTC unless it has a zone), or of such a number.

    Raises BadInput for any other text, and for a number outside the years 1970 to 9999.
    """
    text = str(time).strip()
    if isinstance(time, int) or (text.isascii() and text.isdigit() and len(text) in MILLISECONDS_DIGITS):
        if not FIRST_MS <= int(time) <= LAST_MS:
            raise BadInput(f"{option} is {text}; expected epoch milliseconds of the years 1970 to 9999")
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
