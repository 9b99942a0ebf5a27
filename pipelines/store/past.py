"""The tables of a store as they were at a past time, as far back as Delta still has it."""

from pyspark.sql import DataFrame

from pipelines.store.errors import BadInput
from pipelines.store.store import Store
from schemas import STORE_SETTINGS, Table


class PastTables:
    """What gives a table's rows as of a time: each table as its last commit before it left it.

    Tables are written one after the other, so what is derived may be a little behind the log, as it was then.
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
