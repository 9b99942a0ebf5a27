"""Accept messages into the log."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import typer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.end_transactions import run_local_transactions
from jobs.job import Run, job, main
from pipelines.errors import BadInput, StoreError
from pipelines.log.append_ids import TRACE_PREFIX, expect_batch_id, is_put_by
from pipelines.log.place import off_count
from pipelines.log.python_code import load_function, load_hook
from pipelines.produce.accepted_input import AcceptedInput
from pipelines.produce.arrange import arrange
from pipelines.produce.complaints import AcceptRules
from pipelines.produce.counted_input import CountedInput, count_for, count_input, overrun_queues
from pipelines.produce.inputs import freeze
from pipelines.produce.put import Found, Put, QueuesChanged, find
from pipelines.produce.put_topics import PutTopics
from pipelines.produce.quarantine import first_bad_rows, plan_quarantine
from pipelines.produce.send_hooks import tell_after, tell_before
from pipelines.produce.trace import traces_of_sends
from pipelines.reports.page.words import duration
from pipelines.rocketmq.compression import Codec
from pipelines.store.head import read_head
from pipelines.store.snapshot import Snapshot
from pipelines.store.topics import plan_make_topics, read_topics
from pipelines.views.read import as_messages
from schemas import COMMITLOG

BAD_ROWS_LISTED = 20

Format = Annotated[str, typer.Option("--format", help="jsonl, parquet, delta or csv.")]
BatchId = Annotated[
    str | None, typer.Option(help="Put once under this id; else a digest of the input's files.")
]
ForceClock = Annotated[
    bool,
    typer.Option("--force-clock", help="Put also where --now is far ahead of the log (clockAheadMaxSec)."),
]
OnBad = Annotated[
    str, typer.Option(help="reject: one bad row and nothing is put. quarantine: keep bad rows aside.")
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
        int | None, typer.Option(metavar="BYTES", min=1, help="Compress bodies of at least so many bytes.")
    ] = None,
    compression: Annotated[
        Codec, typer.Option(help="How --compress-over does it; a RocketMQ consumer reads all three.")
    ] = Codec.zlib,
    split_batches: Annotated[
        bool, typer.Option("--split-batches", help="Cut a batch that is over maxMessageSize.")
    ] = False,
    local_transaction: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:NAME", help="Run this for each half message put, and end it by its answer."
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
    force_clock: ForceClock = False,
) -> dict[str, Any]:
    """Accept messages into the log."""
    expect_batch_id(batch_id)
    execute = load_function("--local-transaction", local_transaction) if local_transaction else None
    told = load_hook(hook)
    options = PutOptions(
        format_, batch_id, on_bad, selector, compress_over, compression, split_batches, told, force_clock
    )
    counts = put_input(run, input_, options)
    if trace:
        _trace(run, counts["batch_id"])
    if execute is not None:
        counts |= run_local_transactions(run, counts.pop("batch_id"), execute)
        counts["next_offset"] = read_head(run.store.snapshot()).next_offset
    return {name: count for name, count in counts.items() if name != "batch_id"}


@dataclass(frozen=True)
class PutOptions:
    """How an input is put: the options of put_messages."""

    format: str = "jsonl"
    batch_id: str | None = None
    on_bad: str = "reject"
    selector: str = "round_robin"
    compress_over: int | None = None
    compression: Codec = Codec.zlib
    split_batches: bool = False
    hook: Any = None
    force_clock: bool = False

    @property
    def selects(self) -> bool:
        """Whether queues are chosen by a selector that is Python."""
        return self.selector not in ("round_robin", "hash")


def put_input(run: Run, path: str, options: PutOptions | None = None) -> dict[str, Any]:
    """Put an input into the run's store; the counts of put_messages."""
    options = options or PutOptions()
    _expect_one_of("--on-bad", options.on_bad, ("reject", "quarantine"))
    select = None
    if options.selects and options.selector != "random":
        select = load_function("--selector", options.selector, "round_robin, hash, random or ")
    store = run.store
    if store.settings["brokerRole"] == "SLAVE":
        raise BadInput("this store is a replica (brokerRole SLAVE); put to its master")
    at = store.snapshot()
    at.preload(COMMITLOG)
    if not options.force_clock:
        _expect_clock_near(run, at)
    source = freeze(run.spark, path, options.format)
    batch_id = options.batch_id or source.digest
    topics = PutTopics(read_topics(at), store.settings)
    rules = AcceptRules(
        store.settings,
        run.now_ms,
        topics.there,
        options.compress_over,
        options.compression,
        needs_sharding_key=options.selector == "hash",
    )
    staging = f"{store.path_of('_staging')}/{run.run_id}"
    with ExitStack() as at_end:
        with ThreadPoolExecutor(1) as beside, run.progress("counting", None, "rows"):
            before = beside.submit(find, store.snapshot(), batch_id)
            counted = count_input(AcceptedInput(run.spark, source, rules), topics, options.split_batches)
            if options.selects or counted.is_out_of_order:
                run.say(
                    "writing the input down once, in order"
                    if counted.is_out_of_order
                    else "asking the selector once a row"
                )
                at_end.callback(store.remove, staging)
                with _as_counted():
                    arranged = arrange(counted, rules, staging, batch_id, options.selects, select)
                counted = count_input(arranged, topics, options.split_batches)
        if counted.bad_rows and options.on_bad == "reject":
            raise BadInput(_refusal(counted))
        put = Put(counted, batch_id, is_own_id=options.batch_id is not None)
        return _put_counted(run, put, topics, before.result(), options.hook)


