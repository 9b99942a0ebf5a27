"""What long work, such as reading as a group, needs of the job run it is part of."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from pyspark.sql import SparkSession

from pipelines.store.commit import Committed
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot
from pipelines.store.store import Store


class Work(Protocol):
    """A job run: its store, its clock, its commits, and what it reports to.

    run_id  differs for each job run
    wrote   whether it has written anything
    fixed_now_ms  the clock where it is fixed; None: the machine's
    now_ms  the clock, epoch milliseconds; read again for each plan
    say     shows a line to the person who watches
    progress  a bar for work of `total` units (None: unknown); it is called with the units done since its last call
    warn    logs a line about something that may have been lost, also where nobody watches
    is_interruption  whether a failure comes from a Ctrl-C
    """

    run_id: str
    wrote: bool
    fixed_now_ms: int | None

    @property
    def spark(self) -> SparkSession: ...

    @property
    def store(self) -> Store: ...

    @property
    def now_ms(self) -> int: ...

    def commit(self, planner: Callable[[Snapshot], Plan]) -> Committed: ...

    def say(self, text: str) -> None: ...

    def progress(
        self, what: str, total: int | None, unit: str = "rows"
    ) -> AbstractContextManager[Callable[[int], None]]: ...

    def warn(self, text: str) -> None: ...

    def is_interruption(self, failure: BaseException) -> bool: ...
