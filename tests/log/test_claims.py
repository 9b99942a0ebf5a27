"""Claims: what has been taken of which row, and where in the log it is looked for."""

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from pyspark.sql import SparkSession

from pipelines.log.claims import NEAR_BYTES, SPANS_NAMED, claims_of, joined_spans, spans_of_offsets
from tests.dispatch.log_rows import log_rows


def test_claims_are_the_rows_that_claim(spark: SparkSession) -> None:
    rows = [{}, {"claim": "settle", "source_offset": 0, "origin_offset": 0, "purpose": "deliver"}]
    assert [
        (row.source_offset, row.claim, row.physical_offset)
        for row in claims_of(log_rows(spark, *rows)).collect()
    ] == [(0, "settle", 100)]


@pytest.mark.quick
def test_offsets_near_each_other_are_one_span_and_far_ones_are_not() -> None:
    offsets = np.array([NEAR_BYTES, 0, 2 * NEAR_BYTES + 1])
    assert spans_of_offsets(offsets) == [(0, NEAR_BYTES), (2 * NEAR_BYTES + 1, 2 * NEAR_BYTES + 1)]
    assert spans_of_offsets(np.array([], np.int64)) == []


@pytest.mark.quick
def test_of_many_spans_the_nearest_are_joined_and_no_offset_is_left_out() -> None:
    far = NEAR_BYTES * 10
    offsets = np.array([n * far + (n % 7) for n in range(100)])
    spans = spans_of_offsets(offsets)
    assert len(spans) == SPANS_NAMED
    assert all(any(first <= offset <= last for first, last in spans) for offset in offsets.tolist())


@pytest.mark.quick
@pytest.mark.parametrize("named", [1, 2, 3, 50])
def test_joined_spans_hold_what_each_of_them_held(named: int) -> None:
    spans = [(n * n, n * n + n) for n in range(9)]
    joined = joined_spans(spans, named)
    assert len(joined) == min(named, 9)
    assert all(any(a <= first and last <= b for a, b in joined) for first, last in spans)
    assert all(before[1] < after[0] for before, after in pairwise(joined))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("count", "named"), [(count, named) for count in range(2, 7) for named in range(1, count)]
)
def test_the_spans_nearest_to_each_other_are_joined(count: int, named: int) -> None:
    random = Random(count)
    spans, start = [], 0
    for gap in random.sample(range(1, 1_000), count):
        spans.append((start + gap, start + gap + random.randrange(1_000)))
        start = spans[-1][1]
    expected = [*spans]
    while len(expected) > named:
        gaps = [after[0] - before[1] for before, after in pairwise(expected)]
        n = gaps.index(min(gaps))
        expected[n : n + 2] = [(expected[n][0], expected[n + 1][1])]
    assert joined_spans(random.sample(spans, count), named) == expected
