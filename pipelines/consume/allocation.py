"""Which client of a group reads which queue of a topic (docs/rocketmq/consume-filter-ha.md 2.4).

Every client computes this on its own, so all must come to the same result: queues and clients are sorted first, names by
their UTF-16 units, as Java compares strings.
"""

import hashlib
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping

from pipelines.errors import BadInput

Allocation = dict[str, list[str]]
Share = Callable[[list[str], list[str], str | None], Allocation]

VIRTUAL_NODES = 10

_QUEUE = re.compile(r"(.+):(0|[1-9][0-9]{0,9})")


def allocate(
    strategy: str,
    queues: Collection[str],
    clients: Collection[str],
    topic: str | None = None,
    rooms: Collection[str] | Mapping[str, str] | None = None,
    config: Mapping[str, Collection[str]] | None = None,
) -> Allocation:
    """The queues of each client, clients in order; a client without queues has an empty list.

    strategy  AVG, AVG_BY_CIRCLE or CONSISTENT_HASH; MACHINE_ROOM_NEARBY, which shares by AVG inside a room, or
              MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE and so on; MACHINE_ROOM; CONFIG
    queues    all of one topic, as "broker:id"
    clients   the ids of all the group's clients
    topic     the queues' topic, which CONSISTENT_HASH hashes
    rooms     MACHINE_ROOM: the rooms to read from (consumeridcs), ["room1", …]; a broker "room1@name" is in room1.
              MACHINE_ROOM_NEARBY: the room of every broker and every client, {name: room}
    config    CONFIG: each client's queues, taken unchecked; a client it does not name gets none

    Every queue goes to exactly one client, but for MACHINE_ROOM, which leaves out other rooms, and CONFIG.
    Raises BadInput for a strategy not named here, text that is not a valid queue, a name given twice, no client, or a
    topic, room or config that the strategy needs and does not have.

    >>> allocate("AVG", ["broker-a:10", "broker-a:9", "broker-b:0"], ["10.0.0.2@c2", "10.0.0.1@c1"])
    {'10.0.0.1@c1': ['broker-a:9', 'broker-a:10'], '10.0.0.2@c2': ['broker-b:0']}
    """
    _check_names("queue", queues)
    _check_names("client", clients)
    if not clients:
        raise BadInput("there is no client to give queues to; expected the id of at least one")
    queues = sorted(queues, key=_queue_order)
    clients = sorted(clients, key=_utf16_units)
    if strategy in SHARES:
        return SHARES[strategy](queues, clients, topic)
    if strategy in NEARBY_SHARES:
        return _nearby(NEARBY_SHARES[strategy], queues, clients, topic, rooms)
    if strategy == "MACHINE_ROOM":
        return _by_machine_room(queues, clients, rooms)
    if strategy == "CONFIG":
        if config is None:
            raise BadInput("CONFIG has no config; expected each client's queues, {client: [broker:id, …]}")
        return {client: list(config.get(client, ())) for client in clients}
    known = ", ".join([*SHARES, *NEARBY_SHARES, "MACHINE_ROOM", "CONFIG"])
    raise BadInput(f'"{strategy}" is not a valid strategy of allocation; expected one of {known}')


def _averagely(queues: list[str], clients: list[str], topic: str | None) -> Allocation:
    """Each client gets neighbouring queues; the first clients get one more where the queues do not divide evenly."""
    each, left_over = divmod(len(queues), len(clients))
    allocation, start = {}, 0
    for place, client in enumerate(clients):
        end = start + each + (1 if place < left_over else 0)
        allocation[client] = queues[start:end]
        start = end
    return allocation


def _by_circle(queues: list[str], clients: list[str], topic: str | None) -> Allocation:
    """Clients get the queues in turn, one queue a client a round."""
    return {client: queues[place :: len(clients)] for place, client in enumerate(clients)}


