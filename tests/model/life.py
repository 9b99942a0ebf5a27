"""The second life of messages in plain loops: parked, brought back, sent back, ended, checked.

It is written from docs/rocketmq/delay-retry-transaction.md and imports nothing of the project.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.model.log import (
    DELAY_LEVELS,
    SCHEDULE_TOPIC,
    UNITS_MS,
    Log,
    Message,
    properties_string,
    read_properties,
)

TIMER_TOPIC, HALF_TOPIC = "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC, DISCARD_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
LEVELS = [int(level[:-1]) * UNITS_MS[level[-1]] for level in DELAY_LEVELS.split(" ")]
PRECISION_MS, TIME_OUT_MS, CHECK_MAX, RESERVED_MS = 1_000, 6_000, 15, 72 * 3_600_000
CHECK_INTERVAL_MS = 30_000
STORE_HOST = "127.0.0.1:10911"


@dataclass(frozen=True)
class Row:
    """A row of the log with its lineage."""

    message: Message
    physical_offset: int
    queue_offset: int
    store_timestamp: int
    due_ms: int | None = None
    source_offset: int | None = None
    origin_offset: int | None = None
    purpose: str | None = None
    claim: str | None = None

    @property
    def properties(self) -> dict[str, str]:
        return read_properties(self.message.properties)

    @property
    def origin(self) -> int:
        return self.physical_offset if self.origin_offset is None else self.origin_offset


@dataclass
class Store:
    """All rows of a log, and the claims on them."""

    log: Log
    queues: int = 4
    rows: list[Row] = field(default_factory=list)
    # Of the last delivery: how many rows the log had when it began, and its clock.
    seen: tuple[int, int] = (0, -(2**63))

    def append(
        self,
        message: Message,
        now: int,
        due_after: int | None = None,
        due_at: int | None = None,
        **lineage: Any,
    ) -> Row:
        record = self.log.append(message, now)
        due = due_at if due_after is None else record.store_timestamp + due_after
        row = Row(
            message, record.physical_offset, record.queue_offset, record.store_timestamp, due, **lineage
        )
        self.rows.append(row)
        return row

    def copy(self, source: Row, purpose: str, claim: str, now: int, message: Message, **due: Any) -> None:
        self.append(
            message,
            now,
            **due,
            source_offset=source.physical_offset,
            origin_offset=source.origin,
            purpose=purpose,
            claim=claim,
        )

    def is_claimed(self, row: Row, claim: str = "settle") -> bool:
        return any(each.source_offset == row.physical_offset and each.claim == claim for each in self.rows)

    def put(self, given: list[dict[str, Any]], now: int) -> None:
        turns = {
            topic: sum(taken for (other, _), taken in self.log.next_queue_offsets.items() if other == topic)
            for topic in {row["topic"] for row in given}
        }
        for row in given:
            queue = row.get("queue_id")
            if queue is None:
                queue, turns[row["topic"]] = turns[row["topic"]] % self.queues, turns[row["topic"]] + 1
            self._put_one(row, queue, now)

    def _put_one(self, row: dict[str, Any], queue: int, now: int) -> None:
        properties = {"UNIQ_KEY": row["unique_key"]}
        message = Message(
            row["topic"],
            row["body"].encode(),
            "",
            queue,
            row.get("flag", 0),
            0,
            row.get("born_timestamp", now),
            STORE_HOST,
        )
        at = row.get("deliver_at_ms") or (now + row["delay_ms"] if "delay_ms" in row else None)
        if "delay_ms" in row:
            properties["TIMER_DELAY_MS"] = str(row["delay_ms"])
        if "deliver_at_ms" in row:
            properties["TIMER_DELIVER_MS"] = str(row["deliver_at_ms"])
        if "cancel_unique_key" in row:
            properties["TIMER_DEL_UNIQKEY"] = f"{row['topic']}+{row['cancel_unique_key']}"
        real = {"REAL_TOPIC": row["topic"], "REAL_QID": str(queue)}
        levels = [row["delay_level"]] if row.get("delay_level") else row.get("deliver_through") or []
        if row.get("transaction"):
            properties |= {"TRAN_MSG": "true", "PGROUP": "pg", **real, "__transactionId__": row["unique_key"]}
            parked = replace(message, topic=HALF_TOPIC, queue_id=0, properties=properties_string(properties))
            self.append(parked, now, due_at=message.born_timestamp + TIME_OUT_MS)
        elif levels:
            properties |= {"DELAY": str(levels[0]), **rest(levels[1:]), **real}
            parked = replace(
                message,
                topic=SCHEDULE_TOPIC,
                queue_id=levels[0] - 1,
                properties=properties_string(properties),
            )
            self.append(parked, now, due_after=LEVELS[levels[0] - 1])
        elif at is not None and at > now:
            out = (at - 1) // PRECISION_MS * PRECISION_MS
            properties |= {"TIMER_OUT_MS": str(out), **real}
            parked = replace(message, topic=TIMER_TOPIC, queue_id=0, properties=properties_string(properties))
            self.append(parked, now, due_at=out + PRECISION_MS)
        else:
            self.append(replace(message, properties=properties_string(properties)), now)

    def deliver(self, now: int, limit: int = 10**6, late: Callable[[int], None] = lambda _: None) -> int:
        """Bring back what is due, in appends of at most `limit` due rows each; returns how many were delivered.

        late  called with the number of each append, before it is planned: what other runs do meanwhile
        """
        delivered, number, border, seen_rows = 0, 0, (-(2**63), 0), 0
        while True:
            number += 1
            late(number)
            seen_rows = seen_rows or len(self.rows)
            parked = enumerate(self.rows)
            due = sorted(
                (row.due_ms or 0, row.physical_offset, row)
                for place, row in parked
                if is_parked(row) and self._is_read(place, row, now)
            )
            due = [one for one in due if border < one[:2]]
            waiting = [row for row in self.rows if is_parked(row) and not self.is_claimed(row)]
            cancels = {
                (row.due_ms, row.properties["TIMER_DEL_UNIQKEY"])
                for row in waiting
                if "TIMER_DEL_UNIQKEY" in row.properties
            }
            for *_, row in due[:limit]:
                if row in waiting and not is_cancelled(row, cancels):
                    delivered += self._bring_back(row, row.properties, now)
            if len(due) <= limit:
                if due or number > 1:
                    self.seen = seen_rows, now
                return delivered
            border = due[limit - 1][:2]

    def _is_read(self, place: int, row: Row, now: int) -> bool:
        """Whether a row is due and no earlier run has read it; an append's limit counts these rows, delivered or not.

        A delayed message that a faster clock has stored is due by the log's last store time.
        """
        assert row.due_ms is not None
        seen_rows, seen_clock = self.seen
        is_new = place >= seen_rows or row.due_ms > seen_clock
        is_ahead = row.message.topic == SCHEDULE_TOPIC and row.store_timestamp > now
        by_log_time = is_ahead and now < row.due_ms <= self.rows[-1].store_timestamp
        return (is_new and row.due_ms <= now) or by_log_time

    def _bring_back(self, row: Row, properties: dict[str, str], now: int) -> int:
        assert row.due_ms is not None
        due = min(row.due_ms, now)
        left = [int(level) for level in properties.pop("TIMING-LIST", "").split(",") if level]
        while left:
            due += LEVELS[left[0] - 1]
            if due > now:
                hop = properties | {"DELAY": str(left[0]), **rest(left[1:])}
                if "TIMING-LIST" not in rest(left[1:]):
                    hop.pop("TIMING-LIST", None)
                message = replace(row.message, queue_id=left[0] - 1, properties=properties_string(hop))
                self.copy(row, "hop", "settle", now, message, due_at=due)
                return 0
            left = left[1:]
        if row.message.topic == TIMER_TOPIC:
            properties |= {
                "TIMER_ENQUEUE_MS": str(row.store_timestamp // PRECISION_MS * PRECISION_MS), "TIMER_DEQUEUE_MS": str(now),
            }  # fmt: skip
        message = replace(
            row.message,
            topic=properties["REAL_TOPIC"],
            queue_id=int(properties["REAL_QID"]),
            properties=properties_string(properties),
        )
        self.copy(row, "deliver", "settle", now, message)
        return 1

    def send_back(self, group: str, offsets: list[int], now: int, most: int = 16) -> None:
        for offset in offsets:
            (row,) = [each for each in self.rows if each.physical_offset == offset]
            claim = f"group:{group}#0"
            if self.is_claimed(row, claim):
                continue
            times = row.message.reconsume_times
            properties = {
                "RETRY_TOPIC": row.message.topic,
                "ORIGIN_MESSAGE_ID": message_id(offset),
            } | row.properties
            properties["WAIT"] = "false"
            message = replace(row.message, reconsume_times=times + 1, prepared_transaction_offset=0)
            if times >= most:
                properties["DELAY"] = "0"
                dead = replace(
                    message, topic=f"%DLQ%{group}", queue_id=0, properties=properties_string(properties)
                )
                self.copy(row, "dead_letter", claim, now, dead)
                continue
            level = min(3 + times, len(LEVELS))
            for name in ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMING-LIST"):
                properties.pop(name, None)
            properties |= {"DELAY": str(level), "REAL_TOPIC": f"%RETRY%{group}", "REAL_QID": "0"}
            retry = replace(
                message, topic=SCHEDULE_TOPIC, queue_id=level - 1, properties=properties_string(properties)
            )
            self.copy(row, "retry", claim, now, retry, due_after=LEVELS[level - 1])

    def newest(self, row: Row) -> Row:
        return [each for each in self.rows if each.message.topic == HALF_TOPIC and each.origin == row.origin][
            -1
        ]

    def end(self, asked: list[tuple[int, str]], now: int) -> None:
        """Carry out in order (offset of a half or of a copy of it, COMMIT or ROLLBACK); invalid ones are skipped."""
        decided = []
        for offset, state in asked:
            (row,) = [each for each in self.rows if each.physical_offset == offset]
            newest = self.newest(row)
            if not self.is_claimed(newest) and newest not in [each for _, each, _ in decided]:
                decided.append((offset, newest, state))
        for offset, half, state in decided:
            mark = Message(
                OP_TOPIC,
                f"{half.queue_offset},".encode(),
                "TAGS\x01d\x02WAIT\x01true\x02",
                0,
                0,
                0,
                now,
                STORE_HOST,
            )
            if state == "COMMIT":
                message = replace(
                    half.message,
                    topic=half.properties["REAL_TOPIC"],
                    queue_id=int(half.properties["REAL_QID"]),
                    sys_flag=half.message.sys_flag & ~0xC | 8,
                    prepared_transaction_offset=offset,
                )
                self.copy(half, "commit", "settle", now, message)
                self.copy(half, "commit", "mark", now, mark)
            else:
                self.copy(half, "rollback", "settle", now, mark)

    def check(self, now: int, answers: dict[str, str]) -> None:
        """Put back and check halves by the states of their keys; give up after CHECK_MAX checks, an interval apart."""
        asked = []
        for half in [row for row in self.rows if row.message.topic == HALF_TOPIC]:
            if self.is_claimed(half) or half.store_timestamp >= now:
                continue
            times = int(half.properties.get("TRANSACTION_CHECK_TIMES", 0))
            if times and now < half.store_timestamp + CHECK_INTERVAL_MS:
                continue
            age = now - half.message.born_timestamp
            assert half.due_ms is not None
            if times >= CHECK_MAX or age > RESERVED_MS:
                self.copy(
                    half, "discard", "settle", now, replace(half.message, topic=DISCARD_TOPIC, queue_id=0)
                )
            elif half.due_ms < now or age <= -1:
                properties = half.properties | {"TRANSACTION_CHECK_TIMES": str(times + 1)}
                message = replace(
                    half.message, flag=0, reconsume_times=0, properties=properties_string(properties)
                )
                self.copy(half, "check", "settle", now, message, due_at=half.due_ms)
                asked.append(self.rows[-1])
        answered = [
            (row.physical_offset, answers[row.properties["UNIQ_KEY"]])
            for row in asked
            if row.properties["UNIQ_KEY"] in answers
        ]
        self.end(answered, now)


def is_parked(row: Row) -> bool:
    return row.message.topic in (SCHEDULE_TOPIC, TIMER_TOPIC)


def is_cancelled(row: Row, cancels: set[tuple[int | None, str]]) -> bool:
    """Whether a row is a cancel, or a timer that a cancel in its slot cancels."""
    properties = row.properties
    name = f"{properties['REAL_TOPIC']}+{properties['UNIQ_KEY']}"
    is_timer = row.message.topic == TIMER_TOPIC
    return is_timer and ("TIMER_DEL_UNIQKEY" in properties or (row.due_ms, name) in cancels)


def rest(levels: list[int]) -> dict[str, str]:
    return {"TIMING-LIST": "".join(f"{level}," for level in levels)} if levels else {}


def message_id(offset: int) -> str:
    return f"7F00000100002A9F{offset:016X}"
