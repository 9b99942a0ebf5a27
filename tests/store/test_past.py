"""A store as it was at a past time."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.consume.offsets import plan_reset
from pipelines.errors import BadInput
from pipelines.store.commit import commit
from pipelines.store.create import make_tables
from pipelines.store.plan import Plan
from pipelines.store.store import Store
from pipelines.store.topics import TopicConfig, plan_create_topic
from pipelines.views.read import VIEWS
from schemas import TOPICS
from tests.life import B, Life, raw


@pytest.mark.slow
def test_a_store_of_a_past_time_has_what_was_there_then_and_takes_no_commit(store: Store) -> None:
    now_ms = time.time_ns() // 1_000_000 + 1
    time.sleep(0.01)
    commit(store, lambda at: plan_create_topic(at, TopicConfig("Later")))
    spark = store.spark
    then = Store(spark, store.uri, as_of=now_ms)
    in_berlin = spark.newSession()
    in_berlin.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    said = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    is_later = "topic = 'Later'"
    assert [
        opened.topics.where(is_later).count() for opened in (store, then, Store(in_berlin, store.uri, said))
    ] == [1, 0, 0]
    assert then.topic_status.where(is_later).count() == 0
    assert "Later" not in {row.topic for row in then.snapshot().rows(TOPICS)}
    for write in (
        lambda: commit(then, lambda at: Plan()),
        lambda: make_tables(then),
    ):
        with pytest.raises(BadInput, match="a past time takes no commit"):
            write()


def test_a_time_before_the_store_was_made_is_refused(store: Store) -> None:
    with pytest.raises(BadInput, match="was made at"):
        Store(store.spark, store.uri, as_of="1999-01-01")
    with pytest.raises(BadInput, match="no store at"):
        Store(store.spark, f"{store.uri}-elsewhere", as_of=1)


@pytest.mark.slow
def test_every_view_and_the_progress_of_groups_are_as_they_were(life: Callable[..., Life]) -> None:
    at_work = life(messageDelayLevel="1s 5s")
    store = at_work.store

    def views(of: Store) -> dict[str, list[str]]:
        rows = [
            getattr(of, name).select(F.lit(name).alias("view"), F.to_json(F.struct("*")).alias("row"))
            for name in VIEWS
        ]
        found: dict[str, list[str]] = {name: [] for name in VIEWS}
        for row in reduce(DataFrame.unionAll, rows).orderBy("row").collect():
            found[row.view].append(row.row)
        return found

    def progress(*more: Any) -> list[dict[str, Any]]:
        run = at_work.job("query", B, "consumer-progress", "--group", "g", "--output", "json", *more)
        return [json.loads(line) for line in run.lines]

    def fail_on(offset: int) -> None:
        of_group = {"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": f"{offset}"}
        at_work.append(*[{"topic": f"%{kind}%g", "properties": raw(**of_group)} for kind in ("RETRY", "DLQ")])

    half = {"topic": "T", "transaction": True, "producer_group": "p"}
    at_work.put(B, {"topic": "T", "queue_id": 0}, {"topic": "T", "delay_level": 1}, half)
    fail_on(0)
    at_work.job("dispatch", B)
    commit(store, lambda at: plan_reset(at, "g", {("T", 0): 1}, B))
    then, progress_then = views(store), progress()
    assert all(then.values())
    assert progress_then[0] == {
        "group": "g",
        "topic": "T",
        "queue_id": 0,
        "max_offset": 1,
        "next_offset": 1,
        "lag": 0,
    }
    time.sleep(0.01)
    then_ms = time.time_ns() // 1_000_000
    time.sleep(0.01)

    at_work.put(B + 1, half, {"topic": "T", "queue_id": 0}, {"topic": "T", "deliver_at_ms": B + 9_000})
    at_work.deliver(B + 2_000)
    fail_on(1)
    at_work.job("dispatch", B + 2_000)
    commit(store, lambda at: plan_reset(at, "g", {("T", 0): 0}, B))
    now = views(store)
    assert [name for name in VIEWS if now[name] == then[name]] == []
    assert views(Store(store.spark, store.uri, as_of=then_ms)) == then
    assert progress("--as-of", then_ms) == progress_then
    assert progress() != progress_then
