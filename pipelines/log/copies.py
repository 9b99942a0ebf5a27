"""Copies: rows of the log made from rows of the log, each with its lineage (docs/rocketmq/delay-retry-transaction.md 0).

Deliver, send back, redrive, end and check of transactions all read rows, make changed copies and append them. Which rows
are copied, and what is changed, is worked out first from few bytes a row; bodies are read once, when the copies are written.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.errors import StoreError
from pipelines.log.append import append_writes, head_after, log_rows
from pipelines.log.claims import Span, lies_in, spans_of_offsets
from pipelines.log.decisions import joined, with_decisions
from pipelines.log.place import rolls, running_offsets, taken_before
from pipelines.log.whole_import import expect_whole_import
from pipelines.rocketmq.flags import BORN_HOST_IPV6, STORE_HOST_IPV6
from pipelines.rocketmq.queue_slots import slots_taken
from pipelines.rocketmq.record import BLANK_BYTES, FIXED_BYTES, IPV6_EXTRA_BYTES, body_crc, v2_bytes
from pipelines.store.head import LogHead, read_head
from pipelines.store.plan import Planned, Write
from pipelines.store.snapshot import Snapshot
from pipelines.store.work import Work
from schemas import COMMITLOG

# The most copies of one append: a few bytes of each are on the driver, and a lost race plans all of them again.
COPIES_OF_AN_APPEND = 1_000_000
# The size of a file into which copies are moved.
BYTES_OF_A_FILE = 128 * 1024 * 1024
# Sources are dense where at least this share of the bytes read is copied.
DENSE = 0.5

# How many messages without a copy are named, of each append.
TOO_LARGE_NAMED = 20

# Columns that a copy takes over from its source unless `copies_of` is given others.
KEPT = (
    "flag",
    "sys_flag",
    "born_timestamp",
    "born_host",
    "store_host",
    "reconsume_times",
    "properties",
    "topic",
    "queue_id",
)

# The offsets of a copy in the log and in its queue, once they are known.
PLACE = ("copy_offset", "copy_queue_offset")


@dataclass(frozen=True)
class CopyPlan:
    """Copies placed after the head: the writes that append them, how many have each purpose, and the head after them.

    passed_over  chosen rows of the log that get no copy
    too_large    (source_offset, bytes) of copies left out because they do not fit a segment
    """

    writes: tuple[Write, ...]
    rows_by_purpose: Mapping[str, int]
    head: LogHead
    passed_over: int = 0
    too_large: tuple[tuple[int, int], ...] = ()


def copies_of(chosen: DataFrame, columns: Mapping[str, Column]) -> DataFrame:
    """Copies of rows of the log; they have offsets (PLACE) only where `chosen` has.

    chosen   rows of the log with the decisions about them: `claim`, `purpose`, `order`, and `rank` (int) where
             one source has several copies
    columns  columns that differ from the source's: any of KEPT, `due_ms` or `due_after_ms` (after the append),
             `prepared_transaction_offset`, `body` and `body_bytes`
    """
    if "properties" in columns:
        # A column of its own, since its length is needed too: Spark then works it out once.
        chosen = chosen.withColumn("properties_of_copy", columns["properties"])
        columns = {**columns, "properties": F.col("properties_of_copy")}
    topic = columns.get("topic", F.col("topic"))
    properties = columns.get("properties", F.col("properties"))
    body = columns.get("body", F.col("body"))
    body_bytes = columns.get("body_bytes", kept_body_bytes())
    sys_flag = columns.get("sys_flag", F.col("sys_flag"))
    given = {
        **{name: columns.get(name, F.col(name)).alias(name) for name in KEPT},
        "prepared_transaction_offset": columns.get("prepared_transaction_offset", F.lit(0)).cast("long"),
        "body": body,
        "due_ms": columns.get("due_ms", F.lit(None)).cast("long"),
        "due_after_ms": columns.get("due_after_ms", F.lit(None)).cast("long"),
        "size_bytes": record_bytes(sys_flag, topic, body_bytes, F.octet_length(properties)),
        "source_offset": F.col("physical_offset"),
        "origin_offset": F.coalesce("origin_offset", "physical_offset"),
        "purpose": F.col("purpose"),
        "claim": F.col("claim"),
        "order": F.col("order"),
        "rank": F.col("rank") if "rank" in chosen.columns else F.lit(0),
        # Queue slots: no copy changes the number of messages in a batch.
        "places": slots_taken(),
        **{name: F.col(name) for name in PLACE if name in chosen.columns},
    }
    return chosen.select(*[column.alias(name) for name, column in given.items()])


def record_bytes(sys_flag: Column, topic: Column, body_bytes: Column, properties_bytes: Column) -> Column:
    """Length of a record in bytes; sys_flag has whether its hosts are IPv6 (docs/rocketmq/store.md 1.3, 1.4, 1.6)."""
    hosts = reduce(
        lambda total, bit: total + F.when(sys_flag.bitwiseAND(bit) != 0, IPV6_EXTRA_BYTES).otherwise(0),
        (BORN_HOST_IPV6, STORE_HOST_IPV6),
        F.lit(FIXED_BYTES),
    )
    return (hosts + v2_bytes(topic) + F.octet_length(topic) + body_bytes + properties_bytes).cast("int")


def kept_body_bytes() -> Column:
    """Length of a log row's body in bytes, computed from its record's size: bodies are not read."""
    without = record_bytes(F.col("sys_flag"), F.col("topic"), F.lit(0), F.octet_length("properties"))
    return F.col("size_bytes") - without


def plan_copies(
    at: Snapshot,
    chosen: pa.Table,
    copy: Callable[[DataFrame], DataFrame],
    now_ms: int,
    append_id: str,
    left: DataFrame | None = None,
    leaves_out_too_large: bool = False,
) -> CopyPlan:
    """The plan that appends copies of `chosen` rows after the head, in their `order`; a row no longer in the log has none.

    chosen  one row per copy: `source_offset` (int64) and the decisions about it; at most COPIES_OF_AN_APPEND
    copy    makes copies of rows of the log with the columns of `chosen`, through `copies_of`; one without a purpose is not
            appended
    left    those of `chosen` that claims and rules leave, with its columns; Spark runs it in one query with the copies
    leaves_out_too_large  whether a copy that does not fit a segment is left out and reported; else it fails the plan. A
            copy gains a longer topic and properties, so its source may fit where it does not
    """
    head = read_head(at)
    spans = spans_of_offsets(chosen.column("source_offset").to_numpy())
    if not spans:
        return CopyPlan((), {}, head)
    expect_whole_import(at, head.next_offset)
    at.preload(COMMITLOG)
    spark = at.store.spark
    segment_bytes = at.store.settings.segment_bytes
    log = at.read(COMMITLOG).where(lies_in("physical_offset", spans)).drop(*chosen.column_names)

    slim_copies = (
        copy(with_decisions(log, chosen) if left is None else joined(log, left))
        .select(
            "source_offset", "rank", "order", "topic", "queue_id", "size_bytes", "purpose", "claim", "places"
        )
        .toArrow()
    )
    slim = slim_copies.filter(slim_copies.column("purpose").is_valid())
    passed_over = slim_copies.num_rows - slim.num_rows
    too_large: tuple[tuple[int, int], ...] = ()
    if leaves_out_too_large:
        is_too_large = pa.compute.greater(slim.column("size_bytes"), segment_bytes - BLANK_BYTES)
        sizes = slim.filter(is_too_large).sort_by("order").select(["source_offset", "size_bytes"])
        too_large = tuple((row["source_offset"], row["size_bytes"]) for row in sizes.to_pylist())
        slim = slim.filter(pa.compute.invert(is_too_large)) if too_large else slim
    if not slim.num_rows:
        return CopyPlan((), {}, head, passed_over, too_large)
    _expect_once(slim)
    placed, after = places_of(slim, head, segment_bytes, max(now_ms, head.last_store_timestamp))
    copies_bytes = int(pa.compute.sum(slim.column("size_bytes")).as_py())
    keys = ["source_offset", "rank"] if "rank" in chosen.column_names else ["source_offset"]
    found = chosen.join(placed.select([*keys, *PLACE]), keys, join_type="inner")
    placed_copies = copy(with_decisions(log, found))
    if not _lie_in_order(placed, spans, copies_bytes):
        files = _files_of(copies_bytes, spark.sparkContext.defaultParallelism)
        placed_copies = moved_into_order(placed_copies, head.next_offset, after.next_offset, files)
    rows = log_rows_of(placed_copies, after, segment_bytes, append_id)
    offsets = placed.column("copy_offset")
    planned = Planned(slim.num_rows, offsets[0].as_py(), offsets[-1].as_py(), after.next_offset)
    writes = append_writes(at, rows, planned, after)
    counts = slim.column("purpose").value_counts().to_pylist()
    rows_by_purpose = {count["values"]: count["counts"] for count in counts}
    return CopyPlan(writes, rows_by_purpose, after, passed_over, too_large)


def warn_of_no_copy(work: Work, what_follows: str, part: Mapping[str, Any]) -> None:
    """Warn of messages that an append has left out because their copies do not fit a segment.

    what_follows  what becomes of such a message
    part          the result of the append's plan, with `too_large` as of CopyPlan
    """
    for message in _without_copy(work.store.snapshot(), part["too_large"]):
        work.warn(f"{what_follows}: {message}")


def _without_copy(at: Snapshot, too_large: Sequence[tuple[int, int]]) -> list[str]:
    """Which messages have no copy because it does not fit a segment, and why: a line for each of the first ones.

    too_large  as of CopyPlan
    """
    named = dict(too_large[:TOO_LARGE_NAMED])
    if not named:
        return []
    room = at.store.settings.segment_bytes - BLANK_BYTES
    rows = at.read(COMMITLOG).where(F.col("physical_offset").isin(*named)).orderBy("physical_offset")
    lines = [
        f"the message at offset {row.queue_offset} of queue {row.queue_id} of {row.topic} (byte {row.physical_offset}): "
        f"its copy is a record of {named[row.physical_offset]} bytes; at most {room} fit a segment "
        "(mappedFileSizeCommitLog less 8)"
        for row in rows.select("queue_offset", "queue_id", "topic", "physical_offset").collect()
    ]
    more = len(too_large) - len(named)
    return [*lines, f"so are {more:,} more messages, for the same reason"] if more else lines


def _expect_once(slim: pa.Table) -> None:
    """Raises StoreError where two copies have the same (source_offset, rank) or (source_offset, claim): each is unique."""
    sources = np.sort(slim.column("source_offset").to_numpy())
    if not (sources[1:] == sources[:-1]).any():
        return
    claiming = slim.filter(slim.column("claim").is_valid())
    for copies, names in ((slim, ["source_offset", "rank"]), (claiming, ["source_offset", "claim"])):
        counts = copies.group_by(names).aggregate([([], "count_all")])
        twice = counts.filter(pa.compute.greater(counts.column("count_all"), 1)).slice(0, 1).to_pylist()
        if twice:
            source, what = (twice[0][name] for name in names)
            raise StoreError(
                f"expected one copy of the message at byte {source} for {names[1]} {what}, found "
                f"{twice[0]['count_all']}: the job chose it more than once. Nothing was written; please report this with "
                "what --debug shows"
            )


def places_of(
    slim: pa.Table, head: LogHead, segment_bytes: int, store_timestamp: int
) -> tuple[pa.Table, LogHead]:
    """The offsets of each copy, by (source_offset, rank), and the head after all copies."""
    last_key_first = ("rank", "source_offset", "order")
    ordered = slim.take(np.lexsort([slim.column(name).to_numpy() for name in last_key_first]))
    sizes = ordered.column("size_bytes").to_numpy().astype(np.int64)
    roll_rows, roll_offsets, next_offset = rolls(sizes, head.next_offset, segment_bytes)
    offsets = running_offsets(sizes, roll_rows, roll_offsets)
    topics = ordered.column("topic").combine_chunks().dictionary_encode()
    names = topics.dictionary.to_pylist()
    # As unsigned numbers: a copy of an imported row may have a queue below 0.
    queue_ids = ordered.column("queue_id").to_numpy().astype(np.int64) & 0xFFFFFFFF
    pairs, codes = np.unique(
        topics.indices.to_numpy().astype(np.int64) << 32 | queue_ids, return_inverse=True
    )
    taken, before = taken_before(codes, ordered.column("places").to_numpy())
    following = dict(head.next_queue_offsets)
    starts = np.zeros(len(pairs), np.int64)
    for code, pair in enumerate(pairs.tolist()):
        key = (names[pair >> 32], (pair & 0xFFFFFFFF ^ 0x80000000) - 0x80000000)
        starts[code] = following.get(key, 0)
        following[key] = following.get(key, 0) + taken[code]
    table = pa.table(
        {
            "source_offset": ordered.column("source_offset"),
            "rank": ordered.column("rank"),
            "copy_offset": offsets,
            "copy_queue_offset": starts[codes] + before,
        }
    )
    after = head_after(head, next_offset, store_timestamp, following)
    return table, after


def _lie_in_order(placed: pa.Table, spans: Sequence[Span], copies_bytes: int) -> bool:
    """Whether copies may be written as their sources are read: in the same order, many, and dense.

    Then no body is moved, which is a third of the time of a large append. Few copies of sources far apart would leave as
    many files; they are moved into few.
    """
    read_bytes = sum(last - first for first, last in spans)
    is_much = copies_bytes > BYTES_OF_A_FILE and copies_bytes > read_bytes * DENSE
    return is_much and bool(np.all(np.diff(placed.column("source_offset").to_numpy()) > 0))


def _files_of(copies_bytes: int, cores: int) -> int:
    """The number of files for the copies; where they keep all cores busy, it is rounded up to whole rounds of tasks.

    >>> _files_of(5 * BYTES_OF_A_FILE, 2), _files_of(5 * BYTES_OF_A_FILE, 100), _files_of(1, 2)
    (6, 5, 1)
    """
    files = max(1, -(-copies_bytes // BYTES_OF_A_FILE))
    return files if files < cores else -(-files // cores) * cores


def moved_into_order(copies: DataFrame, first_offset: int, next_offset: int, files: int) -> DataFrame:
    """Copies in `files` files, each with one part of the append in order."""
    part = -(-(next_offset - first_offset) // files)
    file = F.floor((F.col("copy_offset") - first_offset) / part).cast("int")
    return copies.repartitionById(files, file).sortWithinPartitions("copy_offset")


def log_rows_of(copies: DataFrame, after: LogHead, segment_bytes: int, append_id: str) -> DataFrame:
    """Rows of the commit log from copies with their offsets."""
    columns = {
        "physical_offset": F.col("copy_offset"),
        "queue_offset": F.col("copy_queue_offset"),
        "body_crc": body_crc(F.col("body")),
        "due_ms": F.col("due_ms"),
        "due_after_ms": F.col("due_after_ms"),
    }
    return log_rows(copies, columns, after, append_id, segment_bytes)