def _expect_clock_near(run: Run, at: Snapshot) -> None:
    """A clock fixed by hand must not be far ahead of the log, whose time never goes back.

    The machine's own clock is believed: a store may have been idle for a week. Other jobs take any clock, which is how
    they are told what is due. Raises BadInput.
    """
    now_ms, most_seconds = run.fixed_now_ms, at.store.settings["clockAheadMaxSec"]
    if now_ms is None or not most_seconds:
        return
    head = read_head(at)
    ahead_ms = now_ms - head.last_store_timestamp
    if head.last_store_timestamp and ahead_ms > most_seconds * 1_000:
        raise BadInput(
            f"--now is {now_ms}, {duration(ahead_ms)} ahead of the log's last message (stored at "
            f"{head.last_store_timestamp}); expected at most {most_seconds} seconds (clockAheadMaxSec), because the log's "
            "time never goes back. Nothing was put; correct --now, or say --force-clock if it is right"
        )


def _put_counted(run: Run, put: Put, topics: PutTopics, found: Found, hook: Any) -> dict[str, Any]:
    """Append what the log does not hold.

    found  what it held of the batch when counting began
    """
    counted, now = put.counted, run.store.snapshot()
    if found.append_seq != now.number(COMMITLOG):
        found = find(run.store.snapshot(), put.batch_id)
    with _as_counted():
        found = put.compared(now, found)
        if counted.bad_rows:
            run.commit(lambda at: plan_quarantine(at, counted, put.batch_id))
    if new := topics.missing(counted.topics):
        run.commit(lambda at: plan_make_topics(at, new))
        made = ", ".join(f"{topic.topic} ({topic.write_queue_nums} queues)" for topic in new)
        run.say(f"made on the fly: {made}")
    if hook is not None and found.rows < counted.good_rows:
        tell_before(counted.given.given_rows(), hook)
    counts = _append(run, put, found)
    if hook is not None and counts["appended"]:
        new_rows = F.col("physical_offset") >= counts["first_offset"]
        tell_after(run.store.snapshot().read(COMMITLOG).where(is_put_by(put.batch_id) & new_rows), hook)
    return {
        "appended": counts["appended"],
        # Also what another put of this id has appended meanwhile.
        "already": counted.good_rows - counts["appended"],
        "rejected": counted.bad_rows,
        **counts,
        "send_status": "SEND_OK",
        "batch_id": put.batch_id,
    }


