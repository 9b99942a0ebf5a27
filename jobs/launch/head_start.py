"""Java starts while Python loads what a job needs: each takes more than half a second."""

import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from jobs.launch.size_of_work import Work, typed
from jobs.launch.spark_settings import settings_of_work, variables_of_java
from pipelines.errors import StoreError
from pipelines.spark_internals.jvm_start import StartedJvm

# doctor looks for Java first.
WITHOUT = frozenset(("doctor",))

# By these PySpark finds another JVM, or starts its own in another way.
OF_PYSPARK = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE")

_started: list[tuple[Work, StartedJvm]] = []


def start_java(arguments: Sequence[str]) -> None:
    """Start the JVM that a command's session will take, if the arguments look as if it needed one.

    What is wrong with them, with the settings or with Java is said later, where it is met.
    """
    job = arguments[0]
    if job in WITHOUT or "--help" in arguments or any(name in os.environ for name in OF_PYSPARK):
        return
    if not (shutil.which("java") or "JAVA_HOME" in os.environ):
        return
    work = Work.of(job, *typed(arguments[1:]))
    os.environ.pop("SPARK_HOME", None)  # as in session()
    try:
        settings = settings_of_work(work.is_small, work.is_short)
        jvm = StartedJvm(settings, variables_of_java(work.runs_users_code))
    except (StoreError, OSError):
        return
    _started.append((work, jvm))


def work_begun() -> Work | None:
    """The work that the JVM was started for; None where none was. Files of a large store are looked through once."""
    return _started[-1][0] if _started else None


def java_taken() -> AbstractContextManager[None]:
    """A context in which PySpark takes the JVM that was started, where one was."""
    return _started[-1][1].taken() if _started else nullcontext()
