"""A reader that is not Spark opens every table."""

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from pipelines.store.store import Store
from schemas import COMMITLOG, TABLES
from tests.conftest import JobRun, write_jsonl


@pytest.mark.slow
def test_every_table_opens_in_another_reader(
    commitlake: Callable[..., JobRun], store: Store, tmp_path: Path
) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", [{"topic": "T", "body": str(number)} for number in range(3)])
    put = commitlake("run_cycle", "--store", store.uri, "--input", source)
    assert put.exit_status == 0, put.stderr
    for table in TABLES:
        opened = DeltaTable(store.path(table))
        assert [field.name for field in opened.schema().fields] == table.names
        assert opened.metadata().partition_columns == list(table.partition_by)
        assert opened.to_pyarrow_table().num_rows == store.read(table).count(), table.name
        assert opened.metadata().description == table.comment
    log = DeltaTable(store.path(COMMITLOG)).to_pyarrow_table().sort_by("physical_offset")
    assert [body.as_py() for body in log["body"]] == [b"0", b"1", b"2"]
