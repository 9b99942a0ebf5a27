"""Pages filtered by a class filter, which is called for every message of the page before any is handed over.

docs/rocketmq/consume-filter-ha.md 4.6: where the filter raises, nothing of that pull is handed over and the queue's offset
stays at its first message.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from pipelines.consume.pages import Page, Part
from pipelines.errors import BadInput
from pipelines.filter.class_filters import (
    ClassFilter,
    UploadedClass,
    expect_uploads,
    load_class_filter,
    verdicts,
)
from pipelines.store.plan import Plan
from pipelines.store.small_tables import write_if_changed
from pipelines.store.snapshot import Snapshot
from schemas import FILTER_CLASSES

# Messages of one pull of a RocketMQ client (2.5).
PULL_BATCH_SIZE = 32


@dataclass(frozen=True)
class FilteredPage:
    """A page with only the messages that a class filter let through.

    stopped  the parts that end early, before the first pull it raised in
    errors   what it raised, one text for each message
    """

    page: Page
    stopped: Sequence[Part] = ()
    errors: Sequence[str] = ()


def filtered_by_class(
    page: Page, class_filter: ClassFilter, group: str, retry_topic: str, max_unpacked_bytes: int
) -> FilteredPage:
    """The messages of a page that a class filter lets through; retries pass without a call of the filter (4.1)."""
    is_retry = F.col("topic") == retry_topic
    # About 30 bytes a message of the page: its offsets and the filter's verdict.
    places = page.rows.select(
        "physical_offset", "queue", "queue_offset", is_retry.alias("is_retry")
    ).toArrow()
    said = verdicts(page.rows.where(~is_retry), class_filter, group, max_unpacked_bytes).toArrow()
    rows = places.join(said, "physical_offset")
    queue = rows.column("queue").to_numpy()
    offset = rows.column("queue_offset").to_numpy()
    matches = rows.column("match").fill_null(False).to_numpy() | rows.column("is_retry").to_numpy()
    raised = rows.column("error").is_valid().to_numpy()
    parts, cut = list(page.parts), []
    for place in np.unique(queue[raised]).tolist():
        part = parts[place]
        behind = int(offset[raised & (queue == place)].min()) - part.from_offset
        parts[place] = replace(part, to_offset=part.from_offset + behind - behind % PULL_BATCH_SIZE)
        cut.append(parts[place])
    ends = np.array([part.to_offset for part in parts], np.int64)
    chosen = rows.column("physical_offset").filter(pa.array(matches & (offset < ends[queue])))
    spark = page.rows.sparkSession
    let_through = F.broadcast(spark.createDataFrame(pa.table({"physical_offset": chosen})))
    handed = page.rows.join(let_through, "physical_offset", "left_semi")
    errors = rows.column("error").drop_null().to_pylist()
    return FilteredPage(replace(page, parts=parts, rows=handed), cut, errors)


def find_class_filter(at: Snapshot, group: str, topic: str, expression: str) -> ClassFilter:
    """The filter that a subscription names: MODULE:NAME, or a class that the group uploaded for the topic.

    Raises BadInput when there is none, and for an upload where the store's settings do not allow uploads: an import may
    have brought the row.
    """
    if ":" in expression:
        return load_class_filter("--filter", expression)
    uploaded = _uploaded(at).get((topic, group))
    if uploaded is None or uploaded.class_name != expression:
        raise BadInput(
            f"group {group} has uploaded no class {expression!r} for topic {topic}; name one as MODULE:NAME, or upload it "
            "with `subscribe --filter-class FILE:CLASS`"
        )
    expect_uploads(at.store.settings)
    return uploaded.load()


def plan_upload(at: Snapshot, uploaded: UploadedClass) -> Plan:
    """A plan that records an uploaded class and replaces the one that the group had for the topic."""
    known = _uploaded(at)
    after = {**known, (uploaded.topic, uploaded.group): uploaded}
    return Plan(write_if_changed(at, FILTER_CLASSES, known, after))


def _uploaded(at: Snapshot) -> dict[tuple[str, str], UploadedClass]:
    return {
        (row.topic, row.group): UploadedClass(*(row[name] for name in FILTER_CLASSES.names))
        for row in at.rows(FILTER_CLASSES)
    }
