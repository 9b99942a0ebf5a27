"""Derived tables equal the log: what dispatch derives from it and what the tables hold, compared both ways, slim columns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.dispatch.entries import consume_queue_entries, message_index_entries
from pipelines.log.claims import claims_of
from pipelines.log.park import parked_messages
from pipelines.quality.promise import Check, Promise, Severity, check
from pipelines.quality.scope import Scope
from pipelines.rocketmq.settings import Settings
from pipelines.store.head import head_as_found
from pipelines.store.progress import covered, followed_rows
from pipelines.store.snapshot import Snapshot
from schemas import CLAIMS, COMMITLOG, CONSUME_QUEUE, MESSAGE_INDEX, PARKED, Table


@dataclass(frozen=True)
class Derived:
    """A derived table as it is checked.

    entries   the rows that the log derives for it
    named     a row of it, as a complaint names it: a format and its columns
    missing, surplus  the two promises: nothing of the log is left out, nothing else is there
    """

    suite: str
    table: Table
    entries: Callable[[DataFrame, Settings], DataFrame]
    named: tuple[str, ...]
    missing: Promise
    surplus: Promise


def _promises(table: Table, missing: Severity, surplus: Severity) -> tuple[Promise, Promise]:
    name = table.name
    return (
        Promise(f"{name}_misses", f"{name} has every row the log gives it", missing),
        Promise(f"{name}_surplus", f"{name} has no row but those the log gives it, once each", surplus),
    )


DERIVED_TABLES = (
    Derived(
        "queues",
        CONSUME_QUEUE,
        lambda log, settings: consume_queue_entries(log, settings.delay_levels_ms),
        ("the entry of %s:%d at offset %d", "topic", "queue_id", "queue_offset"),
        *_promises(CONSUME_QUEUE, "critical", "critical"),
    ),
    Derived(
        "index",
        MESSAGE_INDEX,
        lambda log, settings: message_index_entries(log),
        ("the key %s of topic %s", "key", "topic"),
        *_promises(MESSAGE_INDEX, "warning", "warning"),
    ),
    Derived(
        "parked",
        PARKED,
        lambda log, settings: parked_messages(log),
        ("the message (%s) due at %d", "kind", "due_ms"),
        *_promises(PARKED, "critical", "critical"),
    ),
    Derived(
        "lineage",
        CLAIMS,
        lambda log, settings: claims_of(log),
        ("the claim %s on the record at byte %d", "claim", "source_offset"),
        *_promises(CLAIMS, "critical", "critical"),
    ),
)


def derived_table(at: Snapshot, scope: Scope, settings: Settings, derived: Derived) -> Check:
    """A row for each different row of a derived table or of those the log derives; both must have it equally often.

    Only appends the table has followed are compared. What it still has of segments that have expired does not count.
    """
    table = derived.table
    followed = covered(at, table)
    log_start = head_as_found(at).min_offset
    log = scope.of(at.read(COMMITLOG)).where(F.col("append_seq") <= followed)
    there = scope.of(followed_rows(at, table)).where(
        F.coalesce(F.col("physical_offset") >= log_start, F.lit(True))
    )
    rows = (
        _counted(derived.entries(log, settings), table, in_log=1, in_table=0)
        .unionByName(_counted(there, table, in_log=0, in_table=1))
        .groupBy(*table.names)
        .agg(F.sum("in_log").alias("in_log"), F.sum("in_table").alias("in_table"))
    )
    row_format, *columns = derived.named
    named = F.format_string(
        f"{table.name}: {row_format}, of the record at byte %d,", *columns, "physical_offset"
    )
    in_log, in_table = F.col("in_log"), F.col("in_table")
    return check(
        derived.suite,
        rows,
        F.col("physical_offset"),
        {
            derived.missing: F.when(
                in_table < in_log,
                F.when(in_table == 0, F.format_string("%s is missing", named)).otherwise(
                    F.format_string("%s is there %d times of %d", named, in_table, in_log)
                ),
            ),
            derived.surplus: F.when(
                in_table > in_log,
                F.when(
                    in_log == 0, F.format_string("%s is not what the log gives%s", named, _values(table))
                ).otherwise(F.format_string("%s is there %d times, not %d", named, in_table, in_log)),
            ),
        },
    )


def _counted(rows: DataFrame, table: Table, **sides: int) -> DataFrame:
    return rows.select(*table.names, *[F.lit(count).alias(side) for side, count in sides.items()])


def _values(table: Table) -> Column:
    """All of a row, for a complaint about one that should not be."""
    values = ", ".join(f"{name} %s" for name in table.names)
    return F.format_string(f" ({values})", *table.names)


def derived_checks(suite: str) -> list[Callable[..., Any]]:
    """The checks of the derived tables that belong to a suite."""
    return [
        lambda at, scope, settings, derived=derived: derived_table(at, scope, settings, derived)
        for derived in DERIVED_TABLES
        if derived.suite == suite
    ]


def derived_promises(suite: str) -> list[Promise]:
    """The promises of these checks."""
    return [
        promise
        for derived in DERIVED_TABLES
        if derived.suite == suite
        for promise in (derived.missing, derived.surplus)
    ]
