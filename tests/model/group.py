"""A plain model of a consumer group: queues are lists, parked messages are a list, and messages go one at a time."""

from collections.abc import Callable
from dataclasses import dataclass, field

# The first levels of RocketMQ's own table, which retries wait by whatever messageDelayLevel says.
LADDER_MS = [1_000, 5_000, 10_000, 30_000, 60_000, 120_000]
RETRY = ("%RETRY%g", 0)

Queue = tuple[str, int]


def nothing() -> None:
    """The default of `before_failures` and `before_offsets`: other runs do nothing meanwhile."""


@dataclass
class GroupModel:
    """Messages are numbers; a listener fails on one when its number plus its retries is a multiple of three."""

    queues: dict[Queue, list[tuple[int, int]]]
    most_times: int
    offsets: dict[Queue, int] = field(default_factory=dict)
    resets: list[Queue] = field(default_factory=list)
    waiting: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    sent: int = 0
    stored_ms: int = 0  # the log's last store time: it never goes back

    def put(self, queue: Queue, number: int, now: int) -> None:
        self.stored_ms = max(self.stored_ms, now)
        self.queues[queue].append((number, 0))

    def reset(self, queue: Queue, offset: int) -> None:
        self.offsets[queue] = offset
        self.resets.append(queue)

    def consume(
        self,
        queues: list[Queue],
        now: int,
        before_failures: Callable[[], None] = nothing,
        before_offsets: Callable[[], None] = nothing,
    ) -> list[tuple[int, int]]:
        """The messages handed over: (number, how often it has come again).

        before_failures, before_offsets  called before failures and offsets are recorded: what other runs do meanwhile
        """
        ends = {queue: len(self.queues[queue]) for queue in queues}
        handed = {queue: self.queues[queue][self.offsets.get(queue, 0) : end] for queue, end in ends.items()}
        self.resets = []
        failed = {queue: [one for one in found if sum(one) % 3 == 0] for queue, found in handed.items()}
        if any(failed.values()):
            before_failures()
        for queue in queues:
            for number, times in failed[queue] if queue not in self.resets else []:
                self._fail(number, times, now)
        before_offsets()
        self.offsets |= {queue: end for queue, end in ends.items() if queue not in self.resets}
        return [one for found in handed.values() for one in found]

    def _fail(self, number: int, times: int, now: int) -> None:
        self.stored_ms = max(self.stored_ms, now)
        if times >= self.most_times:
            self.dead.append(number)
            return
        level = min(3 + times, len(LADDER_MS))
        due_ms = self.stored_ms + LADDER_MS[level - 1]
        self.waiting.append((due_ms, self.sent, self.stored_ms, number, times + 1))
        self.sent += 1

    def deliver(self, now: int) -> None:
        """Bring back what is due by `now`; a message stored by a faster clock is due by the log's last store time."""
        log_time = self.stored_ms

        def is_due(entry: tuple[int, int, int, int, int]) -> bool:
            due_ms, _, stored_ms, *_ = entry
            return due_ms <= now or (stored_ms > now and due_ms <= log_time)

        due = sorted(entry for entry in self.waiting if is_due(entry))
        self.waiting = [entry for entry in self.waiting if not is_due(entry)]
        self.queues[RETRY] += [(number, times) for *_, number, times in due]
        if due:
            self.stored_ms = max(self.stored_ms, now)
