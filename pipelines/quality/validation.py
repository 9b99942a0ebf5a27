"""A validation: suites over one snapshot, the findings, and what of them can be repaired."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from pyspark.sql import functions as F

from pipelines.quality.derived import DERIVED_TABLES
from pipelines.quality.expectations import Finding, Validator
from pipelines.quality.scope import Scope
from pipelines.quality.state import usable_settings
from pipelines.quality.suites import SUITES
from pipelines.spark_internals.arrow import frame_of
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from schemas import (
    COMMITLOG,
    CONSUMER_OFFSETS,
    DERIVED,
    IN_FLIGHT,
    PROGRESS,
    QUEUE_BOUNDS,
    STORE_SETTINGS,
    VALIDATIONS,
)

# Pinned in this order: a follower of the log may be older than the log when it is checked, never newer.
FOLLOWING_THE_LOG = (CONSUMER_OFFSETS, IN_FLIGHT, PROGRESS, *DERIVED, QUEUE_BOUNDS, COMMITLOG)

DERIVED_PROMISES = frozenset(
    promise for derived in DERIVED_TABLES for promise in (derived.missing, derived.surplus)
)


def validate_suites(
    validator: Validator, at: Snapshot, scopes: Mapping[str, Scope], looked: Callable[[int], None]
) -> list[Finding]:
    """The findings for each promise of the suites named in `scopes`.

    looked  called after each check
    """
    for table in FOLLOWING_THE_LOG:
        at.version(table)
    settings = usable_settings({row.name: row.value for row in at.rows(STORE_SETTINGS)})

    def found() -> Iterator[Finding]:
        for name, scope in scopes.items():
            for make_check in SUITES[name].checks:
                yield from validator.findings(make_check(at, scope, settings))
                looked(1)

    return list(found())


def plan_record(
    at: Snapshot, findings: Sequence[Finding], scopes: Mapping[str, Scope], run_id: str, now_ms: int
) -> Plan:
    """Keep the findings, later than all that were kept before: the clocks of two machines differ."""
    latest = at.read(VALIDATIONS).agg(F.max("checked_ms").alias("ms")).collect()[0].ms
    checked_ms = now_ms if latest is None else max(now_ms, latest + 1)
    rows = [
        (
            run_id,
            checked_ms,
            finding.suite,
            finding.promise.sentence,
            finding.promise.severity,
            scopes[finding.suite].after_append,
            scopes[finding.suite].to_append,
            finding.checked,
            finding.broken,
            list(finding.complaints),
        )
        for finding in findings
    ]
    written = frame_of(at.store.spark, rows, VALIDATIONS.columns).coalesce(1)
    return Plan((at.append_unnumbered(VALIDATIONS, written),))
