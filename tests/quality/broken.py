"""A store in which every promise is broken once, by rows written past the one place that writes."""

import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pipelines.errors import StoreError
from pipelines.store.commit import commit
from pipelines.store.cut import set_append_only
from pipelines.store.head import LogHead, bounds_write, read_head
from pipelines.store.plan import Plan, Planned
from pipelines.store.store import Store
from schemas import (
    COMMITLOG,
    CONSUMER_OFFSETS,
    DERIVED,
    IN_FLIGHT,
    PROGRESS,
    QUEUE_BOUNDS,
    STORE_SETTINGS,
    TOPICS,
    Table,
)
from tests.life import SCHEDULE, WHEEL, B, raw
from tests.model.log import Message, record_size

SEGMENT_BYTES = 4096
LATER = B + 3_600_000


@dataclass
class Records:
    """Rows for the log, one behind the other; what is said of a row is wrong with it."""

    head: LogHead
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.offset = self.head.next_offset
        self.taken = dict(self.head.next_queue_offsets)

    def add(self, skipped: int = 0, **wrong: Any) -> int:
        """A row of a queue of its own that is right but for `wrong`; where it lies."""
        topic = wrong.get("topic", f"bad{len(self.rows)}")
        body, properties = b"body", wrong.get("properties", raw(UNIQ_KEY=f"bad{len(self.rows)}"))
        size = record_size(Message(topic, body, properties, sys_flag=wrong.get("sys_flag", 0)))
        self.offset += skipped
        if self.offset % SEGMENT_BYTES + size + 8 > SEGMENT_BYTES:
            self.offset += SEGMENT_BYTES - self.offset % SEGMENT_BYTES
        queue_offset = self.taken.get((topic, 0), 0)
        row = {
            **dict.fromkeys(COMMITLOG.names),
            "segment": self.offset - self.offset % SEGMENT_BYTES, "physical_offset": self.offset, "size_bytes": size,
            "topic": topic, "queue_id": 0, "queue_offset": queue_offset, "flag": 0, "sys_flag": 0,
            "body_crc": zlib.crc32(body) & 0x7FFFFFFF, "born_timestamp": B, "born_host": "10.0.0.1:1",
            "store_timestamp": LATER, "store_host": "10.0.0.2:1", "reconsume_times": 0,
            "prepared_transaction_offset": 0, "body": body, "properties": properties,
            "append_seq": self.head.append_seq + 1, "append_id": "bad", **wrong,
        }  # fmt: skip
        self.taken[topic, 0] = row["queue_offset"] + 1
        self.offset = row["physical_offset"] + row["size_bytes"]
        self.rows.append(row)
        return int(row["physical_offset"])

    def make_room(self, size_bytes: int) -> None:
        """Fill the segment up unless so much is left of it."""
        while SEGMENT_BYTES - self.offset % SEGMENT_BYTES < size_bytes:
            self.add()

    def copy(self, source: int, **said: Any) -> int:
        """A copy of the row at `source` that settles it, but for what is said."""
        lineage = {"source_offset": source, "origin_offset": source, "purpose": "deliver", "claim": "settle"}
        return self.add(**{**lineage, **said})


