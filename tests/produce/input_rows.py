"""Rows of an input, made by hand, as a put accepts them: what a test does not say is as a plain message has it."""

from typing import Any

from pyspark.sql import SparkSession

from pipelines.produce.accept import accepted
from pipelines.produce.complaints import AcceptRules
from pipelines.produce.inputs import Input
from pipelines.rocketmq.settings import Settings
from tests.life import B

PLAIN = {"topic": "T", "body": "b"}
# Columns of an input that are not text.
TYPES = {
    "queue_id": "int", "flag": "int", "sys_flag": "int", "delay_level": "int", "born_timestamp": "long",
    "delay_ms": "long", "deliver_at_ms": "long", "transaction": "boolean", "keys": "array<string>",
    "properties": "map<string,string>", "deliver_through": "array<int>",
}  # fmt: skip


def accepted_rows(
    spark: SparkSession,
    *given: dict[str, Any],
    now_ms: int = B,
    settings: dict[str, str] | None = None,
    types: dict[str, str] | None = None,
    **rules: Any,
) -> list[Any]:
    """The rows as messages that a put stores, of an input with the columns that some row has."""
    rows = [PLAIN | row for row in given]
    names = sorted({name for row in rows for name in row})
    known = TYPES | (types or {})
    schema = ", ".join(f"{name} {known.get(name, 'string')}" for name in names)
    frame = spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], schema)
    source = Input("", "parquet", (), frozenset(names), {})
    return accepted(frame, source, AcceptRules(Settings.of(settings or {}), now_ms, **rules)).collect()
