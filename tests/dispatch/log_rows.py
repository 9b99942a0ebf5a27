"""Rows of the log, made by hand: what a test does not say is as a plain message has it."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipelines.store.commit import commit
from pipelines.store.plan import Plan
from pipelines.store.store import Store
from schemas import COMMITLOG

PLAIN: dict[str, Any] = {
    "segment": 0,
    "physical_offset": 0,
    "size_bytes": 100,
    "topic": "orders",
    "queue_id": 0,
    "queue_offset": 0,
    "flag": 0,
    "sys_flag": 0,
    "body_crc": 0,
    "born_timestamp": 1_000,
    "born_host": "10.0.0.1:1",
    "store_timestamp": 2_000,
    "store_host": "10.0.0.2:1",
    "reconsume_times": 0,
    "prepared_transaction_offset": 0,
    "body": b"",
    "properties": "",
    "append_seq": 0,
    "append_id": "run",
}


def properties(**pairs: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())


def log_rows(spark: SparkSession, *given: dict[str, Any]) -> DataFrame:
    """Rows in the order given, one after the other in the log and, unless said, in queue 0 of `orders`."""
    rows = [
        {
            **dict.fromkeys(COMMITLOG.names),
            **PLAIN,
            "physical_offset": 100 * place,
            "queue_offset": place,
            **row,
        }
        for place, row in enumerate(given)
    ]
    return spark.createDataFrame(
        [tuple(row[name] for name in COMMITLOG.names) for row in rows], COMMITLOG.columns
    )


def append(store: Store, *given: dict[str, Any]) -> None:
    """One append to a store's log, behind those before it."""
    before = store.commitlog.count()
    placed = [
        {"physical_offset": 100 * place, "queue_offset": place, **row}
        for place, row in enumerate(given, before)
    ]

    def plan(at: Any) -> Plan:
        number = at.number(COMMITLOG) + 1
        return Plan(
            (at.append(COMMITLOG, log_rows(store.spark, *[{**row, "append_seq": number} for row in placed])),)
        )

    commit(store, plan)
