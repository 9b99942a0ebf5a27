"""Which client reads which queue: docs/rocketmq/consume-filter-ha.md 2.4, and what RocketMQ's own clients said."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from pipelines.consume import allocate
from pipelines.errors import BadInput

pytestmark = pytest.mark.quick

GOLDEN = Path(__file__).parent.parent / "data" / "allocation-hash-id.jsonl.gz"


def queues(broker: str, count: int) -> list[str]:
    return [f"{broker}:{queue_id}" for queue_id in range(count)]


def test_every_golden_allocation_agrees_whatever_order_its_input_comes_in() -> None:
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        said = [json.loads(line) for line in lines]
    cases = [case for case in said if case["kind"] == "allocate"]
    assert len(cases) == 900
    shuffler = random.Random(1)
    for case in cases:
        for names in (case["queues"], case["consumers"]):
            shuffler.shuffle(names)
        allocated = allocate(case["strategy"], case["queues"], case["consumers"], topic="OrderTopic")
        assert allocated == case["result"]


@pytest.mark.parametrize(
    ("strategy", "of_8", "of_2"),
    [
        ("AVG", [[0, 1, 2], [3, 4, 5], [6, 7]], [[0], [1], []]),
        ("AVG_BY_CIRCLE", [[0, 3, 6], [1, 4, 7], [2, 5]], [[0], [1], []]),
        ("MACHINE_ROOM", [[0, 1, 6], [2, 3, 7], [4, 5]], [[0], [1], []]),
    ],
)
def test_the_table_of_2_4(strategy: str, of_8: list[list[int]], of_2: list[list[int]]) -> None:
    for count, expected in ((8, of_8), (2, of_2)):
        allocated = allocate(strategy, queues("room1@a", count), ["c1", "c2", "c3"], rooms=["room1"])
        assert allocated == {
            client: [f"room1@a:{queue_id}" for queue_id in ids]
            for client, ids in zip(["c1", "c2", "c3"], expected, strict=True)
        }


def test_the_consistent_hash_of_2_4() -> None:
    clients = ["10.0.0.1@c1", "10.0.0.2@c2", "10.0.0.3@c3"]
    allocated = allocate("CONSISTENT_HASH", queues("broker-a", 8), clients, topic="TopicTest")
    assert allocated == {
        clients[0]: ["broker-a:0"],
        clients[1]: ["broker-a:2", "broker-a:6"],
        clients[2]: ["broker-a:1", "broker-a:3", "broker-a:4", "broker-a:5", "broker-a:7"],
    }


def test_names_are_ordered_by_their_utf16_units_as_java_orders_them() -> None:
    # As code points "Ａ" comes first; in UTF-16 the other begins with d83d, which is less than ff21.
    assert allocate("AVG", ["a:0", "a:1"], ["Ａ", "😀"]) == {"😀": ["a:0"], "Ａ": ["a:1"]}
    assert allocate("AVG", ["Ａ:0", "😀:0"], ["c1", "c2"]) == {"c1": ["😀:0"], "c2": ["Ａ:0"]}


def test_a_topic_without_queues_leaves_every_client_without() -> None:
    assert allocate("AVG", [], ["c1", "c2"]) == {"c1": [], "c2": []}


def test_machine_room_leaves_out_other_rooms_and_brokers_that_name_none() -> None:
    brokers = ["room1@a:0", "room2@a:0", "room3@a:0", "room1:0", "room1@a@b:0", "@a:0", "room3@b@:0"]
    assert allocate("MACHINE_ROOM", brokers, ["c"], rooms={"room1", "room3"}) == {
        "c": ["room1@a:0", "room3@a:0", "room3@b@:0"]
    }


ROOMS = {"a": "r2", "b": "r1", "c": "r0", "c1": "r2", "c2": "r2", "c3": "r3"}


def test_queues_near_a_client_are_read_near_and_a_room_without_clients_by_all() -> None:
    allocated = allocate(
        "MACHINE_ROOM_NEARBY",
        [*queues("a", 3), *queues("b", 3), *queues("c", 1)],
        ["c1", "c2", "c3"],
        rooms=ROOMS,
    )
    # Room r2 has queues and clients, r3 only a client, r1 and then r0 only queues.
    assert allocated == {"c1": ["a:0", "a:1", "c:0", "b:0"], "c2": ["a:2", "b:1"], "c3": ["b:2"]}


@pytest.mark.parametrize("inside", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
def test_nearby_shares_inside_a_room_by_the_strategy_it_names(inside: str) -> None:
    near = allocate(f"MACHINE_ROOM_NEARBY-{inside}", queues("a", 9), ["c1", "c2", "c3"], "T", ROOMS)
    assert near == {**allocate(inside, queues("a", 9), ["c1", "c2"], "T"), "c3": []}


def test_config_gives_what_it_says_unchecked() -> None:
    config = {"c1": ["b:7", "b:7"], "nobody": ["b:0"]}
    assert allocate("CONFIG", ["b:0"], ["c2", "c1"], config=config) == {"c1": ["b:7", "b:7"], "c2": []}


@pytest.mark.parametrize(
    "strategy",
    ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM_NEARBY", "MACHINE_ROOM_NEARBY-CONSISTENT_HASH"],
)
def test_every_queue_goes_to_exactly_one_client(strategy: str) -> None:
    chance = random.Random(2)
    for _ in range(100):
        brokers = [f"broker-{number}" for number in range(chance.randint(1, 4))]
        clients = [f"10.0.0.{number}@1" for number in range(chance.randint(1, 20))]
        rooms = {name: chance.choice("xyz") for name in (*brokers, *clients)}
        given = [queue for broker in brokers for queue in queues(broker, chance.randint(0, 12))]
        allocated = allocate(strategy, given, clients, topic="T", rooms=rooms)
        assert sorted(allocated) == sorted(clients)
        assert sorted(queue for theirs in allocated.values() for queue in theirs) == sorted(given)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"strategy": "AVERAGE"}, "expected one of AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, MACHINE_ROOM_NEARBY"),
        ({"strategy": "MACHINE_ROOM_NEARBY-CONFIG"}, "MACHINE_ROOM_NEARBY-CONFIG"),
        ({"queues": ["broker-a"]}, 'expected "broker:id"'),
        ({"queues": ["broker-a:-1"]}, "broker-a:-1"),
        ({"queues": [":0"]}, "is not a valid queue"),
        ({"queues": ["a:0", "a:0"]}, 'expected each queue once, by its name; found "a:0" 2 times'),
        ({"clients": ["c1", "c1"]}, 'expected each client once, by its name; found "c1" 2 times'),
        ({"clients": ["c1", ""]}, "found an empty one"),
        ({"clients": []}, "expected the id of at least one"),
        ({"strategy": "CONSISTENT_HASH"}, "expected the name of the queues' topic"),
        ({"strategy": "MACHINE_ROOM"}, "expected the rooms to read from"),
        ({"strategy": "MACHINE_ROOM", "rooms": {"a": "r1"}}, "expected the rooms to read from"),
        (
            {"strategy": "MACHINE_ROOM_NEARBY", "rooms": ["r1"]},
            "expected the room of every broker and client",
        ),
        ({"strategy": "MACHINE_ROOM_NEARBY", "rooms": {"c1": "r1"}}, 'broker "a" has no room'),
        ({"strategy": "MACHINE_ROOM_NEARBY", "rooms": {"a": "r1", "c1": ""}}, 'client "c1" has no room'),
        ({"strategy": "CONFIG"}, "expected each client's queues"),
    ],
)
def test_bad_input_is_told_what_was_expected(changed: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInput) as refused:
        allocate(**{"strategy": "AVG", "queues": ["a:0"], "clients": ["c1"], **changed})
    assert complaint in str(refused.value)
