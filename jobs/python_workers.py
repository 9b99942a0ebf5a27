"""Spark's Python workers, started without the archives Spark puts on their path.

Each task has Python look for new modules, and for that Python reads the directory of every archive it has imported from
anew: a dozen times pyspark.zip, once Spark's core jar, in all a tenth of a second before a task begins. The same modules
are installed beside this project as plain files.
"""

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


if __name__ == "__main__":
    sys.path[:] = without_spark_archives(sys.path)
    sys.path_importer_cache.clear()
    from pyspark.daemon import manager

    manager()
