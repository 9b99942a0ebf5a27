"""How rows of derived tables lie in files."""

from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.dispatch import layout
from pipelines.dispatch.follow import plan_dispatch
from pipelines.dispatch.layout import (
    PARQUET_OF_MANY_ROWS,
    QueueSpan,
    file_count,
    in_hash_order,
    queue_spans,
)
from pipelines.dispatch.runs import plan_merge
from pipelines.rocketmq.names import SCHEDULE_TOPIC
from pipelines.spark_internals.sessions import cloned
from pipelines.store.commit import commit
from pipelines.store.store import Store
from schemas import CONSUME_QUEUE, DERIVED, MESSAGE_INDEX
from tests.dispatch.log_rows import append, log_rows, properties

# How Parquet calls an encoding that keeps what a number differs from the one before it.
DIFFERENCES = "DELTA_BINARY_PACKED"
MESSAGE = {"properties": properties(UNIQ_KEY="u", TAGS="TagA", KEYS="k")}


@pytest.mark.quick
def test_a_million_rows_are_a_file_and_one_more_are_two() -> None:
    assert [file_count(rows) for rows in (0, 1, 1_000_000, 1_000_001)] == [1, 1, 1, 2]


def test_the_span_of_a_queue_is_half_open(spark: SparkSession) -> None:
    spans = queue_spans(log_rows(spark, {"queue_offset": 5}, {"queue_offset": 7}, {"queue_id": 1}))
    assert sorted(spans, key=lambda span: span.queue_id) == [
        QueueSpan("orders", 0, 5, 8), QueueSpan("orders", 1, 2, 3),
    ]  # fmt: skip
    assert sum(span.entries for span in spans) == 4


def test_hashes_that_are_near_each_other_lie_in_one_file(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "ROWS_OF_ONE_TASK", 1)
    monkeypatch.setattr(layout, "ROWS_PER_FILE", 2)
    hashes = [2**31 - 1, 0, 2**30, 2**30 - 1]
    rows = spark.createDataFrame([(each,) for each in hashes], "key_hash int")
    found = (
        in_hash_order(rows, len(hashes)).select("key_hash", F.spark_partition_id().alias("file")).collect()
    )
    assert [(row.file, row.key_hash) for row in found] == [(0, 0), (0, 2**30 - 1), (1, 2**30), (1, 2**31 - 1)]


def test_many_rows_lie_sorted_in_files_that_do_not_overlap(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "ROWS_OF_ONE_TASK", 10)
    monkeypatch.setattr(layout, "NEW_ROWS_UNMOVED", 10)
    monkeypatch.setattr(layout, "ROWS_PER_FILE", 10)
    hot = [{"queue_id": 0, "queue_offset": place} for place in range(36)]
    cold = [{"queue_id": 1 + place, "queue_offset": 7} for place in range(4)]
    append(store, *[{**MESSAGE, **row} for row in hot + cold])
    commit(store, plan_dispatch)
    files = store.consume_queue.selectExpr("input_file_name() AS file", "queue_id", "queue_offset")
    spans = files.groupBy("file").agg({"*": "count"}).collect()
    assert sorted(row[1] for row in spans) == [10, 10, 10, 10]
    by_file: dict[str, list[tuple[int, int]]] = {}
    for row in files.collect():
        by_file.setdefault(row.file, []).append((row.queue_id, row.queue_offset))
    in_files = sorted(by_file.values())
    assert [place for places in in_files for place in places] == [(0, place) for place in range(36)] + [
        (1 + place, 7) for place in range(4)
    ]


@pytest.mark.slow
def test_rows_that_are_not_moved_lie_sorted_in_a_file_a_task(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "ROWS_OF_ONE_TASK", 10)
    for _ in range(4):  # a file of the log each
        append(store, *[{**MESSAGE, "queue_id": number % 3, "queue_offset": number} for number in range(10)])
    commit(store, plan_dispatch)
    files = sorted(Path(store.uri, "consume_queue").glob("*.parquet"))
    in_files = [pq.read_table(file, columns=["topic", "queue_id", "queue_offset"]) for file in files]
    assert len(in_files) == 2
    assert all(
        rows.equals(rows.sort_by([(name, "ascending") for name in rows.schema.names])) for rows in in_files
    )
    assert len(list(Path(store.uri, "message_index").glob("*.parquet"))) == 2
    assert store.consume_queue.select("physical_offset").distinct().count() == store.commitlog.count() == 40


@pytest.mark.slow
@pytest.mark.parametrize(
    "unmoved",
    [
        pytest.param(1_000, id="sorted where they are read"),
        pytest.param(4, id="moved"),
    ],
)
def test_many_rows_are_the_same_rows_in_files_of_differences(
    store: Store, monkeypatch: pytest.MonkeyPatch, unmoved: int
) -> None:
    """As many are made again, dispatched and merged; what else reads Delta tables reads them too."""
    monkeypatch.setattr(layout, "ROWS_OF_ONE_TASK", 4)
    monkeypatch.setattr(layout, "NEW_ROWS_UNMOVED", unmoved)
    store = Store.open(cloned(store.spark), store.uri)  # its session compiles plans once it has many rows
    waiting = {"topic": SCHEDULE_TOPIC, "queue_id": 1, "due_ms": 5_000, "origin_offset": 7}
    copied = {"claim": "c", "purpose": "retry", "source_offset": 100, "origin_offset": 100}
    for each in (MESSAGE, {**MESSAGE, **waiting, **copied}):
        append(store, *[{**each, "queue_offset": place} for place in range(10)])
    commit(store, plan_dispatch)
    few = rows_of(store)
    assert [len(rows) for rows in few.values()] == [20, 40, 10, 10]
    assert encodings(store) == set()

    monkeypatch.setattr(layout, "MANY_ROWS", 5)
    commit(store, partial(plan_dispatch, rebuild=True))
    assert encodings(store) == {DIFFERENCES}
    assert rows_of(store) == few
    append(store, *[{**MESSAGE, "queue_offset": 10 + place} for place in range(10)])
    commit(store, plan_dispatch)
    many = rows_of(store)
    for table in (CONSUME_QUEUE, MESSAGE_INDEX):
        assert commit(store, partial(plan_merge, table=table, fan_in=2)).result["files_compacted"] >= 2
        read = DeltaTable(store.path(table))
        by_others = (
            read.to_pyarrow_table(),
            duckdb.read_parquet(read.file_uris()).to_arrow_table(),
            pl.scan_delta(store.path(table)).collect().to_arrow(),
        )
        for found in by_others:
            assert (
                sorted(tuple(row[name] for name in table.names) for row in found.to_pylist())
                == many[table.name]
            )
    assert encodings(store) == {DIFFERENCES}
    assert rows_of(store) == many
    assert all(store.spark.conf.get(name, None) is None for name in PARQUET_OF_MANY_ROWS)


def rows_of(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    return {table.name: sorted(map(tuple, store.read(table).collect())) for table in DERIVED}


def encodings(store: Store) -> set[str]:
    """Those of physical offsets in the files that both tables have now, as far as they keep differences."""
    files = [*store.consume_queue.inputFiles(), *store.message_index.inputFiles()]
    found = []
    for file in files:
        group = pq.read_metadata(unquote(urlsplit(file).path)).row_group(0)
        columns = [group.column(place) for place in range(group.num_columns)]
        found += [
            {DIFFERENCES} & {*column.encodings}
            for column in columns
            if column.path_in_schema == "physical_offset"
        ]
    assert len(found) == len(files) > 0
    assert all(each == found[0] for each in found)
    return found[0]