def _append(run: Run, put: Put, found: Found) -> dict[str, Any]:
    counts: dict[str, Any] = {"appended": 0, "first_offset": None, "next_offset": None}
    with run.progress("appending", put.counted.good_rows) as advance:
        while True:
            try:
                with _as_counted():
                    _append_all(run, put, found, counts, advance)
                break
            except QueuesChanged:
                put = replace(put, counted=_counted_again(run, put))
    if counts["next_offset"] is None:
        counts["next_offset"] = read_head(run.store.snapshot()).next_offset
    return counts


@contextmanager
def _as_counted() -> Iterator[None]:
    """Within, the input is read again. Raises StoreError where it is not as it was counted."""
    try:
        yield
    except Exception as failure:
        if (difference := off_count(failure)) is None:
            raise
        raise StoreError(
            f"the input changed while it was put: it holds other rows than were counted ({difference}). This append was "
            "not written; put again once nobody writes to the input any more"
        ) from failure


def _append_all(
    run: Run, put: Put, found: Found, counts: dict[str, Any], advance: Callable[[int], None]
) -> None:
    """Append what is not in the log yet, and add it to `counts`."""
    for first_row, splits in put.counted.appends():
        sized, end = put.counted.with_sizes(splits), first_row + sum(split.rows for split in splits)
        appended_to = first_row
        while appended_to < end:
            planner = partial(
                put.plan, found=found, first_row=first_row, splits=sized, clock=lambda: run.now_ms
            )
            committed = run.commit(planner)
            counts["next_offset"] = committed.result["next_offset"]
            placement = committed.result.get("placement")
            if placement is None:
                break
            found = committed.result["found"].and_also(placement)
            appended_to = placement.to_row
            counts["appended"] += placement.rows
            if counts["first_offset"] is None:
                counts["first_offset"] = placement.first_offset
            advance(placement.rows)


def _counted_again(run: Run, put: Put) -> CountedInput:
    """Count with the queues that the topics have now. Raises StoreError where one does not take its messages any more."""
    run.say("topics have other queues than when the input was counted: counting again")
    topics = PutTopics(read_topics(run.store.snapshot()), run.store.settings)
    counted = count_for(put.counted.given, topics, put.counted.rules.split_batches)
    complaints = [
        *topics.complaints(counted.topics).values(),
        *(
            f"topic {topic} has {queues} queues now"
            for topic, queues in overrun_queues(counted, topics).items()
        ),
    ]
    if complaints:
        raise StoreError(
            f"topics changed while their messages were put: {'; '.join(complaints)}. What was appended before stays; "
            f"make room for the others, then put the same input with --batch-id {put.batch_id}"
        )
    return counted


def _trace(run: Run, batch_id: str) -> None:
    """Trace what a batch has put: once, however often it is put."""
    put = run.store.snapshot().read(COMMITLOG).where(is_put_by(batch_id)).orderBy("physical_offset")
    put_traces(run, traces_of_sends(as_messages(put)), f"{TRACE_PREFIX}{batch_id}")


def put_traces(run: Run, traces: DataFrame, batch_id: str) -> None:
    """Put trace messages once under a batch id, through the front door.

    They are written down first, so that both passes of the put see the same rows.
    """
    written = f"{run.store.path_of('_staging')}/traces-{run.run_id}"
    try:
        traces.write.mode("overwrite").parquet(written)
        # What is told of has been done at this clock.
        put_input(run, written, PutOptions("parquet", batch_id, force_clock=True))
    finally:
        run.store.remove(written)


def _refusal(counted: CountedInput) -> str:
    listed = first_bad_rows(counted, BAD_ROWS_LISTED)
    lines = "".join(f"\n  {row.where}: {row.reason}" for row in listed)
    more = f"\n  … and {counted.bad_rows - len(listed)} more" if counted.bad_rows > len(listed) else ""
    return (
        f"{counted.bad_rows} of {counted.rows} rows cannot be put, so none was; "
        f"fix them, or put the others with --on-bad quarantine:{lines}{more}"
    )


def _expect_one_of(option: str, value: str, words: Sequence[str]) -> None:
    if value not in words:
        raise BadInput(f"{option} is {value!r}; expected one of {', '.join(words)}")


if __name__ == "__main__":
    main(put_messages)