def _by_consistent_hash(queues: list[str], clients: list[str], topic: str | None) -> Allocation:
    """A queue goes to the client of the first node at or after its hash on the ring: few move as clients come and go."""
    if topic is None:
        raise BadInput(
            "CONSISTENT_HASH has no topic; expected the name of the queues' topic, which it hashes"
        )
    # Of two nodes with the same hash the later client's stays.
    ring = {_ring_hash(f"{client}-{node}"): client for client in clients for node in range(VIRTUAL_NODES)}
    node_hashes = sorted(ring)
    allocation: Allocation = {client: [] for client in clients}
    for queue in queues:
        broker, queue_id = _parts(queue)
        queue_hash = _ring_hash(f"MessageQueue [topic={topic}, brokerName={broker}, queueId={queue_id}]")
        node_hash = node_hashes[bisect_left(node_hashes, queue_hash) % len(node_hashes)]
        allocation[ring[node_hash]].append(queue)
    return allocation


def _ring_hash(key: str) -> int:
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


def _by_machine_room(
    queues: list[str], clients: list[str], rooms: Collection[str] | Mapping[str, str] | None
) -> Allocation:
    """Each client gets as many queues of these rooms; the remaining ones go one by one to the first clients."""
    if rooms is None or isinstance(rooms, str | Mapping):
        raise BadInput(f'MACHINE_ROOM has rooms {rooms}; expected the rooms to read from, ["room1", …]')
    near = [queue for queue in queues if _room_in_name(queue) in rooms]
    each = len(near) // len(clients)
    left_over = near[each * len(clients) :]
    return {
        client: near[each * place : each * (place + 1)] + left_over[place : place + 1]
        for place, client in enumerate(clients)
    }


def _room_in_name(queue: str) -> str | None:
    broker, _ = _parts(queue)
    # Java's split, which RocketMQ uses, forgets empty parts at the end.
    parts = broker.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


def _nearby(
    share: Share,
    queues: list[str],
    clients: list[str],
    topic: str | None,
    rooms: Collection[str] | Mapping[str, str] | None,
) -> Allocation:
    """The clients of a room share its queues; where a room has queues and no client, all clients share them."""
    if not isinstance(rooms, Mapping):
        raise BadInput(
            f"MACHINE_ROOM_NEARBY has rooms {rooms}; expected the room of every broker and client, {{name: room}}"
        )
    queues_in, clients_in = defaultdict(list), defaultdict(list)
    for queue in queues:
        queues_in[_room_of("broker", _parts(queue)[0], rooms)].append(queue)
    for client in clients:
        clients_in[_room_of("client", client, rooms)].append(client)

    allocation: Allocation = {client: [] for client in clients}
    # A client's own room comes first in its list, then the rooms without a client.
    for room in sorted(queues_in, key=lambda room: (room not in clients_in, _utf16_units(room))):
        shared = share(queues_in[room], clients_in.get(room, clients), topic)
        for client, given in shared.items():
            allocation[client] += given
    return allocation


def _room_of(kind: str, name: str, rooms: Mapping[str, str]) -> str:
    room = rooms.get(name)
    if not room:
        raise BadInput(f'{kind} "{name}" has no room; expected one in rooms, {{"{name}": room}}')
    return room


def _parts(queue: str) -> tuple[str, int]:
    """The broker name and queue id of "broker:id". Raises BadInput for other text."""
    found = _QUEUE.fullmatch(queue)
    if found is None:
        raise BadInput(f'"{queue}" is not a valid queue; expected "broker:id", as in "broker-a:0"')
    return found[1], int(found[2])


def _queue_order(queue: str) -> tuple[bytes, int]:
    broker, queue_id = _parts(queue)
    return _utf16_units(broker), queue_id


def _utf16_units(name: str) -> bytes:
    return name.encode("utf-16-be")


def _check_names(kind: str, names: Collection[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1 or not name:
            found = f'"{name}" {count} times' if name else "an empty one"
            raise BadInput(f"expected each {kind} once, by its name; found {found}")


# Each of these allocates every queue to exactly one client.
SHARES: Mapping[str, Share] = {
    "AVG": _averagely,
    "AVG_BY_CIRCLE": _by_circle,
    "CONSISTENT_HASH": _by_consistent_hash,
}
NEARBY_SHARES: Mapping[str, Share] = {
    "MACHINE_ROOM_NEARBY": _averagely,
    **{f"MACHINE_ROOM_NEARBY-{name}": share for name, share in SHARES.items()},
}
