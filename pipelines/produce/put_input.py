"""Put an input: freeze, accept, count, arrange where needed, append. The job put_messages reports the counts."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import functions as F

from pipelines.errors import BadInput, StoreError
from pipelines.log.append_ids import is_put_by
from pipelines.log.place import off_count
from pipelines.log.python_code import load_function
from pipelines.produce.accepted_input import AcceptedInput
from pipelines.produce.arrange import arrange
from pipelines.produce.complaints import AcceptRules
from pipelines.produce.counted_input import CountedInput, count_for, count_input, overrun_queues
from pipelines.produce.inputs import freeze
from pipelines.produce.put import Found, Put, QueuesChanged, end_of, find
from pipelines.produce.put_topics import PutTopics
from pipelines.produce.quarantine import first_bad_rows, plan_quarantine
from pipelines.produce.send_hooks import tell_after, tell_before
from pipelines.produce.send_status import await_replicas
from pipelines.retry.send_back import plan_group
from pipelines.rocketmq.compression import Codec
from pipelines.store.beside import beside
from pipelines.store.groups import read_groups
from pipelines.store.head import read_head
from pipelines.store.permissions import expect_store_writable
from pipelines.store.replicas import expect_enough_copies
from pipelines.store.role import expect_master
from pipelines.store.topics import plan_make_topics, read_topics
from pipelines.store.work import Work
from schemas import COMMITLOG, QUEUE_BOUNDS

BAD_ROWS_LISTED = 20


@dataclass(frozen=True)
class PutOptions:
    """The input of a put, and the options for it.

    selector       round_robin, hash, random, or MODULE:NAME
    compress_over  compress bodies of at least this many bytes; None: never
    hook           an object with send_message_before and send_message_after
    wait_for_replicas_ms  how long to wait until slaves have the messages; None: not at all
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
    wait_for_replicas_ms: int | None = None

    @property
    def selects(self) -> bool:
        """Whether a Python selector chooses the queues."""
        return self.selector not in ("round_robin", "hash")


def put_input(work: Work, options: PutOptions) -> dict[str, Any]:
    """The counts that put_messages reports, and `batch_id`, after putting an input into the store."""
    _expect_one_of("--on-bad", options.on_bad, ("reject", "quarantine"))
    select = None
    if options.selects and options.selector != "random":
        select = load_function("--selector", options.selector, "round_robin, hash, random or ")
    store = work.store
    at = store.snapshot()
    expect_master(at)
    expect_store_writable(store.settings)
    expect_enough_copies(at)
    at.preload(COMMITLOG)
    source = freeze(work.spark, options.path, options.format)
    batch_id = options.batch_id or source.digest
    topics = PutTopics(read_topics(at), store.settings, read_groups(at).keys())
    rules = AcceptRules(
        store.settings,
        work.now_ms,
        topics.there,
        options.compress_over,
        options.compression,
        needs_sharding_key=options.selector == "hash",
        multi_tag_topics=topics.multi_tag,
        new_are_multi_tag=topics.new_are_multi_tag,
    )
    staging = f"{store.path_of('_staging')}/{work.run_id}"
    with ExitStack() as at_end:
        with beside(work.spark) as thread, work.progress("counting", None, "rows"):
            before = thread.submit(find, store.snapshot(), batch_id)
            counted = count_input(AcceptedInput(work.spark, source, rules), topics, options.split_batches)
            if options.on_bad == "reject" and counted.bad_rows:
                counted = _judged_with_its_batch(counted, before.result(), topics, options)
            # Before a copy is written: its rows have no file and no line. Whether a batch has one queue is known only after
            # the selector has chosen.
            if not (options.selects and "batch" in source.columns):
                _refuse_bad_rows(counted, options, before)
            if options.selects or counted.is_out_of_order:
                work.say(
                    "writing the input down once, in order"
                    if counted.is_out_of_order
                    else "calling the selector once for each row"
                )
                at_end.callback(store.remove, staging)
                with _as_counted():
                    arranged = arrange(counted, rules, staging, batch_id, options.selects, select)
                counted = count_input(arranged, topics, options.split_batches)
        if counted.bad_rows:
            counted = _judged_with_its_batch(counted, before.result(), topics, options)
        _refuse_bad_rows(counted, options, before)
        put = Put(counted, batch_id, is_own_id=options.batch_id is not None)
        return _put_counted(work, put, topics, before.result(), options)


def _judged_with_its_batch(
    counted: CountedInput, found: Found, topics: PutTopics, options: PutOptions
) -> CountedInput:
    """The counted input, where rows that the log holds are not bad because of what has changed since they were put.

    found  what the log holds of the batch

    Since then the time of a cancel may have passed, or a topic may have become read-only or lost queues. The rows of a batch
    that has begun were accepted together, so a late cancel among them is put as if the put had not been cut short.
    """
    if not counted.bad_rows or not found.parts:
        return counted
    rules = replace(counted.given.rules, has_begun=True)
    if found.covers(counted.rows):
        whole = replace(rules, is_whole=True, topic_complaints=None, queues_by_topic=None)
        again = count_for(replace(counted.given, rules=whole), topics, options.split_batches)
    else:
        again = count_input(replace(counted.given, rules=rules), topics, options.split_batches)
    if options.on_bad == "reject":
        return again
    # Other bad rows were set aside when the batch was put, and are as bad now.
    return again if again.agrees_with(found.parts) and not counted.agrees_with(found.parts) else counted


