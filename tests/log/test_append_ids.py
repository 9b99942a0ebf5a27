"""Ids of appends: whose rows they are, and which names a batch may have."""

import pytest
from pyspark.sql import SparkSession

from pipelines.errors import BadInput
from pipelines.log.append_ids import expect_batch_id, is_put_by


@pytest.mark.quick
@pytest.mark.parametrize(
    "name", [None, "orders", "orders:2026-11-23", "a/b@c+d.e_f", "important:1", "1-2", "orders:1-"]
)
def test_names_a_batch_can_have(name: str | None) -> None:
    expect_batch_id(name)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("import:0-100", "ids that begin with import: are the store's own"),
        ("trace:orders", "ids that begin with trace: are the store's own"),
        ("orders:0-5", "an id that ends with :NUMBER-NUMBER names one append of a batch"),
        ("", "expected 1 to 200 letters"),
        ("orders\n", "expected 1 to 200 letters"),
        ("or ders", "expected 1 to 200 letters"),
    ],
)
def test_names_a_batch_cannot_have(name: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        expect_batch_id(name)


def test_only_rows_of_the_batch_itself_are_its_own(spark: SparkSession) -> None:
    ids = [
        "orders:0-5",
        "orders:5-12",
        "orders:2026-11-23:0-5",
        "orders:1-2:0-5",
        "orders",
        "orders2:0-5",
        "orders:0-5\n",
    ]
    rows = spark.createDataFrame([(each,) for each in ids], "append_id string")
    assert {row.append_id for row in rows.where(is_put_by("orders")).collect()} == {
        "orders:0-5",
        "orders:5-12",
    }
    assert [row.append_id for row in rows.where(is_put_by("orders:2026-11-23")).collect()] == [
        "orders:2026-11-23:0-5"
    ]
