"""Names of topics and groups: which ones there can be, and which are the store's own."""

import pytest

from pipelines.rocketmq.names import group_name_complaint, is_system_topic, topic_name_complaint
from pipelines.rocketmq.settings import Settings


@pytest.mark.quick
@pytest.mark.parametrize(
    "name", ["orders", "%RETRY%group", "a|b-c_d%", "x" * 127, "%RETRY%" + "x" * 248, "%DLQ%" + "x" * 250]
)
def test_names_a_topic_can_have(name):
    assert topic_name_complaint(name) is None


@pytest.mark.quick
@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        (None, "the topic has no name"),
        ("  ", "the topic has no name"),
        ("a.b", 'topic "a.b" has the character "."; allowed are letters, digits, and the characters % | - _'),
        (
            "größe",
            'topic "größe" has the character "ö"; allowed are letters, digits, and the characters % | - _',
        ),
        ("x" * 128, 'topic "xxxxxxxxxxxxxxxxxxxx…" has 128 characters; at most 127'),
        ("%DLQ%" + "x" * 251, 'topic "%DLQ%xxxxxxxxxxxxxxx…" has 256 characters; at most 255'),
    ],
)
def test_names_a_topic_cannot_have(name, complaint):
    assert topic_name_complaint(name) == complaint


@pytest.mark.quick
def test_a_groups_name_leaves_room_for_its_retry_topics():
    assert group_name_complaint("x" * 120) is None
    assert group_name_complaint("x" * 121) == 'group "xxxxxxxxxxxxxxxxxxxx…" has 121 characters; at most 120'


@pytest.mark.quick
def test_the_stores_own_topics():
    settings = Settings.of({"brokerName": "b1", "brokerClusterName": "c1"})
    own = ("TBW102", "b1", "c1", "c1_REPLY_TOPIC", "rmq_sys_anything", "TRANS_CHECK_MAX_TIME_TOPIC")
    assert [
        name
        for name in (*own, "orders", "broker-a", "RMQ_SYS_x", "%RETRY%g")
        if is_system_topic(name, settings)
    ] == list(own)
