"""The log's own promises (docs/rocketmq/store.md 1): each record is whole, and each follows the one before."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipelines.dispatch.entries import consume_queue_entries, has_queue_entry
from pipelines.log.copies import record_bytes
from pipelines.quality.promise import Check, Promise, check, complaint, record
from pipelines.quality.scope import Scope
from pipelines.rocketmq.flags import BORN_HOST_IPV6, INNER_BATCH, STORE_HOST_IPV6
from pipelines.rocketmq.queue_slots import next_in_queue
from pipelines.rocketmq.record import BLANK_BYTES, ENTRY_HEADER_BYTES, body_crc, is_ipv6
from pipelines.rocketmq.settings import Settings
from pipelines.store.head import head_as_found
from pipelines.store.holes import is_in_a_hole, touches_a_hole
from pipelines.store.progress import covered, followed_rows
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG, CONSUME_QUEUE, QUEUE_BOUNDS

WHOLE = Promise("whole", "each record has all that a record has", "critical")
IN_SEGMENT = Promise("in_segment", "each record lies in the segment its offset says", "critical")
LENGTH = Promise("length", "each record's length is that of its parts", "critical")
CRC = Promise("crc", "each body is the one its CRC was made of", "critical")
FITS = Promise("fits", "no record straddles two segments, and 8 bytes stay free after it", "critical")
HOSTS = Promise("hosts", "each record's flag says which of its hosts are IPv6", "warning")

FOLLOWS = Promise("follows", "each record starts where the one before ends", "critical")
ROLLS = Promise("rolls", "a segment is left only when the next record does not fit", "warning")
CLOCK = Promise("clock", "store times never go back", "warning")
APPENDS = Promise("appends", "appends lie in the log in their order", "critical")
NO_GAP = Promise("no_gap", "queue offsets have no gap inside a segment", "critical")
GOES_ON = Promise("goes_on", "each queue goes on in a segment where it stopped before", "critical")

PROMISES = (WHOLE, IN_SEGMENT, LENGTH, CRC, FITS, HOSTS, FOLLOWS, ROLLS, CLOCK, APPENDS, NO_GAP, GOES_ON)

# What may be missing: rows of a producer's own have no due time and no lineage.
OPTIONAL = ("due_ms", "source_offset", "origin_offset", "purpose", "claim")
# A queue's last entry before the scope is looked up by name for at most this many queues; for more, by a join alone.
QUEUES_NAMED = 200


def whole_records(at: Snapshot, scope: Scope, settings: Settings) -> Check:
    """Each record by itself. The one pass that reads bodies: it moves none of them."""
    offset, size = F.col("physical_offset"), F.col("size_bytes")
    segment_bytes = F.lit(settings.segment_bytes)
    missing = F.filter(
        F.array(*[F.when(F.col(name).isNull(), name) for name in COMMITLOG.names if name not in OPTIONAL]),
        lambda name: name.isNotNull(),
    )
    own_segment = offset - offset % segment_bytes
    parts = record_bytes(
        F.col("sys_flag"), F.col("topic"), F.octet_length("body"), F.octet_length("properties")
    )
    crc = body_crc(F.col("body"))
    left = segment_bytes - offset % segment_bytes - size
    return check(
        "log",
        scope.of(at.read(COMMITLOG)),
        offset,
        {
            WHOLE: complaint(
                F.size(missing) == 0, F.concat(record(), F.lit(" has no "), F.array_join(missing, ", "))
            ),
            IN_SEGMENT: complaint(
                F.col("segment") == own_segment,
                F.format_string("%s lies in segment %d, not in %d", record(), own_segment, "segment"),
            ),
            LENGTH: complaint(
                size == parts,
                F.format_string("%s says it has %d bytes; its parts have %d", record(), size, parts),
            ),
            CRC: complaint(
                F.col("body_crc") == crc,
                F.format_string("%s has CRC %d; its body has %d", record(), "body_crc", crc),
            ),
            FITS: complaint(
                left >= BLANK_BYTES,
                F.format_string(
                    "%s takes %d bytes and leaves %d of its segment; at least %d stay free",
                    record(),
                    size,
                    left,
                    F.lit(BLANK_BYTES),
                ),
            ),
            HOSTS: complaint(
                _says(BORN_HOST_IPV6, "born_host") & _says(STORE_HOST_IPV6, "store_host"),
                F.format_string(
                    "%s has flag 0x%x, born host %s and store host %s",
                    record(),
                    "sys_flag",
                    "born_host",
                    "store_host",
                ),
            ),
        },
    )


def _says(bit: int, host: str) -> Column:
    return (F.col("sys_flag").bitwiseAND(bit) != 0) == is_ipv6(F.col(host))


def records_in_order(at: Snapshot, scope: Scope, settings: Settings) -> Check:
    """Each record beside the one before it, in the log and in its queue: slim columns, sorted segment by segment."""
    log = at.read(COMMITLOG).select(
        "segment",
        "physical_offset",
        "size_bytes",
        "topic",
        "queue_id",
        "queue_offset",
        "store_timestamp",
        "append_seq",
        "append_id",
        next_in_queue().alias("next_in_queue"),
        has_queue_entry().alias("has_queue_slot"),
    )
    in_segment = Window.partitionBy("segment").orderBy("physical_offset", "append_seq")
    in_queue = Window.partitionBy("segment", "topic", "queue_id", "has_queue_slot").orderBy("physical_offset")
    rows = (
        scope.of(log)
        .withColumn("place_in_segment", F.row_number().over(in_segment))
        .withColumn("before", F.lag(_last_of()).over(in_segment))
        .withColumn("batch_goes_on", F.lead(_batch()).over(in_segment) == _batch())
        .withColumn("queue_goes_on_at", F.lag("next_in_queue").over(in_queue))
        .withColumn("queue_left_at", F.lag("physical_offset").over(in_queue))
        .join(F.broadcast(_segment_ends(at, scope, settings)), "segment", "left")
        .withColumn("before", F.coalesce("before", "segment_before"))
    )
    offset, segment = F.col("physical_offset"), F.col("segment")
    is_first = F.col("place_in_segment") == 1
    has_one_before = F.col("before").isNotNull()
    gap = offset - F.col("before.end")
    room = segment - F.col("before.end")
    # What was lost and taken out is said by a finding of its own.
    is_after_hole = is_in_a_hole(at, F.col("before.end"), offset)
    return check(
        "log",
        rows,
        offset,
        {
            FOLLOWS: F.when(is_first, _first_complaint(at)).otherwise(
                complaint(
                    gap.isin(0, ENTRY_HEADER_BYTES) | is_after_hole,
                    F.format_string(
                        "%s starts %d bytes %s the end of the record before, which is at byte %d",
                        record(),
                        F.abs(gap),
                        F.when(gap > 0, "after").otherwise("before"),
                        "before.end",
                    ),
                )
            ),
            # A batch is never split: of one that may be longer than its first record nothing can be said.
            ROLLS: F.when(
                is_first & has_one_before & ~F.coalesce("batch_goes_on", F.lit(False)),
                complaint(
                    (F.col("size_bytes") + BLANK_BYTES > room)
                    # DLedger begins with a segment of its own, however much room there is before it.
                    | (offset - segment == ENTRY_HEADER_BYTES)
                    | touches_a_hole(at, F.col("before.end"), offset),
                    F.format_string(
                        "%s takes %d bytes and opens a segment; %d were left in the one before",
                        record(),
                        "size_bytes",
                        room,
                    ),
                ),
            ),
            CLOCK: F.when(
                has_one_before,
                complaint(
                    F.col("store_timestamp") >= F.col("before.store_timestamp"),
                    F.format_string(
                        "%s was stored at %d, the one before it at %d",
                        record(),
                        "store_timestamp",
                        "before.store_timestamp",
                    ),
                ),
            ),
            APPENDS: F.when(
                has_one_before,
                complaint(
                    F.col("append_seq") >= F.col("before.append_seq"),
                    F.format_string(
                        "%s is of append %d, but lies after a record of append %d",
                        record(),
                        "append_seq",
                        "before.append_seq",
                    ),
                ),
            ),
            NO_GAP: F.when(
                F.col("has_queue_slot") & F.col("queue_goes_on_at").isNotNull(),
                complaint(
                    (F.col("queue_offset") == F.col("queue_goes_on_at"))
                    | touches_a_hole(at, F.col("queue_left_at"), offset),
                    F.format_string(
                        "%s comes where its queue goes on at offset %d", record(), "queue_goes_on_at"
                    ),
                ),
            ),
        },
    )


def _last_of() -> Column:
    """What the next record is held against."""
    end = F.col("physical_offset") + F.col("size_bytes")
    return F.struct(end.alias("end"), "store_timestamp", "append_seq")


def _batch() -> Column:
    """What all messages of a batch share, and few others."""
    return F.struct("topic", "queue_id", "store_timestamp", "append_id")


def _first_complaint(at: Snapshot) -> Column:
    """A segment's first record lies at its start, and after another segment unless the log begins with it."""
    segment, offset, log_start = F.col("segment"), F.col("physical_offset"), head_as_found(at).min_offset
    return F.coalesce(
        complaint(
            (offset - segment).isin(0, ENTRY_HEADER_BYTES) | is_in_a_hole(at, segment, offset),
            F.format_string("%s is the first of a segment that starts at byte %d", record(), segment),
        ),
        complaint(
            (segment == log_start) | F.col("before").isNotNull() | is_in_a_hole(at, segment - 1, segment),
            F.format_string("%s opens segment %d; the segment before has no record", record(), segment),
        ),
    )


