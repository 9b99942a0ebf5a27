"""Hooks around a put: Python of the user's own that is told of each message (docs/rocketmq/consume-filter-ha.md 1.6).

A hook is an object with `send_message_before`, `send_message_after`, or both; each gets a SendMessageContext, on the
executors. What it raises is its own affair. A put that is run again tells it again.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.log.message import Message, message_columns, messages_of
from pipelines.produce.selectors import GIVEN, given_message


@dataclass(frozen=True)
class SendMessageContext:
    """What a hook is told.

    message  before: as it was given, without a place; after: as it is stored
    status   SEND_OK after; None before
    """

    message: Message
    producer_group: str | None
    status: str | None = None


def tell_before(rows: DataFrame, hook: Any) -> None:
    """Tell a hook of each of some typed input rows."""
    names = [name for name in (*GIVEN, "producer_group") if name in rows.columns]

    def contexts(batch: pa.RecordBatch) -> Iterator[SendMessageContext]:
        for row in batch.column("given").to_pylist(maps_as_pydicts="lossy"):
            yield SendMessageContext(given_message(row), row.get("producer_group"))

    _tell_each(rows.select(F.struct(*names).alias("given")), contexts, hook, "send_message_before")


def tell_after(stored: DataFrame, hook: Any, max_unpacked_bytes: int) -> None:
    """Tell a hook of each of some rows of the log."""

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
