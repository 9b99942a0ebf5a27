"""How a group reads where its command says nothing: as the group is configured."""

from typing import Any

import pytest

from pipelines.consume.options import From, Model, Options
from pipelines.errors import BadInput
from pipelines.store.groups import SubscriptionGroupConfig

pytestmark = pytest.mark.quick

PLAIN = SubscriptionGroupConfig("g")
CONFIGURED = SubscriptionGroupConfig(
    "g", consume_from_min_enable=False, consume_message_orderly=True, consume_timeout_minute=2
)
IN_ORDER = {"from_": From.last, "orderly": True, "consume_timeout": 2}


@pytest.mark.parametrize(
    ("group", "said", "expected"),
    [
        pytest.param(PLAIN, {}, {"from_": From.first, "orderly": False, "consume_timeout": 15}, id="defaults"),
        pytest.param(CONFIGURED, {}, IN_ORDER, id="the group's"),
        pytest.param(
            CONFIGURED, {"orderly": False, "consume_timeout": 0.5}, {**IN_ORDER, "orderly": False, "consume_timeout": 0.5},
            id="the command's",
        ),
        pytest.param(
            CONFIGURED, {"model": Model.broadcasting}, {**IN_ORDER, "orderly": False}, id="broadcasting is never orderly"
        ),
        pytest.param(
            CONFIGURED, {"from_": From.timestamp, "timestamp": 1}, {**IN_ORDER, "from_": From.timestamp}, id="by time"
        ),
    ],
)  # fmt: skip
def test_what_a_command_does_not_say_the_group_does(
    group: SubscriptionGroupConfig, said: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = Options("g", "T", **said).of_group(group)
    assert {name: getattr(found, name) for name in expected} == expected


def test_a_group_may_not_begin_at_the_first_message_where_it_is_configured_so() -> None:
    with pytest.raises(BadInput, match="group g may not begin at the first message; say --from last"):
        Options("g", "T", from_=From.first).of_group(CONFIGURED)
