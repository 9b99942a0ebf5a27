"""A store becomes a RocketMQ store directory that a real broker opens, or a part of it rows to put elsewhere."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.errors import BadInput
from pipelines.export.export import Export
from pipelines.export.rows import Part, write_rows
from pipelines.rocketmq.names import LIGHT_PREFIX


class Format(StrEnum):
    BROKER = "broker"
    JSONL = "jsonl"
    PARQUET = "parquet"


@job
def export_store(
    run: Run,
    to: Annotated[
        str,
        typer.Option("--to", metavar="DIR", help="Empty, or an export of this store: what is new is added."),
    ],
    format: Annotated[
        Format, typer.Option(help="broker: files that RocketMQ opens; else rows that put_messages takes.")
    ] = Format.BROKER,
    topic: Annotated[list[str] | None, typer.Option(help="Rows of this topic; may be repeated.")] = None,
    from_offset: Annotated[
        int | None, typer.Option(metavar="BYTE", help="Rows from this byte of the log on.")
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option(metavar="BYTE", help="Rows before this byte of the log.")
    ] = None,
    begin: Annotated[int | None, typer.Option(metavar="MS", help="Rows stored then or later.")] = None,
    end: Annotated[int | None, typer.Option(metavar="MS", help="Rows stored then or before.")] = None,
) -> dict[str, Any]:
    """Export the store as a RocketMQ store directory, again to add what is new; or a part of it as rows."""
    part = Part(tuple(topic or ()), from_offset, to_offset, begin, end)
    if format is not Format.BROKER:
        messages, files = write_rows(run.store.snapshot(), part, to, format.value)
        return {"messages": messages, "files": files}
    if part != Part():
        raise BadInput(
            "--topic, --from-offset, --to-offset, --begin and --end choose rows, and a broker's log is whole; "
            "use them with --format jsonl or parquet"
        )
    export = Export(run.store, to, run.now_ms)
    with run.progress("exporting", export.size, "bytes") as advance:
        exported = export.write(advance)
    for name in export.topics_without_files:
        run.warn(
            f"topic {name!r} has no queue files: its queue.type is BatchCQ, it is a light queue ({LIGHT_PREFIX}), or no "
            "directory can have its name. Its messages are in the log, and a broker that starts on the directory without "
            "its file `checkpoint`, and with an empty file `abort`, makes the queues from it"
        )
    if exported.settled.sooner:
        run.warn(
            f"{exported.settled.sooner} waiting messages are due at another time than their delay level says (a list of "
            "levels, or retryDelayLevel): a broker knows only the level, and may deliver them sooner or later"
        )
    if exported.settled.again:
        run.warn(
            f"{exported.settled.again} messages that this store has delivered or settled lie after one that is still open "
            "in their queue: a broker keeps one position a queue, and will do them once more"
        )
    return {
        "messages": exported.messages,
        "files": exported.files,
        "segments": exported.segments,
        "next_offset": exported.next_offset,
    }


if __name__ == "__main__":
    main(export_store)
