"""The life of messages in a test: a store whose clock is set by hand, put to, delivered from, looked at."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.store.commit import commit
from pipelines.store.head import read_head
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from schemas import COMMITLOG, FLOORS
from tests.conftest import JobRun, write_jsonl
from tests.model.log import Message, read_properties, record_size, slots_taken

Commitlake = Callable[..., JobRun]

B = 1_700_000_000_000
SCHEDULE, WHEEL, HALF = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"
OP, DISCARDED = "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"


def raw(**properties: object) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def place(row: Any) -> tuple[str, int]:
    return row.topic, row.queue_id


def lineage(row: Any) -> tuple[int | None, str | None, str | None]:
    return row.source_offset, row.purpose, row.claim


class Life:
    """A store whose clock is set by hand."""

    def __init__(self, commitlake: Commitlake, store: Store, directory: Path) -> None:
        self.commitlake = commitlake
        self.store = store
        self.directory = directory
        self.inputs = 0

    def job(self, name: str, now: int, *arguments: Any, exit_status: int = 0) -> JobRun:
        run = self.commitlake(name, "--store", self.store.uri, "--now", now, "--quiet", *arguments)
        assert run.exit_status == exit_status, run.stderr
        return run

    def run(self, name: str, now: int, *arguments: Any) -> JobRun:
        """As `job`, whatever its exit status."""
        return self.commitlake(name, "--store", self.store.uri, "--now", now, "--quiet", *arguments)

    def put_text(self, name: str, text: str, *arguments: Any, format: str = "jsonl") -> JobRun:
        """Put a file of this text, whatever comes of it."""
        path = self.directory / name
        path.write_bytes(text.encode())
        return self.run("put_messages", B, "--input", path, "--format", format, *arguments)

    def bodies(self) -> list[str]:
        return [bytes(row.body).decode() for row in self.rows()]

    def input(self, *rows: dict[str, Any]) -> Path:
        self.inputs += 1
        return write_jsonl(self.directory / f"input-{self.inputs}.jsonl", list(rows))

    def put(self, now: int, *rows: dict[str, Any]) -> dict[str, Any]:
        source = self.input(*[{"body": "b", **row} for row in rows])
        return self.job("put_messages", now, "--input", source).result

    def deliver(self, now: int) -> dict[str, Any]:
        return self.job("deliver", now).result

    def append(self, *rows: dict[str, Any]) -> list[Any]:
        """Rows right into the log, as some earlier life left them: topic, properties, and what else is said."""
        at = self.store.snapshot()
        head = read_head(at)
        offset, taken = head.next_offset, dict(head.next_queue_offsets)
        stored = []
        for row in rows:
            filled = {
                **dict.fromkeys(COMMITLOG.names), "topic": "T", "queue_id": 0, "flag": 0, "sys_flag": 0, "body": b"b",
                "body_crc": 1908338681, "born_timestamp": B, "born_host": "10.0.0.1:1", "store_timestamp": B,
                "store_host": "10.0.0.2:1", "reconsume_times": 0, "prepared_transaction_offset": 0, "properties": "",
                "append_seq": head.append_seq + 1, "append_id": "earlier", **row,
            }  # fmt: skip
            queue = (filled["topic"], filled["queue_id"])
            size = record_size(Message(filled["topic"], filled["body"], filled["properties"]))
            filled |= {
                "segment": 0,
                "physical_offset": offset,
                "size_bytes": size,
                "queue_offset": taken.get(queue, 0),
            }
            taken[queue] = taken.get(queue, 0) + slots_taken(filled["sys_flag"], filled["properties"])
            offset += size
            stored.append(filled)

        def plan(at: Snapshot) -> Plan:
            values = [tuple(row[name] for name in COMMITLOG.names) for row in stored]
            return Plan((at.append(COMMITLOG, self.store.spark.createDataFrame(values, COMMITLOG.columns)),))

        commit(self.store, plan)
        return self.rows()[-len(rows) :]

    def write_floors(self, **floors: int) -> None:
        """What was appended as `import:…` is a broker's, which had come so far."""
        rows = self.store.spark.createDataFrame(list(floors.items()), FLOORS.columns)
        commit(self.store, lambda at: Plan((at.append(FLOORS, rows),)))

    def copied(self, name: str) -> "Life":
        """A copy of the store as it is now, with a life of its own."""
        directory = self.directory / name
        shutil.copytree(self.store.uri, directory / "store")
        return Life(self.commitlake, Store(self.store.spark, str(directory / "store")), directory)

    def rows(self) -> list[Any]:
        return self.store.commitlog.orderBy("physical_offset").collect()

    def by_key(self, key: str) -> list[Any]:
        return [row for row in self.rows() if read_properties(row.properties).get("UNIQ_KEY") == key]

    def expect_promises(self) -> None:
        """What must hold of any log: offsets without gaps, sizes that add up, each claim once, nothing early."""
        rows, segment_bytes = self.rows(), int(self.store.settings["mappedFileSizeCommitLog"])
        offset, queues = 0, dict[tuple[str, int], int]()
        for row in rows:
            left = segment_bytes - offset % segment_bytes
            if row.size_bytes + 8 > left:  # a blank fills the segment
                offset += left
            assert row.physical_offset == offset
            offset += row.size_bytes
            assert row.size_bytes == record_size(
                Message(row.topic, bytes(row.body), row.properties, sys_flag=row.sys_flag)
            )
            assert row.queue_offset == queues.get(place(row), 0)
            queues[place(row)] = row.queue_offset + slots_taken(row.sys_flag, row.properties)
        claims = [(row.source_offset, row.claim) for row in rows if row.claim is not None]
        assert len(claims) == len(set(claims))
        by_offset = {row.physical_offset: row for row in rows}
        for row in rows:
            if row.source_offset is not None:
                source = by_offset[row.source_offset]
                is_first = source.origin_offset is None
                assert row.origin_offset == (source.physical_offset if is_first else source.origin_offset)
                if row.purpose == "deliver":
                    assert row.store_timestamp >= source.due_ms