def _put_counted(
    work: Work, put: Put, topics: PutTopics, found: Found, options: PutOptions
) -> dict[str, Any]:
    """The counts, after appending the rows that the log does not hold.

    found  what the log held of the batch when counting began
    """
    hook = options.hook
    counted = put.counted
    with _as_counted():
        found = put.known(work.store.snapshot(), found)
        if counted.bad_rows:
            work.commit(lambda at: plan_quarantine(at, counted, put.batch_id))
    # Nothing is made for a batch that is there: its topics may have been deleted since.
    appends = () if found.covers(counted.rows) else counted.topics
    for group in topics.missing_groups(appends):
        work.commit(partial(plan_group, group=group))
    if new := topics.missing(appends):
        work.commit(lambda at: plan_make_topics(at, new))
        made = ", ".join(f"{topic.topic} ({topic.write_queue_nums} queues)" for topic in new)
        work.say(f"made on the fly: {made}")
    if hook is not None and appends and found.rows < counted.good_rows:
        tell_before(counted.given.given_rows(), hook)
    counts = _append(work, put, found)
    if hook is not None and counts["appended"]:
        new_rows = F.col("physical_offset") >= counts["first_offset"]
        put_rows = work.store.snapshot().read(COMMITLOG).where(is_put_by(put.batch_id) & new_rows)
        tell_after(put_rows, hook, work.store.settings["maxUnpackedBytes"])

    def end() -> int:
        if counts["appended"]:
            return int(counts["next_offset"])
        return end_of(work.store.snapshot(), put.batch_id)

    return {
        "appended": counts["appended"],
        # Also rows that another put of this id has appended meanwhile.
        "already": counted.good_rows - counts["appended"],
        "rejected": counted.bad_rows,
        **counts,
        "send_status": str(await_replicas(work, end, options.wait_for_replicas_ms)),
        "batch_id": put.batch_id,
    }


def _append(work: Work, put: Put, found: Found) -> dict[str, Any]:
    counts: dict[str, Any] = {"appended": 0, "first_offset": None, "next_offset": None}
    with work.progress("appending", put.counted.good_rows) as advance:
        while True:
            try:
                with _as_counted():
                    _append_all(work, put, found, counts, advance)
                break
            except QueuesChanged:
                put = replace(put, counted=_counted_again(work, put))
    if counts["next_offset"] is None:
        counts["next_offset"] = read_head(work.store.snapshot()).next_offset
    return counts


@contextmanager
def _as_counted() -> Iterator[None]:
    """A context in which the input is read again. Raises StoreError where it is not as it was counted."""
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
    work: Work, put: Put, found: Found, counts: dict[str, Any], advance: Callable[[int], None]
) -> None:
    """Append the rows that are not in the log yet, and add them to `counts`."""
    for first_row, splits in put.counted.appends():
        sized, end = put.counted.with_sizes(splits), first_row + sum(split.rows for split in splits)
        appended_to = first_row
        while appended_to < end:
            planner = partial(
                put.plan, found=found, first_row=first_row, splits=sized, clock=lambda: work.now_ms
            )
            committed = work.commit(planner)
            counts["next_offset"] = committed.result["next_offset"]
            placement = committed.result.get("placement")
            if placement is None:
                break
            found = committed.result["found"].and_also(placement, QUEUE_BOUNDS.name in committed.counts)
            appended_to = placement.to_row
            counts["appended"] += placement.rows
            if counts["first_offset"] is None:
                counts["first_offset"] = placement.first_offset
            advance(placement.rows)


def _counted_again(work: Work, put: Put) -> CountedInput:
    """The input counted with its topics' queues of now. Raises StoreError where a topic no longer takes its messages."""
    work.say("topics have other queues than when the input was counted: counting again")
    at = work.store.snapshot()
    topics = PutTopics(read_topics(at), work.store.settings, read_groups(at).keys())
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


def _refuse_bad_rows(counted: CountedInput, options: PutOptions, found: Future[Found]) -> None:
    """Raises BadInput with the first bad rows, where --on-bad is reject."""
    if not counted.bad_rows or options.on_bad != "reject":
        return
    listed = first_bad_rows(counted, BAD_ROWS_LISTED)
    lines = "".join(f"\n  {row.where}: {row.reason}" for row in listed)
    more = f"\n  … and {counted.bad_rows - len(listed)} more" if counted.bad_rows > len(listed) else ""
    there = found.result().rows
    none = f"none was but the {there} that are in the log already" if there else "none was"
    raise BadInput(
        f"{counted.bad_rows} of {counted.rows} rows cannot be put, so {none}; "
        f"fix them, or put the others with --on-bad quarantine:{lines}{more}"
    )


def _expect_one_of(option: str, value: str, words: Sequence[str]) -> None:
    if value not in words:
        raise BadInput(f"{option} is {value!r}; expected one of {', '.join(words)}")
