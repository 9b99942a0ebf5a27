"""The command line without Spark: help, completion and misspelt options are answered at once, little is loaded."""

import ast
import io
import json
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO
from urllib.parse import urlparse

import typer
import typer.exceptions

from jobs.launch.printable import printable
from pipelines.uris import without_user

JOBS_FOLDER = Path(__file__).resolve().parent.parent
EXIT_DONE, EXIT_FAILED, EXIT_BAD_INPUT, EXIT_BROKEN_PROMISE = 0, 1, 2, 3
# What typer returns, and does not raise, after a Ctrl-C.
_INTERRUPTED = 130
SAFE_AGAIN = "nothing is lost, it is safe to run again"
# Set once the command at hand does its work, of which a later Ctrl-C may leave a part.
has_begun = threading.Event()


def run_app(app: typer.Typer, job_name: Sequence[str], arguments: list[str]) -> None:
    """Run a command-line application; wrong arguments end it with a sentence, a result line and exit status 2."""
    has_begun.clear()
    try:
        status = app(arguments, standalone_mode=False)
    except typer.Abort:
        raise SystemExit(EXIT_FAILED) from None
    except typer.Exit as leave:
        raise SystemExit(leave.exit_code) from None
    except typer.exceptions.TyperException as wrong:
        _fail(job_name, arguments, f"{printable(wrong.format_message())} See --help")
        raise SystemExit(EXIT_BAD_INPUT) from None
    except KeyboardInterrupt:  # typer has not begun to look for one
        status = _INTERRUPTED
    if status == _INTERRUPTED:
        end_interrupted(job_name, arguments)


def open_what_is_closed() -> None:
    """Have what a job prints go nowhere where nobody reads it.

    Its output was closed by `>&-`, where Python has None, or the reader of stderr leaves while the job runs.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", errors="backslashreplace"))  # noqa: SIM115
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = Stderr(
            sys.stderr.buffer, sys.stderr.encoding, sys.stderr.errors, line_buffering=True, write_through=True
        )


class Stderr(io.TextIOWrapper):
    """A stderr whose reader may leave, as `head` does in `2>&1 | head`; the job goes on."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            leave(self)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            leave(self)


def end_interrupted(job_name: Sequence[str], arguments: Sequence[str]) -> NoReturn:
    """End a job after a Ctrl-C before it began, or once its work has ended, which says itself how."""
    before, after = (
        "interrupted before it began; nothing was changed",
        f"interrupted at its end; {SAFE_AGAIN}",
    )
    _fail(job_name, arguments, after if has_begun.is_set() else before)
    raise SystemExit(EXIT_FAILED)


def _fail(job_name: Sequence[str], arguments: Sequence[str], sentence: str) -> None:
    """Say why a job ends that has not begun, in words and by a result line."""
    print(f"error: {sentence}", file=sys.stderr)
    store = _given(arguments, "--store")
    line = result_line(job_name[0] if job_name else "", "failed", store, 0.0, {})
    _write_here(_given(arguments, "--result-path"), line)
    print_result(line)


def _given(arguments: Sequence[str], option: str) -> str | None:
    """The value of an option in arguments that could not be parsed as a whole."""
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == option:
            return value if equals else next(iter(arguments[place + 1 :]), None)
    return None


def _write_here(path: str | None, line: dict[str, Any]) -> None:
    """Write the result line to a local file; one elsewhere would need Spark, which has not started."""
    if path is None or len(urlparse(path).scheme) > 1:
        return
    try:
        Path(path).write_text(json.dumps(line, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as failure:
        print(f"error: the result could not be written to {path}: {failure}", file=sys.stderr)


def result_line(
    job_name: str, status: str, store: str | None, seconds: float, counts: dict[str, Any]
) -> dict[str, Any]:
    store = None if store is None else without_user(store)
    return {"job": job_name, "status": status, "store": store, "seconds": round(seconds, 3), **counts}


def print_result(line: dict[str, Any]) -> None:
    sys.stderr.flush()
    try:
        print(json.dumps(line, ensure_ascii=False), flush=True)
    except BrokenPipeError:
        leave(sys.stdout)


def leave(stream: TextIO) -> None:
    """Have what is left to print on a stream go nowhere: its reader, such as `head`, has what it needs and is gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def summary(job_name: str) -> str:
    """The first line of a job's docstring, read without running its code."""
    source = (JOBS_FOLDER / f"{job_name}.py").read_text(encoding="utf-8")
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    described = next(node for node in functions if node.name == job_name)
    return (ast.get_docstring(described) or "").partition("\n")[0]
