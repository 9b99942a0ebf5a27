"""What is printed for a person, where nobody reads on."""

import subprocess
import sys

import pytest

from tests.conftest import PROJECT

pytestmark = pytest.mark.quick

PRINTING = """
import sys
from rich.console import Console
from jobs.launch.command_line import open_what_is_closed, print_result
open_what_is_closed()
for line in range(20_000):
    Console(stderr=True).print("line", line)
print("warning: one more", file=sys.stderr)
print_result({"status": "ok"})
"""


@pytest.mark.parametrize("both", [True, False])
def test_a_job_goes_on_where_the_reader_of_its_stderr_leaves(both: bool) -> None:
    """As in `commitlake … 2>&1 | head -1`."""
    process = subprocess.Popen(
        [sys.executable, "-c", PRINTING],
        cwd=PROJECT,
        stdout=subprocess.PIPE if both else subprocess.DEVNULL,
        stderr=subprocess.STDOUT if both else subprocess.PIPE,
        text=True,
    )
    stream = process.stdout if both else process.stderr
    assert stream is not None
    assert stream.readline() == "line 0\n"
    stream.close()
    assert process.wait(60) == 0
