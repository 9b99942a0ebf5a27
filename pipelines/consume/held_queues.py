"""The queue locks that a run of a group holds: taken before it reads, renewed while it reads, released after it."""

import logging
import threading
import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from functools import partial

from pipelines.consume.offsets import Queue
from pipelines.consume.queue_locks import (
    LOCK_MS,
    RENEWED_AFTER_SECONDS,
    Lock,
    forget_renewals,
    is_held,
    plan_lock,
    plan_unlock,
    renew,
)
from pipelines.spark_internals.process import process_of
from pipelines.store.commit import commit
from pipelines.store.create import make_table
from pipelines.store.work import Work
from schemas import QUEUE_LOCKS

log = logging.getLogger("commitlake")

# Queues held by other runs that are listed by name; the rest are only counted.
QUEUES_LISTED = 20


class HeldQueues:
    """The queues of a group that a run has locked, and the thread that renews the locks.

    left  queues that other runs hold, with their locks
    """

    def __init__(self, run: Work, group: str) -> None:
        self.run = run
        self.group = group
        self.left: Mapping[Queue, Lock] = {}
        self._held: frozenset[Queue] = frozenset()
        # Renewals need a clock that moves on, and --now may fix the run's: they add the seconds since this moment to it.
        self._began_ms, self._began = run.now_ms, time.monotonic()
        self._ends_ms = 0
        self._is_over = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="queue locks", daemon=True)

    def lock(self, queues: Collection[Queue]) -> None:
        """Lock those of the queues that no other run holds, and renew the locks until `unlock` or `keep`."""
        store = self.run.store
        make_table(store, QUEUE_LOCKS)
        process = process_of(self.run.spark)
        mine = Lock(self.run.run_id, process, self._now_ms + LOCK_MS)
        result = self.run.commit(
            lambda at: plan_lock(
                at, self.group, queues, mine, lambda lock: is_held(store, lock, self._now_ms)
            )
        ).result
        self._held, self.left, self._ends_ms = frozenset(result["held"]), result["left"], mine.expires_ms
        for (topic, queue_id), lock in sorted(self.left.items())[:QUEUES_LISTED]:
            until = datetime.fromtimestamp(lock.expires_ms / 1_000, UTC)
            self.run.say(
                f"queue {queue_id} of {topic} is left to run {lock.holder} of group {self.group}, which reads it "
                f"(locked until {until:%Y-%m-%d %H:%M:%S} UTC, or longer)"
            )
        if len(self.left) > QUEUES_LISTED:
            self.run.say(f"… and {len(self.left) - QUEUES_LISTED:,} more queues")
        if self._held:
            self._renewing.start()

    def holds(self, queue: Queue) -> bool:
        """Whether this run alone may read the queue: its lock was taken and has been renewed in time."""
        return queue in self._held and self._now_ms < self._ends_ms

    def unlock(self) -> None:
        """Release all locks; where that fails, warn: they end by themselves."""
        if not self._held:
            return
        self.keep()
        try:
            commit(self.run.store, partial(plan_unlock, group=self.group, holder=self.run.run_id))
            forget_renewals(self.run.store, self.run.run_id)
        except Exception as failure:  # not the run's failure: its offsets are recorded
            log.warning(
                "the queues of group %s could not be unlocked, their locks end by themselves: %s",
                self.group,
                _first_line(failure),
            )

    def keep(self) -> None:
        """Stop renewing and leave the locks to end by themselves: Spark's tasks may still be reading."""
        self._is_over.set()
        if self._renewing.is_alive():
            self._renewing.join()

    @property
    def _now_ms(self) -> int:
        return self._began_ms + int((time.monotonic() - self._began) * 1_000)

    def _renew(self) -> None:
        while not self._is_over.wait(RENEWED_AFTER_SECONDS):
            until_ms = self._now_ms + LOCK_MS
            if self._now_ms >= self._ends_ms:
                return  # the locks ended before they were renewed, and another run may hold the queues
            try:
                renew(self.run.store, self.run.run_id, until_ms)
                self._ends_ms = until_ms
            except Exception as failure:
                log.warning(
                    "the locks of group %s's queues could not be renewed: %s",
                    self.group,
                    _first_line(failure),
                )


def _first_line(failure: Exception) -> str:
    return str(failure).strip().partition("\n")[0]
