"""Java starts while Python loads what a job needs: half a second of each command that would be spent twice."""

import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from jobs.launch.size_of_work import Work, typed
from jobs.launch.spark_settings import WITHOUT_PYTHON_SOURCES, settings_of_work
from pipelines.errors import StoreError
from pipelines.spark_internals.jvm_start import StartedJvm

# doctor looks for Java first.
WITHOUT = frozenset(("doctor",))

_started: list[StartedJvm] = []


def start_java(arguments: Sequence[str]) -> None:
    """Start the JVM that a command's session will take, if the arguments look as if it needed one.

    What is wrong with them, with the settings or with Java is said later, where it is met.
    """
    job = arguments[0]
    is_for_pyspark = any(
        name in os.environ for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE")
    )
    if (
        job in WITHOUT
        or "--help" in arguments
        or is_for_pyspark
        or not (shutil.which("java") or "JAVA_HOME" in os.environ)
    ):
        return
    work = Work.of(job, *typed(arguments[1:]))
    os.environ.pop("SPARK_HOME", None)  # as in session()
    try:
        settings = settings_of_work(work.is_small, work.is_short)
        _started.append(
            StartedJvm(settings, {} if work.runs_users_code or not work.is_short else WITHOUT_PYTHON_SOURCES)
        )
    except (StoreError, OSError):
        return


def java_taken() -> AbstractContextManager[None]:
    """A context in which PySpark takes the JVM that was started, where one was."""
    return _started[-1].taken() if _started else nullcontext()
