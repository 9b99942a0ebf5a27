"""A plain model of a consumer group: queues as lists, what waits as a list, one message at a time."""

from dataclasses import dataclass, field

LEVELS_MS = [1_000, 5_000, 10_000, 30_000, 60_000, 120_000]
RETRY = ("%RETRY%g", 0)


@dataclass
class GroupModel:
    """Messages are numbers; a listener fails on one when its number and how often it came again add up to a third."""

    queues: dict[tuple[str, int], list[tuple[int, int]]]
    most_times: int
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    waiting: list[tuple[int, int, int, int]] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    sent: int = 0

    def put(self, queue: tuple[str, int], number: int) -> None:
        self.queues[queue].append((number, 0))

    def consume(self, queues: list[tuple[str, int]], now: int) -> list[tuple[int, int]]:
        """What is handed over: (number, how often it has come again)."""
        handed = []
        for queue in queues:
            for number, times in self.queues[queue][self.offsets.get(queue, 0) :]:
                handed.append((number, times))
                if (number + times) % 3 == 0:
                    self._fail(number, times, now)
            self.offsets[queue] = len(self.queues[queue])
        return handed

    def _fail(self, number: int, times: int, now: int) -> None:
        if times >= self.most_times:
            self.dead.append(number)
            return
        level = min(3 + times, len(LEVELS_MS))
        self.waiting.append((now + LEVELS_MS[level - 1], self.sent, number, times + 1))
        self.sent += 1

    def deliver(self, now: int) -> None:
        due = sorted(entry for entry in self.waiting if entry[0] <= now)
        self.waiting = [entry for entry in self.waiting if entry[0] > now]
        self.queues[RETRY] += [(number, times) for _, _, number, times in due]
