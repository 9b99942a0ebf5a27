"""The machine and what is installed on it; nothing here needs Java or Spark."""

import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from rich.filesize import decimal

from pipelines.health.check import Check, Look, bad, ok, warn

LEAST_JAVA = 17
PYTHON = (3, 11)
SET_UP = "run `make setup`"

# A job's shuffles and sorts spill next to nothing for a small store, some gigabytes for a large put.
DISK_NEEDED, DISK_WANTED = 1_000_000_000, 5_000_000_000
# Beside the driver's JVM: Python, its workers, the system.
SHARE_FOR_DRIVER = 0.75
# What Spark gives a driver that asks for nothing.
DRIVER_MEMORY = "1g"
_UNITS = {"": 1024**2, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


def machine_looks(
    project: Path, settings: Mapping[str, str], places: Sequence[Path]
) -> list[tuple[str, Look]]:
    """The checks of a machine.

    project   where scripts/jars.sha256 and jars/ are
    settings  the session's, by their Spark names
    places    directories jobs write to, beside the temporary one
    """
    temporary = Path(settings.get("spark.local.dir", tempfile.gettempdir()))
    looks: list[tuple[str, Look]] = [
        ("python", python),
        ("java", java),
        ("packages", packages),
        ("jars", partial(jars, project)),
        ("delta and spark", partial(delta_and_spark, project)),
        ("memory", partial(memory, settings.get("spark.driver.memory", DRIVER_MEMORY))),
        ("cores", cores),
        ("loopback", loopback),
    ]
    return looks + [
        (f"disk of {place}", partial(disk, place)) for place in dict.fromkeys((temporary, *places))
    ]


def python() -> Check:
    found = f"{sys.version.partition(' ')[0]} at {sys.executable}"
    if sys.version_info[:2] == PYTHON:
        return ok("python", found)
    wanted = ".".join(map(str, PYTHON))
    return bad("python", f"{found}; expected {wanted}", f"install Python {wanted}, then {SET_UP}")


def java() -> Check:
    """The Java that Spark starts: of JAVA_HOME, else of the PATH."""
    home = os.environ.get("JAVA_HOME")
    remedy = f"install Java {LEAST_JAVA} or newer (Debian: apt-get install openjdk-17-jre-headless) and set JAVA_HOME"
    command = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if command is None:
        where = (
            f"JAVA_HOME is {home}, where bin/java is missing" if home else "none on the PATH, no JAVA_HOME"
        )
        return bad("java", where, remedy)
    said = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60).stderr
    found = java_version(said)
    if found is None:
        return bad("java", f"{command} does not say its version", remedy)
    if found < LEAST_JAVA:
        return bad("java", f"{found} at {command}; expected {LEAST_JAVA} or newer", remedy)
    return ok("java", f"{found} at {command}")


def java_version(said: str) -> int | None:
    """The version in what `java -version` says.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_412"'), java_version("")
    (17, 8, None)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None


def packages() -> Check:
    """What the project asks for is installed, in the versions it asks for."""
    try:
        wanted = [Requirement(line) for line in requires("commitlake") or []]
    except PackageNotFoundError:
        return warn("packages", "commitlake is not installed here, so its packages are not known", SET_UP)
    needed = [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    complaints = [said for said in map(package_complaint, needed) if said]
    if complaints:
        return bad("packages", "; ".join(complaints), SET_UP)
    return ok("packages", f"{len(needed)} installed as asked for")


def package_complaint(wanted: Requirement) -> str | None:
    try:
        found = version(wanted.name)
    except PackageNotFoundError:
        return f"{wanted.name} is missing"
    if wanted.specifier.contains(found, prereleases=True):
        return None
    return f"{wanted.name} is {found}, expected {wanted.specifier}"


def jars(project: Path) -> Check:
    """Delta's jars, each with the content it had when it was pinned."""
    sums = project / "scripts" / "jars.sha256"
    if not sums.exists():
        return warn(
            "jars", "no scripts/jars.sha256 here, so the jars are not known", "run doctor from a checkout"
        )
    pinned = [line.split() for line in sums.read_text().splitlines() if line.strip()]
    wanted = {name: digest for digest, name in pinned}
    found = {jar.name: jar for jar in (project / "jars").glob("*.jar")}
    complaints = [f"{name} is missing" for name in sorted(wanted.keys() - found.keys())]
    complaints += [f"{name} does not belong there" for name in sorted(found.keys() - wanted.keys())]
    for name in sorted(wanted.keys() & found.keys()):
        if hashlib.sha256(found[name].read_bytes()).hexdigest() != wanted[name]:
            complaints.append(f"{name} is not the file that was pinned")
    if complaints:
        return bad("jars", "; ".join(complaints), f"remove {project / 'jars'} and {SET_UP}")
    return ok("jars", f"{len(wanted)} in {project / 'jars'}, as pinned")


