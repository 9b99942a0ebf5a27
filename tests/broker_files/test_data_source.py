"""A broker's directory read where it lies: spark.read.format("rocketmq_store")."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import EqualTo, GreaterThan, LessThanOrEqual

from pipelines.broker_files.columns import SCHEMA
from pipelines.broker_files.data_source import Range, RocketmqStoreReader
from pipelines.rocketmq.properties import properties_map
from pipelines.store.store import Store

FORMAT = "rocketmq_store"


def test_its_rows_are_as_the_broker_decodes_them(
    spark: SparkSession, golden_a: Store, golden_broker: Callable[[str], Path]
) -> None:
    read = spark.read.format(FORMAT).load(str(golden_broker("a")))
    assert read.columns == SCHEMA.names
    assert read.count() == 958
    # The broker's answers have the properties as a map: in no order, and without what is no pair.
    in_any_order = F.array_sort(F.map_entries(properties_map(F.col("properties"))))
    decoded = golden_a.commitlog.select(*read.columns).withColumn("properties", in_any_order)
    assert read.withColumn("properties", in_any_order).exceptAll(decoded).isEmpty()


def test_a_condition_on_the_offset_leaves_out_whole_segments(
    spark: SparkSession, golden_broker: Callable[[str], Path]
) -> None:
    broker = str(golden_broker("a"))
    rows = spark.read.format(FORMAT).load(broker)
    found = rows.where("physical_offset >= 131072 AND physical_offset < 150000")
    assert {row.segment for row in found.select("segment").distinct().collect()} == {131072}
    assert found.rdd.getNumPartitions() == 1
    reader = RocketmqStoreReader({"path": broker})
    assert len(reader.partitions()) == 7
    assert list(reader.pushFilters([EqualTo(("queue_id",), 1), GreaterThan(("physical_offset",), 393216)]))
    assert [piece.from_offset for piece in reader.partitions()] == [393216]


def test_a_condition_beyond_the_log_finds_nothing(
    spark: SparkSession, golden_broker: Callable[[str], Path]
) -> None:
    rows = spark.read.format(FORMAT).load(str(golden_broker("a")))
    assert rows.where("physical_offset >= 1000000000").count() == 0


@pytest.mark.quick
def test_conditions_narrow_the_range() -> None:
    place = ("physical_offset",)
    narrowed = Range().narrowed(GreaterThan(place, 9)).narrowed(LessThanOrEqual(place, 20))
    assert narrowed == Range(10, 21)
    assert narrowed.narrowed(EqualTo(place, 15)) == Range(15, 16)
    assert narrowed.narrowed(EqualTo(("queue_offset",), 15)) == narrowed


def test_a_directory_that_is_no_brokers_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="expected a broker's storePathRootDir"):
        spark.read.format(FORMAT).load(str(tmp_path)).count()
