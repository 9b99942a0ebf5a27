"""What is known of lost rows of the log that nobody has followed: no more than their file's statistics say."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.spark_internals.delta_files import DataFile, forget_logs
from pipelines.store import cut_out
from pipelines.store.commit import commit
from pipelines.store.cut_out import LostFiles
from pipelines.store.damaged import damaged_tables
from pipelines.store.head import Queue
from pipelines.store.plan import Plan
from pipelines.store.progress import NOTHING_SEEN, Seen, seen_by, seen_write
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
def test_a_clock_that_is_recorded_while_files_are_taken_out_does_not_count(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deliver that is ending may have made copies that are lost: they must be made again."""
    append(store, {"queue_offset": 0})
    lost_append(store, {"queue_offset": 1})
    (damaged,) = damaged_tables(store)
    take_out = cut_out._take_out

    def after_a_deliver(store: Store, files: Sequence[DataFile]) -> None:
        commit(store, lambda at: Plan((seen_write(at, "deliver", Seen(1, 9_000)),)))
        assert seen_by(store.snapshot(), "deliver") == Seen(1, 9_000)
        take_out(store, files)

    monkeypatch.setattr(cut_out, "_take_out", after_a_deliver)
    cut_out.cut_out(store, damaged, queues_are_whole=True, now_ms=0)
    assert seen_by(store.snapshot(), "deliver") == NOTHING_SEEN


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
