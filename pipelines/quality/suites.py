"""Suites: the checks of a theme under one name, as `validate --suite` takes it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pipelines.errors import BadInput
from pipelines.quality import appends, caches, lineage, records, state
from pipelines.quality.derived import derived_checks, derived_promises
from pipelines.quality.promise import Check, Promise
from pipelines.quality.scope import Scope
from pipelines.rocketmq.settings import Settings
from pipelines.store.snapshot import Snapshot

MakeCheck = Callable[[Snapshot, Scope, Settings], Check]


@dataclass(frozen=True)
class Suite:
    """What is checked under one name.

    about     what the suite checks, in words
    checks    each reads its rows once
    promises  those of all its checks, known before they are made
    """

    about: str
    checks: Sequence[MakeCheck]
    promises: Sequence[Promise]


SUITES: Mapping[str, Suite] = {
    "log": Suite(
        "the records themselves and their order",
        (
            lambda at, scope, _: appends.last_append(at),
            records.whole_records,
            records.records_in_order,
            lambda at, scope, _: records.queues_over_segments(at, scope),
        ),
        (appends.PLANNED, appends.APPEND_ONLY, *records.PROMISES),
    ),
    "queues": Suite("consume_queue equals the log", derived_checks("queues"), derived_promises("queues")),
    "index": Suite("message_index equals the log", derived_checks("index"), derived_promises("index")),
    "parked": Suite(
        "what waits, and the table parked",
        (lambda at, scope, _: lineage.waiting_records(at, scope), *derived_checks("parked")),
        (lineage.DUE, lineage.NOT_DUE, *derived_promises("parked")),
    ),
    "lineage": Suite(
        "copies and their sources, and the table claims",
        (lineage.copies, *derived_checks("lineage")),
        (*lineage.OF_COPIES, *derived_promises("lineage")),
    ),
    "caches": Suite(
        "queue_bounds and progress agree with the log",
        (caches.queue_bounds, lambda at, scope, _: caches.followers(at)),
        (caches.AS_OF, caches.ENDS, caches.BEGINS, caches.AHEAD),
    ),
    "offsets": Suite(
        "how far groups have read",
        (lambda at, scope, _: state.group_offsets(at), lambda at, scope, _: state.in_flight(at)),
        (state.READ, state.GONE, state.IN_WORK),
    ),
    "settings": Suite(
        "settings, and the keys of small tables",
        (lambda at, scope, _: state.settings_given(at), lambda at, scope, _: state.keys_of_state(at)),
        (state.SETTING, state.KEYS),
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