def break_log(store: Store) -> dict[str, int]:
    """Append rows that break the log's promises: promise -> where the row lies that breaks it."""
    records = Records(read_head(store.snapshot()))
    at: dict[str, int] = {}
    records.make_room(2_000)
    at["crc"] = records.add(body_crc=7)
    at["length"] = records.add(size_bytes=140)
    at["whole"] = records.add(born_host=None)
    at["hosts"] = records.add(sys_flag=0x10)
    at["follows"] = records.add(skipped=10)
    at["clock"] = records.add(store_timestamp=LATER - 1)
    at["appends"] = records.add(append_seq=0)
    records.add(topic="gap")
    at["no_gap"] = records.add(topic="gap", queue_offset=5)
    records.add(topic="far")

    waits = records.add(topic=WHEEL, due_ms=LATER, properties=raw(REAL_TOPIC="t", REAL_QID=0, UNIQ_KEY="w"))
    late = records.add(
        topic=WHEEL, due_ms=LATER + 1, properties=raw(REAL_TOPIC="t", REAL_QID=0, UNIQ_KEY="l")
    )
    at["due"] = records.add(topic=SCHEDULE)
    at["not_due"] = plain = records.add(due_ms=LATER)
    records.copy(waits)
    at["once"] = records.copy(waits)
    at["not_early"] = records.copy(late)
    at["said"] = records.copy(plain, purpose=None, claim="group:g#0")
    at["source"] = records.copy(plain + 1, claim="group:h#0", purpose="retry")
    at["origin"] = records.copy(plain, claim="group:i#0", purpose="retry", origin_offset=3)
    at["claim_fits"] = records.copy(plain, claim="redrive:x")
    at["settles"] = records.copy(at["crc"])

    records.make_room(600)
    # A segment is left that has room, and a queue goes on in the next one behind a gap.
    at["rolls"] = records.add(
        topic="far", queue_offset=9, physical_offset=_next_segment(records), segment=_next_segment(records)
    )
    at["goes_on"] = at["rolls"]
    records.add()
    start = _next_segment(records)
    at["fits"] = records.add(physical_offset=start - 90, segment=start - SEGMENT_BYTES)
    at["in_segment"] = records.add(physical_offset=start + 92, segment=start + SEGMENT_BYTES)

    values = [tuple(row[name] for name in COMMITLOG.names) for row in records.rows]
    rows = store.spark.createDataFrame(values, COMMITLOG.columns).coalesce(1)
    commit(store, lambda at: Plan((at.append(COMMITLOG, rows),)))
    return at


def _next_segment(records: Records) -> int:
    return records.offset - records.offset % SEGMENT_BYTES + SEGMENT_BYTES


def break_derived(store: Store) -> None:
    """Of every derived table the first row is gone, another is there twice, and one is of no record."""
    for table in DERIVED:
        rows = store.read(table).orderBy("physical_offset", *table.key).collect()
        columns = table.names
        bogus = {**rows[1].asDict(), "physical_offset": 77}
        bogus["queue_offset" if table.name == "consume_queue" else "segment"] = 0
        keep = [tuple(row) for row in [*rows[1:], rows[1]]] + [tuple(bogus[name] for name in columns)]
        overwrite(store, table, keep)


def break_state(store: Store) -> None:
    """The log's end, bounds, progress, offsets, settings and keys that are not what they should be."""
    commit(store, lambda at: Plan((bounds_write(at, read_head(at)),)))
    add_short_append(store)
    set_append_only(store, False)
    bounds = [row.asDict() for row in store.queue_bounds.orderBy("topic", "queue_id").collect()]
    by_queue = {(row["topic"], row["queue_id"]): row for row in bounds}
    by_queue["orders", 0]["next_offset"] += 3
    by_queue["orders", 1]["append_seq"] -= 1
    by_queue["orders", 2]["min_offset"] += 1
    overwrite(store, QUEUE_BOUNDS, [tuple(row[name] for name in QUEUE_BOUNDS.names) for row in bounds])
    add(store, PROGRESS, ("deliver", 999, None, None, None, None, None, None, None))
    add(store, CONSUMER_OFFSETS, ("g", "orders", 1, "", 1_000, 0, B), ("g", "orders", 2, "", 0, 0, B))
    add(store, IN_FLIGHT, ("g", "orders", 3, 4_000, 1, B))
    add(store, STORE_SETTINGS, ("maxMesageSize", "1"))
    add(store, TOPICS, *[tuple(row) for row in store.topics.where("topic = 'orders'").collect()])


def add_short_append(store: Store) -> None:
    """An append of one row that was planned to have two."""
    records = Records(read_head(store.snapshot()))
    records.add()
    rows = store.spark.createDataFrame(
        [tuple(row[name] for name in COMMITLOG.names) for row in records.rows], COMMITLOG.columns
    )
    with suppress(StoreError):
        commit(store, lambda at: Plan((at.append(COMMITLOG, rows, planned=Planned(2)),)))


def overwrite(store: Store, table: Table, rows: list[tuple[Any, ...]]) -> None:
    frame = store.spark.createDataFrame(rows, table.columns).coalesce(1)
    number = store.snapshot().number(table) + 1
    writer = frame.write.format("delta").mode("overwrite").option("txnAppId", table.name)
    writer.option("txnVersion", number).save(store.path(table))


def add(store: Store, table: Table, *rows: tuple[Any, ...]) -> None:
    frame = store.spark.createDataFrame(list(rows), table.columns).coalesce(1)
    frame.write.format("delta").mode("append").save(store.path(table))
