"""Epochs: who was master from which offset on."""

from schemas.table import Table, columns

EPOCHS = Table(
    "epochs",
    "One row per epoch: the offset at which it started.",
    columns(
        ("epoch", "int", "number of the epoch"),
        ("start_offset", "long", "physical offset of its first message"),
    ),
    key=("epoch",),
)
