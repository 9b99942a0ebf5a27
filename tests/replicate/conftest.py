"""Stores that follow each other. Making them takes ten times as long as most of what is tested with them."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.consume.offsets import plan_import_offsets
from pipelines.spark_internals.delta_files import forget_logs
from pipelines.store.commit import commit
from pipelines.store.store import Store
from tests.life import B, Commitlake, Life
from tests.quality.damages import lose_data
from tests.replicate.test_replicate import slave_of

Split = tuple[Life, Life]
MadeAgain = Callable[[str, Callable[[Life, Path], Life]], Split]


@pytest.fixture
def made_again(
    spark: SparkSession,
    life: Callable[..., Life],
    commitlake: Commitlake,
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
) -> MadeAgain:
    """`made_again(name, make)`: a store, and another that `make` makes of it in a directory, as they were when it had.

    They are made once, and lie at the same paths each time, by which they name each other.
    """

    def both(name: str, make: Callable[[Life, Path], Life]) -> Split:
        now = tmp_path_factory.getbasetemp() / "made-again" / name
        made = now.with_name(f"{name}.made")
        if not made.exists():
            shutil.rmtree(now, ignore_errors=True)  # of one that failed
            shutil.copytree(life(mappedFileSizeCommitLog="1024").store.uri, now / "old")
            make(Life(commitlake, Store(spark, str(now / "old")), tmp_path), now / "new")
            now.rename(made)
        shutil.rmtree(now, ignore_errors=True)
        shutil.copytree(made, now)
        forget_logs(spark)
        stores = (Life(commitlake, Store(spark, str(now / each)), tmp_path) for each in ("old", "new"))
        return next(stores), next(stores)

    return both


@pytest.fixture
def split(made_again: MadeAgain) -> Split:
    """An old master with two messages of its own, and the slave that was promoted meanwhile, with three."""

    def make(old: Life, directory: Path) -> Life:
        old.put(B, *[{"topic": "T", "queue_id": 0, "body": f"both-{n}"} for n in range(2)])
        new = slave_of(old, directory)
        old.put(B + 1, *[{"topic": "T", "queue_id": 0, "body": f"old-{n}"} for n in range(2)])
        new.job("promote", B)
        new.put(B + 2, *[{"topic": "T", "queue_id": 0, "body": f"new-{n}"} for n in range(3)])
        return new

    return made_again("split", make)


@pytest.fixture
def lost_tail(made_again: MadeAgain) -> Split:
    """An old master that has lost its last message, which no slave had, and the slave that was promoted."""

    def make(old: Life, directory: Path) -> Life:
        old.put(B, {"topic": "T", "queue_id": 0, "body": "a"})
        new = slave_of(old, directory)
        old.put(B, {"topic": "T", "queue_id": 0, "body": "tail"})
        lose_data("commitlog", 1)(Path(old.store.uri))
        old.job("validate", B, "--cut-damaged")
        commit(old.store, partial(plan_import_offsets, group="G", offsets={("T", 0): 2}, now_ms=B))
        new.job("promote", B, "--old-master", old.store.uri)
        new.put(B + 1, {"topic": "T", "queue_id": 0, "body": "new0"})
        return new

    return made_again("lost-tail", make)
