"""A store's role: a slave takes messages, topics and groups from its master alone (docs/rocketmq/consume-filter-ha.md 5.1).

The role and the master's URI are settings, so one commit changes both. They are read again for every commit: a master that
is made a slave while it plans an append must not make that append.
"""

from collections.abc import Mapping

from pipelines.errors import BadInput
from pipelines.rocketmq.settings import Settings
from pipelines.store.lock import is_same_directory
from pipelines.store.plan import Plan, Write
from pipelines.store.snapshot import Snapshot
from schemas import (
    COMMITLOG,
    FILTER_CLASSES,
    FLOORS,
    REJECTED_MESSAGES,
    STORE_SETTINGS,
    SUBSCRIPTION_GROUPS,
    SUBSCRIPTIONS,
    TOPICS,
)

SLAVE = "SLAVE"
ROLE = ("brokerRole", "brokerId", "haMasterAddress")
# Of a slave that is being promoted: it follows nobody any more.
NO_MASTER = ""

# What a slave has from its master. All else is its own: what is derived from its log, the offsets of groups that read from
# it, its locks, its reports.
OF_THE_MASTER = (
    COMMITLOG,
    TOPICS,
    SUBSCRIPTION_GROUPS,
    SUBSCRIPTIONS,
    FILTER_CLASSES,
    FLOORS,
    REJECTED_MESSAGES,
)


def without_role(given: Mapping[str, str]) -> dict[str, str]:
    """Settings of a store or a broker, but for those that say whether it is a slave, and of whom."""
    return {name: value for name, value in given.items() if name not in ROLE}


def settings_now(at: Snapshot) -> Settings:
    """The settings as of the snapshot; those of an open store are as they were when it was opened."""

    def find() -> Settings:
        return Settings.of({row.name: row.value for row in at.rows(STORE_SETTINGS)})

    return at.cached("settings", (STORE_SETTINGS,), find)


def is_slave(at: Snapshot) -> bool:
    return bool(settings_now(at)["brokerRole"] == SLAVE)


def master_of(at: Snapshot) -> str | None:
    """The URI of a slave's master; None for a master, and for a slave that has not followed one yet."""
    return settings_now(at)["haMasterAddress"] or None if is_slave(at) else None


def follows(at: Snapshot, uri: str) -> bool:
    """Whether the store is a slave of the one at a URI, by whichever path that is named; of nobody for NO_MASTER."""
    master = master_of(at) or NO_MASTER
    return is_slave(at) and (
        master == uri or (NO_MASTER not in (master, uri) and is_same_directory(master, uri))
    )


def expect_master(at: Snapshot) -> None:
    """Raises BadInput for a slave, which refuses every job that writes messages, topics or groups."""
    if not is_slave(at):
        return
    store, master = at.store.uri, master_of(at)
    if master is None:
        raise BadInput(
            f"the store at {store} is a slave (brokerRole SLAVE) and has followed no master yet: messages, topics and "
            f"groups come to it with `commitlake replicate --store {store} --master URI`"
        )
    raise BadInput(
        f"the store at {store} is a slave of {master} (brokerRole SLAVE): messages, topics and groups come to it from its "
        f"master alone. Run this with --store {master}"
    )


def expect_role(at: Snapshot, plan: Plan) -> None:
    """Raises BadInput for a plan that is not for a store of this role."""
    if plan.follows_master is not None:
        if not follows(at, plan.follows_master):
            raise BadInput(
                f"the store at {at.store.uri} does not follow {plan.follows_master or 'a master'} any more: it was "
                "promoted, or another run has made it the slave of another master. Nothing was written since then"
            )
    elif any(_is_of_the_master(write) for write in plan.writes):
        expect_master(at)


def _is_of_the_master(write: Write) -> bool:
    # A slave may cut its own log where an append is damaged: that takes rows away and adds none.
    is_cut = write.table is COMMITLOG and write.replace_where is not None
    return write.table in OF_THE_MASTER and not is_cut