def delta_and_spark(project: Path) -> Check:
    """Delta's Python package and its jar are one version, made for this Spark."""
    spark, delta = version("pyspark"), version("delta-spark")
    name = "delta and spark"
    jar = next(iter(sorted((project / "jars").glob("delta-spark_*.jar"))), None)
    made = re.fullmatch(r"delta-spark_([\d.]+)_[\d.]+-(.+)\.jar", jar.name) if jar else None
    if made is None:
        return warn(name, f"pyspark {spark}, delta-spark {delta}; no Delta jar in jars/", SET_UP)
    if made[2] != delta or not spark.startswith(f"{made[1]}."):
        found = f"pyspark {spark}, delta-spark {delta}, but the jar is Delta {made[2]} for Spark {made[1]}"
        return bad(name, found, SET_UP)
    return ok(name, f"pyspark {spark}, Delta {delta} in Python and as jar")


def memory(driver_memory: str) -> Check:
    """The driver's heap leaves room on the machine."""
    machine, asked = machine_memory(), bytes_of(driver_memory)
    found = f"{decimal(machine)}, {decimal(asked)} of it for the driver (spark.driver.memory {driver_memory})"
    if asked <= machine * SHARE_FOR_DRIVER:
        return ok("memory", found)
    most = max(1, int(machine * SHARE_FOR_DRIVER) // 1024**3)
    remedy = f"set spark.driver.memory to {most}g or less in the session's settings (spark-conf/local.conf)"
    return bad("memory", found, remedy) if asked > machine else warn("memory", found, remedy)


def machine_memory() -> int:
    """Bytes of memory this process may come to use: the machine's, or its container's share."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    share = Path("/sys/fs/cgroup/memory.max")
    limit = share.read_text().strip() if share.exists() else "max"
    return min(physical, int(limit)) if limit.isdigit() else physical


def bytes_of(amount: str) -> int:
    """An amount of memory as Spark reads it; without a unit it is mebibytes.

    >>> bytes_of("4g"), bytes_of("512"), bytes_of("1024k")
    (4294967296, 536870912, 1048576)
    """
    written = re.fullmatch(r"(\d+)([bkmgt]?)b?", amount.strip().lower())
    if written is None:
        raise ValueError(f"{amount!r} is not an amount of memory as Spark reads one, such as 4g")
    return int(written[1]) * _UNITS[written[2]]


def cores() -> Check:
    # Those this process may run on, where the system tells.
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if usable > 1:
        return ok("cores", str(usable))
    return warn("cores", "1", "jobs run, one task after the other; two cores or more are faster")


def loopback() -> Check:
    """Spark's processes find one another by the loopback address."""
    try:
        with socket.create_server(("127.0.0.1", 0)):
            pass
    except OSError as failure:
        remedy = "bring the loopback interface up (ip link set lo up)"
        return bad("loopback", f"127.0.0.1 cannot be listened on: {failure.strerror}", remedy)
    for name, verdict in (("localhost", bad), (socket.gethostname(), warn)):
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            remedy = f"add a line `127.0.0.1 {name}` to /etc/hosts"
            return verdict("loopback", f"the name {name} does not resolve", remedy)
    return ok("loopback", f"127.0.0.1 can be listened on; localhost and {socket.gethostname()} resolve")


def disk(place: Path) -> Check:
    """Free space where a directory is or would be made, and whether one may write there."""
    name = f"disk of {place}"
    there = next(one for one in (place.absolute(), *place.absolute().parents) if one.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return bad(name, f"{there} cannot be written to", "run as its owner, or name another place")
    free = shutil.disk_usage(there).free
    found = f"{decimal(free)} free"
    if free < DISK_NEEDED:
        return bad(name, found, "make room: jobs write temporary files here")
    if free < DISK_WANTED:
        return warn(name, found, "a large put or import may need more")
    return ok(name, found)
