"""Make a slave the master, and its old master a slave."""

from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.errors import BadInput
from pipelines.replicate.promote import promote_slave
from pipelines.store.store import Store


@job
def promote(
    run: Run,
    epoch: Annotated[
        int | None,
        typer.Option("--epoch", metavar="N", min=1, help="Number of the new epoch; else the next."),
    ] = None,
    old_master: Annotated[
        str | None,
        typer.Option(
            "--old-master", metavar="URI", help="The master so far: it is fenced and follows this store."
        ),
    ] = None,
) -> dict[str, Any]:
    """Make a slave the master; its old master is fenced."""
    promoted = promote_slave(run, epoch, _opened(run, old_master))
    run.say("dispatch builds the queues of what was copied last")
    return {"epoch": promoted.epoch, "max_offset": promoted.max_offset}


def _opened(run: Run, uri: str | None) -> Store | None:
    if uri is None:
        return None
    if not uri.strip():
        raise BadInput("--old-master is empty; name the master so far, or leave it out where that is lost")
    old = Store(run.spark, uri)
    if not old.exists():
        raise BadInput(
            f"--old-master is {old.uri}, where there is no store; leave it out where the old master is lost"
        )
    return old


if __name__ == "__main__":
    main(promote)
