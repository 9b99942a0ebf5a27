"""Have old segments expire, and keep a store's files few and its directory clean."""

from functools import partial
from typing import Annotated, Any

import typer

from jobs.launch.job import job, main
from jobs.launch.run import Run
from pipelines.dispatch.runs import mergeable, plan_merge, runs_of
from pipelines.errors import BadInput
from pipelines.expiry.expire import expire, would_expire
from pipelines.expiry.retention import is_delete_hour
from pipelines.spark_internals.delta_log import is_delta_table
from pipelines.store.replicas import plan_forget, read_slaves
from pipelines.store.role import expect_master
from pipelines.store.upkeep import checkpoint, pack, vacuum
from schemas import DERIVED, TABLES, Table

# A --now further ahead of the machine's clock is taken for a typing error: by it the whole log but its last segment is old.
MOST_AHEAD_MS = 31 * 24 * 3_600_000


@job
def maintain(
    run: Run,
    retention_hours: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Have segments expire now that are older; else by fileReservedTime, if given, at deleteWhen.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="By fileReservedTime at any hour, and by any --now.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report what would be done, and do nothing.")
    ] = False,
    forget_replica: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Wait no more for this slave, which is gone for good."),
    ] = None,
) -> dict[str, Any]:
    """Have old segments expire, compact small files, vacuum, and write checkpoints."""
    store = run.store
    if not force:
        expect_clock_believable(run)
    if forget_replica is not None:
        forget(run, forget_replica, dry_run)
    hours = hours_kept(run, retention_hours, force)
    expired = would_expire(store.snapshot(), run.now_ms, hours) if dry_run else expire(run, hours)
    compacted = freed = 0
    tables = [table for table in TABLES if is_delta_table(run.spark, store.path(table))]
    with run.progress("maintaining", len(tables), "tables") as advance:
        for table in tables:
            compacted += (
                _compact_derived(run, table, dry_run) if table in DERIVED else pack(store, table, dry_run)
            )
            freed += vacuum(store, table, dry_run, run.now_ms)
            if not dry_run:
                checkpoint(store, table)
            advance(1)
    run.wrote = run.wrote or (compacted + freed > 0 and not dry_run)
    return {
        "segments_expired": expired.segments,
        "rolled": expired.rolled,
        "files_compacted": compacted,
        "bytes_freed": freed,
    }


def forget(run: Run, replica_id: str, dry_run: bool) -> None:
    """Take a slave off the list of replicas. Raises BadInput where it is not on it, and in a slave."""
    at = run.store.snapshot()
    expect_master(at)
    slaves = read_slaves(at)
    if replica_id not in slaves:
        raise BadInput(
            f"--forget-replica is {replica_id}; the slaves of this store are {', '.join(sorted(slaves)) or 'none'}"
        )
    if not dry_run:
        run.commit(partial(plan_forget, replica_id=replica_id))
        run.say(f"slave {replica_id} is off the list; it is on it again when it replicates")


def expect_clock_believable(run: Run) -> None:
    """Raises BadInput where --now is so far ahead that hardly anything of the log would be young enough to stay."""
    now_ms = run.fixed_now_ms
    if now_ms is None or not run.store.settings["clockAheadMaxSec"]:
        return
    machine_ms = Run(run.job, "").now_ms
    if now_ms - machine_ms > MOST_AHEAD_MS:
        raise BadInput(
            f"--now is {now_ms}, and the machine's clock {machine_ms}; expected at most 31 days more, because segments "
            "expire by it. Nothing was done; correct --now, or add --force if it is right"
        )


def hours_kept(run: Run, retention_hours: int | None, force: bool) -> int | None:
    """How long segments are kept, hours; None where none expires now.

    RocketMQ's 72 hours are no default here: a lake keeps what nobody has asked to remove.
    """
    settings = run.store.settings
    if retention_hours is not None:
        return retention_hours
    if not force and "fileReservedTime" not in settings.given:
        run.say(
            "no segment expires: the store was made without fileReservedTime; --retention-hours N has old ones expire"
        )
        return None
    if force or is_delete_hour(settings, run.now_ms):
        return int(settings["fileReservedTime"])
    run.say(
        f"no segment expires now: deleteWhen is {settings['deleteWhen']} o'clock ({settings['timeZone']}); --force or "
        "--retention-hours has them expire at any hour"
    )
    return None


def _compact_derived(run: Run, table: Table, dry_run: bool) -> int:
    """Merge the newest sorted runs of a derived table; returns how many files were, or would be, merged."""
    if dry_run:
        return sum(each.files for each in mergeable(runs_of(run.store.snapshot(), table), fan_in=2))
    committed = run.commit(lambda at: plan_merge(at, table, fan_in=2))
    return int(committed.result.get("files_compacted", 0))


if __name__ == "__main__":
    main(maintain)
