"""Options that several jobs have."""

from typing import Annotated

import typer

ReplicaOption = Annotated[
    str | None,
    typer.Option(
        "--replica",
        metavar="master|auto|ID",
        help="The copy to read; auto: a slave, where slaves serve readers.",
    ),
]
