"""All views, and how one is read over a source of the tables' rows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark.sql import DataFrame

from pipelines.views.groups import CONSUMER_PROGRESS, DEAD_LETTERS, RETRIES
from pipelines.views.messages import MESSAGE_LINEAGE, MESSAGES
from pipelines.views.topics import TOPIC_STATUS
from pipelines.views.view import View
from pipelines.views.waiting import HALF_MESSAGES, SCHEDULED_MESSAGES
from schemas import TABLES_BY_NAME, Table

# A view comes after those it reads.
VIEWS: Mapping[str, View] = {
    view.name: view
    for view in (
        MESSAGES,
        SCHEDULED_MESSAGES,
        HALF_MESSAGES,
        RETRIES,
        DEAD_LETTERS,
        TOPIC_STATUS,
        CONSUMER_PROGRESS,
        MESSAGE_LINEAGE,
    )
}


class Readable(Protocol):
    """A source of tables' rows: a store, a snapshot, a store as of a past time."""

    def read(self, table: Table) -> DataFrame: ...


@dataclass
class Reading:
    """Tables and views of one source, each made into a frame once."""

    source: Readable
    _frames: dict[str, DataFrame] = field(default_factory=dict)

    def frame(self, name: str) -> DataFrame:
        if name not in self._frames:
            self._frames[name] = (
                self.source.read(TABLES_BY_NAME[name])
                if name in TABLES_BY_NAME
                else self._view_frame(VIEWS[name])
            )
        return self._frames[name]

    def _view_frame(self, view: View) -> DataFrame:
        inputs: dict[str, Any] = {name: self.frame(name) for name in view.reads}
        spark = next(iter(inputs.values())).sparkSession
        return spark.sql(view.text, **inputs)


def read_view(source: Readable, name: str) -> DataFrame:
    """The rows of a view over the tables that `source` reads."""
    return Reading(source).frame(name)


@dataclass(frozen=True)
class _LogRows:
    """A source that has rows of the log and no other table."""

    rows: DataFrame

    def read(self, table: Table) -> DataFrame:
        return self.rows.select(*table.names)


def as_messages(rows: DataFrame) -> DataFrame:
    """The view `messages` over these rows of the log."""
    return read_view(_LogRows(rows), "messages")
