"""Parked messages: they wait for their time or for a decision."""

from schemas.table import Table, columns

PARKED = Table(
    "parked",
    "One row per log row with a due time, laid out by it. Derived from the log.",
    columns(
        ("segment", "long", "segment of physical_offset"),
        ("kind", "string", "schedule, timer or half"),
        ("due_ms", "long", "when it is due, epoch milliseconds"),
        ("physical_offset", "long", "where the record starts in the log, bytes"),
        ("origin_offset", "long", "physical offset of the first row of its chain"),
        ("real_topic", "string", "topic it goes to"),
        ("unique_key", "string", "its UNIQ_KEY"),
        ("cancels", "string", "unique key of the timed message it cancels"),
        ("append_seq", "long", "the append of the log that this row follows"),
    ),
    key=("physical_offset",),
    statistics=("kind", "due_ms", "physical_offset", "append_seq", "segment"),
)
