"""Creating a store: its tables first, its settings last, so a store with settings is complete."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from delta.tables import DeltaTable as DeltaTableBuilder
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from pipelines.errors import BadInput, StoreError
from pipelines.rocketmq.settings import Settings
from pipelines.spark_internals.delta_log import is_delta_table
from pipelines.spark_internals.files import hadoop_path
from pipelines.spark_internals.sessions import cloned
from pipelines.store.commit import commit
from pipelines.store.lock import under_lock
from pipelines.store.plan import Plan
from pipelines.store.small_tables import whole_table_write
from pipelines.store.snapshot import Snapshot
from pipelines.store.sql_text import delta_table
from pipelines.store.store import Store
from pipelines.uris import local_path
from schemas import DERIVED, PROGRESS, STORE_SETTINGS, TABLES, Table

# So that any Delta reader opens the tables as they are: delta-rs, DuckDB, Trino.
PLAIN_DELTA = {
    "delta.enableDeletionVectors": "false",
    "delta.columnMapping.mode": "none",
    "delta.enableRowTracking": "false",
}
# The interval is in commits; Delta's default is 10. Small commits are many, and one that writes a checkpoint takes two
# seconds instead of a third of one. A reader replays at most that many files of the transaction log; sixty have not
# slowed it measurably.
CHECKPOINTS = {"delta.checkpointInterval": "50"}
# So that Delta does not query for the files before a new table's first commit, of which there are none: half of the time
# that making it takes. The checksum file lists no files all the same.
NO_QUERY_FOR_FILES = ("spark.databricks.delta.allFilesInCrc.enabled", "false")
# A property of store_settings, which every store has: the newest generation of tables that the store has had. Without it a
# table of the newest generation that is lost would be taken for one that this version adds.
GENERATION = "commitlake.generation"
NEWEST_GENERATION = max(table.generation for table in TABLES)


def make_store(store: Store, settings: Mapping[str, str] | None = None) -> Store:
    """The store, once its tables are made and its settings recorded; an interrupted creation goes on.

    The caller makes the topics and groups a new store starts with (pipelines.store.topics). Raises BadInput for a setting
    RocketMQ does not know or a value it does not take, and for a directory that a backup has not finished.
    """
    checked = Settings.of(settings or {})
    if "timeZone" in checked.given:
        _expect_zone_of_java(store.spark, checked["timeZone"])
    given = checked.given  # without passwords
    store.expect_no_backup()
    if store.exists():
        make_tables(store)
    else:
        store.expect_no_messages()
        if "`" in store.uri:
            raise BadInput(
                f"--store is {store.uri}; expected a path without a backtick, in which Delta makes no table. Name another, "
                "or make the store there and move its directory"
            )
        make_again(store, TABLES)
    commit(store, partial(_plan_settings, given=given))
    return store


def _expect_zone_of_java(spark: SparkSession, zone: str) -> None:
    """Raises BadInput for a time zone that only Python knows: it has tables of its own, and a put would fail in Java."""
    try:
        cloned(spark).conf.set("spark.sql.session.timeZone", zone)
    except IllegalArgumentException:
        raise BadInput(
            f'setting timeZone is "{zone}"; expected a time zone that this Java knows too, like Europe/Berlin, UTC or '
            "+02:00; name another one with the same times, or update Java"
        ) from None


def _plan_settings(at: Snapshot, given: Mapping[str, str]) -> Plan:
    """The plan that records a new store's settings; empty where settings have been written before."""
    if at.number(STORE_SETTINGS) >= 0:
        return Plan()
    return Plan((whole_table_write(at, STORE_SETTINGS, sorted(given.items())),))


def make_tables(store: Store) -> None:
    """Make those tables that a newer version has added, and those that are built again from the log.

    Raises StoreError where the store has lost a table: without its rows, offsets or deliveries would come again.
    """
    _make_tables(store, TABLES)


def make_table(store: Store, table: Table) -> None:
    """Make one table where it does not exist, an earlier version has made the store without it, and all older ones."""
    if not is_delta_table(store.spark, store.path(table)):
        _make_tables(store, [each for each in TABLES if each.generation <= table.generation])


def make_again(store: Store, tables: Sequence[Table]) -> None:
    """Make those tables that do not exist, also where the store had them and their rows are lost."""
    _under_lock(store, lambda: _make_all(store, _missing(store, tables)))


