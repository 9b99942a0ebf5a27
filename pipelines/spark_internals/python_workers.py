"""Spark's Python workers, changed so that a task begins at once.

Before each task Python looks for new modules, and for that it reads the directory of every archive it has imported from
again: pyspark.zip a dozen times, Spark's core jar once, together 0.1 s before a task begins. So the archives that Spark
puts on the path are left out: the same modules are installed in this project's environment as plain files.

After each task the worker collects garbage among all its objects, tens of thousands of them from its imports: 0.05 s. So
what every worker imports is imported before workers are forked, and excluded from garbage collection.

Spark sends the beginning of a task in small pieces. TCP holds the second back until the first is acknowledged, and a socket
that has been used before waits 40 milliseconds to do so. So a worker acknowledges at once when a task begins.

Spark's own `spark.python.unix.domain.socket.enabled` would do without TCP, and is not used. A task takes as long with
it: 183 ms, not 184 (medians of 30 on two busy cores; 305 ms with it and without this module). Its daemon removes the
socket's file only when a session is stopped, and commands end without that: each would leave a file in the temporary
directory. Read from PySpark 4.1.4's `daemon`, whose `worker` and `manager` are not public.
"""

import gc
import socket
import sys


def without_spark_archives(path: list[str]) -> list[str]:
    """
    >>> without_spark_archives(["/venv/pyspark/python/lib/pyspark.zip", "/spark/jars/spark-core.jar", "/mine.zip"])
    ['/mine.zip']
    """
    return [
        entry
        for entry in path
        if not entry.endswith(".jar") and not ("/python/lib/" in entry and entry.endswith(".zip"))
    ]


def acknowledging_at_once(sock: socket.socket) -> None:
    """Set TCP_QUICKACK on Linux, so that the next data is acknowledged without delay; elsewhere nothing changes."""
    if hasattr(socket, "TCP_QUICKACK") and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


if __name__ == "__main__":
    sys.path[:] = without_spark_archives(sys.path)
    sys.path_importer_cache.clear()
    import pandas  # noqa: F401
    import pyarrow  # noqa: F401
    from pyspark import daemon

    run_task = daemon.worker

    def run_task_at_once(sock: socket.socket, authenticated: bool) -> int:
        acknowledging_at_once(sock)
        return run_task(sock, authenticated)

    daemon.worker = run_task_at_once
    gc.freeze()
    daemon.manager()
