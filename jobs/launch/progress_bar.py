"""A bar on a terminal: how much is done, how fast, and how many tasks of the current Spark stage are done."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark import StatusTracker
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text


@contextmanager
def progress_bar(
    what: str, total: int | None, unit: str, tracker: Callable[[], StatusTracker], is_shown: bool
) -> Iterator[Callable[[int], None]]:
    """A bar for work of `total` units, where there is a terminal; yields a function that takes the units done since."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        Speed(unit),
        Tasks(tracker),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not is_shown or not sys.stderr.isatty(),
        transient=True,
    )
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)


class Speed(ProgressColumn):
    """How many units a second are done."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {self.unit}/s")


class Tasks(ProgressColumn):
    """How far Spark is with its current stage: an append of a million messages moves the bar only once."""

    max_refresh = 0.5  # seconds

    def __init__(self, tracker: Callable[[], StatusTracker]) -> None:
        super().__init__()
        self.tracker = tracker

    def render(self, task: Task) -> Text:
        try:
            tracker = self.tracker()
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except Exception:  # the session is just being made or ended; a bar must not be what fails
            return Text("")
        running = [stage for stage in stages if stage is not None]
        done, tasks = (
            sum(stage.numCompletedTasks for stage in running),
            sum(stage.numTasks for stage in running),
        )
        return Text(f"tasks {done}/{tasks}" if tasks else "")
