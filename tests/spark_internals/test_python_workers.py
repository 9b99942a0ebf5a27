"""Workers that begin and end at once: what a task sends first is acknowledged, what they have imported is set aside."""

import socket
import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipelines.spark_internals.python_workers import acknowledging_at_once


@pytest.mark.quick
@pytest.mark.skipif(sys.platform != "linux", reason="the option is Linux's")
def test_a_socket_that_has_answered_acknowledges_at_once_again() -> None:
    def is_quick(sock: socket.socket) -> bool:
        return bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))

    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as jvm,
        server.accept()[0] as worker,
    ):
        jvm.sendall(b"task")
        worker.recv(4)
        worker.sendall(b"answer")
        jvm.recv(6)
        assert not is_quick(worker)  # it waits for an answer to go with
        acknowledging_at_once(worker)
        assert is_quick(worker)


@pytest.mark.quick
def test_every_task_begins_so(spark: SparkSession) -> None:
    def name(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import daemon

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"name": [daemon.worker.__name__]})

    rows = spark.range(0, 2, 1, 2).mapInArrow(name, "name string").collect()
    assert {row.name for row in rows} == {"run_task_at_once"}


@pytest.mark.quick
def test_what_workers_have_imported_is_set_aside(spark: SparkSession) -> None:
    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc

        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {"aside": [gc.get_freeze_count()], "others": [len(gc.get_objects())]}
            )

    rows = spark.range(0, 4, 1, 4).mapInArrow(count, "aside long, others long").collect()
    assert len(rows) == 4
    assert all(row.aside > row.others for row in rows)
