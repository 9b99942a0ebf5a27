"""Groups that read compressed bodies."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.consume.listeners import Listeners
from tests.life import B, Life


@pytest.mark.slow
def test_a_body_that_unpacks_to_too_much_is_a_dead_letter_and_the_rest_is_read(
    life: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listeners = Listeners(tmp_path, monkeypatch)
    store = life(maxUnpackedBytes="1000")
    bodies = ["1" * 10, "2" * 5_000, "3" * 1_000]
    source = store.input(*[{"topic": "T", "queue_id": 0, "body": body} for body in bodies])
    store.job("put_messages", B, "--input", source, "--compress-over", 1)
    assert all(row.sys_flag & 1 for row in store.rows())
    store.job("dispatch", B)
    reads = ("--topic", "T", "--listener", listeners.name("accept"), "--max-reconsume-times", 0)

    read = store.job("consume", B, "--group", "g", *reads).result
    assert (read["consumed"], read["failed"], read["dead_lettered"]) == (2, 1, 1)
    assert [body for _, _, _, body, _ in listeners.handed()] == [bodies[0], bodies[2]]
    # A class filter that reads it lets it through: the group does not stand before it for ever.
    even = ("--filter-type", "CLASS", "--filter", listeners.name("Even"))
    read = store.job("consume", B, "--group", "h", *reads, *even).result
    assert (read["consumed"], read["filtered"], read["failed"], read["dead_lettered"]) == (0, 2, 1, 1)
    ends = store.store.consumer_offsets.where("topic = 'T' AND queue_id = 0").collect()
    assert {(row.group, row.next_offset) for row in ends} == {("g", 3), ("h", 3)}
    store.expect_promises()
