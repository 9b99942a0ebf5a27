"""Several drivers on a real HDFS, where no lock keeps them apart: put-if-absent does."""

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest

from pipelines.store.store import Store
from tests.conftest import PROJECT, JobRun, write_jsonl
from tests.life import Life
from tests.scenes.processes import SMALL_APPENDS, end, start

JARS = PROJECT / ".setup" / "hdfs"  # made by scripts/test_jars.sh
PATIENCE_SECONDS = 120

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not JARS.exists() and os.environ.get("CI") != "true", reason="there is no HDFS; scripts/test_jars.sh"
    ),
]

# Ends itself and its JVM, as if killed, when its first append is in the log and two are missing.
DIES_AFTER_ITS_FIRST_APPEND = """
import os, signal
import pipelines.store.commit as module
find = module.find_commit
def find_and_die(store, write, *more):
    found = find(store, write, *more)
    if write.table.name == "commitlog" and found is not None:
        os.killpg(os.getpgid(0), signal.SIGKILL)
    return found
module.find_commit = find_and_die
"""


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a name node with one data node, both in a process that ends with the tests."""
    folder = tmp_path_factory.mktemp("hdfs")
    details = folder / "details.json"
    spark_jars = Path(pyspark.__file__).parent / "jars"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            ["java", "-Xmx512m", "-cp", f"{JARS}/*:{spark_jars}/*", "org.apache.hadoop.mapreduce.MiniHadoopClusterManager",
             "-nomr", "-format", "-nnport", "0", "-datanodes", "1", "-writeDetails", str(details)],
            cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not details.exists() or not details.read_text():
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, "HDFS did not start"
            time.sleep(0.1)
        yield f"hdfs://127.0.0.1:{json.loads(details.read_text())['namenode_port']}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.nightly
def test_puts_delivers_and_a_dispatch_side_by_side_one_of_them_killed(
    commitlake: Callable[..., JobRun], spark: pyspark.sql.SparkSession, hdfs: str, tmp_path: Path
) -> None:
    uri = f"{hdfs}/stores/orders"
    created = commitlake("create_store", "--store", uri, "--quiet")
    assert created.exit_status == 0, created.stderr
    store = Life(commitlake, Store(spark, uri), tmp_path)
    delayed = store.input(*[{"topic": "T", "body": f"late{n}", "delay_level": 1} for n in range(6)])
    put = commitlake("put_messages", "--store", uri, "--input", delayed)
    assert put.exit_status == 0, put.stderr

    def source(name: str) -> Path:
        (tmp_path / name).mkdir()
        for file in range(3):
            rows = [{"topic": f"T{row % 2}", "queue_id": 0, "body": f"{name}{file}{row}"} for row in range(4)]
            write_jsonl(tmp_path / name / f"{file}.jsonl", rows)
        return tmp_path / name

    at = ("--store", uri)
    killed = start(
        "put_messages", *at, "--input", source("c"), before=SMALL_APPENDS + DIES_AFTER_ITS_FIRST_APPEND
    )
    others = [
        start("put_messages", *at, "--input", source("a"), before=SMALL_APPENDS),
        start("put_messages", *at, "--input", source("b"), before=SMALL_APPENDS),
        start("deliver", *at),
        start("deliver", *at),
        start("dispatch", *at),
    ]
    for process in others:
        status, said = end(process)
        assert status == 0, said
    assert end(killed)[0] < 0
    for job in (("put_messages", *at, "--input", tmp_path / "c"), ("dispatch", *at)):
        again = commitlake(*job)
        assert again.exit_status == 0, again.stderr

    rows = store.rows()
    put_once = Counter(bytes(row.body).decode() for row in rows if row.purpose is None and row.due_ms is None)
    assert put_once == Counter(
        f"{name}{file}{row}" for name in "abc" for file in range(3) for row in range(4)
    )
    assert sorted(bytes(row.body).decode() for row in rows if row.purpose == "deliver") == [
        f"late{n}" for n in range(6)
    ]
    store.expect_promises()
    entries = store.store.consume_queue
    assert entries.count() == entries.select("physical_offset").distinct().count() == len(rows)
    assert commitlake("deliver", *at).result["delivered"] == 0

    # Small tables are written whole, and offsets a group at a time: of two at once one plans again.
    group = ("--group", "g", "--to-offset", "1")
    small = [
        start("topics", *at, "create", "A"),
        start("topics", *at, "create", "B"),
        start("reset_offsets", *at, *group, "--topic", "T0"),
        start("reset_offsets", *at, *group, "--topic", "T1"),
    ]
    for process in small:
        status, said = end(process)
        assert status == 0, said
    assert {"A", "B"} <= {row.topic for row in store.store.topics.collect()}
    offsets = {
        row.topic: row.next_offset for row in store.store.consumer_offsets.where("queue_id = 0").collect()
    }
    assert offsets == {"T0": 1, "T1": 1}
