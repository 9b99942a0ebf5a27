"""Where the log rolls to the next segment (docs/rocketmq/store.md 1.5), and the places rows take in their queues."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipelines.errors import StoreError
from pipelines.log.place import rolls, taken_before
from tests.life import WHEEL, B, Life, raw
from tests.model.log import Message, record_size


def rolled(sizes: list[int], log_offset: int, segment_bytes: int) -> tuple[list[int], list[int], int]:
    units, offsets, end = rolls(np.array(sizes, np.int64), log_offset, segment_bytes)
    return units.tolist(), offsets.tolist(), end


@pytest.mark.quick
@pytest.mark.parametrize(
    ("sizes", "log_offset", "units", "offsets", "end"),
    [
        pytest.param([92], 0, [0], [0], 92, id="8 bytes stay free"),
        pytest.param([40, 52, 10], 0, [0, 2], [0, 100], 110, id="the second fits exactly"),
        pytest.param([40, 53, 10], 0, [0, 1], [0, 100], 163, id="the second is a byte too long"),
        pytest.param([32], 160, [0], [160], 192, id="what is left of a segment is filled"),
        pytest.param([33], 160, [0], [200], 233, id="a byte more opens the next"),
        pytest.param([92, 92], 92, [0, 1], [100, 200], 292, id="no room but for the blank"),
        pytest.param([92], 100, [0], [100], 192, id="the last one ended with its segment"),
    ],
)
def test_a_record_stays_in_its_segment_where_8_bytes_are_left_after_it(
    sizes: list[int], log_offset: int, units: list[int], offsets: list[int], end: int
) -> None:
    assert rolled(sizes, log_offset, 100) == (units, offsets, end)


@pytest.mark.parametrize(("free", "offsets"), [(8, (0, 1, 2)), (7, (0, 2, 4))])
def test_a_message_that_fits_its_segment_exactly_stays_in_it(
    life: Callable[..., Life], free: int, offsets: tuple[int, ...]
) -> None:
    """Two of three messages fit a segment with 8 bytes free; with 7 each opens one."""
    message: dict[str, Any] = {"topic": "T", "queue_id": 0, "unique_key": "K", "body": "b"}
    size = record_size(Message("T", b"b", raw(UNIQ_KEY="K")))
    segment = 2 * size + free
    exact = life(mappedFileSizeCommitLog=str(segment))
    exact.put(B, message, message)
    exact.put(B, message)
    lies_at = {0: 0, 1: size, 2: segment, 4: 2 * segment}
    assert [row.physical_offset for row in exact.rows()] == [lies_at[each] for each in offsets]


@pytest.mark.quick
def test_a_record_larger_than_a_segment_is_an_error_that_says_so() -> None:
    with pytest.raises(
        StoreError, match=r"a record of 93 bytes does not fit a segment of 100 bytes .* may take 92"
    ):
        rolled([40, 93], 0, 100)


@pytest.mark.slow
def test_what_waits_has_room_for_what_its_copies_gain(life: Callable[..., Life]) -> None:
    small = life(mappedFileSizeCommitLog="4096")
    timed = {"topic": "T" * 100, "unique_key": "K", "deliver_at_ms": B + 10_000}
    too_long = small.input({**timed, "body": "b" * 3_780})
    refused = small.job("put_messages", B, "--input", too_long, exit_status=2)
    assert "at most 3576 (mappedFileSizeCommitLog less 8, and 512 for what its copies gain)" in refused.stderr
    small.put(B, {**timed, "body": "b" * 3_200})
    assert small.deliver(B + 20_000)["delivered"] == 1
    assert [(row.topic, row.physical_offset) for row in small.rows()] == [(WHEEL, 0), ("T" * 100, 4_096)]


@pytest.mark.quick
@pytest.mark.parametrize("rows", [0, 1, 2, *range(40, 60)])
def test_each_row_takes_the_places_after_those_of_its_queue_before_it(rows: int) -> None:
    chance = np.random.default_rng(rows)
    codes, places = chance.integers(-3, 3, rows), chance.integers(0, 4, rows)
    next_place: dict[int, int] = {}
    expected = []
    for code, taken in zip(codes.tolist(), places.tolist(), strict=True):
        expected.append(next_place.setdefault(code, 0))
        next_place[code] += taken
    taken_together, before = taken_before(codes, places)
    assert (taken_together, before.tolist()) == (next_place, expected)
