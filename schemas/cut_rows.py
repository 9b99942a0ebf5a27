"""Cut rows: what was cut off the log."""

from pyspark.sql import types as t

from schemas.commitlog import COMMITLOG
from schemas.table import Table

CUT_ROWS = Table(
    "cut_rows",
    "One row per row that was cut off the log, as it lay there, kept for a person to read.",
    t.StructType(
        [
            *COMMITLOG.columns.fields,
            t.StructField(
                "cut_seq", t.LongType(), True, {"comment": "commit number of the cut that took it away"}
            ),
        ]
    ),
    key=("cut_seq", "physical_offset"),
    statistics=("cut_seq", "physical_offset"),
    generation=3,
)
