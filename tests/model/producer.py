"""What a put makes of input rows, in plain loops: queues, batches, properties; the log model appends the rest."""

from typing import Any

from tests.model.log import Log, Message, Record, java_hash, properties_string


def put(
    log: Log, rows: list[dict[str, Any]], queue_nums: dict[str, int], now: int, store_host: str
) -> list[Record]:
    """Append rows in order; a topic's turns start at (sum of its next offsets) mod queues, a batch takes one."""
    turns = {
        topic: sum(offset for (other, _), offset in log.next_queue_offsets.items() if other == topic)
        for topic in queue_nums
    }
    appended: list[Record] = []
    for unit in _units(rows):
        topic = unit[0]["topic"]
        queue_id = unit[0].get("queue_id")
        if queue_id is None and unit[0].get("sharding_key") is not None:
            queue_id = _by_hash(unit[0]["sharding_key"], queue_nums[topic])
        if queue_id is None:
            queue_id = turns[topic] % queue_nums[topic]
            turns[topic] += 1
        appended += log.append_batch([_message(row, queue_id, store_host, now) for row in unit], now)
    return appended


def _units(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    units: list[list[dict[str, Any]]] = []
    for row in rows:
        if units and row.get("batch") is not None and units[-1][-1].get("batch") == row["batch"]:
            units[-1].append(row)
        else:
            units.append([row])
    return units


def _by_hash(key: str | int, queues: int) -> int:
    hashed = key if isinstance(key, int) else java_hash(key)
    remainder = abs(hashed) % queues * (1 if hashed >= 0 else -1)  # Java's: the sign of the dividend
    return abs(remainder)


def _message(row: dict[str, Any], queue_id: int, store_host: str, now: int) -> Message:
    properties = {}
    if row.get("tags"):
        properties["TAGS"] = row["tags"]
    if row.get("keys"):
        properties["KEYS"] = row["keys"] if isinstance(row["keys"], str) else " ".join(row["keys"])
    properties |= row.get("properties") or {}
    properties["UNIQ_KEY"] = row["unique_key"]
    born_host = row.get("born_host") or store_host
    return Message(
        topic=row["topic"],
        body=row["body"].encode(),
        properties=properties_string(properties),
        queue_id=queue_id,
        flag=row.get("flag") or 0,
        sys_flag=0x10 if born_host.startswith("[") else 0,
        born_timestamp=row.get("born_timestamp") or now,
        born_host=born_host,
    )
