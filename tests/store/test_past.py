"""A store as it was at a past time."""

import time
from datetime import UTC, datetime

import pytest

from pipelines.errors import BadInput
from pipelines.store.commit import commit
from pipelines.store.create import make_tables
from pipelines.store.plan import Plan
from pipelines.store.store import Store
from pipelines.store.topics import TopicConfig, plan_create_topic
from schemas import TOPICS


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
