"""A sound store, made once, and copies of it to be broken."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.consume.offsets import plan_reset
from pipelines.store.commit import commit
from pipelines.store.head import bounds_write, read_head
from pipelines.store.plan import Plan
from pipelines.store.store import Store
from tests.conftest import MadeOnce, run_job
from tests.life import B, Life
from tests.quality.broken import SEGMENT_BYTES


@pytest.fixture(scope="session")
def sound(spark: SparkSession, store_template: Callable[..., Path], made_once: MadeOnce) -> Store:
    """A store over several segments: messages with keys, some delivered when due, one retried, a half committed."""
    template = store_template(mappedFileSizeCommitLog=str(SEGMENT_BYTES), messageDelayLevel="1s 5s")

    def make(directory: Path) -> None:
        shutil.copytree(template, directory / "store")
        fill(Store(spark, str(directory / "store")), directory)

    return Store(spark, str(made_once("sound", make) / "store"))


def fill(store: Store, directory: Path) -> None:
    life = Life(lambda *arguments: run_job([str(each) for each in arguments]), store, directory)
    orders = [{"topic": "orders", "keys": f"k{n} all", "tags": "t", "body": "b" * 30 * n} for n in range(20)]
    waiting = [{"topic": "later", "delay_level": 1}, {"topic": "later", "deliver_at_ms": B + 1_500}]
    halves = [{"topic": "pay", "transaction": True, "producer_group": "p"}]
    life.put(B, *orders, *waiting, *halves)
    life.deliver(B + 10_000)
    life.job("dispatch", B + 10_000)
    half = store.parked.where("kind = 'half'").first()
    end = life.input({"producer_group": "p", "physical_offset": half.physical_offset, "state": "COMMIT"})
    life.job("end_transactions", B + 11_000, "--input", end)
    failed = life.input({"physical_offset": 0})
    life.job("send_back", B + 12_000, "--group", "g", "--input", failed)
    commit(store, lambda at: plan_reset(at, "g", {("orders", 0): 2}, B))
    commit(store, lambda at: Plan((bounds_write(at, read_head(at)),)))


@pytest.fixture
def a_copy(spark: SparkSession, sound: Store, tmp_path: Path) -> Store:
    shutil.copytree(sound.uri, tmp_path / "copy")
    return Store(spark, str(tmp_path / "copy"))
