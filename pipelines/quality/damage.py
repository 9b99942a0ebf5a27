"""Damaged files: what validate finds of them, what `--repair` writes again, what `--cut-damaged` gives up.

The log comes first: the other tables are repaired by it. A repair writes nothing that it cannot prove, and what it replaces
is moved to `_damaged`, not removed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipelines.errors import StoreError
from pipelines.quality.caches import plan_bounds
from pipelines.quality.expectations import COMPLAINTS_KEPT, Finding
from pipelines.quality.promise import Promise
from pipelines.reports.page.words import moment
from pipelines.spark_internals.arrow import frame_of
from pipelines.spark_internals.delta_files import TableFiles, forget_logs, take_out
from pipelines.spark_internals.delta_log import DeltaSnapshot
from pipelines.store.commit import commit
from pipelines.store.create import make_again, make_tables
from pipelines.store.cut_out import LostFiles, cut_out, cut_out_last_append
from pipelines.store.damaged import NEEDED, REBUILT, SET_ASIDE, DamagedTable, damaged_tables
from pipelines.store.epochs import LOG_BEGINS
from pipelines.store.holes import holes_of_log, lost_ends
from pipelines.store.lock import under_lock
from pipelines.store.plan import Plan
from pipelines.store.snapshot import Snapshot, app_id
from pipelines.store.sql_text import quoted_name, text_literal
from pipelines.store.store import Store
from pipelines.store.work import Work
from schemas import (
    COMMITLOG,
    CONSUME_QUEUE,
    CONSUMER_OFFSETS,
    CUT_ROWS,
    DERIVED,
    PROGRESS,
    QUEUE_BOUNDS,
    REJECTED_MESSAGES,
    TABLES,
    Table,
)
from schemas.queue_bounds import LOG_BOUNDS_QUEUE, LOG_TOPIC

SUITE = "files"
FILES = Promise("files", "each table has the files that its log names, as long as they were", "critical")
WOULD_LOSE = Promise("would_lose", "nothing is given up by --cut-damaged", "info")
LOST = Promise("lost", "no part of the log is lost", "info")

# Rows are added to these and follow from nothing in them: without a damaged file the others are as they were.
ADDED_TO = (CUT_ROWS, REJECTED_MESSAGES)
# At most this many of the queues that a cut concerns are listed.
QUEUES_NAMED = 20


def findings_of(damaged: Sequence[DamagedTable]) -> list[Finding]:
    """What validate says of damaged files; empty without any."""
    complaints = [complaint for each in damaged for complaint in each.complaints()]
    if not complaints:
        return []
    return [Finding(SUITE, FILES, len(complaints), len(complaints), tuple(complaints[:COMPLAINTS_KEPT]))]


def holes_found(at: Snapshot) -> list[Finding]:
    """What validate says of parts of the log that were taken out before; empty without any."""
    holes = holes_of_log(at)
    if not holes:
        return []
    complaints = [
        f"bytes {row.from_offset} to {row.to_offset} of the log: {row.reason}; it was taken out on {moment(row.cut_ms)} UTC"
        for row in holes[:COMPLAINTS_KEPT]
    ]
    return [Finding(SUITE, LOST, len(holes), len(holes), tuple(complaints))]


def repair_files(
    run: Work, store: Store, damaged: Sequence[DamagedTable], dispatch: Callable[..., Any]
) -> None:
    """Write again what can be: files of Delta logs, derived tables and caches. The rest stays as it is.

    store  the run's own, which cannot be opened before the Delta log of its settings is whole
    """
    for each in damaged:
        if each.log:
            fix = _set_table_aside if each.table in (*DERIVED, PROGRESS) else _repair_log
            under_lock(store.spark, store.uri, partial(fix, run, store, each))
    forget_logs(store.spark)
    gone = [each for each in damaged if each.table in (*DERIVED, PROGRESS) and (each.log or each.is_gone)]
    damaged = damaged_tables(store)  # with data files of the logs just repaired
    bounds = _bounds_of(damaged)
    others = [each for each in damaged if each.table not in (*DERIVED, PROGRESS, QUEUE_BOUNDS)]
    if any(each.log or each.is_gone for each in others) or (bounds is not None and bounds.log):
        return
    if bounds is not None and _log_of(damaged) is not None and _held_before(store, bounds) is None:
        # The log is needed to write them: they wait for the cut.
        make_again(store, [table for table in TABLES if table != QUEUE_BOUNDS])
    else:
        if bounds is not None:
            _repair_bounds(run, bounds, all(each.table != CONSUMER_OFFSETS for each in damaged))
        make_tables(store)
    if any(each.table == PROGRESS and each.data for each in damaged):
        store_rows = frame_of(store.spark, [], PROGRESS.columns)
        run.commit(lambda at: Plan((at.replace(PROGRESS, store_rows),)))
        run.say("progress: written again from nothing; followers find by the log what is done")
    is_derived = any(each.table in (*DERIVED, PROGRESS) for each in (*gone, *damaged))
    if is_derived and _log_of(damaged) is None:
        dispatch(rebuild=True)
        run.say("consume_queue, message_index, parked, claims: rebuilt from the log")


def cut_damaged_files(
    run: Work, damaged: Sequence[DamagedTable], dispatch: Callable[..., Any], now_ms: int
) -> None:
    """Give up what no file has any more: rows of the log, and the last changes of other tables."""
    store, log = run.store, _log_of(damaged)
    for each in _given_up(damaged):
        run.say(_give_up(store, each, is_dry_run=False))
        run.wrote = True
    if log is not None and log.data:
        damage = cut_out_last_append(store, log)
        if damage is not None:
            run.say(f"{damage}. Its rows are in cut_rows now: run the job that wrote them again")
        for line in _loss(store, log, damaged):
            run.say(line)
        if _bounds_of(damaged) is not None:
            _begin_bounds(run, _lost_files(store, log, damaged))
        cut_out(store, log, _queues_are_whole(damaged), now_ms)
        run.wrote = True
        dispatch(rebuild=True)
        run.say("the rest of the log is as it was; what is derived from it was rebuilt")


def losses_found(store: Store, damaged: Sequence[DamagedTable]) -> list[Finding]:
    """What `--cut-damaged` would give up; nothing is written."""
    said = _losses(store, damaged)
    return [Finding(SUITE, WOULD_LOSE, len(said), len(said), tuple(said))] if said else []


def _losses(store: Store, damaged: Sequence[DamagedTable]) -> list[str]:
    log = _log_of(damaged)
    said = _loss(store, log, damaged) if log is not None and log.data else []
    return said + [_give_up(store, each, is_dry_run=True) for each in _given_up(damaged)]


def _given_up(damaged: Sequence[DamagedTable]) -> list[DamagedTable]:
    """The tables of which --cut-damaged gives something up, but for the log."""
    of_state = [each for each in damaged if each.table not in (*REBUILT, COMMITLOG)]
    return [each for each in of_state if each.data or (each.is_gone and each.table not in NEEDED)]


def _log_of(damaged: Sequence[DamagedTable]) -> DamagedTable | None:
    return next((each for each in damaged if each.table == COMMITLOG), None)


def _bounds_of(damaged: Sequence[DamagedTable]) -> DamagedTable | None:
    return next((each for each in damaged if each.table == QUEUE_BOUNDS), None)


def _lost_files(store: Store, log: DamagedTable, damaged: Sequence[DamagedTable]) -> LostFiles:
    return LostFiles(store.snapshot(), log.data, _queues_are_whole(damaged), _bounds_of(damaged) is None)


def _queues_are_whole(damaged: Sequence[DamagedTable]) -> bool:
    return not any(each.table in (CONSUME_QUEUE, PROGRESS) for each in damaged)


def _loss(store: Store, log: DamagedTable, damaged: Sequence[DamagedTable]) -> list[str]:
    lost = _lost_files(store, log, damaged)
    rows = "an unknown number of" if lost.rows is None else f"{lost.rows}"
    said = [f"commitlog: {rows} messages are lost: {lost.reason}"]
    said += [f"commitlog: bytes {begin} to {end} will have no record" for begin, end in lost.ranges]
    queues = lost.holes(0).where(F.col("topic") != "").orderBy("topic", "queue_id", "from_queue_offset")
    named = queues.limit(QUEUES_NAMED + 1).collect()
    said += [
        f"queue {row.topic}:{row.queue_id}: offsets {row.from_queue_offset} to {row.to_queue_offset - 1} will have "
        "no message"
        for row in named[:QUEUES_NAMED]
    ]
    return said + ["… and further queues"] * (len(named) > QUEUES_NAMED)


def _repair_log(run: Work, store: Store, damaged: DamagedTable) -> None:
    """Write commits of a Delta log again, and do without a checkpoint; where it cannot be, say so."""
    name = damaged.name
    files = TableFiles(store.spark, store.path(damaged.table))
    aside = store.path_of(f"{SET_ASIDE}/{name}")
    for each in damaged.log:
        if each.version is None:
            if not files.can_do_without_checkpoint():
                run.say(f"{name}: the commits before {each.name} are gone too: a backup has the table")
                continue
            files.set_aside(each.name, aside)
            run.say(f"{name}: read without {each.name}, from the commits before it")
            run.wrote = True
            continue
        actions = files.commit_from_checksums(each.version)
        if actions is None and damaged.table == COMMITLOG:  # its commits only add
            actions = files.append_from_data_files(each.version, COMMITLOG.statistics)
        if actions is None:
            run.say(f"{name}: {each.name} {each.wrong}, and no file tells what was in it: a backup has it")
            continue
        files.set_aside(each.name, aside)
        files.write_commit(each.version, actions)
        run.say(f"{name}: {each.name} was written again from the files beside it")
        run.wrote = True


def _set_table_aside(run: Work, store: Store, damaged: DamagedTable) -> None:
    """Move the log of a table that is built from another: the table is made again."""
    store.move(damaged.name, f"{SET_ASIDE}/{damaged.name}")
    run.say(f"{damaged.name}: its Delta log cannot be read; the table was set aside and is made again")
    run.wrote = True


def _repair_bounds(run: Work, damaged: DamagedTable, offsets_are_whole: bool) -> None:
    """Put back the bounds as of an earlier append: the log's later ones are added when they are read.

    offsets_are_whole  whether consumer_offsets can be read
    """
    store = run.store
    before = _held_before(store, damaged)
    if before is not None:
        rows = before.read(store.spark).select(*QUEUE_BOUNDS.names)
    elif offsets_are_whole:
        rows = _read_by_groups(store.snapshot(), store.snapshot().read(COMMITLOG))
    else:
        rows = frame_of(store.spark, [], QUEUE_BOUNDS.columns)
    _expect_no_expiry_since(store.snapshot(), rows)
    make_again(store, [QUEUE_BOUNDS])  # where it is gone
    run.commit(lambda at: Plan((at.replace(QUEUE_BOUNDS, _with_lost_ends(at, rows).coalesce(1)),)))
    if before is None:
        run.commit(lambda at: plan_bounds(at, store.settings))
        run.say("queue_bounds: written again from the records of the log")
    else:
        run.say("queue_bounds: put back as of an earlier append; the log has the later ones")


def _begin_bounds(run: Work, lost: LostFiles) -> None:
    """Write bounds of what the log's rows do not say; the cut adds what is known of all rows, also of the lost ones."""
    _expect_not_after(lost.head.min_offset, LOG_BEGINS)
    rows = _read_by_groups(lost.at, lost.left)
    make_again(run.store, [QUEUE_BOUNDS])
    run.commit(lambda at: Plan((at.replace(QUEUE_BOUNDS, _with_lost_ends(at, rows).coalesce(1)),)))
    run.say("queue_bounds: written again from the log and what is known of its lost rows")


