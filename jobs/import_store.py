"""Import a RocketMQ store directory into a store, or what has been added to the directory since the last import."""

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.listings import told_without_effect
from jobs.launch.run import Run
from pipelines.broker_files.broker_config import BrokerConfig
from pipelines.broker_files.broker_log import BrokerLog
from pipelines.broker_files.directory import BrokerDirectory
from pipelines.broker_files.export_note import SETTINGS_FILE, read_export_note
from pipelines.broker_files.import_log import BrokerStore, groups_further_on, import_next, plan_broker_state
from pipelines.broker_files.left_behind import left_behind
from pipelines.broker_files.losses import (
    damage_stepped_over,
    light_queues,
    names_refused,
    offsets_set_back,
    popped,
    queues_begun_again,
    topic_complaints,
)
from pipelines.broker_files.store_settings import recovery_settings, settings_of
from pipelines.consume.offsets import plan_import_offsets
from pipelines.errors import BadInput
from pipelines.rocketmq.broker_conf import read_broker_conf
from pipelines.rocketmq.settings import Settings
from pipelines.store.create import make_store
from pipelines.store.role import SLAVE, expect_master, without_role
from pipelines.store.store import Store

From = Annotated[str, typer.Option("--from", metavar="DIR", help="The broker's storePathRootDir.")]
BrokerConf = Annotated[
    str | None, typer.Option("--broker-conf", metavar="FILE", help="The broker's settings, broker.conf.")
]


@job
def import_store(run: Run, from_: From, broker_conf: BrokerConf = None) -> dict[str, Any]:
    """Import a RocketMQ store directory; run it again to follow the directory as it grows."""
    directory = BrokerDirectory(from_)
    store = Store(run.spark, run.store_uri)
    conf = read_conf(run, broker_conf or _conf_of_export(directory, store))
    if conf.get("brokerRole") == SLAVE:
        run.say("the broker was a slave (brokerRole SLAVE); the store that is made of its files is a master")
        conf = without_role(conf)
    for line in Settings.of(conf).not_acting_told:
        run.say(line)
    if store.exists():
        expect_master(store.snapshot())
    if broker_conf is None and store.exists():
        conf = recovery_settings(store.settings)
    settings = settings_of(directory, conf)
    # Read before the log: the offsets of a running broker must not be ahead of the imported rows.
    config = BrokerConfig.read(directory)
    log = BrokerLog.read(run.spark, directory, conf)
    tell_end(run, log)
    config.expect_few_queues(store.settings if store.exists() else Settings.of(settings))
    if not store.exists():
        make_store(store, settings)
        run.wrote = True
    elif broker_conf is not None and (differences := store.settings.differences(Settings.of(settings))):
        run.say(f"the store keeps its own settings: {'; '.join(differences)}")
    run.store = store
    warn(
        run,
        names_refused(config.refused_subscriptions(), "it is left out; `commitlake subscribe` records one"),
    )
    config, refused = config.with_valid_names(run.store.settings)
    left_out = "it is left out of the store's topics and groups, and so is what groups had read of it"
    warn(run, names_refused(refused, left_out))
    tell_without_effect(run, config)
    warn(run, left_behind(directory, conf))
    broker = BrokerStore(log, config)
    warn(run, offsets_set_back(broker))
    warn(run, popped(broker))
    warn(run, light_queues(log))
    run.commit(lambda at: plan_broker_state(at, broker))
    # A commit a group, as a consumer makes it: the two may run at the same time.
    for group, offsets in groups_further_on(run.store.snapshot(), broker.consumer_offsets).items():
        run.commit(partial(plan_import_offsets, group=group, offsets=offsets, now_ms=run.now_ms))
    messages, segments = import_rows(run, broker)
    warn(run, damage_stepped_over(log))
    warn(run, queues_begun_again(log))
    complaints = topic_complaints(log, run.store.settings, refused)
    warn(run, names_refused(complaints, "its messages are imported, and no topic is made of it"))
    return {"messages": messages, "segments": segments, "truncated_at": log.end.truncated_at}


def warn(run: Run, losses: Iterable[str]) -> None:
    for loss in losses:
        run.warn(loss)


def import_rows(run: Run, broker: BrokerStore) -> tuple[int, int]:
    """Append until the log's end; returns the numbers of rows and of segments with rows."""
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


def read_conf(run: Run, path: str | None) -> dict[str, str]:
    """The settings of a broker.conf, here or at a URI; none without a path."""
    if path is None:
        return {}
    directory, _, name = path.rpartition("/")
    content = BrokerDirectory(directory or (path[:1] if path.startswith("/") else ".")).read(name)
    if content is None:
        raise BadInput(f"there is no file {path}; expected the broker's settings, broker.conf")
    return read_broker_conf(run.spark, content.decode("utf-8", "replace"), path)


def _conf_of_export(directory: BrokerDirectory, store: Store) -> str | None:
    """The file with the settings of the store of which a directory is the export, for a new store."""
    if store.exists() or not read_export_note(directory) or not directory.exists(SETTINGS_FILE):
        return None
    return f"{directory.uri.rstrip('/')}/{SETTINGS_FILE}"


def tell_without_effect(run: Run, config: BrokerConfig) -> None:
    """Say what the broker's topics and groups have that is kept here and that no job reads."""
    for file, configs in (("topics.json", config.topics), ("subscriptionGroup.json", config.groups)):
        line = told_without_effect({name: one.without_effect for name, one in (configs or {}).items()})
        if line is not None:
            run.say(f"{file}: {line}")


def tell_end(run: Run, log: BrokerLog) -> None:
    if not log.segments:
        run.say("the broker's log has no segments: only its config is imported")
        return
    run.say(
        f"the broker's log: {len(log.segments)} segments of {log.segment_bytes:,} bytes, from {log.start_offset} to "
        f"{log.end.offset}; recovered from segment {log.segments[log.recovered_from].start_offset} on"
    )
    if log.end.left_out is not None:
        run.say(f"{log.end.left_out}; import again when it has, and what follows {log.end.offset} comes too")
    if log.end.cut_reason is not None:
        run.warn(
            f"the log is cut at {log.end.offset}, as the broker's own recovery would: {log.end.cut_reason}"
        )


if __name__ == "__main__":
    main(import_store)
