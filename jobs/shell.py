"""Type commands one after the other in one session, each answered without a start."""

import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.launch.cli import JOBS, application
from jobs.launch.cli import run as run_command
from jobs.launch.job import job_for_any_store, main
from jobs.launch.run import Run
from pipelines.errors import BadInput

if TYPE_CHECKING:
    from prompt_toolkit.history import History

ENDS = ("exit", "quit")
# They need a session of their own kind.
NOT_HERE = ("register", "shell")


@job_for_any_store
def shell(
    run: Run,
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Read the commands from this file.")
    ] = None,
) -> dict[str, Any]:
    """Type commands one after the other in one session, each answered without a start."""
    run.say("starting Spark")
    if run.store_uri:
        run.store.snapshot()  # raises where there is none; and what the first read costs is paid now
    else:
        run.spark.sparkContext  # noqa: B018
    if file is None and sys.stdin.isatty():
        run.say("commands as after `commitlake`, without it; Tab completes, `exit` or Ctrl-D ends")
    ran = failed = 0
    for line in _lines(run, file):
        ran += 1
        exit_status = _ran(run, line)
        if exit_status:
            failed += 1
            run.exit_status = exit_status
    return {"jobs": ran, "failed": failed}


def _lines(run: Run, file: Path | None) -> Iterator[str]:
    """The lines of the file, else those that are typed or, where nobody types, of stdin; no empty ones, no comments."""
    if file is not None:
        try:
            lines: Iterable[str] = file.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            raise BadInput(f"{file} is not UTF-8 text; expected a command a line") from None
    else:
        lines = _typed(run) if sys.stdin.isatty() else sys.stdin
    for line in map(str.strip, lines):
        if line in ENDS:
            return
        if line and not line.startswith("#"):
            yield line


def _typed(run: Run) -> Iterator[str]:
    # Half a tenth of a second to import, which help does not need.
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import NestedCompleter

    session: PromptSession[str] = PromptSession(
        f"{Path(run.store_uri).name or 'commitlake'}> ",
        history=_history(),
        completer=NestedCompleter.from_nested_dict(_words()),
    )
    while True:
        try:
            yield session.prompt()
        except KeyboardInterrupt:
            run.interruptions = 0  # only the line was given up
        except EOFError:
            return


def _history() -> "History":
    """The lines typed before, in a file; those of this session alone where it cannot be written, as in a container."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    try:
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        file = state / "commitlake" / "history"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    except (OSError, RuntimeError):
        return InMemoryHistory()
    return FileHistory(str(file))


def _words() -> dict[str, Any]:
    """What can be typed: each job, and after it its options and the words of its arguments."""
    group = typer.main.get_command(application())
    context = typer.Context(group)
    words: dict[str, Any] = {}
    for name in JOBS:
        if name in NOT_HERE:
            continue
        command = group.resolve_command(context, [name])[1]  # type: ignore[attr-defined]
        of_command: list[str] = []
        for parameter in command.params:
            if parameter.param_type_name == "argument":
                kind = parameter.type_descriptor.annotation
                of_command += map(str, kind) if isinstance(kind, type) and issubclass(kind, Enum) else ()
            else:
                of_command += parameter.opts
        words[name] = dict.fromkeys(of_command)
    return {**words, **dict.fromkeys(ENDS)}


def _ran(run: Run, line: str) -> int:
    """The exit status of one command, run in this session."""
    try:
        arguments = shlex.split(line)
    except ValueError as wrong:
        print(f"error: {wrong} in: {line}", file=sys.stderr)
        return 2
    if arguments[:1] == ["commitlake"]:
        arguments = arguments[1:]
    if arguments and arguments[0] in NOT_HERE:
        print(f"error: {arguments[0]} is a command of its own; type it outside the shell", file=sys.stderr)
        return 2
    if run.store_uri and arguments[:1] and not any(each.split("=")[0] == "--store" for each in arguments):
        arguments[1:1] = ["--store", run.store_uri]  # not after a `--`
    try:
        run_command(arguments)
    except SystemExit as leave:
        return int(leave.code or 0)
    except (BadInput, KeyboardInterrupt) as failure:
        print(f"error: {failure or 'interrupted'}", file=sys.stderr)
        return 1
    finally:
        run.interruptions = 0  # of the command, not of the shell
    return 0


if __name__ == "__main__":
    main(shell)
