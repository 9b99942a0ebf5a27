"""Failures of a group: messages for which the listener returned a failure are sent back, each once.

docs/rocketmq/consume-filter-ha.md 6, C5.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from pipelines.consume.offsets import read_offsets
from pipelines.consume.pages import Part
from pipelines.retry.send_back import SentTo, decided, plan_send_back
from pipelines.store.groups import SubscriptionGroupConfig
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot


def plan_failures(
    at: Snapshot,
    failed: pa.Table,
    parts: Sequence[Part],
    group: SubscriptionGroupConfig,
    now_ms: int,
    append_id: str,
    after: SentTo | None = None,
) -> Plan:
    """A plan that sends back the failed messages of a page, except those of queues reset since they were read.

    failed  `queue` (index in parts), `source_offset`, `segment`, `reconsume_times`, `delay_level`
    after   how far an earlier append of the same page has come

    Its result is that of plan_send_back.
    """
    known = read_offsets(at, group.group)
    current = [
        place
        for place, part in enumerate(parts)
        if part.queue not in known or known[part.queue].generation == part.generation
    ]
    rows = failed.filter(pc.is_in(failed.column("queue"), pa.array(current, pa.int32())))
    generations = pa.array([part.generation for part in parts], pa.int64())
    rows = rows.append_column("generation", generations.take(rows.column("queue").combine_chunks()))
    failures = decided(
        at.store.spark.createDataFrame(rows).withColumns(
            {"order": F.col("source_offset"), "max_reconsume_times": F.lit(None).cast("int")}
        ),
        group,
    )
    return plan_send_back(at, failures, group, now_ms, append_id, after)