def _read_by_groups(at: Snapshot, log: DataFrame) -> DataFrame:
    """Bounds of queues without messages that groups have read: a broker may have had some, and they are not given again.

    log  its rows that can be read
    """
    read = at.read(CONSUMER_OFFSETS).where(F.col("next_offset") > 0)
    read_to = read.groupBy("topic", "queue_id").agg(F.max("next_offset").alias("end"))
    of_log = log.select("topic", "queue_id").distinct()
    return read_to.join(of_log, ["topic", "queue_id"], "left_anti").select(
        "topic",
        "queue_id",
        F.col("end").alias("min_offset"),
        F.col("end").alias("next_offset"),
        F.lit(-1).cast("long").alias("append_seq"),
    )


def _with_lost_ends(at: Snapshot, bounds: DataFrame) -> DataFrame:
    """Bounds that end neither the log nor a queue before what was cut out: its offsets are not given again."""
    if not holes_of_log(at):
        return bounds
    as_of = F.max("append_seq").over(Window.partitionBy())  # a row a queue
    both = bounds.join(lost_ends(at), ["topic", "queue_id"], "full")
    return both.select(
        "topic",
        "queue_id",
        F.coalesce("min_offset", "lost_end").alias("min_offset"),
        F.greatest("next_offset", "lost_end").alias("next_offset"),
        F.coalesce(as_of, F.lit(-1)).alias("append_seq"),
    )


