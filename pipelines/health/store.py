"""A store: that it is whole, can be written to, and is looked after."""

import fcntl
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from pyspark.sql import Row
from pyspark.sql import functions as F

from pipelines.errors import BadInput
from pipelines.health.check import Check, Look, bad, ok, warn
from pipelines.reports.page.words import moment, plural
from pipelines.spark_internals.delta_log import is_delta_table
from pipelines.spark_internals.files import hadoop_path
from pipelines.store.create import PLAIN_DELTA
from pipelines.store.damaged import damaged_tables
from pipelines.store.lock import LOCK_FILE
from pipelines.store.progress import covered
from pipelines.store.snapshot import remedy_for_missing
from pipelines.store.sql_text import delta_table
from pipelines.store.store import Store
from pipelines.uris import local_path
from schemas import COMMITLOG, DERIVED, JOB_RUNS, PROGRESS, TABLES, Table
from schemas.job_runs import WRITE_ELSEWHERE, is_missed

STAGING = "_staging"


def store_looks(store: Store, now_ms: int) -> list[tuple[str, Look]]:
    """The checks of a store whose tables are all there."""
    return [
        ("files", partial(files, store)),
        ("settings", partial(settings, store)),
        ("writing", partial(writing, store)),
        ("dispatch", partial(dispatch, store)),
        ("job runs", partial(job_runs, store, now_ms)),
        ("leftovers", partial(leftovers, store)),
    ]


def tables(store: Store) -> Check:
    """Every table is there, with its columns, its partitions and its properties."""
    with ThreadPoolExecutor(4) as pool:
        complaints = [said for found in pool.map(partial(_complaints, store), TABLES) for said in found]
    missing = [table for table in TABLES if not is_delta_table(store.spark, store.path(table))]
    if len(missing) == len(TABLES):
        return bad(
            "tables", f"no store at {store.uri}", "make it with `commitlake create_store`, or correct --store"
        )
    if missing:
        remedy = remedy_for_missing(store.uri, missing)
        if not store.exists():
            remedy = f"its creation was cut short: run `commitlake create_store --store {store.uri}` again"
        return bad("tables", f"missing: {', '.join(table.name for table in missing)}", remedy)
    if complaints:
        return bad("tables", "; ".join(complaints), "a table was changed by other means; see docs/tables.md")
    return ok("tables", f"{len(TABLES)}, with the columns and properties they should have")


def _complaints(store: Store, table: Table) -> Sequence[str]:
    path = store.path(table)
    if not is_delta_table(store.spark, path):
        return ()
    (detail,) = store.spark.sql(f"DESCRIBE DETAIL {delta_table(path)}").collect()
    return (*_column_complaints(store, table), *_layout_complaints(table, detail))


def _column_complaints(store: Store, table: Table) -> list[str]:
    found = {column.name: column.dataType for column in store.read(table).schema}
    complaints = []
    for column in table.columns:
        if column.name not in found:
            if table == PROGRESS:
                continue  # an older version made it; the next write, which is of the whole table, adds the column
            complaints.append(f"{table.name} lacks the column {column.name}")
        elif found[column.name] != column.dataType:
            there, wanted = found[column.name].simpleString(), column.dataType.simpleString()
            complaints.append(f"{table.name}.{column.name} is {there}, expected {wanted}")
    return complaints


def _layout_complaints(table: Table, detail: Row) -> list[str]:
    complaints = []
    if tuple(detail.partitionColumns) != table.partition_by:
        there, wanted = ", ".join(detail.partitionColumns), ", ".join(table.partition_by)
        complaints.append(
            f"{table.name} is partitioned by {there or 'nothing'}, expected {wanted or 'nothing'}"
        )
    # What other readers need is off unless someone switched it on; what the table itself asks for must be said.
    wanted_properties = {name: (value, value) for name, value in PLAIN_DELTA.items()}
    wanted_properties |= {name: (value, "not set") for name, value in table.properties.items()}
    for name, (wanted, unless_set) in wanted_properties.items():
        found = detail.properties.get(name, unless_set)
        if found != wanted:
            complaints.append(
                f"{table.name} has {name} = {found}, expected {wanted} (ALTER TABLE {delta_table(detail.location)} "
                f"SET TBLPROPERTIES ('{name}' = '{wanted}'))"
            )
    return complaints


