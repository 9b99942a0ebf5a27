"""Small tables: replaced as a whole, in one file, where they change, and not written where they do not."""

import pytest

from pipelines.store.commit import commit
from pipelines.store.groups import SubscriptionGroupConfig, read_groups
from pipelines.store.plan import Plan
from pipelines.store.small_tables import write_if_changed
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store
from schemas import FILTER_CLASSES, FLOORS, SUBSCRIPTION_GROUPS

pytestmark = pytest.mark.quick


def test_the_same_rows_are_no_write(store: Store) -> None:
    at = store.snapshot()
    groups = read_groups(at)
    assert write_if_changed(at, SUBSCRIPTION_GROUPS, groups, dict(reversed(groups.items()))) == ()


def test_a_table_without_rows_is_replaced_without_a_replay_of_its_log(store: Store) -> None:
    newest = store.delta(FILTER_CLASSES).newest()
    newest.load_state()
    with newest.with_files(store.spark) as are_known:
        assert are_known
        assert newest.is_empty


def test_a_table_is_replaced_as_a_whole_by_dataclasses_or_mappings(store: Store) -> None:
    def plan(at: Snapshot) -> Plan:
        groups = {"b": SubscriptionGroupConfig("b", retry_max_times=3), "a": SubscriptionGroupConfig("a")}
        floors = {name: {"follower": name, "position": 7} for name in ("half", "dispatch")}
        return Plan(
            (
                *write_if_changed(at, SUBSCRIPTION_GROUPS, read_groups(at), groups),
                *write_if_changed(at, FLOORS, {}, floors),
            )
        )

    commit(store, plan)
    at = store.snapshot()
    assert [(row.group, row.retry_max_times) for row in at.rows(SUBSCRIPTION_GROUPS)] == [("a", 16), ("b", 3)]
    assert [tuple(row) for row in at.rows(FLOORS)] == [("dispatch", 7), ("half", 7)]
    assert (at.file_count(SUBSCRIPTION_GROUPS), at.file_count(FLOORS)) == (1, 1)
