"""What is known of lost rows of the log that nobody has followed: no more than their file's statistics say."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.spark_internals.delta_files import DataFile, forget_logs
from pipelines.store.cut_out import LostFiles
from pipelines.store.damaged import damaged_tables
from pipelines.store.head import Queue
from pipelines.store.store import Store
from tests.dispatch.log_rows import append
from tests.quality.damages import data_files

LONG = "order_events_of_the_region_europe_west_1"  # statistics have its first 32 characters
INT_MAX = 2**31 - 1


def lost_append(store: Store, *rows: dict[str, Any]) -> DataFile:
    """The damaged file of an append whose rows are lost."""
    append(store, *rows)
    forget_logs(store.spark)
    data_files(Path(store.uri), "commitlog")[-1].unlink()
    (damaged,) = damaged_tables(store)
    return damaged.data[0]


def ends(store: Store, file: DataFile) -> dict[Queue, int]:
    return dict(LostFiles(store.snapshot(), [file], True).head.next_queue_offsets)


@pytest.mark.slow
def test_a_topic_whose_name_is_longer_than_statistics_are_keeps_its_name(store: Store) -> None:
    append(store, {"topic": LONG, "queue_id": 0, "queue_offset": 0})
    file = lost_append(store, {"topic": LONG, "queue_id": 0, "queue_offset": 1})
    assert file.least("topic") == LONG[:32]
    assert ends(store, file) == {(LONG, 0): 2}


@pytest.mark.slow
def test_queues_between_the_least_and_the_greatest_are_not_all_tried_where_there_are_billions(
    store: Store,
) -> None:
    append(store, {"topic": "T", "queue_id": 70_000, "queue_offset": 0})
    file = lost_append(store, {"topic": "T", "queue_id": 0, "queue_offset": 0})
    wide = replace(file, stats={**file.stats, "maxValues": {**file.stats["maxValues"], "queue_id": INT_MAX}})
    found = ends(store, wide)
    assert {("T", 0), ("T", 70_000), ("T", INT_MAX)} <= found.keys()
    assert len(found) < 2_000
