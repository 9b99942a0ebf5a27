"""Who reads a store without being commitlake: the blocks of docs/readers.md, the notebook, a stream beside compaction."""

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from pipelines.store.store import Store
from schemas import COMMITLOG
from tests.conftest import PROJECT, JobRun, write_jsonl

pytestmark = pytest.mark.slow
Commitlake = Callable[..., JobRun]


@pytest.fixture
def demo(golden_a: Store, golden_broker: Callable[[str], Path], tmp_path: Path) -> Path:
    """What `make demo` leaves: a broker's directory and the store made from it."""
    demo = tmp_path / "demo"
    shutil.copytree(golden_a.uri.removeprefix("file:"), demo / "store")
    shutil.copytree(golden_broker("a"), demo / "broker" / "store")
    return demo


@pytest.mark.nightly
def test_each_block_of_the_page_on_readers_finds_something(demo: Path) -> None:
    text = (PROJECT / "docs" / "readers.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    names: dict[str, object] = {}
    for block in blocks:
        exec(block.replace('"demo/', f'"{demo}/'), names)
        assert len(names.pop("found")) > 0, block


@pytest.mark.nightly
def test_the_notebook_runs(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    notebook = nbformat.read(PROJECT / "docs" / "tour.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace("../demo/", f"{demo}/").replace("../tests/", f"{PROJECT}/tests/")
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    last = notebook.cells[-1].outputs[0]["data"]["text/plain"]
    assert "OrderTopic" in last


def test_a_stream_reads_each_message_once_also_beside_compaction(
    commitlake: Commitlake, store: Store, tmp_path: Path
) -> None:
    def put(name: str) -> None:
        rows = [{"topic": "T", "body": f"{name}-{row}"} for row in range(5)]
        run = commitlake("put_messages", "--store", store.uri, "--input", write_jsonl(tmp_path / name, rows))
        assert run.exit_status == 0, run.stderr

    def follow() -> list[str]:
        stream = (
            store.spark.readStream.format("delta")
            .load(store.path(COMMITLOG))
            .selectExpr("CAST(body AS STRING) AS body")
            .writeStream.format("json")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "followed"))
        )
        stream.awaitTermination()
        return sorted(row.body for row in store.spark.read.json(str(tmp_path / "followed")).collect())

    put("a")
    put("b")
    assert follow() == [f"{name}-{row}" for name in "ab" for row in range(5)]
    put("c")
    compacted = commitlake("maintain", "--store", store.uri)
    assert compacted.result["files_compacted"] > 2
    put("d")
    assert follow() == [f"{name}-{row}" for name in "abcd" for row in range(5)]
    assert follow() == [f"{name}-{row}" for name in "abcd" for row in range(5)]
