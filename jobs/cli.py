"""`commitlake JOB --store URI …`: every job under one name."""

import sys
from collections.abc import Sequence
from importlib import import_module

import typer

from jobs.job import run_app

# In the order a newcomer meets them.
JOBS = (
    "create_store",
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
    "query",
    "sql",
    "register",
    "maintain",
    "validate",
)


def application(jobs: Sequence[str] = JOBS) -> typer.Typer:
    app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

    @app.callback()
    def commitlake() -> None:
        """RocketMQ's message store as Delta tables and Spark jobs."""

    for name in jobs:
        app.command(name=name)(getattr(import_module(f"jobs.{name}"), name))
    return app


def run(arguments: list[str]) -> None:
    """Run one job; only that job's code is loaded."""
    named = [name for name in arguments[:1] if name in JOBS]
    run_app(application(named or JOBS), arguments[:1], arguments)


def main() -> None:
    run(sys.argv[1:])
