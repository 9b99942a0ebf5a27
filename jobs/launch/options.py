"""Options that several jobs have."""

from collections.abc import Iterable
from typing import Annotated

import typer

from pipelines.errors import BadInput

ReplicaOption = Annotated[
    str | None,
    typer.Option(
        "--replica",
        metavar="master|auto|ID",
        help="The copy to read; auto: a slave, where slaves serve readers.",
    ),
]


def assigned(assignments: Iterable[str], named: str) -> dict[str, str]:
    """Texts by name, of assignments NAME=VALUE; of a name that is given twice the last. Raises BadInput for other text.

    >>> assigned(["a=1", "b=", "a=2=3"], "--set")
    {'a': '2=3', 'b': ''}
    """
    texts = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name.strip():
            raise BadInput(f'{named} is "{assignment}"; expected name=value')
        texts[name.strip()] = text
    return texts
