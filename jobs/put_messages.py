"""Accept messages into the log."""

from typing import Annotated, Any

import typer

from jobs.end_transactions import roll_back_halves, run_local_transactions
from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.errors import BadInput
from pipelines.log.append_ids import expect_batch_id
from pipelines.log.python_code import load_function, load_hook
from pipelines.produce.put_input import PutOptions, put_input
from pipelines.produce.put_traces import expect_trace_topic, trace_batch
from pipelines.produce.send_status import SendStatus
from pipelines.reports.page.words import duration
from pipelines.rocketmq.compression import Codec
from pipelines.store.head import read_head

Format = Annotated[str, typer.Option("--format", help="jsonl, parquet, delta or csv.")]
BatchId = Annotated[
    str | None, typer.Option(help="Put once under this id; else a digest of the input's files.")
]
ForceClock = Annotated[
    bool,
    typer.Option("--force-clock", help="Put also where --now is far ahead of the log (clockAheadMaxSec)."),
]
OnBad = Annotated[
    str,
    typer.Option(
        help="reject: one bad row and nothing is put. quarantine: bad rows go to rejected_messages."
    ),
]


@job
def put_messages(
    run: Run,
    input_: Annotated[str, typer.Option("--input", metavar="PATH", help="A file or directory of messages.")],
    format_: Format = "jsonl",
    batch_id: BatchId = None,
    on_bad: OnBad = "reject",
    selector: Annotated[
        str, typer.Option(help="round_robin, hash (of sharding_key), random or MODULE:NAME.")
    ] = "round_robin",
    compress_over: Annotated[
        int | None, typer.Option(metavar="BYTES", min=1, help="Compress bodies of at least N bytes.")
    ] = None,
    compression: Annotated[
        Codec, typer.Option(help="The codec of --compress-over; a RocketMQ consumer reads all three.")
    ] = Codec.zlib,
    split_batches: Annotated[
        bool, typer.Option("--split-batches", help="Cut a batch that is over maxMessageSize.")
    ] = False,
    local_transaction: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="Run this for each half message put, and end it by the state returned. Where slaves lack them in time, "
            "they are rolled back instead.",
        ),
    ] = None,
    hook: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME", help="An object with send_message_before and send_message_after."
        ),
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Put a message about each message into RMQ_SYS_TRACE_TOPIC.")
    ] = False,
    wait_for_replicas: Annotated[
        int | None,
        typer.Option(
            metavar="MS",
            min=0,
            help="Wait at most MS milliseconds until slaves have the messages (inSyncReplicas).",
        ),
    ] = None,
    force_clock: ForceClock = False,
) -> dict[str, Any]:
    """Accept messages into the log."""
    expect_batch_id(batch_id)
    execute = load_function("--local-transaction", local_transaction) if local_transaction else None
    options = PutOptions(
        path=input_,
        format=format_,
        batch_id=batch_id,
        on_bad=on_bad,
        selector=selector,
        compress_over=compress_over,
        compression=compression,
        split_batches=split_batches,
        hook=load_hook(hook),
        wait_for_replicas_ms=wait_for_replicas,
    )
    if not force_clock:
        expect_clock_near(run)
    if trace:
        expect_trace_topic(run.store.snapshot())
    counts = put_input(run, options)
    if execute is not None and counts["send_status"] != SendStatus.SEND_OK:
        counts |= roll_back_halves(run, counts["batch_id"], counts["first_offset"])
    elif execute is not None:
        counts |= run_local_transactions(run, counts["batch_id"], execute)
    if trace:
        # Last: nothing that matters more than a trace waits for it, or fails with it.
        trace_batch(run, counts["batch_id"], counts["appended"], counts["already"])
    if trace or execute is not None:
        counts["next_offset"] = read_head(run.store.snapshot()).next_offset
    return {name: count for name, count in counts.items() if name != "batch_id"}


def expect_clock_near(run: Run) -> None:
    """Raises BadInput where --now is far ahead of the log, whose time never goes back.

    The machine's own clock is trusted: a store may have been idle for a week. Other jobs accept any --now: it decides what
    is due.
    """
    now_ms, most_seconds = run.fixed_now_ms, run.store.settings["clockAheadMaxSec"]
    if now_ms is None or not most_seconds:
        return
    head = read_head(run.store.snapshot())
    ahead_ms = now_ms - head.last_store_timestamp
    if head.last_store_timestamp and ahead_ms > most_seconds * 1_000:
        raise BadInput(
            f"--now is {now_ms}, {duration(ahead_ms)} ahead of the log's last message (stored at "
            f"{head.last_store_timestamp}); expected at most {most_seconds} seconds (clockAheadMaxSec), because the log's "
            "time never goes back. Nothing was put; correct --now, or add --force-clock if it is right"
        )


if __name__ == "__main__":
    main(put_messages)