def _expect_no_expiry_since(at: Snapshot, bounds: DataFrame) -> None:
    """Raises StoreError where messages have expired that came after the bounds: their offsets would be given again."""
    ends = bounds.where((F.col("topic") == LOG_TOPIC) & (F.col("queue_id") == LOG_BOUNDS_QUEUE)).first()
    first = at.read(COMMITLOG).agg(F.min("physical_offset")).collect()[0][0]
    # A broker's log that was imported from a later byte on has lost messages too: they had expired at the broker.
    begins = LOG_BEGINS if ends is None else ends.next_offset
    _expect_not_after(first or 0, begins)


def _expect_not_after(first: int, begins: int) -> None:
    """Raises StoreError where the log's first byte lies after the one from which the bounds of its queues are known."""
    if first > begins:
        raise StoreError(
            "queue_bounds cannot be put back: messages that came after its newest version that is whole have expired, and "
            "nothing else says where their queues ended. Put the table back from a backup"
        )


def _give_up(store: Store, damaged: DamagedTable, is_dry_run: bool) -> str:
    """Read a table without its damaged files, as it was before them, or empty. Returns what that costs, in words."""
    table, names = damaged.table, [file.name for file in damaged.data]
    will = "will be" if is_dry_run else "were" if len(names) > 1 else "was"
    if damaged.is_gone:
        if not is_dry_run:
            make_again(store, [table])
        return f"{table.name}: the table {will} made again without rows, and all it held is lost: {table.comment}"
    if table.numbered_by == "nothing" or table in ADDED_TO:
        if not is_dry_run:
            application = None if table.numbered_by == "nothing" else app_id(table)
            _take_out(store, table, names, application)
        return f"{table.name}: {', '.join(names)} {will} taken out; the table's other rows stay"
    before = _held_before(store, damaged)
    if before is None and table.numbered_by == "group":
        groups = sorted({str(file.partition["group"]) for file in damaged.data})
        if not is_dry_run:
            for group in groups:
                own = [file.name for file in damaged.data if file.partition["group"] == group]
                _take_out(store, table, own, app_id(table, group))
        return f"{table.name}: what {', '.join(groups)} had in {', '.join(names)} {will} lost: nothing earlier is there"
    if before is None:
        raise StoreError(
            f"{table.name}: {', '.join(names)} cannot be given up: no earlier version of the table is whole. Put it back "
            "from a backup"
        )
    if not is_dry_run:
        _put_back(store, damaged, before)
    is_put_back = "will be put back" if is_dry_run else "was put back"
    return (
        f"{table.name}: what it held at {moment(before.last_commit_written_ms)} UTC {is_put_back} in place of "
        f"{', '.join(names)}; what was changed since is lost"
    )


