"""Follow a master store: its new messages, topics, groups and offsets, as they are there."""

from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.replicate.follow import Following, follow, join_master, settings_apart
from pipelines.store.store import Store


@job
def replicate(
    run: Run,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URI", help="The store to follow; the one followed before."),
    ] = None,
    replica_id: Annotated[
        str | None, typer.Option("--replica-id", metavar="ID", help="Name of this slave at its master.")
    ] = None,
    from_last_file: Annotated[
        bool,
        typer.Option("--from-last-file", help="A new slave begins with the master's last segment."),
    ] = False,
) -> dict[str, Any]:
    """Follow a master store: a new directory becomes its slave, a slave gets what is new."""
    slave = Store(run.spark, run.store_uri)
    joined = join_master(slave, Following(master, replica_id, from_last_file), run.now_ms)
    run.store = slave
    for difference in settings_apart(slave, joined.master):
        run.say(f"the slave keeps its own settings: {difference} at the master")
    return follow(run, joined, from_last_file)


if __name__ == "__main__":
    main(replicate)
