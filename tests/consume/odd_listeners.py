"""Listeners, a selector and a checker that do what nobody expects."""

import sys

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.consume.status import ConsumeStatus as S


def ok(m):
    return S.CONSUME_SUCCESS


def fail(m):
    return S.RECONSUME_LATER


def surrogate(m):
    raise ValueError("bad \ud800 text")


class Bad(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def badstr(m):
    raise Bad()


def sysexit(m):
    sys.exit(3)


def strdelay(m, c):
    c.delay_level_when_next_consume = "3"
    return S.RECONSUME_LATER


def df_int(rows: DataFrame):
    return rows.select(
        F.col("physical_offset").cast("int").alias("physical_offset"),
        F.lit("CONSUME_SUCCESS").alias("status"),
    )


def df_str(rows: DataFrame):
    return rows.select(
        F.col("physical_offset").cast("string").alias("physical_offset"),
        F.lit("CONSUME_SUCCESS").alias("status"),
    )


def df_void(rows: DataFrame):
    return rows.select(F.lit(None).alias("physical_offset"), F.lit(None).alias("status"))


def sel_raise(m, queues, *a):
    raise ValueError("\ud800")


def check_raise(m):
    raise SystemExit(1)
