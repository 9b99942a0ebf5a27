"""Make the tables of a store."""

from pathlib import Path
from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.options import assigned
from jobs.launch.run import Run
from pipelines.errors import BadInput
from pipelines.rocketmq.broker_conf import read_broker_conf
from pipelines.rocketmq.settings import Settings
from pipelines.store.create import make_store, make_tables
from pipelines.store.groups import plan_first_groups
from pipelines.store.plan import Plan
from pipelines.store.role import is_slave
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from pipelines.store.topics import plan_first_topics


@job
def create_store(
    run: Run,
    broker_conf: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A broker.conf, as a broker reads it.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting; wins over the file's.")
    ] = None,
) -> dict[str, Any]:
    """Make the tables of a store."""
    given = assigned(set_ or [], "--set")
    settings = Settings.of(_from_file(run, broker_conf) | given)
    for line in settings.not_acting_told:
        run.say(line)
    store = Store(run.spark, run.store_uri)
    if store.exists():
        make_tables(store)  # of a newer version, or deleted
    else:
        make_store(store, settings.given)
    run.store = store
    # Checked also after making the store: another run may have made it at the same time with other settings.
    differences = store.settings.differences(settings)
    if differences:
        raise BadInput(
            f"there is a store at {store.uri} with other settings: {'; '.join(differences)}. "
            "Nothing was changed; give the same settings, or another --store; `commitlake settings` changes this one's"
        )
    # A creation that was cut short goes on here: each plan is empty where its table was written before.
    if not is_slave(run.store.snapshot()):  # its topics and groups come from its master
        run.commit(lambda at: _plan_first(at, settings))
    return {"settings": len(settings.given)}


def _plan_first(at: Snapshot, settings: Settings) -> Plan:
    """The plan for the topics and groups of a new store."""
    writes = (*plan_first_topics(at, settings).writes, *plan_first_groups(at).writes)
    return Plan(writes, side_by_side=len(writes))


def _from_file(run: Run, broker_conf: Path | None) -> dict[str, str]:
    if broker_conf is None:
        return {}
    try:
        text = broker_conf.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"{broker_conf} is not UTF-8 text; expected a broker.conf") from None
    return read_broker_conf(run.spark, text, str(broker_conf))


if __name__ == "__main__":
    main(create_store)
