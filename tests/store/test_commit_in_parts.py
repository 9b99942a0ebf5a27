"""Plan, commit, add up, until nothing is left: what the loop hands to its planner, and what it gives back."""

from collections.abc import Callable
from typing import Any

import pytest

from pipelines.store.commit import Committed
from pipelines.store.commit_in_parts import commit_in_parts
from pipelines.store.plan import Plan

pytestmark = pytest.mark.quick


def committing(planner: Callable[[Any], Plan]) -> Committed:
    """Writes nothing; plans twice, as after a lost race."""
    planner(None)
    return Committed(planner(None))


def test_parts_are_committed_until_nothing_is_left_and_their_counts_add_up() -> None:
    parts = {None: ("from the start", 2, 7), 7: ("from 7", 3, 9), 9: ("from 9", 1, None)}
    seen: list[str] = []

    def plan_part(at: Any, stopped: int | None) -> Plan:
        said, rows, rest = parts[stopped]
        return Plan((), {"said": said, "rows": rows, "stopped": rest})

    result = commit_in_parts(
        committing, plan_part, ("rows",), left="stopped", after_each=lambda part: seen.append(part["said"])
    )
    assert seen == ["from the start", "from 7", "from 9"]
    assert result == {"said": "from 9", "rows": 6, "stopped": None}


def test_one_part_is_enough_where_nothing_more_is_left() -> None:
    result = commit_in_parts(committing, lambda at, _: Plan((), {"rows": 0, "more": False}), ("rows",))
    assert result == {"rows": 0, "more": False}
