"""Spark's Python workers, made so that a task begins at once.

Each task has Python look for new modules, and for that Python reads the directory of every archive it has imported from
anew: a dozen times pyspark.zip, once Spark's core jar, in all a tenth of a second before a task begins. So the archives
Spark puts on the path are left out: the same modules are installed beside this project as plain files.

After each task the worker looks through all its objects for garbage, and a worker has tens of thousands from what it has
imported: a twentieth of a second. So what every worker imports is imported before workers are forked, and set aside.

Spark sends the beginning of a task in small pieces. TCP holds the second back until the first is acknowledged, and a socket
that has been used before waits 40 milliseconds to do so. So a worker acknowledges at once when a task begins.
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
    """Have Linux acknowledge what comes next without waiting; elsewhere nothing changes."""
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
