"""Offsets of a group: when what a run has reached counts, and what a reset lets go."""

import pytest

from pipelines.consume.offsets import (
    Offset,
    Reached,
    plan_commit,
    plan_in_flight,
    plan_reset,
    read_in_flight,
    read_offsets,
)
from pipelines.store.commit import commit
from pipelines.store.store import Store
from tests.life import B

FIRST, SECOND = ("T", 0), ("T", 1)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("next_offset", "was", "goes_back", "found", "moves"),
    [
        (5, 3, False, 3, True),
        (5, 5, False, 5, False),
        (2, 5, False, 5, False),
        (2, 5, True, 5, True),
        (2, 5, True, 4, False),
        (5, 5, True, 5, False),
        (3, 2, True, 4, False),
        (3, 4, False, None, True),
    ],
    ids=[
        "on", "where it was", "back, which it may not", "back from what was read", "back, but another run has moved it",
        "not back from where it was", "another run is further on", "nothing was recorded",
    ],
)  # fmt: skip
def test_an_offset_moves_on_or_back_from_what_the_run_has_read(
    next_offset: int, was: int, goes_back: bool, found: int | None, moves: bool
) -> None:
    reached = Reached(FIRST, next_offset, was=was, goes_back=goes_back)
    assert reached.moves(None if found is None else Offset(found)) == moves


@pytest.mark.quick
@pytest.mark.parametrize(
    ("found", "is_alone", "is_taken"),
    [(3, True, False), (5, True, False), (4, True, True), (4, False, False)],
)
def test_a_queue_that_a_run_reads_alone_is_taken_where_its_offset_is_another_s(
    found: int, is_alone: bool, is_taken: bool
) -> None:
    assert Reached(FIRST, 5, was=3, is_alone=is_alone).is_taken(Offset(found)) == is_taken


def test_a_reset_lets_go_what_waits_in_its_queues_and_in_no_other(store: Store) -> None:
    come = [Reached(queue, 4) for queue in (FIRST, SECOND)]
    commit(store, lambda at: plan_commit(at, "g", "", come, B))
    commit(store, lambda at: plan_in_flight(at, "g", {FIRST: (4, 1, B), SECOND: (4, 2, B)}, come))
    commit(store, lambda at: plan_reset(at, "g", {FIRST: 0}, B))
    assert read_in_flight(store.snapshot(), "g") == {SECOND: (4, 2, B)}
    assert read_offsets(store.snapshot(), "g") == {FIRST: Offset(0, 1), SECOND: Offset(4)}
    # The run that read it before does not move it.
    late = commit(store, lambda at: plan_commit(at, "g", "", [Reached(FIRST, 9)], B)).result
    assert (late["reset"], read_offsets(store.snapshot(), "g")[FIRST]) == ([FIRST], Offset(0, 1))
