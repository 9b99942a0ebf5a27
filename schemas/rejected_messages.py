"""Rejected messages: rows of an input that a put could not store."""

from schemas.table import Table, columns

REJECTED_MESSAGES = Table(
    "rejected_messages",
    "One row per input row that could not be put, with the reason.",
    columns(
        ("batch_id", "string", "the put's batch id"),
        ("arrival", "long", "the row's position in the input, from 0"),
        ("reason", "string", "what was wrong with it"),
        ("raw", "string", "the line or row as it came"),
    ),
    key=("batch_id", "arrival"),
)
