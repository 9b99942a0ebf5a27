"""Show and change the settings of a store."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.listings import list_settings
from jobs.launch.options import assigned
from jobs.launch.output import Output
from jobs.launch.run import Run
from pipelines.errors import BadInput
from pipelines.rocketmq.settings import Settings
from pipelines.store.change_settings import plan_change
from pipelines.store.role import settings_now


class Action(StrEnum):
    show = "show"
    set = "set"
    unset = "unset"


@job
def settings(
    run: Run,
    action: Annotated[Action, typer.Argument(help="What to do.", show_choices=True)],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE|NAME", help="Settings; none shows all.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")
    ] = False,
    output: Annotated[Output, typer.Option(help="How settings are shown.")] = Output.table,
) -> dict[str, Any]:
    """Show and change the settings of a store."""
    if action == Action.show:
        list_settings(settings_now(run.store.snapshot()), names or (), output, run.quiet)
        return {"changed": 0}
    if not names:
        raise BadInput(
            f"{action} names no setting; expected {'NAME=VALUE' if action == Action.set else 'NAME'}"
        )
    changes: dict[str, Any] = assigned(names, "a setting") if action == Action.set else dict.fromkeys(names)
    if dry_run:
        result = plan_change(run.store.snapshot(), changes).result
    else:
        result = run.commit(lambda at: plan_change(at, changes)).result
    for name, (before, after) in result["changes"].items():
        run.say(f"{name}: {before or 'not set'} -> {after or 'not set'}")
    if action == Action.set:
        for line in Settings.of(changes).not_acting_told:
            run.say(line)
    return {"changed": 0 if dry_run else len(result["changes"])}


if __name__ == "__main__":
    main(settings)
