"""Offsets of a group: when what a run has reached counts, and what a reset lets go."""

import pytest

from pipelines.consume.offsets import (
    Offset,
    Queue,
    Reached,
    plan_commit,
    plan_import_offsets,
    plan_in_flight,
    plan_reset,
    read_in_flight,
    read_offsets,
)
from pipelines.store.commit import commit
from pipelines.store.plan import Plan
from pipelines.store.store import Store
from tests.life import B

FIRST, SECOND, OTHER = ("T", 0), ("T", 1), ("U", 0)


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
    commit(store, lambda at: plan_in_flight(at, "g", {FIRST: ((4, 1, B),), SECOND: ((4, 2, B),)}, come))
    commit(store, lambda at: plan_reset(at, "g", {FIRST: 0}, B))
    assert read_in_flight(store.snapshot(), "g") == {SECOND: ((4, 2, B),)}
    assert read_offsets(store.snapshot(), "g") == {FIRST: Offset(0, 1), SECOND: Offset(4)}
    # The run that read it before does not move it.
    late = commit(store, lambda at: plan_commit(at, "g", "", [Reached(FIRST, 9)], B)).result
    assert (late["reset"], read_offsets(store.snapshot(), "g")[FIRST]) == ([FIRST], Offset(0, 1))


def test_what_is_recorded_of_a_queue_leaves_all_others_as_they_are(store: Store) -> None:
    def record(group: str, client: str, *reached: Reached) -> Plan:
        return commit(store, lambda at: plan_commit(at, group, client, reached, B)).plan

    def recorded(group: str, client: str = "") -> dict[Queue, Offset]:
        return read_offsets(store.snapshot(), group, client)

    record("g", "", *[Reached(queue, 4) for queue in (FIRST, SECOND, OTHER)])
    record("g", "client", Reached(FIRST, 2))
    record("h", "", Reached(FIRST, 3))
    record("g", "", Reached(FIRST, 6, was=4))
    assert recorded("g") == {FIRST: Offset(6), SECOND: Offset(4), OTHER: Offset(4)}
    assert (recorded("g", "client"), recorded("h")) == ({FIRST: Offset(2)}, {FIRST: Offset(3)})

    for target in (1, 0):
        commit(store, lambda at, target=target: plan_reset(at, "g", {FIRST: target, ("U", 1): 5}, B))
    assert recorded("g") == {FIRST: Offset(0, 2), SECOND: Offset(4), OTHER: Offset(4), ("U", 1): Offset(5, 2)}
    late = record("g", "", Reached(FIRST, 7), Reached(SECOND, 7, was=3, is_alone=True), Reached(OTHER, 3))
    assert late == Plan((), {"reset": [FIRST], "taken": [SECOND], "recorded": {OTHER: 4}})

    of_broker = {FIRST: 9, SECOND: 9, OTHER: 3, ("V", 0): 5}
    for _ in range(2):
        last = commit(store, lambda at: plan_import_offsets(at, "g", of_broker, B)).plan
    assert last == Plan()
    assert recorded("g") == {
        FIRST: Offset(0, 2), SECOND: Offset(9), OTHER: Offset(4), ("U", 1): Offset(5, 2), ("V", 0): Offset(5),
    }  # fmt: skip
    assert recorded("g", "client") == {FIRST: Offset(2)}


def test_where_a_queue_waits_is_changed_by_the_run_that_reads_it(store: Store) -> None:
    come = [Reached(queue, 4) for queue in (FIRST, SECOND, OTHER)]
    waits = dict.fromkeys((FIRST, SECOND, OTHER), ((4, 1, B), (5, 1, B)))
    commit(store, lambda at: plan_commit(at, "g", "", come, B))
    for group in ("g", "h"):
        commit(store, lambda at, group=group: plan_in_flight(at, group, waits, come))
    assert plan_in_flight(store.snapshot(), "g", waits, come) == Plan()
    commit(store, lambda at: plan_reset(at, "g", {FIRST: 0}, B))
    commit(
        store, lambda at: plan_in_flight(at, "g", {FIRST: ((0, 1, B),)}, [Reached(FIRST, 0, generation=1)])
    )

    by_others = [Reached(FIRST, 6), Reached(SECOND, 6, was=5, is_alone=True)]
    changes = dict.fromkeys([FIRST, SECOND], ())
    assert plan_in_flight(store.snapshot(), "g", changes, by_others) == Plan()
    own = [Reached(FIRST, 6, generation=1), Reached(SECOND, 6, was=4, is_alone=True)]
    commit(store, lambda at: plan_in_flight(at, "g", {FIRST: (), SECOND: ((5, 2, B),)}, own))
    assert read_in_flight(store.snapshot(), "g") == {SECOND: ((5, 2, B),), OTHER: waits[OTHER]}
    assert read_in_flight(store.snapshot(), "h") == waits
