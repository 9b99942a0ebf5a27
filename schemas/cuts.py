"""Cuts: where the log was cut."""

from schemas.table import Table, columns

CUTS = Table(
    "cuts",
    "One row per cut of the log: its commit number and the offset from which rows are gone.",
    columns(
        ("append_seq", "long", "the cut's commit number in the log"),
        ("physical_offset", "long", "rows from here on were cut off and kept in cut_rows"),
    ),
    key=("append_seq",),
)
