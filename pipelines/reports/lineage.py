"""All copies of a message: parked, delivered, retried, put back by a transaction check, dead."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.reports.answer import Answer
from pipelines.reports.lookup import messages_at_offsets, rows_with_key
from pipelines.store.floors import IMPORT_PREFIX
from pipelines.store.snapshot import Snapshot
from pipelines.views.read import read_view


def copies_of(at: Snapshot, messages: DataFrame) -> Answer:
    """Every row that shares its origin with one of `messages` (of the view messages), in the log's order.

    Rows of an imported broker have no lineage: the copies of such a message are the rows that were found.
    """
    origins = _origins(messages)
    rows = read_view(at, "messages")
    is_origin, is_copy = F.col("physical_offset").isin(origins), F.col("origin_offset").isin(origins)
    return Answer(rows.where(is_origin | is_copy).orderBy("physical_offset"))


def with_brokers_copies(at: Snapshot, messages: DataFrame) -> DataFrame:
    """These few rows, and the rows that an imported broker made of the same messages: they share the unique key alone."""
    is_imported = F.col("append_id").startswith(IMPORT_PREFIX)
    first = messages_at_offsets(at, _origins(messages)).where(is_imported & F.col("unique_key").isNotNull())
    for row in first.select("unique_key").distinct().collect():
        copies = rows_with_key(at, row.unique_key, None)
        messages = messages.unionByName(copies.where(is_imported & (F.col("unique_key") == row.unique_key)))
    return messages


def _origins(messages: DataFrame) -> list[int]:
    """Where the first rows of these messages lie: of the rows of one id or key, a few, or one for each copy of a message."""
    origin = F.coalesce("origin_offset", "physical_offset")
    return [row[0] for row in messages.select(origin).distinct().collect()]
