"""The tables of a store as they were at a past time, as far back as Delta still has it."""

from pyspark.sql import DataFrame, SparkSession

from pipelines.errors import BadInput
from pipelines.store.store import Store
from schemas import STORE_SETTINGS, Table


class PastTables:
    """A source of tables' rows as of a time: each table as its last commit before then left it.

    Tables are written one after the other, so derived tables may lack the log's last appends, as they did then.
    """

    def __init__(self, store: Store, timestamp_ms: int) -> None:
        """Raises BadInput for a time before the store was made."""
        self.store = store
        self.timestamp_ms = timestamp_ms
        made_ms = store.delta(STORE_SETTINGS).first_commit_ms()
        if timestamp_ms < made_ms:
            raise BadInput(
                f"the store at {store.uri} was made at {made_ms}; "
                f"as of {timestamp_ms} there is nothing to read"
            )

    def read(self, table: Table) -> DataFrame:
        version = self.store.delta(table).version_at(self.timestamp_ms)
        reader = self.store.spark.read.format("delta").option("versionAsOf", version)
        return reader.load(self.store.path(table))


def epoch_ms(spark: SparkSession, option: str, time: str) -> int:
    """Epoch milliseconds of a timestamp as Spark reads one (UTC unless it has a zone), or of such a number.

    Raises BadInput for any other text.
    """
    if time.strip().isdigit() and len(time.strip()) > 4:
        return int(time)
    given = spark.createDataFrame([(time,)], "time string")
    found = given.selectExpr("unix_millis(try_cast(time AS TIMESTAMP))").first()
    if found is None or found[0] is None:
        raise BadInput(
            f"{option} is {time!r}; expected a timestamp like 2026-11-21T07:20:58 or epoch milliseconds"
        )
    return int(found[0])
