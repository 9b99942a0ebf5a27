"""Claims: which rows have been settled, retried or redriven, and by which row."""

from schemas.table import Table, columns

CLAIMS = Table(
    "claims",
    "One row per log row with a claim, laid out by its source. Derived from the log.",
    columns(
        ("segment", "long", "segment of physical_offset"),
        ("origin_offset", "long", "physical offset of the first row of the chain"),
        ("source_offset", "long", "physical offset of the row that is claimed"),
        ("claim", "string", "what is claimed of the source: settle, a group's retry, a redrive, …"),
        ("purpose", "string", "why the claiming row was made"),
        ("physical_offset", "long", "where the claiming row starts in the log, bytes"),
        ("append_seq", "long", "the append of the log that this row follows"),
    ),
    key=("source_offset", "claim"),
    statistics=("source_offset", "origin_offset", "claim", "physical_offset", "append_seq", "segment"),
)