def lost_of(missing: Sequence[Table], recorded: int) -> list[Table]:
    """Those of all the tables missing in a store that it has had: it has one of a later generation, or a record of theirs.

    recorded  what recorded_generation() returns

    >>> from schemas import CLAIMS, FLOORS, HOLES
    >>> [table.name for table in lost_of([FLOORS, CLAIMS, HOLES], recorded=0)], lost_of([HOLES], recorded=0)
    (['floors'], [])
    >>> [table.name for table in lost_of([HOLES], recorded=HOLES.generation)]
    ['holes']
    """
    names = {table.name for table in missing}
    newest = max((table.generation for table in TABLES if table.name not in names), default=0)
    had = max(newest - 1, recorded)
    return [table for table in missing if table.generation <= had and table not in (*DERIVED, PROGRESS)]


def recorded_generation(store: Store) -> int:
    """Up to which generation a store has had all tables; 0 where no version that records it has made the missing ones."""
    if not is_delta_table(store.spark, store.path(STORE_SETTINGS)):
        return 0
    return int(store.delta(STORE_SETTINGS).newest().table_property(GENERATION) or 0)


def _under_lock(store: Store, make: Callable[[], None]) -> None:
    store.expect_now()
    local = local_path(store.uri)
    if local is not None:
        with suppress(OSError):  # Delta's own error says more
            os.makedirs(local, exist_ok=True)  # the lock file lies in it
    under_lock(store.spark, store.uri, make)


def _make_tables(store: Store, tables: Sequence[Table]) -> None:
    def make() -> None:
        missing = _missing(store, TABLES)
        lost = ", ".join(table.name for table in lost_of(missing, recorded_generation(store)))
        if lost:
            raise StoreError(
                f"the store at {store.uri} has lost its table {lost}: nothing was made in its place. Run `commitlake "
                f"validate --store {store.uri}`, which says what to do"
            )
        _make_all(store, [table for table in missing if table in tables])
        if missing and all(table in tables for table in missing):
            _record_generation(store)

    _under_lock(store, make)


def _record_generation(store: Store) -> None:
    """Record that a store has all tables of this version; nothing is written where that is recorded."""
    if recorded_generation(store) >= NEWEST_GENERATION:
        return
    change = f"SET TBLPROPERTIES ('{GENERATION}' = '{NEWEST_GENERATION}')"
    try:
        store.spark.sql(f"ALTER TABLE {delta_table(store.path(STORE_SETTINGS))} {change}")
    except Exception:
        # Another job run has just recorded the same.
        if recorded_generation(store) < NEWEST_GENERATION:
            raise


def _missing(store: Store, tables: Sequence[Table]) -> list[Table]:
    return [table for table in tables if not is_delta_table(store.spark, store.path(table))]


def _make_all(store: Store, missing: Sequence[Table]) -> None:
    """Make tables, the older generations first: where this is cut short, no table that is still missing seems lost."""
    if not missing:
        return
    is_new = len(missing) == len(TABLES)
    session = cloned(store.spark)
    session.conf.set(*NO_QUERY_FOR_FILES)
    with ThreadPoolExecutor(max_workers=4) as pool:
        for generation in sorted({0 if is_new else table.generation for table in missing}):
            each = [table for table in missing if is_new or table.generation == generation]
            list(pool.map(partial(_make, store, session), each))


def _make(store: Store, session: SparkSession, table: Table) -> None:
    builder = (
        DeltaTableBuilder.createIfNotExists(session)
        .location(store.path(table))
        .comment(table.comment)
        .addColumns(table.columns)
        .partitionedBy(*table.partition_by)
    )
    properties = {**PLAIN_DELTA, **CHECKPOINTS, **table.properties}
    if table == STORE_SETTINGS:  # it is made with a new store only, which gets all tables
        properties[GENERATION] = str(NEWEST_GENERATION)
    if table.statistics:
        properties["delta.dataSkippingStatsColumns"] = ",".join(table.statistics)
    for name, value in properties.items():
        builder = builder.property(name, value)
    try:
        _clear_unfinished(store, table)
        builder.execute()
    except Exception:
        # Another job run has just made the same table.
        if not is_delta_table(store.spark, store.path(table)):
            raise


def _clear_unfinished(store: Store, table: Table) -> None:
    """Remove a log without a commit, left by a run killed while it made the table: Delta makes no table over it."""
    target, files = hadoop_path(store.spark, f"{store.path(table)}/_delta_log")
    if not files.exists(target):
        return
    # Under the lock no other run makes the table; without a lock, a commit that another makes now must survive.
    is_alone = local_path(store.uri) is not None
    if not is_alone:
        for status in files.listStatus(target):
            if status.isDirectory() or status.getPath().getName().endswith(".tmp"):
                files.delete(status.getPath(), False)
    files.delete(target, is_alone)
