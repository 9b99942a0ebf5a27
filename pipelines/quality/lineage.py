"""Lineage: rows made from rows (docs/rocketmq/delay-retry-transaction.md 0), and what waits for its time."""

from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.log.claims import MARK, SETTLE, lies_in, spans_of
from pipelines.log.park import is_parking_topic, level_delay_ms
from pipelines.quality.promise import Check, Promise, check, complaint, record
from pipelines.quality.scope import Scope
from pipelines.rocketmq.names import SCHEDULE_TOPIC, TIMER_TOPIC
from pipelines.rocketmq.properties import property_value
from pipelines.rocketmq.settings import Settings
from pipelines.rocketmq.times import within_reach
from pipelines.store.floors import IMPORT_PREFIX
from pipelines.store.head import head_as_found
from pipelines.store.holes import is_in_a_hole
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG

DUE = Promise("due", "each parked message says when it is due", "critical")
NOT_DUE = Promise("not_due", "no message waits but in a parking topic", "warning")

SAID = Promise("said", "each copy says what it was made from, why, and what it took", "critical")
SOURCE = Promise("source", "each copy's source is in the log and lies before it", "critical")
ORIGIN = Promise("origin", "each copy has the origin of its source", "warning")
ONCE = Promise("once", "nothing of a record is claimed twice", "critical")
CLAIM_FITS = Promise("claim_fits", "each copy claims what its purpose takes", "warning")
SETTLES = Promise("settles", "only what waits is settled", "warning")
NOT_EARLY = Promise("not_early", "no message is delivered before it is due", "warning")
OF_COPIES = (SAID, SOURCE, ORIGIN, ONCE, CLAIM_FITS, SETTLES, NOT_EARLY)

# What a copy claims of its source, by its purpose: a word, or the beginning of one.
CLAIMS_OF_PURPOSES = {
    "deliver": (SETTLE,),
    "hop": (SETTLE,),
    "roll": (SETTLE,),
    "check": (SETTLE,),
    "commit": (SETTLE, MARK),
    "rollback": (SETTLE,),
    "discard": (SETTLE,),
    "retry": ("group:",),
    "dead_letter": ("group:",),
    "redrive": ("redrive:",),
}
LINEAGE = ("source_offset", "origin_offset", "purpose", "claim")


def waiting_records(at: Snapshot, scope: Scope) -> Check:
    """What lies in a parking topic or has a due time."""
    is_parked, has_due = is_parking_topic(F.col("topic")), F.col("due_ms").isNotNull()
    # A broker's timer stops for ever at a row without its slot; here such a row is never due.
    is_slotless = (
        (F.col("topic") == TIMER_TOPIC)
        & F.col("append_id").startswith(IMPORT_PREFIX)
        & property_value(F.col("properties"), "TIMER_OUT_MS").isNull()
    )
    return check(
        "parked",
        scope.of(at.read(COMMITLOG)).where(is_parked | has_due),
        F.col("physical_offset"),
        {
            DUE: F.when(
                is_parked & ~is_slotless,
                complaint(has_due, F.format_string("%s does not say when it is due", record())),
            ),
            NOT_DUE: complaint(
                is_parked,
                F.format_string("%s is due at %d, but lies in an ordinary topic", record(), "due_ms"),
            ),
        },
    )


def copies(at: Snapshot, scope: Scope, settings: Settings) -> Check:
    """What was made from a record of the log, beside its source and all that claims something of that."""
    log = at.read(COMMITLOG).drop("body", "properties")
    rows = scope.of(log).where(reduce(or_, [F.col(name).isNotNull() for name in LINEAGE]))
    spans = spans_of(rows.where(F.col("source_offset").isNotNull()))
    source = F.struct(
        "topic",
        "queue_id",
        "due_ms",
        "append_id",
        F.coalesce("origin_offset", "physical_offset").alias("origin_offset"),
    )
    sources = (
        log.where(lies_in("physical_offset", spans))
        .groupBy(F.col("physical_offset").alias("source_offset"))
        # Always the same one, where a record is there twice: that is a complaint of the log's own.
        .agg(F.min(source).alias("source"))
    )
    claimants = (
        log.where(lies_in("source_offset", spans) & F.col("claim").isNotNull())
        .groupBy("source_offset", "claim")
        .agg(F.min("physical_offset").alias("first_claimant"))
    )
    joined = rows.join(sources, "source_offset", "left").join(claimants, ["source_offset", "claim"], "left")
    is_lost = is_in_a_hole(at, F.col("source_offset"), F.col("source_offset") + 1)
    complaints = _complaints(head_as_found(at).min_offset, is_lost, settings)
    return check("lineage", joined, F.col("physical_offset"), complaints)


