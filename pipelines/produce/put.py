"""Put an input: count it, give every message its place after the head, append. Exactly once for a batch id.

An append is remembered by its rows' append_id, `BATCH_ID:from-to`: rows [from, to) of the input. A put that was cut short
goes on after the last of them; the same put again finds all of them and appends nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.errors import BadInput
from pipelines.log.append_ids import is_put_by
from pipelines.log.count import CountedPiece, CountRules, QueueNums, counted_pieces
from pipelines.log.park import is_parking_topic, real_place
from pipelines.log.place import Placement, is_placed, place, segment_of, with_places
from pipelines.produce.accept import accepted, final_properties, with_typed_columns
from pipelines.produce.arrange import arrange
from pipelines.produce.complaints import AcceptRules
from pipelines.produce.divert import GAINED_BY_PARKING, may_divert
from pipelines.produce.inputs import ALL_FILES, Input, refusing_other_headers
from pipelines.produce.selectors import Selector
from pipelines.rocketmq.properties import without
from pipelines.rocketmq.record import BLANK_BYTES, body_crc
from pipelines.rocketmq.settings import Settings
from pipelines.rocketmq.times import FARTHEST_MS
from pipelines.spark_internals.arrow import BYTES_OF_A_BATCH, NO_LIMIT
from pipelines.spark_internals.catalyst import runtime_literal
from pipelines.spark_internals.sessions import cloned
from pipelines.store.head import APPENDS_BETWEEN_BOUNDS, LogHead, bounds_write, read_head
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from pipelines.store.topics import (
    TopicConfig,
    default_topic,
    no_queues_complaint,
    read_topics,
    topic_made_on_the_fly,
)
from schemas import COMMITLOG, REJECTED_MESSAGES

# Hardly a value comes twice, so that a dictionary of them is made in vain, file after file.
UNIQUE_COLUMNS = ("physical_offset", "properties", "body", "body_crc")
# Records of one append: the lock is held and a lost race is paid for this long (about ten seconds).
APPEND_BYTES = 2 * 1024**3
# A file is read once for each append that takes a part of it, so it is cut into few.
PARTS_OF_A_FILE = 8
# Sizes of all rows are brought to the driver at once (four bytes a row) for inputs up to this; larger ones by append.
COUNT_AT_ONCE_BYTES = 8 * 1024**3
# Rows since queue_bounds after which the next head would have to look at too many.
ROWS_BETWEEN_BOUNDS = 100_000

_SLIM = ("file_hash", "block_start", "topic", "size_bytes")
_SLIM_OPTIONAL = (
    "queue_id",
    "shard",
    "batch",
    "wire_bytes",
    "arrival",
    "parked_topic",
    "parked_queue",
    "reason",
)


class BadRow(NamedTuple):
    """A row that cannot be put: its place in the input, where a person finds it, and why."""

    place: int
    where: str
    reason: str


@dataclass
class Put:
    """One put: its input, its rules, and what has been counted of it.

    counted_queues  of each topic that was counted, how many queues it was counted with
    """

    spark: SparkSession
    source: Input
    batch_id: str
    settings: Settings
    topics: Mapping[str, TopicConfig]
    rules: AcceptRules
    split_batches: bool = False
    pieces: list[CountedPiece] = field(default_factory=list)
    counted_queues: dict[str, int] = field(default_factory=dict)
    whole_files: bool = False
    _all: tuple[tuple[SparkSession, Input, AcceptRules], DataFrame] | None = None

    def __post_init__(self) -> None:
        self._reader = self._new_reader()

    def _new_reader(self) -> SparkSession:
        reader = session_with_splits(self.spark, self.source, self.whole_files)
        if self.rules.compress_over is None:
            # What goes to Python are slim columns, of which no batch gets large; weighing each row is a tenth of a put.
            reader.conf.set(BYTES_OF_A_BATCH, NO_LIMIT)
        for name in UNIQUE_COLUMNS:
            reader.conf.set(f"parquet.enable.dictionary#{name}", "false")
        return reader

    # --- counting ---

    def count(self) -> None:
        """Count the whole input; fills `pieces`, in the order of the input, and `counted_queues`."""
        queue_nums = self._queue_nums_now
        self.pieces = self._count(None, with_sizes=self.source.size_bytes <= COUNT_AT_ONCE_BYTES)
        if any(piece.units is not None for piece in self.pieces) and not self.whole_files:
            # Batches are found in files read as a whole: a split could cut one.
            self.whole_files = True
            self._reader = self._new_reader()
            if len({piece.piece[0] for piece in self.pieces}) < len(self.pieces):
                self.pieces = self._count(None, with_sizes=True)
        self.counted_queues = {topic: queue_nums.of(topic) for topic in self.counted_topics}

    def is_counted_for(self, topics: Mapping[str, TopicConfig]) -> bool:
        """Whether each counted topic has as many queues in `topics` as it was counted with."""
        return all(
            topic not in topics or topics[topic].write_queue_nums == queues
            for topic, queues in self.counted_queues.items()
        )

    def _count(self, files: Sequence[int] | None, with_sizes: bool) -> list[CountedPiece]:
        rules = CountRules(
            self._queue_nums_now,
            self.settings.max_message_bytes,
            with_sizes,
            self.split_batches,
            self.settings.segment_bytes - BLANK_BYTES,
        )
        with refusing_other_headers(self.source):
            counted = counted_pieces(self.messages(files).select(*self.slim_columns), rules)
        return sorted(counted, key=self._order)

    @property
    def is_out_of_order(self) -> bool:
        """Whether the arrival column, where there is one, does not ascend over the input."""
        spans = [piece.arrival for piece in self.pieces if piece.arrival is not None]
        if spans and any(piece.without_arrival for piece in self.pieces):
            missing = sum(piece.without_arrival for piece in self.pieces)
            raise BadInput(
                f"arrival is missing in {missing} rows and given in others; give it in all rows or in none"
            )
        return any(not in_order for _, _, in_order in spans) or any(
            before[1] > after[0] for before, after in pairwise(spans)
        )

    def arrange(self, directory: str, selects: bool, select: Selector | None) -> None:
        """Put from a copy in `directory` that is in order and has the selector's queues."""
        self.source = arrange(
            session_with_splits(self.spark, self.source, self.whole_files),
            self.source,
            self.pieces,
            directory,
            self.batch_id,
            self.is_out_of_order,
            selects,
            select,
            self._queue_nums_now.of,
        )
        self.pieces = []
        self.whole_files = (
            True  # a file is a split: where files begin depends on the input, where blocks do may not
        )
        self._reader = self._new_reader()

    def _order(self, piece: CountedPiece) -> tuple[int, int]:
        file_hash, block_start = piece.piece
        return self.source.hashes[file_hash], block_start

    @property
    def bad_rows(self) -> int:
        return sum(piece.bad_rows for piece in self.pieces)

    @property
    def slim_columns(self) -> list[str]:
        has = {*self.source.columns, "wire_bytes" if "batch" in self.source.columns else ""}
        if "sharding_key" in self.source.columns:
            has.add("shard")
        if self._has_reasons:
            has.add("reason")
        if may_divert(self.source):
            has |= {"parked_topic", "parked_queue"}
        return [*_SLIM, *[name for name in _SLIM_OPTIONAL if name in has]]

    @property
    def _has_reasons(self) -> bool:
        """Reasons are worked out unless a count has shown that there are none."""
        return not self.pieces or self.bad_rows > 0

    def messages(self, files: Sequence[int] | None) -> DataFrame:
        """The input's messages (all, or those of some files) as they will be stored; all are planned once."""
        if files is not None and len(files) < len(self.source.files):
            return self._accepted(files)
        made_of = (self._reader, self.source, self.rules)
        if self._all is None or self._all[0] != made_of:
            self._all = made_of, self._accepted(None)
        return self._all[1]

    def _accepted(self, files: Sequence[int] | None) -> DataFrame:
        return self.source.read(self._reader, files).transform(accepted, self.source, self.rules)

    def given_rows(self) -> DataFrame:
        """The input's rows as they were given, with numbers as numbers."""
        with_bodies = session_with_splits(self.spark, self.source, self.whole_files)
        return self.source.read(with_bodies).transform(with_typed_columns, self.source)

    # --- topics ---

    def topic_config(self, topic: str) -> TopicConfig:
        """The topic's config, or the one it would get when it is made on the fly."""
        return self.topics.get(topic) or topic_made_on_the_fly(
            topic, default_topic(self.topics, self.settings)
        )

    @property
    def queue_nums(self) -> dict[str, int]:
        """Queues that are written, of each topic: those that exist, and those this put will make."""
        names = set(self.topics) | {topic for piece in self.pieces for topic in piece.topics}
        return {name: self._written_queues(name) for name in names if name}

    @property
    def _queue_nums_now(self) -> QueueNums:
        return QueueNums(self.queue_nums, self._written_queues(""))

    def _written_queues(self, topic: str) -> int:
        """At least one, so that rows can be counted: what is for a topic without any is refused once it is known to come."""
        return max(self.topic_config(topic).write_queue_nums, 1)

    @property
    def counted_topics(self) -> set[str]:
        return {topic for piece in self.pieces for topic in piece.topics}

    @property
    def new_topics(self) -> list[TopicConfig]:
        return [self.topic_config(topic) for topic in sorted(self.counted_topics - set(self.topics))]

    def topic_complaints(self) -> dict[str, str]:
        """Why some counted topics cannot be put to: not there and not made on the fly, not writable, or without queues."""
        complaints = {}
        for topic in self.counted_topics:
            config = self.topic_config(topic)
            if topic not in self.topics and not self.settings["autoCreateTopicEnable"]:
                complaints[topic] = (
                    f"topic {topic} does not exist and autoCreateTopicEnable is false; create it first"
                )
            elif not config.is_writable:
                complaints[topic] = f"topic {topic} is not writable (perm {config.perm})"
            elif config.write_queue_nums < 1:
                complaints[topic] = no_queues_complaint(config)
        return complaints

    def overrun_topics(self) -> dict[str, int]:
        """Topics to whose queues some row asks for one too many: topic -> queues."""
        overrun = {}
        for piece in self.pieces:
            for topic, queue_id in (*piece.rows_by_queue, *piece.parked_for):
                config = self.topic_config(topic)
                queues = max(config.read_queue_nums, config.write_queue_nums)
                if queue_id >= queues:
                    overrun[topic] = queues
        return overrun

    # --- appends ---

    def appends(self) -> Iterator[tuple[int, list[CountedPiece]]]:
        """The input cut into appends: (place of the first row, pieces)."""
        largest = max(
            (sum(p.size_bytes for p in self.pieces if p.piece[0] == h) for h in self.source.hashes), default=0
        )
        limit = max(APPEND_BYTES, largest // PARTS_OF_A_FILE)
        part: list[CountedPiece] = []
        first = following = 0
        for piece in self.pieces:
            if part and sum(each.size_bytes for each in part) + piece.size_bytes > limit:
                yield first, part
                first, part = following, []
            part.append(piece)
            following += piece.rows
        if part:
            yield first, part

    def with_sizes(self, pieces: Sequence[CountedPiece]) -> list[CountedPiece]:
        """The same pieces with the sizes of their rows, counted again where they were too many to keep."""
        if all(piece.sizes is not None or piece.units is not None for piece in pieces):
            return list(pieces)
        wanted = {piece.piece for piece in pieces}
        again = self._count(self._files_of(pieces), with_sizes=True)
        return [piece for piece in again if piece.piece in wanted]

    def _files_of(self, pieces: Sequence[CountedPiece]) -> list[int]:
        return sorted({self.source.hashes[piece.piece[0]] for piece in pieces})

    def expect_unchanged(self, pieces: Sequence[CountedPiece]) -> None:
        """The files of these pieces must be as they were counted. Raises StoreError where one has changed."""
        self.source.expect_unchanged(self.spark, self._files_of(pieces))

    def placed(self, placement: Placement) -> DataFrame:
        """The rows of a placement's pieces, each with its place; `physical_offset` is null for a bad one."""
        files = sorted({self.source.hashes[file_hash] for file_hash, _ in placement.pieces})
        messages = self.messages(files) if self._has_reasons else self.messages(files).drop("reason")
        counted = {piece.piece for piece in self.pieces if self.source.hashes[piece.piece[0]] in set(files)}
        if counted - set(placement.pieces):
            messages = messages.where(is_placed(placement))
        return with_places(messages, placement)

    def log_rows(self, placement: Placement, now_ms: int) -> DataFrame:
        """Rows of the commit log for a placement."""
        has = self.source.columns.__contains__
        unique_key = F.upper(F.md5(F.concat(F.lit(f"{self.batch_id}:"), F.col("place").cast("string"))))
        store_timestamp, now = runtime_literal(placement.head.last_store_timestamp), runtime_literal(now_ms)
        columns = {
            "segment": segment_of(F.col("physical_offset"), self.settings.segment_bytes),
            "flag": F.coalesce(F.col("flag"), F.lit(0)) if has("flag") else F.lit(0),
            "sys_flag": F.col("stored_sys_flag"),
            "body_crc": body_crc(F.col("stored_body")),
            "born_timestamp": F.coalesce(F.col("born_timestamp"), now) if has("born_timestamp") else now,
            "born_host": F.col("stored_born_host"),
            "store_timestamp": store_timestamp,
            "store_host": F.lit(self.settings.store_host),
            "reconsume_times": F.lit(0),
            "prepared_transaction_offset": F.lit(0),
            "body": F.col("stored_body"),
            "properties": final_properties(self.source, unique_key),
            "append_seq": runtime_literal(placement.head.append_seq),
            "append_id": F.lit(f"{self.batch_id}:{placement.from_place}-{placement.to_place}"),
            **{
                name: F.lit(None) for name in ("due_ms", "source_offset", "origin_offset", "purpose", "claim")
            },
        }
        if may_divert(self.source):
            waits_from = runtime_literal(min(placement.head.last_store_timestamp, FARTHEST_MS))
            columns |= {
                "topic": F.coalesce("parked_topic", "topic"),
                "due_ms": F.coalesce(F.col("due_at_ms"), waits_from + F.col("due_after_ms")),
            }
        placed = self.placed(placement)
        if self.bad_rows:
            placed = placed.where(F.col("physical_offset").isNotNull())
        types = {column.name: column.dataType for column in COMMITLOG.columns}
        return placed.select(
            *[columns.get(name, F.col(name)).cast(types[name]).alias(name) for name in COMMITLOG.names]
        )

    # --- bad rows ---

    def first_bad_rows(self, count: int) -> list[BadRow]:
        found, first = [], 0
        lines: dict[int, int] = {}
        for piece in self.pieces:
            file = self.source.hashes[piece.piece[0]]
            before = lines.get(file, 0)
            for row, reason in piece.bad:
                word = "line" if self.source.format == "jsonl" else "row"
                where = f"{self.source.files[file].name} {word} {before + row + 1}"
                if self.source.is_staged:
                    where = f"row {first + row + 1} in order of arrival"
                found.append(BadRow(first + row, where, reason))
            lines[file] = before + piece.rows
            first += piece.rows
        return found[:count]

    def plan_quarantine(self, at: Snapshot) -> Plan:
        """Bad rows with their reasons, each once for a batch id. Raises BadInput where it has set other content aside."""
        if not self.bad_rows:
            return Plan()
        placement = place(
            self.with_sizes(self.pieces), 0, EMPTY_HEAD, self.settings.segment_bytes, self.queue_nums, 0
        )
        bad = self.placed(placement).where(F.col("physical_offset").isNull())
        batch_reason = F.lit("its batch was refused")
        rows = bad.select(
            F.lit(self.batch_id).alias("batch_id"),
            F.col("place").alias("arrival"),
            F.coalesce("reason", batch_reason).alias("reason"),
            "raw",
        )
        mine = at.read(REJECTED_MESSAGES).where(F.col("batch_id") == self.batch_id)
        if mine.isEmpty():
            return Plan((at.append(REJECTED_MESSAGES, rows),))
        known = mine.select("arrival", F.col("raw").alias("known_raw"))
        if not rows.join(known, "arrival").where(~F.col("raw").eqNullSafe(F.col("known_raw"))).isEmpty():
            raise BadInput(
                f"batch id {self.batch_id} has set rows of another input aside: the same id means the same input; "
                "nothing was written, give this input an id of its own"
            )
        new = rows.join(known, "arrival", "left_anti").select(*REJECTED_MESSAGES.names)
        return Plan() if new.isEmpty() else Plan((at.append(REJECTED_MESSAGES, new),))


EMPTY_HEAD = LogHead(-1, 0, 0, 0)


class QueuesChanged(Exception):
    """A topic has other queues than its messages were counted with: they have to be counted again."""


class Appender:
    """Plans the appends of a put, one after the other, and remembers what it knows of the log between them."""

    def __init__(
        self,
        put: Put,
        clock: Callable[[], int],
        at: Snapshot,
        done: set[tuple[int, int]],
        others_may_differ: bool = True,
    ) -> None:
        """
        clock              read for each plan, epoch milliseconds
        done               rows of the input that the log has as of `at`
        others_may_differ  whether another put under the same batch id may hold other content: not where the id is made of
                           the input itself
        """
        self.put = put
        self.clock = clock
        self.others_may_differ = others_may_differ
        self._compared = set(done)
        self._known: tuple[LogHead, set[tuple[int, int]]] | None = None
        self._found = (at.number(COMMITLOG), done)
        self._done: set[tuple[int, int]] = set()

    def plan(self, at: Snapshot, first_place: int, pieces: Sequence[CountedPiece]) -> Plan:
        """Append the first of `pieces` that no put of the same batch id has appended, and those right behind it.

        Without a `placement` in the result there was nothing left to append.

        Raises QueuesChanged where the pieces have to be counted again, StoreError where the input has changed, BadInput
        where another put of the same batch id has put other content.
        """
        if not self.put.is_counted_for(read_topics(at)):
            raise QueuesChanged
        head, done = self._look(at)
        if self.others_may_differ and not done <= self._compared:
            # Another put of this id has come since: what it put is not ours unless it is the same.
            expect_same_content(at, self.put, done)
            self._compared |= done
        self._done = done
        first_place, pieces = self._left(first_place, pieces, done)
        if not any(piece.good_rows for piece in pieces):
            return Plan((), {"next_offset": head.next_offset})
        store_timestamp = max(self.clock(), head.last_store_timestamp)
        settings = self.put.settings
        placement = place(
            pieces, first_place, head, settings.segment_bytes, self.put.queue_nums, store_timestamp
        )
        self.put.expect_unchanged(pieces)
        # A message is born, and its waits begin, when it was accepted; it is stored when it is appended.
        rows = self.put.log_rows(placement, self.put.rules.now_ms)
        writes = [at.append(COMMITLOG, rows, planned=placement.planned)]
        behind = placement.head.append_seq - head.bounds_append_seq
        if behind >= APPENDS_BETWEEN_BOUNDS or placement.rows >= ROWS_BETWEEN_BOUNDS:
            writes.append(bounds_write(at, placement.head))
        return Plan(tuple(writes), {"next_offset": placement.head.next_offset, "placement": placement})

    def _left(
        self, first_place: int, pieces: Sequence[CountedPiece], done: set[tuple[int, int]]
    ) -> tuple[int, list[CountedPiece]]:
        """The first neighbouring pieces that are not in the log, and their first place."""
        left: list[CountedPiece] = []
        place = first_place
        for piece in pieces:
            end = place + piece.rows
            overlapping = [span for span in done if span[0] < end and place < span[1]]
            if overlapping and not any(first <= place and end <= to for first, to in overlapping):
                first, to = overlapping[0]
                raise _other_parts(self.put.batch_id, first, to)
            if overlapping and left:
                break
            if not overlapping and (left or piece.good_rows):
                first_place = first_place if left else place
                left.append(piece)
            place = end
        return first_place, left

    def _look(self, at: Snapshot) -> tuple[LogHead, set[tuple[int, int]]]:
        if self._known is not None and self._known[0].append_seq == at.number(COMMITLOG):
            return self._known
        number, done = self._found
        if number != at.number(COMMITLOG):
            done = set(appended(at, self.put.batch_id))
        return read_head(at), done

    def appended(self, placement: Placement) -> None:
        """Remember an append of our own: unless others come in between, the next one need not look."""
        done = self._done | {(placement.from_place, placement.to_place)}
        self._compared |= done
        self._known = (placement.head, done)


def appended(at: Snapshot, batch_id: str) -> dict[tuple[int, int], int]:
    """What appends of this batch id have put: half-open span of rows of the input -> rows of the log.

    The files' statistics tell which files have such rows.
    """
    # A row an append.
    found = at.read(COMMITLOG).where(is_put_by(batch_id)).groupBy("append_id").count().collect()
    spans = {}
    for name, rows in found:
        first, dash, end = name.removeprefix(f"{batch_id}:").partition("-")
        if dash and first.isdigit() and end.isdigit():
            spans[int(first), int(end)] = rows
    return spans


def expect_same_content(at: Snapshot, put: Put, spans: set[tuple[int, int]]) -> None:
    """What a batch id has put must be what the input holds there now. Raises BadInput when it is not."""
    end = max(to for _, to in spans)
    pieces, rows = [], 0
    for piece in put.pieces:
        if rows < end:
            pieces.append(piece)
            rows += piece.rows
    if rows != end:
        raise _other_parts(put.batch_id, min(first for first, _ in spans), end)
    placement = place(put.with_sizes(pieces), 0, EMPTY_HEAD, put.settings.segment_bytes, put.queue_nums, 0)
    there = _content(put, put.log_rows(placement, 0).where(F.col("physical_offset").isNotNull()))
    is_mine = F.col("append_id").isin([f"{put.batch_id}:{first}-{to}" for first, to in spans])
    if there != _content(put, at.read(COMMITLOG).where(is_mine)):
        raise BadInput(
            f"batch id {put.batch_id} has put another input: the same id means the same input and options. Nothing was "
            "written; give another input an id of its own, and put the same one with the options it was put with"
        )


def _other_parts(batch_id: str, first: int, end: int) -> BadInput:
    return BadInput(
        f"batch id {batch_id} has put rows {first} to {end} of its input, and no part of this one ends there: it is another "
        "input, or was put by an older version. Nothing was written; give another input an id of its own, and of the same "
        f"one put only the rows from {end} on, under an id of their own: the others would be there twice"
    )


def _content(put: Put, rows: DataFrame) -> tuple:
    """Count and sum of hashes of what the input says, leaving out what the append decides."""
    topic, size = F.col("topic"), F.col("size_bytes")
    own = F.regexp_replace("properties", "UNIQ_KEY\x01[0-9A-F]{32}\x02\\z", "")
    if may_divert(put.source):
        real_topic, _ = real_place(F.col("properties"))
        topic, size = F.when(is_parking_topic(topic), real_topic).otherwise(topic), F.lit(0)
        own = without(F.col("properties"), *GAINED_BY_PARKING)
    row_hash = F.xxhash64(topic, size, "body_crc", "flag", own)
    found = rows.agg(F.count("*"), F.sum(row_hash.cast("decimal(38,0)"))).first()
    assert found is not None
    return tuple(found)


def session_with_splits(spark: SparkSession, source: Input, whole_files: bool) -> SparkSession:
    """A session whose splits depend on the input alone: the same for all of it and for a part, here and on any cluster.

    A session of its own, since settings belong to a session and several puts may run in one at the same time.
    """
    mine = cloned(spark)
    eighth = -(-source.size_bytes // 8)
    split_bytes = min(max(eighth, 8 * 1024**2), 128 * 1024**2)
    if whole_files:
        # The largest file and no more: Spark puts smaller ones together up to that.
        split_bytes = max(file.size_bytes for file in source.files) or 2**40
    mine.conf.set("spark.sql.files.maxPartitionBytes", str(split_bytes))
    mine.conf.set("spark.sql.files.minPartitionNum", "1")  # else a part of the input would get smaller splits
    for name, value in ALL_FILES.items():
        mine.conf.set(f"spark.sql.files.{name}", value)
    return mine
