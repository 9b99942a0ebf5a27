"""Floors: how far an imported broker had come."""

from schemas.table import Table, columns

FLOORS = Table(
    "floors",
    "One row per follower of an imported broker: how far it had delivered, checked and dispatched.",
    columns(
        ("follower", "string", "who followed: a delay level, the timer, the transaction check, …"),
        ("position", "long", "everything below is settled"),
    ),
    key=("follower",),
)
