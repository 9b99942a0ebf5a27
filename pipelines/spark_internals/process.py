"""The session's JVM as a process of the machine; what is read of /proc is Linux only.

The identity of a process, by which another one on the same machine can check whether it is gone, is the machine's boot, the
namespace of process ids, the id, and when the process started: ids are used again.
"""

import os
import re
from pathlib import Path

from pyspark.sql import SparkSession

from pipelines.spark_internals.jvm import jvm

_PROC = Path("/proc")


def process_of(spark: SparkSession) -> str | None:
    """The session's JVM, where all tasks run in it; None where they run elsewhere, or the identity cannot be read."""
    if not re.fullmatch(r"local(\[.*\])?", spark.sparkContext.master or ""):
        return None
    process_id = _process_id(spark)
    started = _started(process_id)
    space = _space()
    return None if started is None or space is None else f"{space}/{process_id}/{started}"


def is_gone(process: str) -> bool:
    """Whether a process of this machine has ended; False for one of another machine, of which nothing is known."""
    space, process_id, started = process.rsplit("/", 2)
    return space == _space() and _started(process_id) != started


def has_mapped(spark: SparkSession, file: Path) -> bool | None:
    """Whether the session's JVM has mapped a file into its memory; None where that cannot be read."""
    try:
        maps = (_PROC / _process_id(spark) / "maps").read_text(errors="replace")
    except OSError:
        return None
    return any(line.endswith(f" {file.resolve()}") for line in maps.splitlines())


def _process_id(spark: SparkSession) -> str:
    return str(jvm(spark).org.apache.spark.util.Utils.getProcessName()).partition("@")[0]


def _space() -> str | None:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink(_PROC / 'self/ns/pid')}"
    except OSError:
        return None


def _started(process_id: str) -> str | None:
    """When a process started, in ticks since the boot; None where there is none, or only a dead one (state Z or X)."""
    try:
        # The fields after the name, which is in parentheses and may hold anything: the state is first, the start twentieth.
        fields = (_PROC / process_id / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]
