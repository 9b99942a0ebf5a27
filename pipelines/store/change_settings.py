"""Change settings of a store that exists, as RocketMQ's updateBrokerConfig does."""

from collections.abc import Mapping
from typing import TypeVar

from pipelines.errors import BadInput
from pipelines.rocketmq.setting_names import OLD_SPELLINGS
from pipelines.rocketmq.settings import KNOWN_NAMES, SETTINGS, Settings
from pipelines.store.plan import Plan
from pipelines.store.role import SLAVE, settings_now
from pipelines.store.small_tables import whole_table_write
from pipelines.store.snapshot import Snapshot
from schemas import COMMITLOG, STORE_SETTINGS

Text = TypeVar("Text", str, str | None)

# Where records lie, and what queue entries of waiting messages hold.
FIXED_BY_MESSAGES = ("mappedFileSizeCommitLog", "messageDelayLevel", "timerPrecisionMs")
# Kept up by replicate and promote.
OF_REPLICATION = ("brokerId", "haMasterAddress")


def plan_change(at: Snapshot, changes: Mapping[str, str | None]) -> Plan:
    """The plan that gives a store these settings and keeps its others; without a write where it has them.

    changes  text by name; None has a setting be as if it was never given
    result   `changes`: of each setting that changes, by name, its text before and after

    Raises BadInput for what is wrong, what replication keeps up, and what the store's messages depend on.
    """
    unknown = [name for name, text in changes.items() if text is None and name not in KNOWN_NAMES]
    Settings.of(dict.fromkeys(unknown, ""))  # is refused
    before = Settings.of(_as_spelt_now(settings_now(at).given))
    wanted = {**before.given, **_as_spelt_now(changes)}
    after = Settings.of({name: text for name, text in wanted.items() if text is not None})
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
    told = {
        name: (before.text(name), after.text(name))
        for name in sorted(before.given.keys() | after.given.keys())
        if before.given.get(name) != after.given.get(name)
    }
    writes = (whole_table_write(at, STORE_SETTINGS, sorted(after.given.items())),) if told else ()
    return Plan(writes, {"changes": told})


def _as_spelt_now(given: Mapping[str, Text]) -> dict[str, Text]:
    """Settings by RocketMQ's names of today; where a file has both spellings, today's counts."""
    old = {OLD_SPELLINGS[name]: text for name, text in given.items() if name in OLD_SPELLINGS}
    return {**old, **{name: text for name, text in given.items() if name not in OLD_SPELLINGS}}
