"""Class filters that were uploaded."""

from schemas.table import Table, columns

FILTER_CLASSES = Table(
    "filter_classes",
    "One row per topic and group with a class filter: its source text.",
    columns(
        ("topic", "string", "topic"),
        ("group", "string", "consumer group"),
        ("class_name", "string", "name of the class in the source"),
        ("source", "string", "Python source text"),
        ("crc", "int", "CRC-32 of the source"),
    ),
    key=("topic", "group"),
)
