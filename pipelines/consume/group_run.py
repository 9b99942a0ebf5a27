"""One run of a consumer group: it joins the group, then reads the queues of one client after the other."""

import time
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame

from pipelines.consume.held_queues import HeldQueues
from pipelines.consume.joining import Joined, join
from pipelines.consume.listening import Listener, takes_a_dataframe
from pipelines.consume.options import Options
from pipelines.consume.reader import Counts, Reader
from pipelines.consume.shares import shares
from pipelines.consume.subscriptions import Selection
from pipelines.errors import BadInput
from pipelines.log.python_code import load_function, load_hook
from pipelines.rocketmq.names import retry_topic
from pipelines.store.store import Store
from pipelines.store.work import Work


def read_as_group(
    run: Work, options: Options, put_traces: Callable[[DataFrame, str], None], source: Store
) -> tuple[Counts, int]:
    """Hand over what a group's queues hold now; returns the counts and how many queues were left to other runs.

    put_traces  puts trace messages once under a batch id
    source      the copy of the store that messages are read from

    Raises BadInput for options that contradict each other or the store.
    """
    options.expect_sense()
    joined = join(run.store.snapshot(), options, run.now_ms)
    options = options.of_group(joined.group)
    listener = _listener(run, options)
    counts = Counts()
    readers = _readers(run, options, joined, listener, counts, put_traces, source)
    for reader in readers:
        reader.stand(
            run.store.snapshot()
        )  # raises for a start that cannot be found, before anything is written
    joined.record(run)
    if options.reads_alone:
        return counts, _read_alone(run, options.group, readers)
    for reader in readers:
        reader.read()
    return counts, 0


def _listener(run: Work, options: Options) -> Listener:
    assert options.consume_timeout is not None, "of_group has filled it in"
    listener = Listener(
        load_function("--listener", options.listener),
        options.group,
        options.batch_size,
        options.consume_timeout * 60,
        load_hook(options.hook),
        run.store.settings["maxUnpackedBytes"],
        run.fixed_now_ms,
    )
    takes_single_calls = bool(options.orderly) or options.batch_size > 1 or options.hook is not None
    if takes_a_dataframe(listener.call) and takes_single_calls:
        raise BadInput(
            "a listener for DataFrames gets a page at once; --orderly, --batch-size and --hook are not for it: "
            "leave them out (--no-orderly where the group is orderly), or give a listener for single messages"
        )
    return listener


def _readers(
    run: Work,
    options: Options,
    joined: Joined,
    listener: Listener,
    counts: Counts,
    put_traces: Callable[[DataFrame, str], None],
    source: Store,
) -> list[Reader]:
    """One reader for each subscription and client that reads."""
    began = time.monotonic()
    readers = []
    for subscription in joined.subscriptions:
        selection = Selection(subscription, retry_topic(options.group))
        readers += [
            Reader(
                run,
                options,
                joined.group,
                listener,
                selection,
                joined.class_filters.get(subscription),
                client_id,
                queues,
                counts,
                began,
                put_traces,
                source,
            )
            for client_id, queues in shares(run, options, subscription.topic)
        ]
    return readers


def _read_alone(run: Work, group: str, readers: Sequence[Reader]) -> int:
    """Read the queues that this run can lock; returns how many are left to runs that hold their locks."""
    held = HeldQueues(run, group)
    waiting = {queue for reader in readers for queue in reader.stand(run.store.snapshot()).waiting}
    if waiting:
        held.lock(waiting)
    try:
        for reader in readers:
            reader.read(held)
    except BaseException as failure:
        if run.is_interruption(failure):
            held.keep()  # Spark's tasks may still be reading
        else:
            held.unlock()
        raise
    held.unlock()
    return len(held.left)
