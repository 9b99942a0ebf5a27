"""Copy a store, while others write to it, into a directory that is a store too."""

from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.store.backup import Backup
from schemas import TABLES


@job
def backup(
    run: Run,
    to: Annotated[
        str,
        typer.Option("--to", metavar="DIR", help="Empty, or a backup of this store: what is new is added."),
    ],
) -> dict[str, Any]:
    """Copy the store, while others write to it, into a directory that is a store too."""
    store = run.store
    planned = Backup(store, to, run.now_ms)
    with run.progress("copying", planned.size, "bytes") as advance:
        copied = planned.copy(advance)
    return {
        "tables": len(TABLES),
        "files": copied.files,
        "bytes": copied.bytes,
        "already": copied.already,
        "append_seq": planned.append_seq,
    }


if __name__ == "__main__":
    main(backup)
