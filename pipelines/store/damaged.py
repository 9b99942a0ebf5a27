"""What is damaged of a store's files, found without reading a row: by the tables' Delta logs and by the lengths of files."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pipelines.spark_internals.delta_files import DataFile, LogDamage, TableFiles
from pipelines.store.create import lost_of, recorded_generation
from pipelines.store.store import Store
from schemas import COMMITLOG, DERIVED, PROGRESS, QUEUE_BOUNDS, STORE_SETTINGS, TABLES, Table

# Nothing brings these back where they are gone, and a store without one of them is not a store.
NEEDED = (COMMITLOG, STORE_SETTINGS)
# Written as a whole or derived: `--repair` writes them again from the log, or from what they held before.
REBUILT = (*DERIVED, PROGRESS, QUEUE_BOUNDS)
# Where the files of what was set aside go.
SET_ASIDE = "_damaged"


@dataclass(frozen=True)
class DamagedTable:
    """A table some of whose files are missing or damaged.

    is_gone  there is no log of it at all
    log      damage of its Delta log: then nothing is known of its data files
    data     data files of its newest version
    """

    table: Table
    is_gone: bool = False
    log: Sequence[LogDamage] = ()
    data: Sequence[DataFile] = field(default=())

    @property
    def name(self) -> str:
        return self.table.name

    def complaints(self) -> list[str]:
        """What is wrong, file by file, and what to do next."""
        if self.is_gone:
            return [f"{self.name}: the table's directory is gone; {self.remedy()}"]
        found = [f"{self.name}: _delta_log/{each.name} {each.wrong}" for each in self.log]
        found += [f"{self.name}: {in_words(each, self.table)}" for each in self.data]
        return [f"{each}; {self.remedy()}" for each in found]

    def remedy(self) -> str:
        """What to do next, in words."""
        if self.table in DERIVED:
            return "--repair builds the table again from the log"
        if self.table == PROGRESS:
            return "--repair writes it again from nothing; followers start again and find by the log what is done"
        if self.is_gone and self.table in NEEDED:
            return "a backup has the table; nothing else can bring it back"
        if self.is_gone and self.table == QUEUE_BOUNDS:
            return "put it back from a backup; else --repair writes it again from the log"
        if self.is_gone:
            return "put it back from a backup; else --cut-damaged makes the table again without rows"
        if self.log:
            return "--repair writes the log's file again where the files beside it tell what was in it"
        if self.table == QUEUE_BOUNDS:
            return "--repair puts back what it held before and adds what the log has had since"
        if self.table == COMMITLOG:
            return "put the file back from a backup; else --cut-damaged takes it out of the log and keeps the rest"
        return "put the file back from a backup; else --cut-damaged puts back what the table held before"


def in_words(file: DataFile, table: Table) -> str:
    """A damaged data file, and which rows are concerned.

    >>> in_words(DataFile("segment=0/a.parquet", 500, 120, {}, {}), COMMITLOG)
    'the file segment=0/a.parquet has 120 bytes and must have 500'
    """
    found = "is missing" if file.found is None else f"has {file.found} bytes and must have {file.size}"
    said = f"the file {file.name} {found}"
    if file.rows is not None:
        said += f": {file.rows} row" + ("" if file.rows == 1 else "s")
    first, last = file.least("physical_offset"), file.greatest("physical_offset")
    if table == COMMITLOG and first is not None:
        said += f" from byte {first} to the record at byte {last}"
        topics = {file.least("topic"), file.greatest("topic")}
        said += f" (appends {file.least('append_seq')} to {file.greatest('append_seq')}, "
        said += f"topic {topics.pop()})" if len(topics) == 1 else f"topics {min(topics)} to {max(topics)})"
    return said


def damage_in_words(damaged: Sequence[DamagedTable], uri: str) -> str:
    """The first damage, where it lies, and what to do; for a job that has met it."""
    complaints = [complaint for each in damaged for complaint in each.complaints()]
    first, more = complaints[0].rpartition("; ")[0], len(complaints) - 1
    others = f", and {more} more" if more else ""
    return (
        f"{first}{others}. Nothing was lost by this run; run `commitlake validate --store {uri}`, which lists what is "
        "damaged and says what to do"
    )


def damaged_tables(store: Store) -> list[DamagedTable]:
    """The tables whose files are missing or damaged; a table that a newer version adds is not."""
    with ThreadPoolExecutor(4) as pool:
        found = [
            each for each in pool.map(lambda table: _damage_of(store, table), TABLES) if each is not None
        ]
    # What a damaged log records is compared once the log is whole.
    is_readable = all(each.table != STORE_SETTINGS for each in found if each.is_gone or each.log)
    recorded = recorded_generation(store) if is_readable else 0
    lost = lost_of([each.table for each in found if each.is_gone], recorded)
    return [each for each in found if not each.is_gone or each.table in lost or _is_needed(store, each.table)]


def _is_needed(store: Store, table: Table) -> bool:
    return table in NEEDED or (table in (*DERIVED, PROGRESS) and _has_messages(store))


def is_a_store(store: Store) -> bool:
    """Whether there is something of a store: of its log or of its settings."""
    return any(TableFiles(store.spark, store.path(table)).newest >= 0 for table in NEEDED)


def _has_messages(store: Store) -> bool:
    """Whether the log was ever appended to: its first version makes the table."""
    return TableFiles(store.spark, store.path(COMMITLOG)).newest > 0


def _damage_of(store: Store, table: Table) -> DamagedTable | None:
    files = TableFiles(store.spark, store.path(table))
    if files.newest < 0:
        return DamagedTable(table, is_gone=True)
    log = files.log_damage()
    if log:
        return DamagedTable(table, log=log)
    data = files.damaged_data()
    return DamagedTable(table, data=data) if data else None
