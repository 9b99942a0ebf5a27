"""Pages: how much of which queue a run reads at once, and where a page is cut."""

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipelines.consume.pages import Page, Part, cut_to, next_parts, read_page, size_after
from pipelines.consume.subscriptions import Selection, Subscription
from pipelines.dispatch.follow import plan_dispatch
from pipelines.store.commit import commit
from pipelines.store.store import Store
from tests.dispatch.log_rows import append, properties

A, C, D = ("T", 0), ("T", 1), ("U", 0)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (100, {A: (5, 8), C: (0, 10), D: (2, 4)}),
        (9, {A: (5, 8), C: (0, 4), D: (2, 4)}),
        (3, {A: (5, 6), C: (0, 1), D: (2, 3)}),
        (2, {D: (2, 3), A: (5, 6)}),
        (0, {}),
    ],
    ids=["all", "short queues to their end", "one each", "not even one each", "none"],
)
def test_the_next_parts_share_a_page(messages: int, expected: dict[tuple[str, int], tuple[int, int]]) -> None:
    starts, ends = {A: 5, C: 0, D: 2, ("T", 9): 4}, {A: 8, C: 10, D: 4, ("T", 9): 4}
    parts = next_parts(starts, ends, {C: 3}, messages)
    assert {part.queue: (part.from_offset, part.to_offset) for part in parts} == expected
    assert all(part.generation == (3 if part.queue == C else 0) for part in parts)


@pytest.mark.quick
def test_pages_one_after_the_other_hand_over_every_message_once() -> None:
    starts, ends, read = {A: 0, C: 3, D: 0}, {A: 50, C: 4, D: 7}, []
    while parts := next_parts(starts, ends, {}, 8):
        assert sum(part.messages for part in parts) <= 8
        for part in parts:
            assert part.from_offset == starts[part.queue]
            starts[part.queue] = part.to_offset
            read += [(part.queue, offset) for offset in range(part.from_offset, part.to_offset)]
    assert (starts, len(read), len(set(read))) == (ends, 58, 58)


@pytest.mark.quick
def test_a_slow_listener_gets_smaller_pages_and_a_fast_one_larger_ones_within_bounds() -> None:
    assert size_after(1_000, 1_000, 15.0) == 1_000
    assert size_after(1_000, 1_000, 30.0) == 500
    assert (size_after(1_000, 1_000, 0.0), size_after(1_000, 1_000, 1e9)) == (4_000, 10)


def page(spark: SparkSession) -> Page:
    """Four messages of queue 0 and two of queue 1, of 10, 20, … bytes; a filter has left out the first of queue 1."""
    rows = [(0, 5, 10), (0, 6, 20), (0, 7, 30), (0, 8, 40), (1, 1, 50), (1, 2, 60)]
    frame = spark.createDataFrame(rows, "queue int, queue_offset long, size_bytes int")
    return Page((Part(A, 5, 9), Part(C, 0, 3, 2)), frame, 60, pa.table({}))


@pytest.mark.parametrize(
    ("messages", "size_bytes", "ends", "left"),
    [
        (None, None, (9, 3), 210),
        (6, None, (9, 3), 210),
        (3, None, (7, 2), 80),
        (2, None, (7, 1), 30),
        (1, None, (6, 1), 10),
        (None, 80, (7, 2), 80),
        (None, 79, (7, 1), 30),
        (None, 1, (6, 1), 10),
        (2, 1_000, (7, 1), 30),
    ],
    ids=[
        "no limit", "all of it", "half", "before a message of queue 1", "one message", "bytes that fit", "a byte less",
        "one message at least", "the smaller limit counts",
    ],
)  # fmt: skip
def test_a_page_is_cut_where_it_has_so_many_messages_or_bytes(
    spark: SparkSession, messages: int | None, size_bytes: int | None, ends: tuple[int, int], left: int
) -> None:
    parts, bytes_left = cut_to(page(spark), messages, size_bytes)
    assert (tuple(part.to_offset for part in parts), bytes_left) == (ends, left)
    assert [part.from_offset for part in parts] == [5, 0]


SENT_BACK = {"source_offset": 100, "origin_offset": 100, "purpose": "retry", "topic": "%RETRY%g"}


@pytest.mark.slow
@pytest.mark.parametrize("expression", ["*", "a"])
@pytest.mark.parametrize(
    ("claim", "handed", "already"),
    [("group:g#0", [0, 2], 1), ("group:g#1", [0, 1, 2], 0), ("group:g2#0", [0, 1, 2], 0)],
    ids=["by this group", "before the queue was reset", "by another group"],
)
def test_what_the_group_has_sent_back_is_not_handed_over_again(
    store: Store, expression: str, claim: str, handed: list[int], already: int
) -> None:
    tagged = {"properties": properties(TAGS="a")}
    append(store, tagged, tagged, tagged, {**SENT_BACK, "claim": claim, "queue_offset": 0})
    commit(store, plan_dispatch)
    selection = Selection(Subscription("g", "orders", expression=expression), "%RETRY%g")
    part = Part(("orders", 0), 0, 3)
    found = read_page(store.snapshot(), [part], "g", selection)
    assert sorted(row.queue_offset for row in found.rows.collect()) == handed
    assert (found.already.num_rows, found.largest_size) == (already, 100)
    of_a_broadcasting_client = read_page(store.snapshot(), [part], None, selection)
    assert sorted(row.queue_offset for row in of_a_broadcasting_client.rows.collect()) == [0, 1, 2]