def files(store: Store) -> Check:
    """Whether every file that the tables' logs name is there and as long as it was."""
    damaged = damaged_tables(store)
    if not damaged:
        return ok("files", "all there, as long as they were")
    complaints = [complaint for each in damaged for complaint in each.complaints()]
    more = f", and {len(complaints) - 1} more" if len(complaints) > 1 else ""
    return bad("files", f"{complaints[0]}{more}", f"`commitlake validate --store {store.uri}` lists them all")


def settings(store: Store) -> Check:
    try:
        given = store.settings.given
    except BadInput as wrong:
        return bad("settings", str(wrong), "correct the row in the table store_settings")
    without_effect = store.settings.without_effect
    found = f"{len(given)} given"
    return ok(
        "settings", f"{found}, {len(without_effect)} of them without effect here" if without_effect else found
    )


def writing(store: Store) -> Check:
    """Whether this user may write, and whether someone is writing right now."""
    directory = local_path(store.uri)
    if directory is None:
        return ok("writing", "no lock is needed on this kind of store; writing was not tried")
    lock = Path(directory) / LOCK_FILE
    denied = [path for path in (Path(directory), lock) if path.exists() and not os.access(path, os.W_OK)]
    if denied:
        return bad(
            "writing", f"{denied[0]} cannot be written to", "run as its owner, or change its permissions"
        )
    if not lock.exists():
        return ok("writing", "the directory can be written to")
    with lock.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return warn(
                "writing", "another run holds the lock right now", "nothing, unless it stays so for minutes"
            )
    return ok("writing", "the directory can be written to, nobody holds the lock")


def dispatch(store: Store) -> Check:
    at = store.snapshot()
    followed = {table.name: covered(at, table) for table in DERIVED}
    newest = at.number(COMMITLOG)
    behind = {name: newest - append_seq for name, append_seq in followed.items() if append_seq < newest}
    if not behind:
        return ok("dispatch", "it has followed the whole log")
    found = f"{', '.join(behind)} lag behind the log by up to {plural(max(behind.values()), 'append')}"
    return warn("dispatch", found, f"`commitlake dispatch --store {store.uri}`")


def job_runs(store: Store, now_ms: int) -> Check:
    """Jobs whose newest run with a row failed; one that has written since is fixed. Queries have nothing to do again."""
    newest = (
        store.read(JOB_RUNS)
        .groupBy("job")
        .agg(F.max_by("status", "started_ms").alias("status"), F.max("started_ms").alias("started_ms"))
    )
    runs = newest.where(F.col("status") != "ok").orderBy("job").collect()  # a row a job
    failed = [row for row in runs if is_missed(row.job, row.started_ms, now_ms)]
    if not failed:
        return ok("job runs", "no job's last run has failed")
    found = ", ".join(f"{row.job} failed at {moment(row.started_ms)} UTC" for row in failed)
    return warn(
        "job runs",
        f"{found}, and no good run of it is recorded since",
        "it is safe to run again; --debug says more. A run that finds nothing to do leaves no row, nor does a good one of "
        f"{', '.join(WRITE_ELSEWHERE)}",
    )


def leftovers(store: Store) -> Check:
    """What a put that was killed leaves: the copy of its input it was about to append."""
    staging, files = hadoop_path(store.spark, store.path_of(STAGING))
    runs = (
        [status.getPath().getName() for status in files.listStatus(staging)] if files.exists(staging) else []
    )
    if not runs:
        return ok("leftovers", "none")
    found = (
        f"{plural(len(runs), 'directory', 'directories')} in {staging}: of puts that run now, or were killed"
    )
    return warn("leftovers", found, "remove them when no put is running")
