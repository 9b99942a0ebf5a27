"""Suites: the checks of a theme under one name, as `validate --suite` takes it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipelines.errors import BadInput
from pipelines.quality.appends import last_append
from pipelines.quality.caches import followers, queue_bounds
from pipelines.quality.derived import derived_checks
from pipelines.quality.lineage import copies, waiting_records
from pipelines.quality.promise import Check
from pipelines.quality.records import queues_over_segments, records_in_order, whole_records
from pipelines.quality.scope import Scope
from pipelines.quality.state import group_offsets, in_flight, keys_of_state, settings_given
from pipelines.rocketmq.settings import Settings
from pipelines.store.snapshot import Snapshot

MakeCheck = Callable[[Snapshot, Scope, Settings], Check]


@dataclass(frozen=True)
class Suite:
    """What is checked under one name.

    about   what the suite checks, in words
    checks  each reads its rows once
    """

    about: str
    checks: Sequence[MakeCheck]


SUITES: Mapping[str, Suite] = {
    "log": Suite(
        "the records themselves and their order",
        (
            lambda at, scope, _: last_append(at),
            whole_records,
            records_in_order,
            lambda at, scope, _: queues_over_segments(at, scope),
        ),
    ),
    "queues": Suite("consume_queue equals the log", derived_checks("queues")),
    "index": Suite("message_index equals the log", derived_checks("index")),
    "parked": Suite(
        "what waits, and the table parked",
        (lambda at, scope, _: waiting_records(at, scope), *derived_checks("parked")),
    ),
    "lineage": Suite("copies and their sources, and the table claims", (copies, *derived_checks("lineage"))),
    "caches": Suite(
        "queue_bounds and progress agree with the log", (queue_bounds, lambda at, scope, _: followers(at))
    ),
    "offsets": Suite(
        "how far groups have read",
        (lambda at, scope, _: group_offsets(at), lambda at, scope, _: in_flight(at)),
    ),
    "settings": Suite(
        "settings, and the keys of small tables",
        (lambda at, scope, _: settings_given(at), lambda at, scope, _: keys_of_state(at)),
    ),
}


def chosen_suites(names: Iterable[str]) -> list[str]:
    """The requested suites, all of them when none is named. Raises BadInput for a name that is none."""
    asked = list(names)
    unknown = [name for name in asked if name not in SUITES]
    if unknown:
        listed = "; ".join(f"{name}: {suite.about}" for name, suite in SUITES.items())
        raise BadInput(f"--suite is {unknown[0]!r}; there are {listed}")
    return [name for name in SUITES if name in asked or not asked]
