"""Hooks around a put: Python code of the user that is called for each message (docs/rocketmq/consume-filter-ha.md 1.6).

A hook is an object with `send_message_before`, `send_message_after`, or both; each gets a SendMessageContext, on the
executors. What it raises is ignored. A put that is run again calls it again.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.log.message import Message, message_columns, messages_of
from pipelines.produce.selectors import given_columns, given_message


@dataclass(frozen=True)
class SendMessageContext:
    """The argument of a hook.

    message  before the put: as it came, without offsets; after: as it is stored
    status   before the put: None; after: SEND_OK
    """

    message: Message
    producer_group: str | None
    status: str | None = None


def tell_before(rows: DataFrame, hook: Any) -> None:
    """Call `send_message_before` of a hook, if it has one, for each of some typed input rows."""
    group = ["producer_group"] if "producer_group" in rows.columns else []

    def contexts(batch: pa.RecordBatch) -> Iterator[SendMessageContext]:
        for row in batch.column("given").to_pylist(maps_as_pydicts="lossy"):
            yield SendMessageContext(given_message(row), row.get("producer_group"))

    _tell_each(
        rows.select(F.struct(*given_columns(rows), *group).alias("given")),
        contexts,
        hook,
        "send_message_before",
    )


def tell_after(stored: DataFrame, hook: Any, max_unpacked_bytes: int) -> None:
    """Call `send_message_after` of a hook, if it has one, for each of some rows of the log."""

    def contexts(batch: pa.RecordBatch) -> Iterator[SendMessageContext]:
        for message in messages_of(batch):
            yield SendMessageContext(message, message.properties.get("PGROUP"), "SEND_OK")

    _tell_each(stored.select(*message_columns(max_unpacked_bytes)), contexts, hook, "send_message_after")


def _tell_each(
    rows: DataFrame,
    contexts: Callable[[pa.RecordBatch], Iterator[SendMessageContext]],
    hook: Any,
    method: str,
) -> None:
    tell = getattr(hook, method, None)
    if tell is None:
        return

    def tell_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for context in contexts(batch):
                with suppress(Exception):
                    tell(context)
            yield pa.RecordBatch.from_pydict({"told": [batch.num_rows]})

    rows.mapInArrow(tell_all, "told long").write.format("noop").mode("overwrite").save()
