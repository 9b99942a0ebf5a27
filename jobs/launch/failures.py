"""How a failure is shown: one sentence on stderr, the stack trace only on request."""

import re
import sys
import traceback
from pathlib import Path

from jobs.launch.printable import printable
from jobs.launch.spark_settings import PROJECT
from pipelines.errors import StoreError
from pipelines.spark_internals.jvm import is_java_failure


def explain(text: str, debug: bool) -> None:
    """Print a failure's sentence; with `debug`, its stack trace before it."""
    if debug:
        traceback.print_exc(file=sys.stderr)
    print(f"error: {printable(text)}", file=sys.stderr)


def first_line(failure: BaseException) -> str:
    """The first line of a failure's text; for one on an executor, that of the exception raised in Python there."""
    lines = str(failure).strip().splitlines()
    told = [line.partition(": ")[2] for line in lines if line.startswith(f"{StoreError.__module__}.")]
    if told:
        return told[-1]
    if is_java_failure(failure):
        # Its own first line is which of Python's calls it was; the next is Java's, with a class before the words.
        lines = [_JAVA_CLASS.sub("", line.removeprefix(": ")) for line in lines[1:]]
    if isinstance(failure, MISTAKES) or not lines:
        return (
            f"{type(failure).__name__}{_place_of(failure)}{': ' if lines else ''}{''.join(lines[:1])}; this is a mistake in "
            "commitlake itself: please report it with what --debug shows"
        )
    return lines[0]


# What Python raises for a mistake in code: its text is often only a key or a name.
MISTAKES = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, StopIteration, TypeError)
_JAVA_CLASS = re.compile(r"^(?:[\w$]+\.)+[\w$]+: ")


def _place_of(failure: BaseException) -> str:
    """Where in commitlake's own code a failure was raised."""
    frames = traceback.extract_tb(failure.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(PROJECT / "jobs")]
    own += [frame for frame in frames if Path(frame.filename).is_relative_to(PROJECT / "pipelines")]
    return f" at {Path(own[-1].filename).relative_to(PROJECT)} line {own[-1].lineno}" if own else ""
