"""One round of everything that keeps a store going: put an input, dispatch, say what happened."""

from typing import Annotated, Any

import typer

from jobs.dispatch import dispatch_store
from jobs.job import Run, job, main
from jobs.put_messages import put_input


@job
def run_cycle(
    run: Run,
    input_: Annotated[
        str | None,
        typer.Option("--input", metavar="PATH", help="Put these messages first: a file or directory."),
    ] = None,
    format_: Annotated[str, typer.Option("--format", help="jsonl, parquet, delta or csv.")] = "jsonl",
    batch_id: Annotated[
        str | None, typer.Option(help="Put once under this id; else a digest of the input's files.")
    ] = None,
    on_bad: Annotated[
        str, typer.Option(help="reject: one bad row and nothing is put. quarantine: keep bad rows aside.")
    ] = "reject",
) -> dict[str, Any]:
    """Put an input if there is one, then dispatch what is new in the log."""
    counts: dict[str, Any] = {}
    if input_ is not None:
        counts["put_messages"] = put_input(run, input_, format_, batch_id, on_bad)
        put = counts["put_messages"]
        put.pop("batch_id")
        run.say(
            f"put: {put['appended']:,} messages appended, {put['already']:,} were there already, "
            f"{put['rejected']:,} rejected; the log ends at byte {put['next_offset']:,}"
        )
    counts["dispatch"] = dispatch_store(run)
    dispatched = counts["dispatch"]
    run.say(
        f"dispatch: {dispatched['queue_entries']:,} queue entries and {dispatched['index_entries']:,} keys, "
        f"up to byte {dispatched['dispatched_to']:,}"
    )
    return counts


if __name__ == "__main__":
    main(run_cycle)
