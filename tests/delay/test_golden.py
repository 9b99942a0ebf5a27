"""What a real broker made of its rows is what the same functions make of them here, field by field."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.delay.deliver import delivered_copies
from pipelines.retry.send_back import sent_back_copies
from pipelines.rocketmq.settings import Settings
from pipelines.store.groups import SubscriptionGroupConfig
from pipelines.store.store import Store
from pipelines.transaction.check import checked_copies
from pipelines.transaction.end import ending_rows
from tests.conftest import JobRun
from tests.life import DISCARDED, HALF, SCHEDULE, WHEEL
from tests.model.log import read_properties

pytestmark = pytest.mark.usefixtures("users_engine")

SAME = (
    "topic", "queue_id", "flag", "sys_flag", "body", "size_bytes", "born_timestamp", "born_host", "store_host",
    "reconsume_times", "prepared_transaction_offset",
)  # fmt: skip


@pytest.fixture(scope="module", params=["a", pytest.param("b", marks=pytest.mark.nightly)])
def imported(
    request: Any, spark: SparkSession, imported_broker: Callable[[str], tuple[Path, JobRun]]
) -> Store:
    return Store(spark, str(imported_broker(request.param)[0]))


class Rows:
    """The rows of an imported log, by what ties a copy to its source."""

    def __init__(self, store: Store) -> None:
        self.all = store.commitlog.orderBy("physical_offset").collect()
        self.properties = {row.physical_offset: read_properties(row.properties) for row in self.all}

    def key(self, row: Any) -> str | None:
        return self.properties[row.physical_offset].get("UNIQ_KEY")

    def of(self, *topics: str) -> list[Any]:
        return [row for row in self.all if row.topic in topics]

    def last_before(self, row: Any, is_source: Callable[[Any], bool]) -> Any:
        """The last earlier row of the same message that could be the source; None when there is none."""
        earlier = [
            each
            for each in self.all
            if each.physical_offset < row.physical_offset
            and self.key(each) == self.key(row)
            and is_source(each)
        ]
        return earlier[-1] if earlier and self.key(row) else None

    def delivered(self) -> Iterator[tuple[Any, Any]]:
        """(parked row, the row it became), of those delayed by level or timed."""
        for parked in self.of(SCHEDULE, WHEEL):
            properties = self.properties[parked.physical_offset]
            later = [
                row
                for row in self.of(properties.get("REAL_TOPIC", ""))
                if self.key(row) == self.key(parked)
                and row.physical_offset > parked.physical_offset
                and row.store_timestamp >= parked.due_ms
            ]
            if later:
                yield parked, later[0]


def copies(
    store: Store, pairs: list[tuple[Any, Any]], decide: dict[str, Any], copy: Callable[[DataFrame], DataFrame]
) -> list[Any]:
    """The copies that our functions make of the sources, in the order of the pairs."""
    spark = store.spark
    numbered = spark.createDataFrame(
        [(source.physical_offset, number) for number, (source, _) in enumerate(pairs)],
        "physical_offset long, order long",
    )
    log = store.commitlog.drop("purpose", "claim", "source_offset").join(numbered, "physical_offset")
    return (
        copy(log.withColumns({name: F.lit(value) for name, value in decide.items()}))
        .orderBy("order")
        .collect()
    )


def expect_alike(made: list[Any], pairs: list[tuple[Any, Any]], but: tuple[str, ...] = ()) -> None:
    assert len(made) == len(pairs) > 0
    for ours, (source, theirs) in zip(made, pairs, strict=True):
        where = f"copy of {source.physical_offset}, stored at {theirs.physical_offset}"
        wanted, found = read_properties(theirs.properties), read_properties(ours.properties)
        assert {n: v for n, v in found.items() if n not in but} == {
            n: v for n, v in wanted.items() if n not in but
        }, where
        for name in SAME:
            assert getattr(ours, name) == getattr(theirs, name), (name, where)


def test_delivered_rows(imported: Store) -> None:
    rows = Rows(imported)
    pairs = [pair for pair in rows.delivered() if pair[1].reconsume_times == pair[0].reconsume_times]
    levels = imported.settings.delay_levels_ms
    made = copies(
        imported,
        pairs,
        {"kind": "", "claim": "settle", "is_settled": False},
        lambda log: delivered_copies(log, 1_795_245_999_999, levels, 1_000),
    )
    # When a broker's timer took the row up is its own affair.
    expect_alike(made, pairs, but=("TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"))


@pytest.mark.slow
def test_retried_and_dead_rows(imported: Store) -> None:
    rows = Rows(imported)
    group = SubscriptionGroupConfig("CG_ORDER")
    settings = Settings.of({**imported.settings.given, "storeHost": "127.0.0.1:20911"})
    pairs, purposes = [], []
    for theirs in rows.of(SCHEDULE, "%DLQ%CG_ORDER"):
        is_dead = theirs.topic != SCHEDULE
        if not is_dead and rows.properties[theirs.physical_offset].get("REAL_TOPIC") != "%RETRY%CG_ORDER":
            continue
        times = theirs.reconsume_times - 1
        source = rows.last_before(
            theirs,
            lambda row, times=times: (
                row.reconsume_times == times and row.topic in ("OrderTopic", "%RETRY%CG_ORDER")
            ),
        )
        if source is not None:
            pairs.append((source, theirs))
            purposes.append("dead_letter" if is_dead else "retry")
    for purpose in ("retry", "dead_letter"):
        chosen = [pair for pair, each in zip(pairs, purposes, strict=True) if each == purpose]
        made = copies(
            imported,
            chosen,
            {"purpose": purpose, "claim": "group:CG_ORDER#0"},
            lambda log: sent_back_copies(
                log.withColumn("level", F.col("reconsume_times") + 3), group, settings
            ),
        )
        expect_alike(made, chosen)


def test_committed_put_back_and_discarded_rows(imported: Store) -> None:
    rows = Rows(imported)
    by_offset = {row.physical_offset: row for row in rows.all}
    committed = [
        (by_offset[row.prepared_transaction_offset], row) for row in rows.all if row.sys_flag & 0xC == 8
    ]
    made = copies(
        imported,
        committed,
        {"purpose": "commit", "claim": "settle", "rank": 0},
        lambda log: ending_rows(
            log.withColumn("asked_offset", F.col("physical_offset")), 0, imported.settings
        ),
    )
    expect_alike(made, committed)

    def times(row: Any) -> int:
        return int(rows.properties[row.physical_offset].get("TRANSACTION_CHECK_TIMES", 0))

    put_back = [
        (rows.last_before(row, lambda each: each.topic == HALF), row) for row in rows.of(HALF) if times(row)
    ]
    given_up = [(rows.last_before(row, lambda each: each.topic == HALF), row) for row in rows.of(DISCARDED)]
    for purpose, pairs in (("check", put_back), ("discard", given_up)):
        asked = imported.spark.createDataFrame(
            [(source.physical_offset, times(source)) for source, _ in pairs],
            "physical_offset long, times int",
        )
        made = copies(
            imported,
            pairs,
            {"purpose": purpose, "claim": "settle"},
            lambda log, asked=asked: checked_copies(log.join(asked, "physical_offset")),
        )
        expect_alike(made, pairs)


@pytest.mark.slow
def test_an_import_goes_on_where_the_broker_stopped(
    imported: Store, commitlake: Callable[..., JobRun], tmp_path: Path
) -> None:
    rows = Rows(imported)
    parked = [
        row
        for row in rows.of(SCHEDULE, WHEEL)
        if rows.properties[row.physical_offset].get("REAL_TOPIC") != HALF
    ]
    back = {source.physical_offset for source, _ in rows.delivered()}
    left = sorted(row.physical_offset for row in parked if row.physical_offset not in back)
    assert 0 < len(left) < len(parked)
    waiting = sorted(row.physical_offset for row in imported.scheduled_messages.collect())
    assert waiting == left
    shutil.copytree(imported.uri.removeprefix("file:"), tmp_path / "store")
    store = Store(imported.spark, str(tmp_path / "store"))
    clock = max(row.due_ms for row in parked) + 1
    run = commitlake("deliver", "--store", store.uri, "--now", str(clock))
    assert run.exit_status == 0, run.stderr
    assert (run.result["delivered"], run.result["next_due_ms"]) == (len(left), None)
    delivered = store.commitlog.where("purpose = 'deliver'").orderBy("source_offset").collect()
    assert [row.source_offset for row in delivered] == left
    again = commitlake("deliver", "--store", store.uri, "--now", str(clock + 1))
    assert json.loads(json.dumps(again.result))["delivered"] == 0
