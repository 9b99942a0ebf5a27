"""Settings of the store, by their broker.conf names."""

from schemas.table import Table, columns

STORE_SETTINGS = Table(
    "store_settings",
    "One row per setting that was given when the store was made or changed.",
    columns(
        ("name", "string", "name as in broker.conf"),
        ("value", "string", "value as it was given"),
    ),
    key=("name",),
)
