"""Topics and groups: permissions, attributes, and plans against the tables."""

import pytest

from pipelines.errors import BadInput
from pipelines.rocketmq.names import FIRST_GROUPS
from pipelines.rocketmq.settings import Settings
from pipelines.store.commit import commit
from pipelines.store.groups import (
    SubscriptionGroupConfig,
    plan_create_group,
    plan_delete_group,
    plan_update_group,
    read_groups,
    with_group_created,
    with_group_deleted,
    with_group_updated,
)
from pipelines.store.topics import (
    TopicConfig,
    altered_attributes,
    first_topics,
    permission,
    permission_letters,
    plan_create_topic,
    plan_delete_topic,
    plan_update_topic,
    read_topics,
    topic_made_on_the_fly,
    with_topic_created,
    with_topic_deleted,
    with_topic_updated,
)
from schemas import TOPICS


@pytest.mark.quick
@pytest.mark.parametrize(
    ("text", "bits"), [("RW", 6), ("rw", 6), ("R", 4), ("W--", 2), ("RWX", 7), ("0", 0), ("6", 6)]
)
def test_permissions(text, bits):
    assert permission(text) == bits


@pytest.mark.quick
@pytest.mark.parametrize("text", ["8", "RR", "", "read", "-", "16"])
def test_permissions_that_are_refused(text):
    with pytest.raises(BadInput, match="expected letters of RWX or a number from 0 to 7"):
        permission(text)


@pytest.mark.quick
def test_permissions_are_shown_as_rocketmq_shows_them():
    assert [permission_letters(perm) for perm in (7, 6, 4, 2, 1, 0)] == [
        "RWX",
        "RW-",
        "R--",
        "-W-",
        "--X",
        "---",
    ]


@pytest.mark.quick
def test_a_new_stores_topics_are_those_of_a_real_broker():
    topics = {config.topic: config for config in first_topics(Settings.of({"brokerName": "broker-a"}))}
    queues_and_perm = {name: (config.write_queue_nums, config.perm) for name, config in topics.items()}
    assert queues_and_perm == {
        "BenchmarkTest": (1024, 6),
        "DefaultCluster": (16, 7),
        "DefaultCluster_REPLY_TOPIC": (1, 6),
        "OFFSET_MOVED_EVENT": (1, 6),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "SELF_TEST_TOPIC": (1, 6),
        "TBW102": (8, 7),
        "broker-a": (1, 7),
        "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1),
        "rmq_sys_wheel_timer": (1, 6),
    }


@pytest.mark.quick
def test_without_auto_create_there_is_nothing_to_copy_topics_from():
    settings = Settings.of({"autoCreateTopicEnable": "false"})
    assert "TBW102" not in {config.topic for config in first_topics(settings)}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("default_queues", "name", "queues"),
    [(8, "orders", 4), (2, "orders", 2), (8, "%RETRY%g", 1), (8, "%DLQ%g", 1)],
)
def test_topics_made_on_the_fly(default_queues, name, queues):
    made = topic_made_on_the_fly(name, TopicConfig("TBW102", default_queues, default_queues, 7))
    assert made == TopicConfig(name, queues, queues, 6)


@pytest.mark.quick
def test_attributes_are_added_changed_and_removed():
    assert altered_attributes(None, ["+message.type=FIFO,+queue.type=SimpleCQ"]) == {
        "message.type": "FIFO",
        "queue.type": "SimpleCQ",
    }
    assert altered_attributes({"message.type": "FIFO"}, ["+message.type=DELAY", "+reserve.time=-1"]) == {
        "message.type": "DELAY",
        "reserve.time": "-1",
    }
    assert altered_attributes({"message.type": "FIFO"}, ["-message.type"]) == {}


@pytest.mark.quick
@pytest.mark.parametrize(
    ("old", "change", "complaint"),
    [
        ({}, "reserve.time=1", 'attribute "reserve.time=1" is not understood; expected +name=value or -name'),
        ({}, "+colour=red", 'attribute "colour" is not known; known are queue.type, cleanup.policy, '
         "message.type, reserve.time"),
        ({}, "+cleanup.policy=x", 'attribute cleanup.policy is "x"; expected one of DELETE, COMPACTION'),
        ({}, "+reserve.time=-2", 'attribute reserve.time is "-2"; expected a whole number, -1 or more'),
        ({}, "-message.type", "attribute message.type is not set, so it cannot be removed"),
        ({}, "+queue.type=BatchCQ", "attribute queue.type is fixed when the topic is made; "
         "delete and create the topic to change it"),
        ({}, "+reserve.time=1,+reserve.time=2", "attribute reserve.time is changed twice; change it once"),
    ],
)  # fmt: skip
def test_attributes_that_are_refused(old, change, complaint):
    with pytest.raises(BadInput) as refused:
        altered_attributes(old, [change])
    assert str(refused.value) == complaint


def test_a_topic_is_made_changed_and_deleted(store):
    def topic():
        return read_topics(store.snapshot()).get("orders")

    assert commit(store, lambda at: plan_create_topic(at, TopicConfig("orders", 8, 8))).counts["topics"] > 0
    assert topic() == TopicConfig("orders", 8, 8)
    commit(store, lambda at: plan_update_topic(at, "orders", {"write_queue_nums": 4}, ["+message.type=FIFO"]))
    assert topic() == TopicConfig("orders", 8, 4, attributes={"message.type": "FIFO"})
    commit(store, lambda at: plan_delete_topic(at, "orders"))
    assert topic() is None


