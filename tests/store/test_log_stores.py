"""Commits that a log store knows of but whose files are missing, as DynamoDB's leaves them when a writer ends early."""

from pathlib import Path

import pytest

from pipelines.spark_internals.delta_log import PUTS_A_FILE, DeltaTable, log_store_class
from pipelines.store.commit import commit
from pipelines.store.plan import Plan
from pipelines.store.store import Store
from schemas import CUTS


@pytest.mark.parametrize(
    ("path", "log_store"),
    [
        ("file:/s/cuts/_delta_log", "LocalLogStore"),
        ("hdfs://host/s/cuts/_delta_log", "HDFSLogStore"),
        ("s3a://bucket/s/cuts/_delta_log", "S3SingleDriverLogStore"),
        ("abfss://c@account.dfs.core.windows.net/s", "AzureLogStore"),
        ("gs://bucket/s", "GCSLogStore"),
    ],
)
def test_deltas_own_choices_put_a_file_and_are_looked_at_there(
    spark, tmp_path: Path, path: str, log_store: str
) -> None:
    spark.range(1).write.format("delta").save(str(tmp_path / "t"))
    delegating = DeltaTable(spark, str(tmp_path / "t")).delta_log.store()
    name = log_store_class(delegating, spark._jvm.org.apache.hadoop.fs.Path(path))
    assert name == f"io.delta.storage.{log_store}"
    assert name in PUTS_A_FILE


def test_the_one_configured_for_a_scheme_is_the_one_that_counts(spark) -> None:
    jvm = spark._jvm
    settings = jvm.org.apache.spark.SparkEnv.get().conf()
    settings.set("spark.delta.logStore.lake.impl", "io.delta.storage.AzureLogStore")
    try:
        delegating = jvm.org.apache.spark.sql.delta.storage.DelegatingLogStore(
            spark._jsparkSession.sessionState().newHadoopConf()
        )
        path = jvm.org.apache.hadoop.fs.Path("lake://a/s")
        assert log_store_class(delegating, path) == "io.delta.storage.AzureLogStore"
    finally:
        settings.remove("spark.delta.logStore.lake.impl")
    assert "io.delta.storage.S3DynamoDBLogStore" not in PUTS_A_FILE


@pytest.fixture
def early_end(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store whose last commit to `cuts` is not in the directory; who has the log store list the log puts it there."""
    at = store.snapshot()
    at.number(CUTS)  # this session knows the version before
    known = store.delta(CUTS)
    rows = store.spark.createDataFrame([(0, 0)], CUTS.columns).coalesce(1)
    commit(store, lambda at: Plan((at.append(CUTS, rows),)))
    newest = max(Path(store.path(CUTS), "_delta_log").glob("*.json"))
    kept = newest.rename(newest.with_suffix(".kept"))
    complete, update = DeltaTable.complete, DeltaTable.update

    def put(*arguments: object) -> None:
        kept.rename(newest)
        complete(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaTable, "commits_are_files", False)
    monkeypatch.setattr(DeltaTable, "complete", put)
    monkeypatch.setattr(DeltaTable, "update", lambda table: (put(table, 0), update(table))[1])
    assert known.path == store.path(CUTS)
    return store


def test_the_newest_version_is_the_log_stores(early_end: Store) -> None:
    assert early_end.delta(CUTS).newest().number("cuts") == 0


def test_the_commits_since_a_version_are_the_log_stores(early_end: Store) -> None:
    assert [info.rows for info in early_end.delta(CUTS).commits_since(0)] == [1]
