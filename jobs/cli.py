"""`commitlake JOB --store URI …`: every job under one name."""

import sys
from importlib import import_module

import typer

from jobs.job import run_app

# In the order a newcomer meets them.
JOBS = (
    "create_store",
    "topics",
    "put_messages",
    "dispatch",
    "run_cycle",
    "import_store",
    "query",
    "sql",
    "register",
    "maintain",
)


def application() -> typer.Typer:
    app = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="RocketMQ's message store as Delta tables and Spark jobs.",
    )

    @app.callback()
    def commitlake() -> None:
        """RocketMQ's message store as Delta tables and Spark jobs."""

    for name in JOBS:
        app.command(name=name)(getattr(import_module(f"jobs.{name}"), name))
    return app


def main() -> None:
    run_app(application(), sys.argv[1:2], sys.argv[1:])
