"""All copies of a message: parked, delivered, retried, put back by a transaction check, dead."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.reports.answer import Answer
from pipelines.store.snapshot import Snapshot
from pipelines.views.read import read_view


def copies_of(at: Snapshot, messages: DataFrame) -> Answer:
    """Every row that shares its origin with one of `messages` (of the view messages), in the log's order.

    Rows of an imported broker have no lineage: the copies of such a message are the rows that were found.
    """
    origin = F.coalesce("origin_offset", "physical_offset")
    # The rows of one id or key: a few, or one for each copy of one message.
    origins = [row[0] for row in messages.select(origin).distinct().collect()]
    rows = read_view(at, "messages")
    is_origin, is_copy = F.col("physical_offset").isin(origins), F.col("origin_offset").isin(origins)
    return Answer(rows.where(is_origin | is_copy).orderBy("physical_offset"))
