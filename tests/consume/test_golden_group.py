"""What a real group with a SQL92 filter was handed by a real broker."""

from collections.abc import Callable

import pytest

from pipelines.consume.pages import Part, read_page
from pipelines.consume.subscriptions import SQL92, Selection, Subscription
from pipelines.reports.queues import read_queues
from pipelines.store.store import Store
from tests.reports.golden import cases

pytestmark = pytest.mark.usefixtures("users_engine")

FILTER = "amount > 500 AND region IN ('cn-hz','us-1') OR vip = TRUE"


@pytest.mark.parametrize("name", ["a", pytest.param("b", marks=pytest.mark.slow)])
def test_the_filtered_group_is_handed_what_it_was(golden: Callable[[str], Store], name: str) -> None:
    at = golden(name).snapshot()
    queues = read_queues(at, [("PayTopic", queue_id) for queue_id in range(4)])
    parts = [Part(queue, bounds.min_offset, bounds.max_offset) for queue, bounds in sorted(queues.items())]
    selection = Selection(Subscription("CG_PAY", "PayTopic", SQL92, FILTER), "%RETRY%CG_PAY")
    handed = read_page(at, parts, "CG_PAY", selection).rows.select("queue_id", "queue_offset").collect()
    (store,) = cases(name, "store")
    assert sorted(f"{row.queue_id}:{row.queue_offset}" for row in handed) == sorted(store["sqlConsumed"])