def _complaints(log_start: int, is_lost: Column, settings: Settings) -> dict[Promise, Column]:
    source_offset, source = F.col("source_offset"), F.col("source")
    missing = F.filter(
        F.array(*[F.when(F.col(name).isNull(), name) for name in LINEAGE]), lambda name: name.isNotNull()
    )
    is_there = source.isNotNull()
    is_settling = F.col("claim") == SETTLE
    purpose = F.col("purpose")
    return {
        SAID: complaint(
            F.size(missing) == 0, F.concat(record(), F.lit(" has no "), F.array_join(missing, ", "))
        ),
        SOURCE: F.when(
            source_offset.isNotNull(),
            F.coalesce(
                complaint(
                    source_offset < F.col("physical_offset"),
                    F.format_string(
                        "%s was made from byte %d, which is not before it", record(), source_offset
                    ),
                ),
                complaint(
                    # A source may have expired, or be lost.
                    is_there | (source_offset < log_start) | is_lost,
                    F.format_string(
                        "%s was made from byte %d, where no record starts", record(), source_offset
                    ),
                ),
            ),
        ),
        ORIGIN: F.when(
            is_there,
            complaint(
                F.col("origin_offset") == F.col("source.origin_offset"),
                F.format_string(
                    "%s has its origin at byte %d; its source has it at %d",
                    record(),
                    "origin_offset",
                    "source.origin_offset",
                ),
            ),
        ),
        ONCE: F.when(
            F.col("claim").isNotNull() & source_offset.isNotNull(),
            complaint(
                F.col("physical_offset") == F.col("first_claimant"),
                F.format_string(
                    "%s claims %s of the record at byte %d, which the one at byte %d has claimed before",
                    record(),
                    "claim",
                    source_offset,
                    "first_claimant",
                ),
            ),
        ),
        CLAIM_FITS: F.when(
            purpose.isNotNull() & F.col("claim").isNotNull(),
            complaint(
                _claim_fits(), F.format_string("%s was made for %s and claims %s", record(), purpose, "claim")
            ),
        ),
        SETTLES: F.when(
            is_settling & is_there,
            complaint(
                F.col("source.due_ms").isNotNull(),
                F.format_string(
                    "%s settles the record at byte %d, which never waited", record(), source_offset
                ),
            ),
        ),
        NOT_EARLY: F.when(
            purpose.isin("deliver", "hop") & F.col("source.due_ms").isNotNull(),
            complaint(
                (F.col("store_timestamp") >= F.col("source.due_ms")) | _is_too_far(settings),
                F.format_string(
                    "%s was stored at %d; its source was due at %d",
                    record(),
                    "store_timestamp",
                    "source.due_ms",
                ),
            ),
        ),
    }


def _claim_fits() -> Column:
    def is_it(claim: str) -> Column:
        return F.col("claim").startswith(claim) if claim.endswith(":") else F.col("claim") == claim

    fitting = [
        (F.col("purpose") == purpose) & reduce(or_, map(is_it, claims))
        for purpose, claims in CLAIMS_OF_PURPOSES.items()
    ]
    return reduce(or_, fitting)


def _is_too_far(settings: Settings) -> Column:
    """An imported row delayed by level that was further from its time than its level waits is due at once (1.3)."""
    delay = level_delay_ms(F.try_add("source.queue_id", F.lit(1)), settings.delay_levels_ms)
    is_scheduled = F.col("source.topic") == SCHEDULE_TOPIC
    is_imported = F.col("source.append_id").startswith(IMPORT_PREFIX)
    stored = within_reach(F.col("store_timestamp"))
    return is_scheduled & is_imported & (F.col("source.due_ms") > stored + delay)
