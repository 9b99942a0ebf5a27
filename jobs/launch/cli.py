"""`commitlake JOB --store URI …`: every job under one name."""

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from jobs.launch.command_line import end_interrupted, open_what_is_closed, run_app, summary
from jobs.launch.examples import epilog
from jobs.launch.head_start import start_java

# In the order a newcomer meets them.
JOBS = (
    "create_store",
    "settings",
    "topics",
    "put_messages",
    "dispatch",
    "deliver",
    "subscribe",
    "consume",
    "reset_offsets",
    "send_back",
    "redrive",
    "end_transactions",
    "check_transactions",
    "run_cycle",
    "import_store",
    "export_store",
    "query",
    "sql",
    "register",
    "maintain",
    "backup",
    "replicate",
    "promote",
    "validate",
    "report",
    "doctor",
    "shell",
)


class Jobs(TyperGroup):
    """The jobs, listed with their docstrings' first lines; only the code of the job that is run or completed is loaded."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(JOBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _described(cmd_name) if cmd_name in JOBS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else _loaded(name), rest


def application() -> typer.Typer:
    app = typer.Typer(cls=Jobs, no_args_is_help=True, pretty_exceptions_enable=False)

    @app.callback()
    def commitlake() -> None:
        """RocketMQ's message store as Delta tables and Spark jobs."""

    return app


def _loaded(name: str) -> Any:
    return _command(name, getattr(import_module(f"jobs.{name}"), name), help=None)


def _described(name: str) -> Any:
    return _command(name, lambda: None, help=summary(name))


def _command(name: str, function: Any, help: str | None) -> Any:
    one = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    one.command(name=name, help=help, epilog=epilog(name))(function)
    return typer.main.get_command(one)


def run(arguments: list[str]) -> None:
    """Run one job."""
    run_app(application(), arguments[:1], arguments)


def main() -> None:
    arguments = sys.argv[1:]
    open_what_is_closed()
    try:
        if arguments and arguments[0] in JOBS:
            start_java(arguments)
        run(arguments)
    except KeyboardInterrupt:
        end_interrupted(arguments[:1], arguments)