def _take_out(store: Store, table: Table, names: Sequence[str], application: str | None) -> None:
    def once() -> bool:
        last = None if application is None else store.delta(table).newest().number(application)
        numbered = None if application is None or last is None else (application, last + 1)
        return take_out(store.spark, store.path(table), names, numbered, "damaged files taken out")

    if not under_lock(store.spark, store.uri, once):
        raise StoreError(f"another job was writing to {table.name}; run this again")


def _put_back(store: Store, damaged: DamagedTable, before: DeltaSnapshot) -> None:
    table = damaged.table
    rows = before.read(store.spark).select(*table.names)
    if not table.partition_by:
        commit(store, lambda at: Plan((at.replace(table, rows),)))
        return
    for file in damaged.data:  # a handful: of one partition each
        is_it = " AND ".join(
            f"{quoted_name(name)} = {text_literal(str(value))}" for name, value in file.partition.items()
        )
        key = str(file.partition["group"]) if table.numbered_by == "group" else ""
        write = partial(_replaced, table=table, rows=rows.where(is_it), where=is_it, key=key)
        commit(store, write)


def _replaced(at: Snapshot, table: Table, rows: DataFrame, where: str, key: str) -> Plan:
    return Plan((at.replace(table, rows.coalesce(1), where, key=key),))


def _held_before(store: Store, damaged: DamagedTable) -> DeltaSnapshot | None:
    """The newest earlier version of a table whose files, in the partitions that are damaged, are all there."""
    table = damaged.table
    files = TableFiles(store.spark, store.path(table))
    partitions = [file.partition for file in damaged.data]
    for version in reversed(range(max(files.newest, 0))):
        found = store.delta(table).at_version(version)
        if found is None:
            return None
        is_there = any(file.partition in partitions for file in found.all_files(store.spark))
        if is_there and not any(file.partition in partitions for file in files.damaged_data(found)):
            return found
    return None


def damage_left(damaged: Sequence[DamagedTable]) -> str:
    """The sentence with which a run ends on a damaged store."""
    names = ", ".join(each.name for each in damaged)
    return f"files of {names} are missing or damaged; the other promises were not checked. Each file's line says what to do"
