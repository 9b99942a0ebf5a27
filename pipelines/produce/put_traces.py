"""Put trace messages about messages that were sent or consumed."""

from pyspark.sql import DataFrame

from pipelines.errors import BadInput
from pipelines.log.append_ids import TRACE_PREFIX, is_put_by
from pipelines.produce.put_input import PutOptions, put_input
from pipelines.produce.trace import traces_of_sends
from pipelines.rocketmq.names import TRACE_TOPIC
from pipelines.store.permissions import expect_store_writable
from pipelines.store.snapshot import Snapshot
from pipelines.store.topics import TopicConfig, plan_make_topics, read_topics
from pipelines.store.work import Work
from pipelines.views.read import as_messages
from schemas import COMMITLOG


def expect_trace_topic(at: Snapshot) -> None:
    """Raises BadInput where the trace topic, or the store, is not writable."""
    expect_store_writable(at.store.settings)
    config = read_topics(at).get(TRACE_TOPIC)
    if config is not None and not (config.is_writable and config.write_queue_nums):
        raise BadInput(
            f"--trace puts messages to {TRACE_TOPIC}, which may not be written to (perm {config.perm}, "
            f"{config.write_queue_nums} queues), as the broker had it that was imported. Nothing was done; leave out --trace"
        )


def trace_batch(work: Work, batch_id: str, appended: int, already: int) -> None:
    """Put traces of the messages of a batch, once, however often the batch is put; warn where they cannot be put.

    appended, already  how many of its messages this run has put, and earlier ones; where the log holds fewer, the first have
                       expired long after all were traced
    """
    try:
        _trace_batch(work, batch_id, appended, already)
    except BadInput as refused:
        # Only a warning: the messages are in the log, and a put that is refused says that they are not.
        work.warn(f"what was put is not traced: {refused}; the same put again traces it")


def _trace_batch(work: Work, batch_id: str, appended: int, already: int) -> None:
    put = work.store.snapshot().read(COMMITLOG).where(is_put_by(batch_id))
    if already and put.count() < appended + already:
        work.say("messages of this batch have expired: their traces are not put again")
        return
    put_traces(
        work, traces_of_sends(as_messages(put.orderBy("physical_offset"))), f"{TRACE_PREFIX}{batch_id}"
    )


def put_traces(work: Work, traces: DataFrame, batch_id: str) -> None:
    """Put trace messages once under a batch id, as any other input.

    They are staged as Parquet first, so that both passes of the put read the same rows. Their topic is made with one
    queue, whatever autoCreateTopicEnable is, as a broker makes it. A trace may be larger than its message, and too large:
    such a one is set aside in rejected_messages with a warning, and the others are put.
    """
    work.commit(lambda at: plan_make_topics(at, [TopicConfig(TRACE_TOPIC, 1, 1)]))
    written = f"{work.store.path_of('_staging')}/traces-{work.run_id}"
    try:
        traces.write.mode("overwrite").parquet(written)
        counts = put_input(work, PutOptions(written, "parquet", batch_id, on_bad="quarantine"))
    finally:
        work.store.remove(written)
    if counts["rejected"]:
        work.warn(
            f"messages that are not traced: {counts['rejected']:,}; rejected_messages says why, under batch_id {batch_id}"
        )
