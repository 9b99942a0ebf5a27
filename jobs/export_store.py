"""A store becomes a RocketMQ store directory that a real broker opens."""

from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.export.export import Export
from pipelines.export.queues import unwritable_topics


@job
def export_store(
    run: Run,
    to: Annotated[
        str,
        typer.Option("--to", metavar="DIR", help="Empty, or an export of this store: what is new is added."),
    ],
) -> dict[str, Any]:
    """Export the store as a RocketMQ store directory that a broker opens; again, to add what is new."""
    export = Export(run.store, to, run.now_ms)
    with run.progress("exporting", export.size, "bytes") as advance:
        exported = export.write(advance)
    for topic in unwritable_topics(export.head):
        run.warn(
            f"topic {topic!r} has no queue files: no directory can have its name. Its messages are in the log"
        )
    if exported.again:
        run.warn(
            f"{exported.again} messages that this store has delivered or settled lie after one that is still open in their "
            "queue: a broker keeps one position a queue, and will do them once more"
        )
    return {
        "messages": exported.messages,
        "files": exported.files,
        "segments": exported.segments,
        "next_offset": exported.next_offset,
    }


if __name__ == "__main__":
    main(export_store)
