"""Change settings of a store that exists, as RocketMQ's updateBrokerConfig does."""

from collections.abc import Mapping

from pipelines.errors import BadInput
from pipelines.rocketmq.setting_names import OLD_SPELLINGS
from pipelines.rocketmq.settings import SETTINGS, Settings
from pipelines.store.plan import Plan
from pipelines.store.role import SLAVE, settings_now
from pipelines.store.small_tables import whole_table_write
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG, STORE_SETTINGS

# Where records lie, and what queue entries of waiting messages hold.
FIXED_BY_MESSAGES = ("mappedFileSizeCommitLog", "messageDelayLevel", "timerPrecisionMs")
# Kept up by replicate and promote.
OF_REPLICATION = ("brokerId", "haMasterAddress")


def plan_change(at: Snapshot, changes: Mapping[str, str]) -> Plan:
    """The plan that gives a store these settings and keeps its others; empty where it has them.

    Raises BadInput for what is wrong, what replication keeps up, and what the store's messages depend on.
    """
    before = settings_now(at)
    after = Settings.of({**_as_spelt_now(before.given), **_as_spelt_now(changes)})
    changed = [name for name in sorted(SETTINGS) if before[name] != after[name]]
    moved = [name for name in changed if name in OF_REPLICATION]
    roles = before["brokerRole"], after["brokerRole"]
    if SLAVE in roles and roles[0] != roles[1]:
        moved.append("brokerRole")
    if moved:
        raise BadInput(
            f"{', '.join(moved)} cannot be changed like this: `commitlake replicate` makes a slave, `commitlake promote` a "
            "master. Nothing was changed"
        )
    fixed = [name for name in changed if name in FIXED_BY_MESSAGES]
    if fixed and at.number(COMMITLOG) >= 0:
        raise BadInput(
            f"{', '.join(fixed)} cannot be changed any more: the store has messages that lie or wait by it. Nothing was "
            "changed; make another store and put, or import, the messages there"
        )
    if dict(before.given) == dict(after.given):
        return Plan()
    return Plan((whole_table_write(at, STORE_SETTINGS, sorted(after.given.items())),))


def _as_spelt_now(given: Mapping[str, str]) -> dict[str, str]:
    """Settings by RocketMQ's names of today; where a file has both spellings, today's counts."""
    old = {OLD_SPELLINGS[name]: text for name, text in given.items() if name in OLD_SPELLINGS}
    return {**old, **{name: text for name, text in given.items() if name not in OLD_SPELLINGS}}
