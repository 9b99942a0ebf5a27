"""Accept messages into the log."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.end_transactions import run_local_transactions
from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.errors import BadInput, StoreError
from pipelines.log.append_ids import TRACE_PREFIX, expect_batch_id, is_put_by
from pipelines.log.place import off_count
from pipelines.log.python_code import load_function, load_hook
from pipelines.produce.complaints import AcceptRules
from pipelines.produce.inputs import freeze
from pipelines.produce.put import Appender, Put, QueuesChanged, appended, expect_same_content
from pipelines.produce.send_hooks import tell_after, tell_before
from pipelines.produce.trace import traces_of_sends
from pipelines.reports.page.words import duration
from pipelines.rocketmq.compression import Codec
from pipelines.store.head import read_head
from pipelines.store.snapshot import Snapshot
from pipelines.store.topics import plan_make_topics, read_topics
from pipelines.store.views import as_messages
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


@dataclass(frozen=True)
class PutOptions:
    """What is put, and how.

    selector       round_robin, hash, random, or MODULE:NAME
    compress_over  bytes of a body from which it is compressed; None: never
    hook           an object with send_message_before and send_message_after
    """

    path: str
    format: str = "jsonl"
    batch_id: str | None = None
    on_bad: str = "reject"
    selector: str = "round_robin"
    compress_over: int | None = None
    compression: Codec = Codec.zlib
    split_batches: bool = False
    hook: Any = None
    force_clock: bool = False


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
        force_clock=force_clock,
    )
    counts = put_input(run, options)
    if trace:
        _trace(run, counts["batch_id"])
    if execute is not None:
        counts |= run_local_transactions(run, counts.pop("batch_id"), execute)
        counts["next_offset"] = read_head(run.store.snapshot()).next_offset
    return {name: count for name, count in counts.items() if name != "batch_id"}


def put_input(run: Run, options: PutOptions) -> dict[str, Any]:
    """Put an input into the run's store; the counts of put_messages."""
    _expect_one_of("--on-bad", options.on_bad, ("reject", "quarantine"))
    selector = options.selector
    python_selector = selector not in ("round_robin", "hash")
    select = None
    if python_selector and selector != "random":
        select = load_function("--selector", selector, "round_robin, hash, random or ")
    store = run.store
    if store.settings["brokerRole"] == "SLAVE":
        raise BadInput("this store is a replica (brokerRole SLAVE); put to its master")
    at = store.snapshot()
    at.will_write(COMMITLOG)
    if not options.force_clock:
        _expect_clock_near(run, at)
    source = freeze(run.spark, options.path, options.format)
    topics = read_topics(at)
    rules = AcceptRules(
        store.settings,
        run.now_ms,
        topics,
        options.compress_over,
        options.compression,
        selector == "hash",
        python_selector,
    )
    batch_id, has_own_id = options.batch_id or source.digest, options.batch_id is not None
    put = Put(run.spark, source, batch_id, store.settings, topics, rules, options.split_batches)
    staging = f"{store.path_of('_staging')}/{run.run_id}"
    try:
        with ThreadPoolExecutor(1) as beside, run.progress("counting", None, "rows"):
            before = beside.submit(appended, at, put.batch_id)
            beside.submit(read_head, store.snapshot())  # which remembers it
            if python_selector:
                put.rules = dataclasses.replace(rules, python_selector=False)
            _count(put)
            if python_selector or put.is_out_of_order:
                run.say(
                    "writing the input down once, in order"
                    if put.is_out_of_order
                    else "asking the selector once a row"
                )
                with _as_counted():
                    put.arrange(staging, python_selector, select)
                put.rules = rules
                _count(put)
        if put.bad_rows and options.on_bad == "reject":
            raise BadInput(_refusal(put))
        now = store.snapshot()
        if now.number(COMMITLOG) == at.number(COMMITLOG):
            return _put_counted(run, put, at, before.result(), has_own_id, options.hook)
        return _put_counted(run, put, now, appended(now, put.batch_id), has_own_id, options.hook)
    finally:
        if put.source.is_staged:
            store.remove(staging)


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