def _segment_ends(at: Snapshot, scope: Scope, settings: Settings) -> DataFrame:
    """A row a segment: `segment`, and of the one before `segment_before`: end, time and append of its last record."""
    log = at.read(COMMITLOG)
    if scope.first_segment is not None:
        log = log.where(F.col("segment") >= scope.first_segment - settings.segment_bytes)
    elif not scope.is_everything:
        log = log.where(F.lit(False))
    ends = log.groupBy("segment").agg(F.max_by(_last_of(), "physical_offset").alias("segment_before"))
    return ends.withColumn("segment", F.col("segment") + settings.segment_bytes)


def queues_over_segments(at: Snapshot, scope: Scope) -> Check:
    """Where each queue goes on in a segment, beside where it stopped in those before: a row a queue and segment."""
    followed = covered(at, CONSUME_QUEUE)
    log = at.read(COMMITLOG).where(has_queue_entry())
    by_segment = Window.partitionBy("topic", "queue_id").orderBy("segment")
    parts = (
        scope.of(log)
        .groupBy("segment", "topic", "queue_id")
        .agg(
            F.min("physical_offset").alias("physical_offset"),
            F.min("queue_offset").alias("queue_offset"),
            F.max(next_in_queue()).alias("next_offset"),
            F.max("physical_offset").alias("last_physical_offset"),
            F.max(F.col("sys_flag").bitwiseAND(INNER_BATCH)).alias("inner_batch"),
        )
        .withColumn("stopped_at", F.lag("next_offset").over(by_segment))
        .withColumn("left_at", F.lag("last_physical_offset").over(by_segment))
    )
    if not scope.is_everything:
        later = scope.before(log).where(F.col("append_seq") > followed)
        entries = (
            scope.before(followed_rows(at, CONSUME_QUEUE))
            .select("topic", "queue_id", "queue_offset")
            .unionByName(consume_queue_entries(later, ()).select("topic", "queue_id", "queue_offset"))
        )
        parts = _with_entries_before(parts, entries)
    bounds = at.read(QUEUE_BOUNDS).select("topic", "queue_id", "min_offset")
    goes_on_at = F.coalesce("stopped_at", "min_offset", F.lit(0).cast("long"))
    first, is_start = F.col("queue_offset"), F.col("stopped_at").isNull()
    # An inner batch takes several places, and the entry before it does not say how many it took.
    is_known = ~is_start | (F.col("inner_batch") == 0)
    return check(
        "log",
        parts.join(F.broadcast(bounds), ["topic", "queue_id"], "left"),
        F.col("physical_offset"),
        {
            GOES_ON: F.when(
                is_known,
                complaint(
                    # Where nothing is known to come before, earlier rows may have expired but not gone missing.
                    (first == goes_on_at)
                    | (is_start & (first < goes_on_at))
                    | touches_a_hole(at, F.coalesce("left_at", F.lit(0)), F.col("physical_offset")),
                    F.format_string(
                        "queue %s:%d goes on at offset %d, but the record at byte %d has offset %d",
                        "topic",
                        "queue_id",
                        goes_on_at,
                        "physical_offset",
                        first,
                    ),
                ),
            )
        },
    )


def _with_entries_before(parts: DataFrame, entries: DataFrame) -> DataFrame:
    """Fills `stopped_at` of each queue's first part with its own offset where the entry before it is there."""
    wanted = parts.where("stopped_at IS NULL").select(
        "topic", "queue_id", (F.col("queue_offset") - 1).alias("queue_offset")
    )
    named = wanted.limit(QUEUES_NAMED + 1).collect()
    if len(named) <= QUEUES_NAMED:
        # Said one by one, so that only the files are read in which they lie.
        is_one = F.lit(False)
        for topic, queue_id, offset in named:
            is_one = is_one | (
                (F.col("topic") == topic)
                & (F.col("queue_id") == queue_id)
                & (F.col("queue_offset") == offset)
            )
        entries = entries.where(is_one)
    found = (
        entries.join(F.broadcast(wanted), ["topic", "queue_id", "queue_offset"], "left_semi")
        .distinct()
        .select("topic", "queue_id", (F.col("queue_offset") + 1).alias("found_at"))
    )
    is_it = F.when(F.col("found_at") == F.col("queue_offset"), F.col("found_at"))
    return parts.join(found, ["topic", "queue_id"], "left").withColumn(
        "stopped_at", F.coalesce("stopped_at", is_it)
    )
