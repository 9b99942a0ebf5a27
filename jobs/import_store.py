"""A RocketMQ store directory becomes a store, or what has been added to it since goes on in one."""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.broker_files.broker_config import BrokerConfig
from pipelines.broker_files.broker_log import BrokerLog
from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.import_log import BrokerStore, groups_further_on, import_next, plan_broker_state
from pipelines.broker_files.store_settings import settings_of
from pipelines.consume.offsets import plan_import_offsets
from pipelines.errors import BadInput
from pipelines.rocketmq.names import LIGHT_PREFIX, is_system_topic, topic_name_complaint
from pipelines.rocketmq.settings import Settings, read_broker_conf
from pipelines.store.create import make_store
from pipelines.store.store import Store

From = Annotated[str, typer.Option("--from", metavar="DIR", help="The broker's storePathRootDir.")]
BrokerConf = Annotated[
    str | None, typer.Option("--broker-conf", metavar="FILE", help="The broker's settings, broker.conf.")
]


# Of offsets that are set back, and of names that cannot be.
LISTED = 20


@job
def import_store(run: Run, from_: From, broker_conf: BrokerConf = None) -> dict[str, Any]:
    """Import a RocketMQ store directory; again, to follow it as it grows."""
    directory = BrokerDirectory(from_)
    conf = read_conf(broker_conf)
    settings = settings_of(directory, conf)
    config = BrokerConfig.read(
        directory
    )  # before the log: a broker that goes on must not be ahead of its rows
    log = BrokerLog.read(run.spark, directory, conf)
    tell_end(run, log)
    store = Store(run.spark, run.store_uri)
    if not store.exists():
        make_store(store, settings)
        run.wrote = True
    elif broker_conf is not None and (differences := store.settings.differences(Settings.of(settings))):
        run.say(f"the store keeps its own settings: {'; '.join(differences)}")
    run.store = store
    config, refused = config.with_valid_names(run.store.settings)
    tell_refused(
        refused, "it is left out of the store's topics and groups, and so is what groups had read of it"
    )
    broker = BrokerStore(log, config)
    tell_set_back(broker)
    run.commit(lambda at: plan_broker_state(at, broker))
    # A commit a group, as a consumer's: the two may be at it at once.
    for group, offsets in groups_further_on(run.store.snapshot(), broker.consumer_offsets).items():
        run.commit(partial(plan_import_offsets, group=group, offsets=offsets, now_ms=run.now_ms))
    messages, segments = import_rows(run, broker)
    tell_damage(log)
    tell_refused(
        topics_refused(log, run.store.settings, refused),
        "its messages are imported, and no topic is made of it",
    )
    return {"messages": messages, "segments": segments, "truncated_at": log.end.truncated_at}


def import_rows(run: Run, broker: BrokerStore) -> tuple[int, int]:
    """Append until the log's end. Rows and segments with rows."""
    messages, segments, reached = 0, set[int](), None
    log = broker.log
    with run.progress("importing", log.end.offset - log.start_offset, "bytes") as advance:
        while reached is None or reached < log.end.offset:
            appended = import_next(run.commit, broker)
            messages += appended.counts.get("commitlog", 0)
            segments |= appended.result["segments"]
            advance(appended.result["to_offset"] - (reached or log.start_offset))
            reached = appended.result["to_offset"]
    return messages, len(segments)


def read_conf(path: str | None) -> dict[str, str]:
    """The settings of a broker.conf, here or at a URI; none without a path."""
    if path is None:
        return {}
    directory, _, name = path.rpartition("/")
    content = BrokerDirectory(directory or (path[:1] if path.startswith("/") else ".")).read(name)
    if content is None:
        raise BadInput(f"there is no file {path}; expected the broker's settings, broker.conf")
    return read_broker_conf(content.decode("utf-8", "replace"))


def tell_end(run: Run, log: BrokerLog) -> None:
    if not log.segments:
        run.say("the broker's log has no segments: only its config is imported")
        return
    run.say(
        f"the broker's log: {len(log.segments)} segments of {log.segment_bytes:,} bytes, from {log.start_offset} to "
        f"{log.end.offset}; recovered from segment {log.segments[log.recovered_from].start_offset} on"
    )
    if log.end.cut_reason is not None:
        warn(f"the log is cut at {log.end.offset}, as the broker's own recovery would: {log.end.cut_reason}")


def tell_damage(log: BrokerLog) -> None:
    for damage in log.damage():
        warn(
            f"bytes {damage.from_at} to {damage.to_at} hold no record ({damage.reason}) and were stepped over; they lie "
            "before the part of the log a broker recovers"
        )
    if log.displaced():
        warn(
            f"{log.displaced()} records say another physical offset than where they lie; they are imported where they lie"
        )
    if (torn := log.torn()) is not None:
        count, first = torn
        warn(
            f"{count} records end in zeros, the first at {first}: they had not reached the disk whole when the broker went "
            "down. Its own recovery keeps them, and so does the import; properties they had are lost"
        )


def topics_refused(log: BrokerLog, settings: Settings, known: Sequence[str]) -> list[str]:
    """Why topics that records name cannot be topics, but for what is known of the config."""
    names = {topic for topic, _ in log.queue_ends() if not is_system_topic(topic, settings)}
    complaints = [topic_name_complaint(name) for name in sorted(names) if not name.startswith(LIGHT_PREFIX)]
    return [complaint for complaint in complaints if complaint is not None and complaint not in known]


def tell_refused(complaints: Sequence[str], consequence: str) -> None:
    for complaint in complaints[:LISTED]:
        warn(f"{complaint}; {consequence}")
    if len(complaints) > LISTED:
        warn(f"{len(complaints) - LISTED} more names are refused like these")


def tell_set_back(broker: BrokerStore) -> None:
    ahead = [
        (*queue, offset, broker.consumer_offsets[queue])
        for queue, offset in sorted(broker.config.consumer_offsets.items())
        if broker.consumer_offsets[queue] < offset
    ]
    for group, topic, queue_id, offset, end in ahead[:LISTED]:
        warn(
            f"group {group} has read queue {topic}:{queue_id} up to {offset}, which ends at {end}; it goes on there"
        )
    if len(ahead) > LISTED:
        warn(f"{len(ahead) - LISTED} more offsets of groups are set back to the ends of their queues")


def warn(text: str) -> None:
    """A loss is said also when the run is quiet."""
    print(f"warning: {text}", file=sys.stderr)


if __name__ == "__main__":
    main(import_store)
