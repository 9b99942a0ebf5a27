"""The plain model of messages' second life against the vectors of docs/rocketmq/delay-retry-transaction.md 9."""

import pytest

from tests.model.life import Store
from tests.model.log import Log

pytestmark = pytest.mark.quick

B = 1_700_000_000_000


@pytest.mark.parametrize(("every_ms", "first_ms"), [(30_000, 3_000), (5_000, 3_000), (1_000, 33_000)])
def test_vector_32_has_its_15_questions_an_interval_apart_however_often_the_model_is_run(
    every_ms: int, first_ms: int
) -> None:
    half = {
        "topic": "T",
        "body": "b",
        "unique_key": "v32",
        "transaction": True,
        "flag": 5,
        "born_timestamp": B,
    }
    model = Store(Log(10**6))
    model.put([half], B)
    for now in range(B + first_ms, B + 600_000, every_ms):
        model.check(now, {})
    *copies, given_up = model.rows[1:]
    assert [row.purpose for row in copies] == ["check"] * 15
    first = copies[0].store_timestamp
    assert [row.store_timestamp for row in copies] == [first + n * 30_000 for n in range(15)]
    assert (first > B + 6_000, given_up.purpose) == (True, "discard")
    assert given_up.store_timestamp == first + 15 * 30_000
