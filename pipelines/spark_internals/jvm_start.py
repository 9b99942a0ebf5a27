"""The JVM of a process, started before PySpark is loaded: either takes most of a second, and they meet only then.

Read from PySpark 4.1.4: `pyspark.java_gateway.launch_gateway` starts the JVM in this way, or takes the one whose port and
secret are in the environment, as it is under spark-submit. This module loads nothing of PySpark by itself.
"""

import atexit
import logging
import os
import shutil
import signal
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_POLL_SECONDS = 0.01


class StartedJvm:
    """A JVM that has been started. It ends when this object or its process does: its standard input is closed then."""

    def __init__(self, settings: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """Start it, and do not wait for it.

        settings     Spark's
        environment  variables that only the JVM has, besides those of this process

        Raises OSError where it cannot be started.
        """
        self._is_taken = False
        self._folder = Path(tempfile.mkdtemp())
        self._said = self._folder / "connection"
        options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        of_pyspark = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._said)}
        # A Ctrl-C waits until this process knows the JVM: else nobody would end it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self._process = Popen(
                [_spark_home() / "bin" / "spark-submit", *options, "pyspark-shell"],
                stdin=PIPE,
                env={**os.environ, **environment, **of_pyspark},
                preexec_fn=_ignore_control_c,
            )
            atexit.register(self._leave)
        except BaseException:
            shutil.rmtree(self._folder)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """A context in which PySpark takes this JVM in place of starting one.

        Raises PySparkRuntimeError, as PySpark does, where the JVM has ended before it could be taken.
        """
        while not self._said.is_file() and self._process.poll() is None:
            time.sleep(_POLL_SECONDS)
        if not self._said.is_file():
            from pyspark.errors import PySparkRuntimeError

            raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
        port, length = struct.unpack("!ii", (said := self._said.read_bytes())[:8])
        os.environ[_PORT], os.environ[_SECRET] = str(port), said[8 : 8 + length].decode()
        self._is_taken = True
        try:
            yield
        finally:
            del os.environ[_PORT], os.environ[_SECRET]

    def _leave(self) -> None:
        """Wait no longer for the JVM, nor have a reader of its output wait: it ends a third of a second after this process.

        Where nobody took it, end it: it would complain about the folder that is gone.
        """
        if not self._is_taken:
            self._process.kill()
        elif self._process.poll() is None:
            _release_output()
        shutil.rmtree(self._folder, ignore_errors=True)


def _release_output() -> None:
    """Close standard output and error in the JVM. Read from Java 17: /dev/null takes the place of their files, too."""
    from pyspark import SparkContext

    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    with suppress(Exception):  # a JVM that has crashed has closed them
        jvm: Any = SparkContext._jvm
        jvm.java.lang.System.out.close()
        jvm.java.lang.System.err.close()


def _spark_home() -> Path:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise FileNotFoundError("the package pyspark is not installed")
    return Path(found.origin).parent


def _ignore_control_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # a JVM inherits the mask
