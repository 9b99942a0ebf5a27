"""Copies of rows of the log: what they keep, how long they are, where they go, and that each is made once."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.errors import StoreError
from pipelines.log import copies
from pipelines.log.copies import CopyPlan, copies_of, kept_body_bytes, places_of, plan_copies
from pipelines.store.head import LogHead
from tests.dispatch.log_rows import log_rows
from tests.life import B, Life
from tests.model.log import read_properties

HEAD = LogHead(4, 0, 950, B, {("T", 0): 7, ("T", -2): 1})
COPY = {
    "source_offset": 0,
    "rank": 0,
    "order": 0,
    "topic": "T",
    "queue_id": 0,
    "size_bytes": 100,
    "places": 1,
}


def placed(*rows: dict[str, Any], now: int = B, segment_bytes: int = 1_000) -> tuple[list[tuple], LogHead]:
    """(source, offset, queue offset) of each copy in the order of the log, and the head after them."""
    slim = pa.Table.from_pylist([COPY | row for row in rows])
    table, after = places_of(slim, HEAD, segment_bytes, now)
    names = ("source_offset", "copy_offset", "copy_queue_offset")
    return list(zip(*[table.column(name).to_pylist() for name in names], strict=True)), after


@pytest.mark.quick
def test_copies_lie_in_their_order_and_those_of_one_order_as_their_sources() -> None:
    rows, after = placed(
        {"source_offset": 10, "order": 2}, {"source_offset": 30, "order": 1}, {"source_offset": 20, "order": 1}
    )  # fmt: skip
    assert rows == [(20, 1_000, 7), (30, 1_100, 8), (10, 1_200, 9)]  # 950 has no room for 100 and a blank
    assert (after.append_seq, after.next_offset, after.next_of("T", 0)) == (5, 1_300, 10)


@pytest.mark.quick
def test_copies_of_one_source_lie_by_their_rank() -> None:
    mark, message = {"rank": 1, "topic": "OP"}, {"rank": 0}
    rows, after = placed({**mark}, {**message})
    assert [offset for _, offset, _ in rows] == [1_000, 1_100]
    assert (after.next_of("T", 0), after.next_of("OP", 0)) == (8, 1)  # a queue that was not there begins at 0


@pytest.mark.quick
def test_a_copy_of_an_inner_batch_takes_a_place_for_each_of_its_messages() -> None:
    rows, after = placed({"places": 3}, {"order": 1}, {"order": 2, "places": 0}, {"order": 3})
    assert [queue_offset for _, _, queue_offset in rows] == [7, 10, 11, 11]
    assert after.next_of("T", 0) == 12


@pytest.mark.quick
def test_a_queue_below_0_that_an_import_has_brought_is_gone_on_with() -> None:
    rows, after = placed({"queue_id": -2}, {"order": 1, "queue_id": -1})
    assert [queue_offset for _, _, queue_offset in rows] == [1, 0]
    assert (after.next_of("T", -2), after.next_of("T", -1), after.next_of("T", 0)) == (2, 1, 7)


def test_a_copy_keeps_what_it_is_not_told_and_knows_where_it_comes_from(spark: SparkSession) -> None:
    decided = {"claim": F.lit("settle"), "purpose": F.lit("deliver"), "order": F.lit(0)}
    rows = log_rows(
        spark,
        {"topic": "W", "queue_id": 2, "flag": 9, "properties": "a\x01b\x02", "body": b"abc"},
        {"origin_offset": 40, "reconsume_times": 3},
    ).withColumns(decided)
    first, second = copies_of(rows, {"topic": F.lit("T")}).collect()
    assert (first.topic, first.queue_id, first.flag, first.properties, first.body) == (
        "T", 2, 9, "a\x01b\x02", b"abc",
    )  # fmt: skip
    assert (first.source_offset, first.origin_offset, first.prepared_transaction_offset) == (0, 0, 0)
    assert (second.source_offset, second.origin_offset, second.reconsume_times) == (100, 40, 3)
    assert (first.due_ms, first.due_after_ms, first.rank) == (None, None, 0)


@pytest.mark.parametrize(
    ("topic", "sys_flag", "size"),
    [
        ("T", 0, 91 + 1 + 3 + 4),
        ("T", 0x10, 91 + 12 + 1 + 3 + 4),  # born at an IPv6 address
        ("T", 0x30, 91 + 24 + 1 + 3 + 4),  # and stored at one
        ("t" * 128, 0, 91 + 1 + 128 + 3 + 4),  # a V2 record
    ],
)
def test_a_body_s_length_is_told_from_its_record_s(
    spark: SparkSession, topic: str, sys_flag: int, size: int
) -> None:
    given = {"topic": topic, "sys_flag": sys_flag, "properties": "a\x01b\x02", "size_bytes": size}
    row = log_rows(spark, {**given, "body": b"not read"}).select(kept_body_bytes().alias("bytes")).first()
    assert row is not None
    assert row.bytes == 3


def copied(store: Life, now: int, *chosen: dict[str, Any]) -> CopyPlan:
    """A plan of copies as they are; of rows chosen without a purpose none."""
    columns = {"order": 0, "claim": "x", "purpose": "copy"}
    types = {"source_offset": pa.int64(), "order": pa.int64(), "claim": pa.string(), "purpose": pa.string()}
    if any("rank" in row for row in chosen):
        types["rank"] = pa.int32()
    table = pa.Table.from_pylist([columns | row for row in chosen], pa.schema(list(types.items())))
    return plan_copies(store.store.snapshot(), table, lambda rows: copies_of(rows, {}), now, "run")


@pytest.mark.parametrize("ranks", [(0, 0), (0, 1)], ids=["the same twice", "two of one claim"])
def test_what_is_chosen_twice_is_not_copied(life: Callable[..., Life], ranks: tuple[int, int]) -> None:
    store = life()
    store.append({"topic": "orders"})
    with pytest.raises(StoreError, match="expected one copy of the message at byte 0"):
        copied(store, B, *[{"source_offset": 0, "order": n, "rank": rank} for n, rank in enumerate(ranks)])


def test_two_copies_of_a_source_that_claim_different_things_are_made(life: Callable[..., Life]) -> None:
    store = life()
    (row,) = store.append({"topic": "orders"})
    settle, mark = {"rank": 0, "claim": "settle"}, {"rank": 1, "claim": "mark"}
    plan = copied(store, B, *[{"source_offset": 0, **each} for each in (mark, settle)])
    found = sorted(plan.writes[0].rows.collect(), key=lambda row: row.physical_offset)
    assert [(each.claim, each.queue_offset) for each in found] == [("settle", 1), ("mark", 2)]
    assert found[0].physical_offset == row.size_bytes


def test_what_is_gone_or_is_not_to_be_copied_gives_none_and_a_slow_clock_stores_nothing_earlier(
    life: Callable[..., Life],
) -> None:
    store = life()
    first, second = store.append({"topic": "orders"}, {"topic": "orders"})
    end = second.physical_offset + second.size_bytes
    plan = copied(
        store,
        B - 1_000,
        {"source_offset": first.physical_offset},
        {"source_offset": second.physical_offset, "purpose": None},
        {"source_offset": 77},
    )
    assert (plan.rows_by_purpose, plan.passed_over) == ({"copy": 1}, 1)
    assert (plan.head.next_offset, plan.head.last_store_timestamp) == (end + first.size_bytes, B)
    [row] = plan.writes[0].rows.collect()
    assert (row.physical_offset, row.source_offset, row.queue_offset, row.store_timestamp) == (end, 0, 2, B)
    nothing = copied(store, B, {"source_offset": 77}, {"source_offset": 0, "purpose": None})
    assert (nothing.writes, nothing.passed_over) == ((), 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("waits", "is_moved"),
    [
        pytest.param([1, 1, 2, 3, 3], False, id="one-after-the-other"),
        pytest.param([5, 1, 4, 2, 3], True, id="in-another-order"),
        pytest.param([1, *[99] * 20, 2, 3], True, id="few-among-many"),
    ],
)
def test_bodies_are_moved_only_where_the_order_changes_or_few_are_read_from_afar(
    life: Callable[..., Life], monkeypatch: pytest.MonkeyPatch, waits: list[int], is_moved: bool
) -> None:
    monkeypatch.setattr(copies, "BYTES_OF_A_FILE", 200)
    moved = []

    def move(rows: DataFrame, *given: int) -> DataFrame:
        moved.append(given)
        return moved_into_order(rows, *given)

    moved_into_order = copies.moved_into_order
    monkeypatch.setattr(copies, "moved_into_order", move)
    store = life()
    store.put(
        B,
        *[
            {"topic": "T", "queue_id": 0, "unique_key": f"k{n}", "deliver_at_ms": B + 10_000 + wait * 1_000}
            for n, wait in enumerate(waits)
        ],
    )
    offset = sum(row.size_bytes for row in store.rows())
    due = sorted((wait, n) for n, wait in enumerate(waits) if wait < 99)
    assert store.deliver(B + 60_000)["delivered"] == len(due)
    assert bool(moved) == is_moved
    delivered = [row for row in store.rows() if row.topic == "T"]
    assert [read_properties(row.properties)["UNIQ_KEY"] for row in delivered] == [f"k{n}" for _, n in due]
    assert [row.queue_offset for row in delivered] == list(range(len(due)))
    for row in delivered:
        assert row.physical_offset == offset
        offset += row.size_bytes
