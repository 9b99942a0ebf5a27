"""Subscriptions: the filter of a group on a topic, and the rows it selects.

docs/rocketmq/consume-filter-ha.md 2.1 and 4.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipelines.errors import BadInput
from pipelines.filter import FilterSyntaxError
from pipelines.filter.sql92 import condition_of
from pipelines.filter.sql92_parse import Node, parse
from pipelines.filter.tags import TagFilter
from pipelines.rocketmq.properties import property_value
from pipelines.rocketmq.settings import Settings
from pipelines.store.plan import Plan
from pipelines.store.small_tables import write_if_changed
from pipelines.store.snapshot import Snapshot
from schemas import SUBSCRIPTIONS

TAG, SQL92, CLASS = "TAG", "SQL92", "CLASS"
TYPES = (TAG, SQL92, CLASS)


@dataclass(frozen=True)
class Subscription:
    """A row of the table: the filter of one group on one topic."""

    group: str
    topic: str
    expression_type: str = TAG
    expression: str = "*"
    sub_version: int = 0


def read_subscriptions(at: Snapshot) -> list[Subscription]:
    """All subscriptions; one a group and topic."""
    return [Subscription(*(row[name] for name in SUBSCRIPTIONS.names)) for row in at.rows(SUBSCRIPTIONS)]


def plan_subscribe(at: Snapshot, subscription: Subscription) -> Plan:
    """A plan that replaces the subscription of a group to a topic; it writes nothing when it is the same.

    Its result: `subscriptions`, how many the group has.
    """
    known = {(one.group, one.topic): one for one in read_subscriptions(at)}
    before = known.get((subscription.group, subscription.topic))
    if before is not None and replace(before, sub_version=subscription.sub_version) == subscription:
        subscription = before
    after = {**known, (subscription.group, subscription.topic): subscription}
    count = sum(group == subscription.group for group, _ in after)
    return Plan(write_if_changed(at, SUBSCRIPTIONS, known, after), {"subscriptions": count})


def expect_subscription(subscription: Subscription, settings: Settings) -> None:
    """Raises BadInput for a subscription that a broker with these settings refuses."""
    kind = subscription.expression_type
    if kind not in TYPES:
        raise BadInput(f"--filter-type is {kind}; expected one of {', '.join(TYPES)}")
    if kind == SQL92 and not settings["enablePropertyFilter"]:
        raise BadInput(
            "SQL92 filters are off in this store (enablePropertyFilter is false); select by tags, or make a store with "
            "enablePropertyFilter=true"
        )
    Selection(subscription, "")


@dataclass(frozen=True)
class Selection:
    """Which rows a subscription selects; it selects all rows of the retry topic (4.1).

    Raises BadInput for an expression that RocketMQ refuses. Here a class filter selects all: it runs in class_pages.py.
    """

    subscription: Subscription
    retry_topic: str

    def __post_init__(self) -> None:
        try:
            _ = self._tags, self._parsed
        except FilterSyntaxError as wrong:
            one = self.subscription
            raise BadInput(
                f"the {one.expression_type} filter {one.expression!r} is refused: {wrong}"
            ) from wrong

    @cached_property
    def _tags(self) -> TagFilter | None:
        one = self.subscription
        return TagFilter.parse(one.expression) if one.expression_type == TAG else None

    @cached_property
    def _parsed(self) -> Node | None:
        one = self.subscription
        return parse(one.expression) if one.expression_type == SQL92 else None

    @property
    def is_all(self) -> bool:
        """Whether all rows are selected, by the tags *."""
        return self._tags is not None and self._tags.matches_all

    @property
    def has_codes(self) -> bool:
        """Whether the filter is a list of tags, so that the hashes in the consume queue rule out most other rows."""
        return self._tags is not None and not self._tags.matches_all

    def of_entry(self) -> Column:
        """Whether an entry of the consume queue may be selected."""
        assert self._tags is not None, "the consume queue holds the hashes of tags only"
        return self._is_retry() | self._tags.matches_code(F.col("tags_code"))

    def of_row(self) -> Column:
        """Whether a row of the log is selected."""
        if self._parsed is not None:
            condition = condition_of(self._parsed, lambda name: property_value(F.col("properties"), name))
            return self._is_retry() | F.coalesce(condition, F.lit(False))
        if self.has_codes:
            assert self._tags is not None
            return self._is_retry() | self._tags.matches_tags(property_value(F.col("properties"), "TAGS"))
        return F.lit(True)

    def _is_retry(self) -> Column:
        return F.col("topic") == self.retry_topic
