"""Subscriptions: the filter of each group for each topic."""

from schemas.table import Table, columns

SUBSCRIPTIONS = Table(
    "subscriptions",
    "One row per group and topic: the filter it subscribed with.",
    columns(
        ("group", "string", "consumer group"),
        ("topic", "string", "topic"),
        ("expression_type", "string", "TAG, SQL92 or CLASS"),
        ("expression", "string", "the filter"),
        ("sub_version", "long", "version of the subscription, epoch milliseconds"),
    ),
    key=("group", "topic"),
)