def test_what_is_so_already_writes_nothing(store):
    commit(store, lambda at: plan_create_topic(at, TopicConfig("orders")))
    number = store.snapshot().number(TOPICS)
    again = [
        lambda at: plan_create_topic(at, TopicConfig("orders")),
        lambda at: plan_update_topic(at, "orders", {"perm": 6}),
        lambda at: plan_delete_topic(at, "nobody-made-it"),
    ]
    for planner in again:
        assert commit(store, planner).result == {"topics": 0}
    assert store.snapshot().number(TOPICS) == number


@pytest.mark.quick
def test_topics_that_are_refused():
    settings = Settings.of({})
    topics = {config.topic: config for config in [*first_topics(settings), TopicConfig("orders", 8, 8)]}

    def create(*columns):
        return lambda: with_topic_created(topics, TopicConfig(*columns), settings)

    def update(name, **changes):
        return lambda: with_topic_updated(topics, name, changes, (), settings)

    own = "is the store's own; it cannot be created, updated or deleted"
    refused = {
        "topic orders exists with read_queue_nums 8, not 16; use update to change it": create(
            "orders", 16, 8
        ),
        "there is no topic order; did you mean orders?; create it first": update("order", perm=4),
        f"topic TBW102 {own}": create("TBW102", 8, 8, 7),
        f"topic SCHEDULE_TOPIC_XXXX {own}": update("SCHEDULE_TOPIC_XXXX", perm=4),
        f"topic rmq_sys_wheel_timer {own}": lambda: with_topic_deleted(
            topics, "rmq_sys_wheel_timer", settings
        ),
        "topic orders has 0 write queues; expected 1 or more": update("orders", write_queue_nums=0),
        "topic orders has permission 8; expected a number from 0 to 7": update("orders", perm=8),
        'topic pay has filter type "TAGS"; expected one of SINGLE_TAG, MULTI_TAG': create(
            "pay", 8, 8, 6, "TAGS"
        ),
    }
    for sentence, attempt in refused.items():
        with pytest.raises(BadInput) as refusal:
            attempt()
        assert str(refusal.value) == sentence


def test_a_group_is_made_changed_and_deleted(store):
    assert sorted(read_groups(store.snapshot())) == sorted(FIRST_GROUPS)
    commit(store, lambda at: plan_create_group(at, SubscriptionGroupConfig("pay", retry_max_times=3)))
    commit(store, lambda at: plan_update_group(at, "pay", {"consume_enable": False}))
    assert read_groups(store.snapshot())["pay"] == SubscriptionGroupConfig(
        "pay", retry_max_times=3, consume_enable=False
    )
    commit(store, lambda at: plan_delete_group(at, "pay"))
    assert sorted(read_groups(store.snapshot())) == sorted(FIRST_GROUPS)


@pytest.mark.quick
def test_groups_that_are_refused():
    groups = {"pay": SubscriptionGroupConfig("pay")}

    def create(name, **columns):
        return lambda: with_group_created(groups, SubscriptionGroupConfig(name, **columns))

    def update(name, **changes):
        return lambda: with_group_updated(groups, name, changes)

    refused = {
        "group pay exists with retry_max_times 16, not 3; use update-group to change it": create(
            "pay", retry_max_times=3
        ),
        "there is no group pays; did you mean pay?; create it first": update("pays", retry_max_times=3),
        "group CID_RMQ_SYS_X starts with CID_RMQ_SYS_, which is the store's own; choose another name": create(
            "CID_RMQ_SYS_X"
        ),
        "group DEFAULT_CONSUMER is a client's default name; choose another name": create("DEFAULT_CONSUMER"),
        "group pay has retry_max_times -1; expected 0 or more": update("pay", retry_max_times=-1),
        "group pay has retry policy 'often'; expected JSON with \"type\" CUSTOMIZED or EXPONENTIAL": update(
            "pay", group_retry_policy="often"
        ),
        "group CID_RMQ_SYS_TRANS is the store's own; it cannot be deleted": lambda: with_group_deleted(
            groups, "CID_RMQ_SYS_TRANS"
        ),
    }
    for sentence, attempt in refused.items():
        with pytest.raises(BadInput) as refusal:
            attempt()
        assert str(refusal.value) == sentence


def test_two_writers_at_once_both_get_their_topic(store):
    def plan_while_another_writes(at):
        plan = plan_create_topic(at, TopicConfig("mine"))
        if "theirs" not in read_topics(store.snapshot()):
            commit(store, lambda other: plan_create_topic(other, TopicConfig("theirs")))
        return plan

    assert commit(store, plan_while_another_writes).lost_races == 1
    assert {"mine", "theirs"} <= set(read_topics(store.snapshot()))


def test_a_topic_has_a_bounded_number_of_queues(new_store):
    store = new_store(maxTopicQueueNums="20")
    commit(store, lambda at: plan_create_topic(at, TopicConfig("T", 20, 20)))
    for plan in (
        lambda at: plan_create_topic(at, TopicConfig("U", 21, 4)),
        lambda at: plan_create_topic(at, TopicConfig("U", 4, 2**31)),
        lambda at: plan_update_topic(at, "T", {"write_queue_nums": 21}),
        lambda at: plan_create_group(at, SubscriptionGroupConfig("g", retry_queue_nums=21)),
    ):
        with pytest.raises(BadInput, match=r"queues; at most 20 \(setting maxTopicQueueNums\)"):
            commit(store, plan)
    assert "U" not in read_topics(store.snapshot())
    assert "g" not in read_groups(store.snapshot())
    commit(store, lambda at: plan_create_group(at, SubscriptionGroupConfig("g", retry_queue_nums=20)))
    with pytest.raises(BadInput, match="the retry topic of group g has 21 queues"):
        commit(store, lambda at: plan_update_group(at, "g", {"retry_queue_nums": 21}))
