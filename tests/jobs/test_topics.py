"""`commitlake topics` as a user types it."""

import json
from collections.abc import Callable

import pytest

from tests.life import B, Life


@pytest.fixture
def topics(commitlake, store):
    return lambda *arguments: commitlake("topics", "--store", store.uri, *arguments)


def test_a_topics_life(topics, store):
    made = topics(
        "create",
        "orders",
        "--queues",
        8,
        "--write-queues",
        4,
        "--perm",
        "RW",
        "--attributes",
        "+message.type=FIFO",
    )
    assert (made.exit_status, made.result["topics"]) == (0, 1)
    assert made.stderr.strip() == "kept, but without effect here: message.type (orders)"
    row = store.topics.where("topic = 'orders'").first()
    assert (row.read_queue_nums, row.write_queue_nums, row.perm) == (8, 4, 6)
    assert row.attributes == {"message.type": "FIFO"}
    again = topics(
        "create", "orders", "--queues", 8, "--write-queues", 4, "--attributes", "+message.type=FIFO"
    )
    assert (again.exit_status, again.result["topics"]) == (0, 0)
    assert again.stderr.strip() == "orders is like that already"
    changed = topics("update", "orders", "--perm", 4, "--attributes", "-message.type", "--order")
    assert changed.result["topics"] == 1
    assert changed.stderr.strip() == "kept, but without effect here: order (orders)"
    assert topics("list").stderr.strip().endswith("kept, but without effect here: order (orders)")
    row = store.topics.where("topic = 'orders'").first()
    assert (row.read_queue_nums, row.perm, row.order, row.attributes) == (8, 4, True, {})
    assert topics("delete", "orders").result["topics"] == 1
    assert topics("delete", "orders").stderr.strip() == "there is no orders; nothing to delete"
    assert store.topics.where("topic = 'orders'").count() == 0


def test_queues_with_messages_that_are_read_no_more_are_named(life: Callable[..., Life]) -> None:
    store = life()
    store.put(B, *({"topic": "T", "queue_id": queue_id} for queue_id in range(4)))
    update = ("topics", B, "update", "T")
    assert "not read of queues 2, 3 stays unread" in store.job(*update, "--queues", 2).stderr
    assert "unread" not in store.job(*update, "--read-queues", 4).stderr


def test_a_groups_life(topics, store):
    made = topics(
        "create-group", "pay", "--retry-max-times", 3, "--no-broadcast-enable", "--consume-timeout", 5
    )
    assert (made.exit_status, made.result["topics"]) == (0, 1)
    assert made.stderr == ""  # all of it acts
    policy = '{"type":"EXPONENTIAL"}'
    updated = topics("update-group", "pay", "--retry-queues", 2, "--retry-policy", policy)
    assert updated.result["topics"] == 1
    told = "kept, but without effect here: group_retry_policy (pay)"
    assert updated.stderr.strip() == told
    assert topics("list-groups").stderr.strip().endswith(told)
    row = store.subscription_groups.where("`group` = 'pay'").first()
    assert (row.retry_max_times, row.retry_queue_nums, row.consume_broadcast_enable) == (3, 2, False)
    assert row.consume_timeout_minute == 5
    listed = topics("list-groups", "--output", "json")
    assert listed.result["topics"] == 9
    assert [json.loads(line)["group"] for line in listed.lines][-1] == "pay"
    assert topics("delete-group", "pay").result["topics"] == 1


def test_a_list_for_programs_and_one_for_people(topics):
    topics("create", "orders", "--queues", 2)
    listed = topics("list", "--output", "json")
    rows = [json.loads(line) for line in listed.lines]
    assert rows[0]["topic"] == "orders"  # the user's own first
    assert (rows[0]["read_queue_nums"], listed.result["topics"]) == (2, len(rows))
    shown = topics("list")
    assert shown.lines == []
    assert "orders" in shown.stderr
    assert "RW-" in shown.stderr


TOPIC_OPTIONS = "--queues, --read-queues, --write-queues, --perm, --order, --filter-type, --attributes"
GROUP_OPTIONS = (
    "--retry-queues, --retry-max-times, --consume-enable, --broadcast-enable, --from-min-enable, --orderly, "
    "--consume-timeout, --retry-policy, --broker-id, --which-broker-when-consume-slowly"
)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["create"], "create needs the name of a topic: topics create NAME"),
        (["create-group"], "create-group needs the name of a group: topics create-group NAME"),
        (["list", "orders"], "list takes no name, found orders; it lists all"),
        (["create", "TBW102"], "topic TBW102 is the store's own; it cannot be created, updated or deleted"),
        (["create", "orders", "--perm", "9"],
         'permission is "9"; expected letters of RWX or a number from 0 to 7'),
        (["update", "orders", "--perm", "6"], "there is no topic orders; create it first"),
        (["update", "orders"], f"update changes nothing of orders; name what to change ({TOPIC_OPTIONS})"),
        (["delete", "orders", "--queues", "8"], f"delete takes no options of a topic ({TOPIC_OPTIONS})"),
        (["create", "orders", "--retry-max-times", "3"],
         f"create takes no options of a group ({GROUP_OPTIONS})"),
    ],
)  # fmt: skip
def test_what_a_user_reads_when_it_is_refused(topics, arguments, sentence):
    run = topics(*arguments)
    assert (run.exit_status, run.result["status"]) == (2, "failed")
    assert run.stderr.strip() == f"error: {sentence}"


def test_an_action_that_does_not_exist(topics):
    run = topics("creat", "orders")
    assert run.exit_status == 2
    assert "'create'" in run.stderr


def test_a_store_that_is_not_there(commitlake, tmp_path):
    run = commitlake("topics", "--store", tmp_path / "none", "list")
    assert run.exit_status == 2
    assert "no store at" in run.stderr
    assert "create_store" in run.stderr