def _put_counted(
    run: Run, put: Put, at: Snapshot, before: dict[tuple[int, int], int], has_own_id: bool, hook: Any
) -> dict[str, Any]:
    """Append what `before` (what the batch id has put as of `at`) does not hold."""
    spans, already = set(before), sum(before.values())
    if spans and has_own_id:
        with _as_counted():
            expect_same_content(at, put, spans)
    if put.bad_rows:
        with _as_counted():
            run.commit(put.plan_quarantine)
    if put.new_topics:
        run.commit(lambda at: plan_make_topics(at, put.new_topics))
        made = ", ".join(f"{topic.topic} ({topic.write_queue_nums} queues)" for topic in put.new_topics)
        run.say(f"made on the fly: {made}")
        put.topics = read_topics(run.store.snapshot())
    if hook is not None and already < sum(piece.good_rows for piece in put.pieces):
        tell_before(put.given_rows(), hook)
    appender = Appender(put, lambda: run.now_ms, at, spans, others_may_differ=has_own_id)
    counts = _append(run, put, appender)
    if hook is not None and counts["appended"]:
        new = F.col("physical_offset") >= counts["first_offset"]
        tell_after(run.store.snapshot().read(COMMITLOG).where(is_put_by(put.batch_id) & new), hook)
    return {
        "appended": counts["appended"],
        # Also what another put of this id has appended meanwhile.
        "already": sum(piece.good_rows for piece in put.pieces) - counts["appended"],
        "rejected": put.bad_rows,
        **counts,
        "send_status": "SEND_OK",
        "batch_id": put.batch_id,
    }


def _count(put: Put) -> None:
    """Count; and once more when some topics or queues turn out not to take their messages, to tell which rows."""
    put.count()
    complaints, overrun = put.topic_complaints(), put.overrun_topics()
    if complaints or overrun:
        put.rules = dataclasses.replace(put.rules, topic_complaints=complaints, queues_by_topic=overrun)
        put.pieces = []
        put.count()


def _append(run: Run, put: Put, appender: Appender) -> dict[str, Any]:
    counts: dict[str, Any] = {"appended": 0, "first_offset": None, "next_offset": None}
    with run.progress("appending", sum(piece.good_rows for piece in put.pieces)) as advance:
        while True:
            try:
                with _as_counted():
                    _append_all(run, put, appender, counts, advance)
                break
            except QueuesChanged:
                _count_again(run, put)
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
    run: Run, put: Put, appender: Appender, counts: dict[str, Any], advance: Callable[[int], None]
) -> None:
    """Append what is not in the log yet, and add it to `counts`."""
    for first_place, pieces in put.appends():
        sized = put.with_sizes(pieces)
        while True:
            committed = run.commit(partial(appender.plan, first_place=first_place, pieces=sized))
            counts["next_offset"] = committed.result["next_offset"]
            placement = committed.result.get("placement")
            if placement is None:
                break
            counts["appended"] += placement.rows
            if counts["first_offset"] is None:
                counts["first_offset"] = placement.first_offset
            appender.appended(placement)
            advance(placement.rows)
            if placement.to_place - first_place == sum(piece.rows for piece in pieces):
                break


def _count_again(run: Run, put: Put) -> None:
    """Count with the queues that the topics have now. Raises StoreError where one does not take its messages any more."""
    run.say("topics have other queues than when the input was counted: counting again")
    put.topics = read_topics(run.store.snapshot())
    put.count()
    complaints = [
        *put.topic_complaints().values(),
        *(f"topic {topic} has {queues} queues now" for topic, queues in put.overrun_topics().items()),
    ]
    if complaints:
        raise StoreError(
            f"topics changed while their messages were put: {'; '.join(complaints)}. What was appended before stays; "
            f"make room for the others, then put the same input with --batch-id {put.batch_id}"
        )


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
        put_input(run, PutOptions(written, "parquet", batch_id, force_clock=True))
    finally:
        run.store.remove(written)


def _refusal(put: Put) -> str:
    listed = put.first_bad_rows(BAD_ROWS_LISTED)
    lines = "".join(f"\n  {row.where}: {row.reason}" for row in listed)
    more = f"\n  … and {put.bad_rows - len(listed)} more" if put.bad_rows > len(listed) else ""
    return (
        f"{put.bad_rows} of {sum(piece.rows for piece in put.pieces)} rows cannot be put, so none was; "
        f"mend them, or put the others with --on-bad quarantine:{lines}{more}"
    )


def _expect_one_of(option: str, value: str, words: Sequence[str]) -> None:
    if value not in words:
        raise BadInput(f"{option} is {value!r}; expected one of {', '.join(words)}")


if __name__ == "__main__":
    main(put_messages)
