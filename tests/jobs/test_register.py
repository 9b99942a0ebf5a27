"""`commitlake register`: tables and views in a catalog that others read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from schemas import TABLES
from tests.conftest import PROJECT


@pytest.mark.slow
def test_tables_and_views_are_in_the_sessions_catalog(commitlake, spark, store, new_store):
    try:
        run = commitlake("register", "--store", store.uri, "--database", "lake_test")
        assert run.exit_status == 0, run.stderr
        assert (run.result["tables"], run.result["views"]) == (len(TABLES), 8)
        assert spark.sql("SELECT * FROM lake_test.messages").isEmpty()
        again = commitlake("register", "--store", store.uri, "--database", "lake_test")
        assert again.exit_status == 0
        other = commitlake("register", "--store", new_store().uri, "--database", "lake_test")
        assert other.exit_status == 2
        assert "name another --database" in other.stderr
    finally:
        spark.sql("DROP DATABASE IF EXISTS lake_test CASCADE")


def test_a_database_name_is_letters_digits_and_underscores(commitlake, store):
    run = commitlake("register", "--store", store.uri, "--database", "a`b")
    assert run.exit_status == 2
    assert "expected letters, digits and underscores" in run.stderr


@pytest.mark.nightly
def test_spark_sql_sees_what_was_registered(store, tmp_path: Path):
    """Both run in one directory, where they find the same metastore, with the project's files as in the project."""
    for name in ("jars", "spark-conf", ".venv"):
        (tmp_path / name).symlink_to(PROJECT / name)
    environment = {name: value for name, value in os.environ.items() if name != "COMMITLAKE_SPARK_CONF"}
    environment["PYTHONPATH"] = str(PROJECT)

    def run(*command: str) -> list[str]:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout.splitlines()

    run(sys.executable, str(PROJECT / "jobs" / "register.py"), "--store", store.uri, "--database", "lake")
    spark_sql = str(Path(sys.executable).parent / "spark-sql")
    queries = "SELECT count(*) FROM lake.messages; SELECT count(*) > 5 FROM lake.topics; SHOW VIEWS IN lake"
    lines = run(spark_sql, "--properties-file", "spark-conf/local.conf", "-e", queries)
    assert lines[-10:-8] == ["0", "true"]
    assert any("scheduled_messages" in line for line in lines)
